"""What `up` renders from and this state directory lacks, or has in an older form: borrowed from a control node.

After `autarky login` a state directory has the cluster's CA and an administrator's certificate, and no other key. What
`up` compares Secrets and control nodes' files with is read from a control node over the connection to its host, into
memory, and never written here. The machine that created the cluster gets in this way what another machine has issued.

Contract: no host lends because of what it says of itself. It is a control node of the file, or one by the label in the
API; its CA key belongs to the CA certificate that is here, which is used in place of its own.
"""

from __future__ import annotations

import asyncio

from autarky import places
from autarky.errors import Unreachable
from autarky.model.cluster import Node
from autarky.model.fingerprint import fingerprint
from autarky.phases.context import Context
from autarky.pki.store import fit_together
from autarky.ports import Host
from autarky.render import cluster_record

ROOTS = (
    "ca.crt",
    "ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
    "sa.pub",
    "etcd/ca.crt",
    "etcd/ca.key",
)


async def borrow(context: Context) -> None:
    """Ask the control nodes, initial members first, until one lends. Unreachable if something is needed and none
    lends."""
    context.lender = None
    context.pki.lend({})
    for node in _candidates(context):
        host = context.machines.host(node.name)
        lent = await _lent_by(context, host) if host is not None else {}
        if lent:
            context.pki.lend(lent)
            context.lender = node.name
            return
    if context.pki.borrows:
        raise Unreachable(
            f"this state directory does not have the CA key of cluster {context.cluster.name} (`autarky login` never "
            "copies it), and no control node that has it answers: power one on"
        )


def _candidates(context: Context) -> list[Node]:
    """Control nodes that answer; those that are workers in the file only if this machine has no keys."""
    nodes = [node for node in context.present(context.trusted_control_nodes) if node.name in context.owners]
    nodes.sort(key=lambda node: (not node.initial_member, not node.control_plane))
    return [node for node in nodes if node.control_plane or context.pki.borrows]


async def _lent_by(context: Context, host: Host) -> dict[str, bytes]:
    keys = cluster_record.read_keys(await host.read(places.CLUSTER_KEYS))
    if not context.pki.borrows:
        return keys
    read = await asyncio.gather(*(host.read(f"{places.PKI}/{name}") for name in ROOTS))
    roots = {name: content for name, content in zip(ROOTS, read, strict=True) if content is not None}
    if "ca.key" not in roots or fingerprint(roots.get("ca.crt")) != context.ours.ca:
        return {}
    roots["ca.crt"] = context.pki.files()["ca.crt"]
    return keys | roots if fit_together(roots) else {}
