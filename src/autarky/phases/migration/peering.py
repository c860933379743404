"""Certificates with which control nodes join an etcd outside as its peers.

Where that has another CA, the members on control nodes run with a borrowed certificate until the others have left: one
of that CA, and both CAs are trusted. TRUSTED says so on the host: the node's agent neither renews nor replaces such a
certificate. etcd reads certificates at each handshake, and CAs at its start: a member trusts the other CA until it is
restarted.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.errors import UserError
from autarky.etcd.tools import EtcdTools, Place
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases.context import Context
from autarky.phases.files import changed_files
from autarky.phases.migration.looking import Peers
from autarky.phases.prepare import missing_leaves, write_leaves
from autarky.pki.issue import Pair, read_pair
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


async def forget(host: Host) -> None:
    """What was borrowed, of a member that is no longer there: no later one trusts that CA, unless it is asked to."""
    if await host.read(TRUSTED) is not None:
        await host.remove([*_PEER, TRUSTED])


async def is_borrowed(context: Context, node: Node) -> bool:
    return await context.host(node).read(TRUSTED) is not None


async def borrowed_tools(context: Context) -> EtcdTools | None:
    """With such a certificate, which the members outside accept of clients as well; None where none is borrowed."""
    place = Place(ca=TRUSTED, certificate=_PEER[0], key=_PEER[1])
    for node in context.cluster.initial_members:
        if await is_borrowed(context, node):
            return EtcdTools(context.host(node), place=place)
    return None


async def give_back(context: Context) -> None:
    """Certificates of their own to all, and only then no CA but their own: one that is started in between must accept
    the others, whichever they have."""
    inputs = context.inputs()
    nodes = [node for node in context.cluster.initial_members if await is_borrowed(context, node)]
    for node in nodes:
        peer = [one for one in render_node.leaf_files(inputs, node) if one.path in _PEER]
        await context.host(node).write_files(peer)
    for node in nodes:
        await context.host(node).write_files(etcd.beginning(inputs))
        await context.host(node).remove([TRUSTED])


def refuse_unfit(context: Context, peers: Peers | None) -> None:
    """UserError where the certificate cannot be that of a peer on each of the control nodes."""
    if peers is None:
        return
    try:
        certificate, _ = read_pair(Pair(peers.certificate, peers.key))
        authority = x509.load_pem_x509_certificate(peers.ca)
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        why = str(error) or "it is not signed by that CA"
        raise UserError(f"--peer-cert, --peer-key and --peer-ca do not belong together: {why}", fix=_FIX) from error
    wrong = [*_not_valid(context, certificate), *_not_for(context, certificate)]
    if wrong:
        raise UserError(f"the certificate of --peer-cert cannot be used: {'; '.join(wrong)}", fix=_FIX)


_FIX = "issue one of that CA, for servers and clients, with the addresses of all control nodes"


def _not_valid(context: Context, certificate: x509.Certificate) -> list[str]:
    now = datetime.fromtimestamp(context.clock.time(), UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return [] if begin <= now <= end else [f"it is valid from {begin} to {end}"]


def _not_for(context: Context, certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        has = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    except x509.ExtensionNotFound:
        has = set()
    lacks = sorted({node.known_address() for node in context.cluster.initial_members} - has)
    wrong = [f"it lacks the addresses {', '.join(lacks)}"] if lacks else []
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return wrong
    needed = {"servers": ExtendedKeyUsageOID.SERVER_AUTH, "clients": ExtendedKeyUsageOID.CLIENT_AUTH}
    return wrong + [f"it is not for {name}" for name, use in needed.items() if use not in uses]
