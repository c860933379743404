"""Everything that would keep a cluster from coming up on these hosts, each finding with its remedy.

Contract: pure. `checks` runs every check of CHECKS on what was seen; a check never acts and never stops the others. An
error may be demoted to a warning by its name. Nodes whose host already runs this cluster (`ours`) are not refused for
effects of the cluster itself: their ports are in use, their disk fills. What is wrong with a worker that joined before
refuses nothing for the others (`judge`): root there may have its host say it.

Sources of the limits: kubeadm requires 1700 MB on a control node; a server whose clock is a minute ahead of the others
is taken out of service, so half of that is an error here.
"""

from __future__ import annotations

import difflib
import ipaddress
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from autarky.control.addons import ADD_ONS
from autarky.model import ports
from autarky.model.cluster import Cluster, Cni, Node
from autarky.model.facts import HostFacts

GIB = 1024**3
MIB = 1024**2
KUBELET_WANTS_FREE = 0.15
"""Fraction of the disk: the kubelet's default threshold for `imagefs.available`, the higher of the two."""
CLOCK_WARNING = 2.0
CLOCK_ERROR = 30.0
"""Seconds between the clocks of hosts."""
SHORT_LIFE = 3600
"""Minimum lifetime of certificates, in seconds, without a warning."""
NOWHERE: Mapping[str, str | None] = MappingProxyType({})
Facts = Mapping[str, HostFacts]
Severity = Literal["error", "warning"]

EVERY_NODE_PORTS = (
    ports.NLLB_API,
    ports.NLLB_HEALTH,
    ports.KUBELET,
    *(port for addon in ADD_ONS for port in addon.ports),
)
CONTROL_PORTS = (
    ports.API_HOSTED,
    ports.API_STANDBY,
    ports.CONTROLLER_MANAGER_HOSTED,
    ports.CONTROLLER_MANAGER_STANDBY,
    ports.SCHEDULER_HOSTED,
    ports.SCHEDULER_STANDBY,
)
ETCD_PORTS = (ports.NLLB_ETCD, ports.ETCD_CLIENT, ports.ETCD_PEER, ports.ETCD_HEALTH)


@dataclass(frozen=True, slots=True)
class Finding:
    """name: that of the check; host: empty when the finding is about the cluster file; other: the host with which that
    one shares what it should not: either may be the wrong one."""

    name: str
    severity: Severity
    host: str
    what: str
    remedy: str
    other: str = ""


Found = Iterator[tuple[Severity, str, str, str] | tuple[Severity, str, str, str, str]]
"""What a check yields: severity, host, what was seen, the remedy, and the other host, if there is one."""


def _address_inside_cluster_networks(cluster: Cluster, facts: Facts, ours: Collection[str]) -> Found:
    """A service network that contains a host's address makes kube-proxy drop the traffic to that host. Where users
    bring the pod network, its routes on our hosts are expected."""
    networks = {"serviceCIDR": cluster.network.service_cidr, "podCIDR": cluster.network.pod_cidr}
    for name, seen in facts.items():
        inside = [key for key, network in networks.items() if ipaddress.IPv4Address(seen.address) in network]
        for key in inside:
            yield (
                "error",
                name,
                f"its address {seen.address} lies inside {key} {networks[key]}",
                f"choose another {key}",
            )
        theirs = {"podCIDR"} if cluster.network.cni is Cni.NONE and name in ours else set()
        for route in filter(None, map(_route, seen.networks)):
            for key, network in networks.items():
                if key not in {*inside, *theirs} and route.overlaps(network):
                    yield "error", name, f"its route to {route} overlaps {key} {network}", f"choose another {key}"


def _route(text: str) -> ipaddress.IPv4Network | None:
    """A route that pods or services could collide with.

    None for a route that leads nowhere ("blackhole 10.0.0.0/8" is reported as "blackhole"), and for the two halves of
    the address space, by which VPNs replace the default route: every other route takes precedence over them.
    """
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        return None
    return network if network.prefixlen > 1 else None


