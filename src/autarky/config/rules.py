"""Rules across several values: nodes, networks, etcd and certificates must fit together.

Contract: pure; each rule gets a part of the file whose values are valid by themselves and yields what is
wrong, with places below that part. The schema runs a rule as soon as its part is well-formed, whatever is
wrong elsewhere, so that as much as possible is reported in one pass.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autarky.config.syntax import Wrong
from autarky.model import kubelets
from autarky.model.cluster import CONTROL_PLANE_ROLE, MOST_DAYS, MOST_SOAK_SECONDS
from autarky.model.etcd_members import is_own_flag
from autarky.model.levels import HostedLevels, Level

if TYPE_CHECKING:
    from autarky.config.pools import PoolKubeletPart, PoolPart
    from autarky.config.schema import (
        CertificatesPart,
        ExternalEtcdPart,
        NetworkPart,
        NodePart,
        SpecPart,
        UpgradePart,
    )

NODE_MASK = 24
"""Every node gets a block of this size of the pod network (the controller manager's default)."""
LARGEST_POD_NETWORK = 8
"""The controller manager divides a network into at most 2^16 blocks."""
SMALLEST_SERVICE_NETWORK = 27
"""Cluster DNS has the tenth address of the service network; the rest is for Services."""


# --- nodes ----------------------------------------------------------------------------------------


def judge_nodes(nodes: Sequence[NodePart]) -> Iterator[Wrong]:
    yield from _unique_nodes(nodes)
    yield from _a_control_node(nodes)
    yield from _room_for_dns(nodes)


def _unique_nodes(nodes: Sequence[NodePart]) -> Iterator[Wrong]:
    seen: set[tuple[str, str]] = set()
    for number, node in enumerate(nodes):
        for key, value, fix in (
            ("name", node.name, "give each node a name of its own"),
            ("host", machine(node), "give each node a machine of its own"),
            ("address", node.address, "give each node an address of its own"),
        ):
            if value is None:
                continue
            if (key, value) in seen:
                yield Wrong((number, key), f"a second node {'' if key == 'name' else 'on '}{value}", fix)
            seen.add((key, value))


def machine(node: NodePart) -> str:
    """The machine of a node, written in full: `lab` is the test host of the node's name."""
    return f"lab:{node.name}" if node.host == "lab" else node.host


def is_control(nodes: Sequence[NodePart], number: int) -> bool:
    """Whether that node is a control node; a single node is one unless the file says otherwise."""
    roles = nodes[number].roles
    return "control-plane" in roles if roles is not None else len(nodes) == 1


def _a_control_node(nodes: Sequence[NodePart]) -> Iterator[Wrong]:
    control = [number for number in range(len(nodes)) if is_control(nodes, number)]
    if not control:
        yield Wrong((), "no node has the role control-plane", "add `roles: [control-plane, worker]` to one")


def _room_for_dns(nodes: Sequence[NodePart]) -> Iterator[Wrong]:
    """Cluster DNS needs a node that it can run on; a single node is never tainted. If all nodes have the taint of
    control nodes, the user's pods wait for a worker, which may join later."""
    if len(nodes) == 1 and nodes[0].taints:
        yield Wrong((0, "taints"), "a single node must not be tainted: nothing could run", "remove the taints")
    elif all(any(taint.as_taint().repels_dns for taint in node.taints) for node in nodes):
        what = "cluster DNS could not run: every node has a taint that it does not tolerate"
        yield Wrong((), what, f"leave one node without taints, or with only the taint {CONTROL_PLANE_ROLE}")
    for number, node in enumerate(nodes):
        effects = [(taint.key, taint.effect) for taint in node.taints]
        for position, effect in enumerate(effects):
            if effect in effects[:position]:
                what = f"a second taint {effect[0]} with the effect {effect[1]}"
                yield Wrong((number, "taints", position), what, "remove one of them")


# --- networks -------------------------------------------------------------------------------------


def judge_network(network: NetworkPart) -> Iterator[Wrong]:
    pods, services = networks(network)
    if pods.prefixlen >= NODE_MASK:
        yield Wrong(("podCIDR",), f"{pods} is too small: every node gets a /{NODE_MASK} of it", "use /23 or larger")
    if pods.prefixlen < LARGEST_POD_NETWORK:
        yield Wrong(("podCIDR",), f"{pods} is too large", f"use /{LARGEST_POD_NETWORK} or smaller")
    if services.prefixlen > SMALLEST_SERVICE_NETWORK:
        yield Wrong(("serviceCIDR",), f"{services} is too small", f"use /{SMALLEST_SERVICE_NETWORK} or larger")
    if pods.overlaps(services):
        yield Wrong((), f"podCIDR {pods} and serviceCIDR {services} overlap", "separate them")


def networks(network: NetworkPart) -> tuple[ipaddress.IPv4Network, ipaddress.IPv4Network]:
    """The networks of pods and of services."""
    return ipaddress.IPv4Network(network.pod_cidr), ipaddress.IPv4Network(network.service_cidr)


# --- certificates ---------------------------------------------------------------------------------


def judge_certificates(certificates: CertificatesPart) -> Iterator[Wrong]:
    """A CA of the user's own has its own lifetime."""
    if certificates.ca_directory is None and certificates.leaf_days > certificates.ca_days:
        what = f"{certificates.leaf_days} days exceed the CA's {certificates.ca_days} days"
        yield Wrong(("leafDays",), what, "use less than caDays")
    for key, text, least in (
        ("leafLifetime", certificates.leaf_lifetime, LEAST_LEAF_SECONDS),
        ("kubeletLifetime", certificates.kubelet_lifetime, LEAST_KUBELET_SECONDS),
    ):
        if text is None:
            continue
        if seconds(text) < least:
            yield Wrong((key,), f"{text} is too short", f"use {least // 60}m or more")
        if certificates.ca_directory is None and seconds(text) > certificates.ca_days * 86400:
            yield Wrong((key,), f"{text} exceeds the CA's {certificates.ca_days} days", "use less than caDays")
        elif seconds(text) > MOST_DAYS * 86400:
            yield Wrong((key,), f"{text} is too long", f"use {MOST_DAYS * 24}h or less")


LEAST_LEAF_SECONDS = 6 * 60
"""A third of it, in which a leaf is renewed, must be longer than any part of Kubernetes takes to read it again."""
LEAST_KUBELET_SECONDS = 10 * 60
"""The API server refuses less (`expirationSeconds` of a CertificateSigningRequest)."""


def seconds(lifetime: str) -> int:
    """Of "90m" or "720h"."""
    return int(lifetime[:-1]) * {"m": 60, "h": 3600}[lifetime[-1]]


# --- upgrades -------------------------------------------------------------------------------------


def judge_upgrade(upgrade: UpgradePart) -> Iterator[Wrong]:
    if upgrade.soak is not None and seconds(upgrade.soak) > MOST_SOAK_SECONDS:
        yield Wrong(("soak",), f"{upgrade.soak} is too long", f"use {MOST_SOAK_SECONDS // 3600}h or less")


# --- pools ----------------------------------------------------------------------------------------


def judge_pool(pool: PoolPart) -> Iterator[Wrong]:
    """What `control.kubelet.decide.pools` refuses, in its words. There one mistake leaves all kubelets as they are."""
    control, labels = pool.nodes.control_plane, pool.nodes.match_labels
    if len(labels) > kubelets.MOST_LABELS:
        what = f"nodes.matchLabels is no object of at most {kubelets.MOST_LABELS} texts"
        yield Wrong(("nodes", "matchLabels"), what, "select the nodes by fewer labels")
    if pool.name in (kubelets.WORKERS, kubelets.CONTROL_NODES):
        is_control = pool.name == kubelets.CONTROL_NODES
        if labels or control is not is_control:
            what = f"this name is for all {pool.name.replace('-', ' ')} that no other pool has"
            fix = "write `nodes: {controlPlane: true}`" if is_control else "leave `nodes` out"
            yield Wrong(("nodes",), what, f"{fix}, or choose another name")
    elif not labels and not control:
        what = "it says of no node that it is in it"
        yield Wrong(("nodes",), what, "add `nodes: {matchLabels: {KEY: VALUE}}`, or `nodes: {controlPlane: true}`")


def judge_pool_kubelet(kubelet: PoolKubeletPart) -> Iterator[Wrong]:
    settings = kubelet.configuration
    if len(settings) > kubelets.MOST_SETTINGS:
        what = f"kubelet.configuration is no object of at most {kubelets.MOST_SETTINGS} settings"
        yield Wrong(("configuration",), what, "set fewer")
    for name in sorted(settings.keys() & kubelets.NOT_OURS):
        what = f"kubelet.configuration sets {name}, which is autarky's"
        yield Wrong(("configuration", name), what, "leave it out")


def judge_pools(pools: Sequence[PoolPart]) -> Iterator[Wrong]:
    if len(pools) > kubelets.MOST_POOLS:
        yield Wrong((), f"it is no list of at most {kubelets.MOST_POOLS} pools", "put nodes into fewer pools")
    names = [pool.name for pool in pools]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Wrong((number, "name"), f"two pools have the name {name}", "give each pool a name of its own")


# --- etcd -----------------------------------------------------------------------------------------


def judge_external_etcd(external: ExternalEtcdPart) -> Iterator[Wrong]:
    own = {
        "endpoints": external.endpoints,
        "caFile": external.ca_file,
        "certFile": external.cert_file,
        "keyFile": external.key_file,
    }
    given = [key for key, value in own.items() if value]
    missing = [key for key, value in own.items() if not value]
    if external.lab is not None and given:
        yield Wrong((given[0],), "lab and endpoints are mutually exclusive", "keep one of them")
    if external.lab is None and missing:
        fix = "give all of endpoints, caFile, certFile, keyFile; or `lab: NAME` for a test host"
        yield Wrong((), f"missing: {', '.join(missing)}", fix)
    for number, endpoint in enumerate(external.endpoints):
        if endpoint in external.endpoints[:number]:
            yield Wrong(("endpoints", number), f"duplicate endpoint {endpoint}", "remove one of them")


# --- between the parts ----------------------------------------------------------------------------


def judge_spec(spec: SpecPart) -> Iterator[Wrong]:
    yield from _etcd_outside_of_the_cluster(spec)
    yield from _version_of_an_etcd_of_ours(spec)
    yield from _etcd_stays_itself(spec)
    yield from _addresses_outside_of_the_networks(spec)
    yield from _pod_blocks_for_all_nodes(spec)


def _etcd_outside_of_the_cluster(spec: SpecPart) -> Iterator[Wrong]:
    external = spec.etcd.external
    if external is None:
        return
    levels = HostedLevels.parse(spec.self_hosted)
    if levels.hosts(Level.ETCD):
        what = f"external etcd cannot be combined with selfHosted {spec.self_hosted}, which hosts etcd"
        instead = HostedLevels(Level.API_SERVER, kubelet=levels.kubelet)
        yield Wrong(("etcd", "external"), what, f'use selfHosted: "{instead}"')
    for node in spec.nodes:
        if external.lab is not None and (external.lab == node.name or machine(node) == f"lab:{external.lab}"):
            yield Wrong(("etcd", "external", "lab"), f"{external.lab} is already a node", "give etcd a host of its own")


def _version_of_an_etcd_of_ours(spec: SpecPart) -> Iterator[Wrong]:
    if spec.etcd.external is not None and spec.etcd.version is not None:
        what = "the version of an external etcd is changed where it runs"
        yield Wrong(("etcd", "version"), what, "leave it out")


def _etcd_stays_itself(spec: SpecPart) -> Iterator[Wrong]:
    """`up` and the agents rely on who a member is, which members it forms a cluster with and where its data is: a
    member that is not where it should be counts as lost, and one that starts from scratch is a different cluster."""
    for name in spec.extra_args.get("etcd", {}):
        if is_own_flag(name):
            what = f"--{name} of etcd cannot be set: autarky manages who the members are and where their data is"
            yield Wrong(("extraArgs", "etcd", name), what, "leave it out")


def _addresses_outside_of_the_networks(spec: SpecPart) -> Iterator[Wrong]:
    """kube-proxy drops traffic to an unallocated service address, even if it is a host's."""
    for number, node in enumerate(spec.nodes):
        for key, network in zip(("podCIDR", "serviceCIDR"), networks(spec.network), strict=True):
            if node.address is not None and ipaddress.IPv4Address(node.address) in network:
                what = f"{node.address} lies inside {key} {network}"
                yield Wrong(("nodes", number, "address"), what, f"choose another network.{key}")


def _pod_blocks_for_all_nodes(spec: SpecPart) -> Iterator[Wrong]:
    pods, _ = networks(spec.network)
    blocks = 2 ** (NODE_MASK - pods.prefixlen)
    if len(spec.nodes) > blocks:
        what = f"{pods} has room for {blocks} nodes, but there are {len(spec.nodes)}"
        yield Wrong(("network", "podCIDR"), what, f"use a larger one: every node gets a /{NODE_MASK} of it")
