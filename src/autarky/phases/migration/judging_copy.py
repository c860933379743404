"""Whether etcd can be copied into the cluster: beyond what is asked of every move, before anything is touched."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

from autarky import places
from autarky.control.etcd.decide.maintenance import NEARLY_FULL
from autarky.control.etcd.decide.template import DEFAULT_QUOTA, QUOTA
from autarky.errors import CommandFailed, Refused, Unreachable, UserError
from autarky.etcd.tools import ROOT, EtcdTools
from autarky.model.components import ETCD
from autarky.payload import etcd_version
from autarky.phases.context import Context
from autarky.phases.migration import pausing
from autarky.phases.migration.looking import ALL_ARE_THERE, on_nodes, place_of_standby
from autarky.phases.migration.marking import FENCE, ONE_ETCD
from autarky.phases.recovery.choosing import SPARE

_VERSIONS = "an etcd starts from data that it understands"
_ROOM = "a copy leaves the node's disk room"
_FREE = 'until [ -d "$1" ]; do set -- "${1%/*}/"; set -- "${1%/}"; done; df --output=avail -B1 "$1" | tail -n 1'
"""DIRECTORY: of the file system that it is on, or will be."""


async def refuse(context: Context, tools: EtcdTools) -> None:
    """tools: of the etcd outside."""
    await refuse_joined(context, tools)
    members = (await tools.membership()).members
    said = await tools.statuses([url for one in members for url in one.client_urls])
    if not said:
        raise Refused(ALL_ARE_THERE, "no member of etcd says its version", "see `autarky status`, and run it again")
    ours = str(etcd_version(context.release)).removeprefix("v")
    for url, one in said.items():
        why = pausing.why_not_that_version(one.version, ours)
        if why is not None:
            raise Refused(
                _VERSIONS, f"the member at {url}: {why}", "set spec.etcd.version, or change the version there first"
            )
    await _refuse_alarms(tools)
    await _refuse_users(tools)
    await _refuse_identity(context)
    size = max(one.db_size for one in said.values())
    _refuse_quota(context, size)
    await _refuse_full_disk(context, size)


async def refuse_joined(context: Context, tools: EtcdTools) -> None:
    """A move by members that join was begun before; or it is all done."""
    membership = await tools.membership()
    nodes = on_nodes(context, membership)
    if nodes and len(nodes) < len(membership.members):
        raise Refused(
            ONE_ETCD,
            f"{', '.join(sorted(node.name for node in nodes.values()))} has joined etcd already",
            "go on without --copy",
        )


async def _refuse_alarms(tools: EtcdTools) -> None:
    alarms = await tools.alarms()
    if alarms:
        kinds = ", ".join(sorted({one.kind for one in alarms}))
        raise Refused(FENCE, f"etcd has the alarm {kinds}", "clear it, and run it again")


async def _refuse_users(tools: EtcdTools) -> None:
    """With authentication, or users for it, its owner has plans of his own: who may do what would be copied, too."""
    try:
        users, on = await tools.users(), await tools.has_authentication()
    except CommandFailed as error:
        users, on = (str(error),), True
    if users or on:
        seen = "its authentication is on" if on else f"it has the users {', '.join(users)}"
        raise Refused(
            FENCE,
            f"etcd is made to refuse everybody by its own authentication, and {seen}",
            "remove its users, or let members join instead (--peer-cert)",
        )


async def _refuse_identity(context: Context) -> None:
    """A client certificate is a user as well, by its name: no fence for one that is named `root`."""
    for node in context.control_nodes:
        host = context.host(node)
        place = await place_of_standby(host)
        pem = None if place is None else await host.read(f"{place.pki}/{place.certificate}")
        if pem is None:
            raise Unreachable(f"{node.name} does not say with which certificate its API server uses etcd")
        try:
            names = x509.load_pem_x509_certificate(pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except ValueError as error:
            raise UserError(f"the API servers' certificate for etcd cannot be read: {error}") from error
        if any(name.value == ROOT for name in names):
            raise Refused(
                FENCE,
                "the API servers' client certificate is that of etcd's user root, whom etcd never refuses",
                "give them another one (spec.etcd.external.certFile), and run it again",
            )


def _refuse_quota(context: Context, size: int) -> None:
    """In a copy that is nearly full nothing could be written, and nobody would get out of it."""
    asked = context.cluster.extra_args.get(ETCD, {}).get(QUOTA, "")
    quota = int(asked) if asked.isdecimal() and int(asked) else DEFAULT_QUOTA
    if size > NEARLY_FULL * quota:
        raise Refused(
            _ROOM,
            f"the database of etcd has {size:,} bytes, and the quota of the control nodes' is {quota:,}",
            f"set spec.extraArgs.{ETCD}.{QUOTA}, or defragment the etcd outside, and run it again",
        )


async def _refuse_full_disk(context: Context, size: int) -> None:
    node = context.first
    said = (await context.host(node).run(["sh", "-c", _FREE, "sh", places.ETCD_DATA])).text
    needed = int(size * pausing.SPACE) + SPARE
    if said.isdecimal() and int(said) < needed:
        raise Refused(
            _ROOM,
            f"{places.ETCD_DATA} on {node.name} has {int(said):,} bytes free, and the copy needs {needed:,}",
            "free that space, or give etcd a disk of its own there, and run it again",
        )
