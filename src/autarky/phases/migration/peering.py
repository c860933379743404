"""Certificates with which control nodes join an etcd outside as its peers.

Where that has another CA, the members on control nodes run with a borrowed certificate until the others have left: one
of that CA, and both CAs are trusted. TRUSTED says so on the host: the node's agent neither renews nor replaces such a
certificate. etcd reads certificates at each handshake, and CAs at its start: a member trusts the other CA until it is
restarted.
"""

from __future__ import annotations

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases.context import Context
from autarky.phases.files import changed_files
from autarky.phases.migration.looking import Peers
from autarky.phases.prepare import missing_leaves, write_leaves
from autarky.ports import Host
from autarky.render import node as render_node

TRUSTED = places.ETCD_PEERS_CA
_PEER = (f"{etcd.PKI}/peer.crt", f"{etcd.PKI}/peer.key")


async def prepare(context: Context, node: Node, peers: Peers | None) -> None:
    """The certificates of a member, and those with which the load balancer and the API servers reach it."""
    host, inputs = context.host(node), context.inputs()
    own = inputs.credentials["etcd/ca.crt"]
    files = [*render_node.ca_files(inputs), *(one for one in nllb.files(inputs, node) if one.path == nllb.ETCD_CA_PATH)]
    leaves = await missing_leaves(context, host, node)
    if peers is not None:
        files += [File(TRUSTED, own.rstrip() + b"\n" + peers.ca, 0o600), *_borrowed(peers)]
        leaves = [one for one in leaves if one.path not in _PEER]
    await host.write_files(await changed_files(host, files))
    await write_leaves(host, leaves)


def _borrowed(peers: Peers) -> list[File]:
    return [File(path, content, 0o600) for path, content in zip(_PEER, (peers.certificate, peers.key), strict=True)]


async def trust(host: Host) -> None:
    """Its own copy of the CAs, with which a member starts (`etcd.PEER_CA`)."""
    content = await host.read(TRUSTED)
    if content is not None:
        await host.write_files([File(etcd.PEER_CA, content, 0o600)])


async def trusted(host: Host) -> str:
    """The file with what its member trusts as the CA of its peers."""
    return TRUSTED if await host.read(TRUSTED) is not None else "ca.crt"


async def is_borrowed(context: Context, node: Node) -> bool:
    return await context.host(node).read(TRUSTED) is not None


async def own(context: Context, node: Node) -> None:
    """Its own certificate, if it was borrowed, and only its own CA."""
    host, inputs = context.host(node), context.inputs()
    if await is_borrowed(context, node):
        peer = [one for one in render_node.leaf_files(inputs, node) if one.path in _PEER]
        await host.write_files([*peer, *etcd.beginning(inputs)])
        await host.remove([TRUSTED])