def _port_in_use(cluster: Cluster, facts: Facts, ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if name in ours:
            continue  # they are our own
        for port in sorted(seen.listening_ports.intersection(needed_ports(cluster, cluster.node(name)))):
            yield "error", name, f"port {port} is in use", f"stop what listens there: ss -lntp 'sport = :{port}'"


def needed_ports(cluster: Cluster, node: Node) -> set[int]:
    """The TCP ports that autarky's components listen on, on this node."""
    wanted = {*EVERY_NODE_PORTS, *([ports.KUBELET_HOSTED_HEALTH] if cluster.hosts_kubelet else [])}
    if node.control_plane:
        wanted.update(CONTROL_PORTS)
        if cluster.external_etcd is None:
            wanted.update(ETCD_PORTS)
    return wanted


def _kernel_features(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        for feature in seen.missing_features:
            yield (
                "error",
                name,
                f"the kernel ({seen.kernel}) has no {feature}",
                f"modprobe {feature}, or another kernel",
            )


def _programs(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if seen.missing_programs:
            missing = ", ".join(seen.missing_programs)
            yield "error", name, f"programs are missing: {missing}", "install them with the host's package manager"


def _init_system(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if seen.init != "systemd":
            yield "error", name, f"process 1 is {seen.init or 'unknown'}, not systemd", "use a host that boots systemd"


def _architecture(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if seen.architecture != "x86_64":
            yield "error", name, f"its architecture is {seen.architecture}", "use x86_64: no other payload is built yet"


def _cgroup_version(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if seen.cgroup_version == 1:
            yield "warning", name, "it has cgroup v1, which Kubernetes will drop", "boot it with cgroup v2 when you can"


def _clocks(cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    """Hosts are queried in parallel, so that synchronised clocks differ by less than a round trip. Control nodes say
    what time it is, however many workers have another one."""
    if len(facts) < 2:
        return
    said = [facts[node.name].clock for node in cluster.control_nodes if node.name in facts]
    middle = statistics.median_low(said or [seen.clock for seen in facts.values()])
    for name, seen in facts.items():
        difference = seen.clock - middle
        if abs(difference) > CLOCK_WARNING:
            severity: Severity = "error" if abs(difference) > CLOCK_ERROR else "warning"
            yield severity, name, f"its clock is {difference:+.0f} s off the others", "synchronise the clocks (NTP)"


def _disk(cluster: Cluster, facts: Facts, ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if cluster.node(name).host.driver != "lab" and seen.disk_free < seen.disk_total * KUBELET_WANTS_FREE:
            what = f"{seen.disk_free / seen.disk_total:.0%} of the disk below /var/lib is free"
            remedy = f"free some space: below {KUBELET_WANTS_FREE:.0%} the kubelet accepts no pods"
            yield "warning" if name in ours else "error", name, what, remedy
        if seen.disk_free < 5 * GIB:
            severity: Severity = "error" if seen.disk_free < 2 * GIB and name not in ours else "warning"
            free = f"{seen.disk_free / GIB:.1f} GiB are free below /var/lib"
            yield severity, name, free, "free some space: 5 GiB are recommended, 2 GiB required"


def _memory(cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if not cluster.node(name).control_plane:
            continue
        if seen.memory_total < 1700 * MIB:
            severity: Severity = "error" if seen.memory_total < 1000 * MIB else "warning"
            yield severity, name, f"it has {seen.memory_total / MIB:.0f} MiB of memory", "a control node needs 1700 MiB"


def _swap(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        if seen.swap_total > 0:
            yield "warning", name, "swap is on, which slows etcd down", "swapoff -a, and remove it from /etc/fstab"


def _same_machine_twice(_cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    """Reported once per pair, by the best evidence. Host names alone prove nothing: fresh machines share them."""
    names = list(facts)
    for number, name in enumerate(names):
        for other in names[:number]:
            yield from _same_machine(name, facts[name], other, facts[other])


def _same_machine(name: str, seen: HostFacts, other: str, others: HostFacts) -> Found:
    if seen.address == others.address:
        what = f"it has the same address as {other}: {seen.address}"
        yield "error", name, what, "give each node its own machine", other
    elif seen.boot_id == others.boot_id:
        what = f"it is the same machine as {other}: one boot id"
        yield "error", name, what, "give each node its own machine", other
    elif seen.hostname == others.hostname:
        yield "warning", name, f"it has the same host name as {other}: {seen.hostname}", "give each its own name"


def _address_of_another(cluster: Cluster, facts: Facts, elsewhere: Mapping[str, str | None]) -> Found:
    """A worker that claims the address of a node that is off would share it with that node in the join inventory.
    `_same_machine_twice` handles nodes that have answered."""
    known = {**elsewhere, **{node.name: node.address for node in cluster.nodes}}
    others = {address: name for name, address in known.items() if name not in facts and address is not None}
    for name, seen in facts.items():
        for address in sorted({seen.address, cluster.node(name).address or seen.address} & set(others)):
            other = others[address]
            remedy = (
                f"find out which of them has it: power {other} on, or write its address into the file;"
                f" or remove {other} from the cluster: autarky node remove {other}"
            )
            yield "error", name, f"its address {address} is also recorded for {other}", remedy


def _host_name(cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    """The kubelet gets the node's name; people and logs use the machine's. Test hosts are named by us."""
    for name, seen in facts.items():
        if cluster.node(name).host.driver != "lab" and seen.hostname != name:
            yield (
                "warning",
                name,
                f"its host name is {seen.hostname}: logs of the host will not say {name}",
                f"name the node {seen.hostname}, or: hostnamectl set-hostname {name}",
            )


def _address_as_in_file(cluster: Cluster, facts: Facts, _ours: Collection[str]) -> Found:
    for name, seen in facts.items():
        wanted = cluster.node(name).address
        if wanted is not None and wanted != seen.address and wanted not in seen.addresses:
            yield "error", name, f"the file says {wanted}, the host has {seen.address}", "fix spec.nodes[].address"


def _etcd_members(cluster: Cluster, _facts: Facts, _ours: Collection[str]) -> Found:
    """An even number adds a machine that may fail, and does not survive more failures."""
    count = len(cluster.control_nodes)
    if cluster.external_etcd is None and count % 2 == 0:
        survived = (count - 1) // 2
        what = f"{count} control nodes: etcd survives the loss of {survived}, as with {count - 1}"
        yield "warning", "", what, "use 1, 3 or 5 control nodes"


def _lifetimes(cluster: Cluster, _facts: Facts, _ours: Collection[str]) -> Found:
    """Such certificates are fine for tests. Otherwise a third of the lifetime must exceed the time a machine is off."""
    settings = cluster.certificates
    for key, seconds in (("leafLifetime", settings.leaf_seconds), ("kubeletLifetime", settings.kubelet_seconds)):
        if seconds is not None and seconds < SHORT_LIFE:
            what = f"spec.certificates.{key} is {seconds // 60}m: they expire on a machine that is off for longer"
            yield "warning", "", what, "use 1h or more, except for tests"


CHECKS: Mapping[str, Callable[[Cluster, Facts, Collection[str]], Found]] = {
    "networks": _address_inside_cluster_networks,
    "ports": _port_in_use,
    "kernel": _kernel_features,
    "programs": _programs,
    "init": _init_system,
    "architecture": _architecture,
    "cgroup": _cgroup_version,
    "clock": _clocks,
    "disk": _disk,
    "memory": _memory,
    "swap": _swap,
    "machines": _same_machine_twice,
    "hostname": _host_name,
    "address": _address_as_in_file,
    "members": _etcd_members,
    "lifetimes": _lifetimes,
}


def checks(
    cluster: Cluster,
    facts: Facts,
    *,
    ours: Collection[str] = (),
    demoted: Collection[str] = (),
    elsewhere: Mapping[str, str | None] = NOWHERE,
) -> list[Finding]:
    """Run all checks. `ours`: nodes whose host already runs this cluster; `demoted`: checks that only warn;
    `elsewhere`: the known addresses of machines that are not in the file.

    An unknown name in `demoted` is a finding of its own.
    """
    findings = [unknown_check(name) for name in demoted if name not in CHECKS]
    for name, check in CHECKS.items():
        found = [Finding(name, *finding) for finding in check(cluster, facts, ours)]
        if name == "machines":
            found += [Finding(name, *finding) for finding in _address_of_another(cluster, facts, elsewhere)]
        findings += [replace(f, severity="warning") for f in found] if name in demoted else found
    return findings


def judge(
    errors: Collection[Finding], *, workers: Collection[str], joined: Collection[str]
) -> tuple[list[Finding], dict[str, Finding]]:
    """(what refuses the command, worker → why that one is left out instead). workers: those that joined before; joined:
    these and the other nodes that did. What a worker shares with a new node refuses it: that node would be joined in
    place of the worker."""
    refusing: list[Finding] = []
    left_out: dict[str, Finding] = {}
    for error in errors:
        hosts = {error.host, error.other} - {""}
        doubted = hosts.intersection(workers)
        if not doubted or not hosts.issubset(joined):
            refusing.append(error)
        for name in doubted if hosts.issubset(joined) else ():
            left_out.setdefault(name, error)
    return refusing, left_out


def unknown_check(name: str) -> Finding:
    near = difflib.get_close_matches(name, CHECKS, n=1)
    known = f"checks are: {', '.join(CHECKS)}"
    remedy = f"did you mean {near[0]}? The {known}" if near else f"the {known}"
    return Finding("ignore", "error", "", f"there is no check {name}", remedy)
