"""What is wrong with a cluster, causes before effects: from evidence to findings.

Contract: pure. A finding says what was seen and which command to continue with; what could not be read is a
finding of its own and never counts as down (rule 2). An effect is not reported beside its cause: of a host that is
off nothing else is said, and of an API without etcd not that it is not ready.

Danger: a worker may be compromised. What its host says only leads to findings about itself, and no other node is judged
by it: who reaches whom, and what time it is, is as control nodes see it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from autarky import places
from autarky.control.common.pods import NO_NETWORK
from autarky.control.etcd.decide.maintenance import NEARLY_FULL
from autarky.control.etcd.decide.wanted import even_count
from autarky.control.guards.decide import EXCEPTED_BY_NAMESPACE, INSTEAD, Refused
from autarky.doctor.diagnosis.finding import Finding
from autarky.doctor.diagnosis.hosted_kubelets import of_hosted, runs_hosted
from autarky.doctor.diagnosis.kubelets import InApi, OnHost, of_kubelets
from autarky.model.components import ETCD

LOW_DISK_BYTES = 512 * 1024 * 1024
"""etcd and the agents write little, but what they write must not fail."""
SLOW_FSYNC_SECONDS = 0.1
"""Of the 99th percentile: etcd's documentation asks for less than 10 ms, and a leader whose disk takes as long as its
interval between heartbeats (100 ms) is at risk. (That a disk takes 10 ms for minutes, its node's agent reports.)"""
CLOCK_SECONDS = 2.0
"""As preflight's warning: far less than what withdraws a server, and far more than a round trip."""
ENTRIES_BEHIND = 5_000
"""Of the log. etcd sends all of its database to a member that lacks more (its `snapshot-catchup-entries`)."""
ALARMS = {
    "NOSPACE": (
        "etcd refuses writes: a database has reached its quota",
        "autarky etcd compact --keep 0, then autarky etcd defrag, then autarky etcd alarm --disarm",
    ),
    "CORRUPT": ("the data of etcd's members differs", "see `autarky etcd status`, and remove the member that differs"),
}
"""Alarm of etcd → (what it means, how to go on)."""
RESTARTS_MEMBERS = (
    "change an argument of etcd in the cluster file, such as spec.extraArgs.etcd: {max-txn-ops: 256}, and run"
    " `autarky up`: the members restart one by one"
)
MOST_NAMED = 20
"""Workloads of one namespace in a sentence, and findings about pods of one node: tenants and kubelets can create any
number."""
LONGEST_EVIDENCE = 8_000
"""Characters: nodes and tenants can write as much as the API accepts."""


@dataclass(frozen=True, slots=True)
class Database:
    """Of an etcd member. size, quota: bytes; applied: entries of the log. 0 where it is not known."""

    size: float = 0.0
    quota: float = 0.0
    applied: float = 0.0


@dataclass(frozen=True, slots=True)
class Syncs:
    """seconds: their 99th percentile; where there were too few for one, their average."""

    seconds: float
    few: bool = False


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """One node's host. `problem`: why nothing else is known of it, or "".

    units: systemd unit → whether it is active. free: path → bytes left. etcd: the status of the local member's
    health (None: no answer); has_etcd: whether there should be one. balanced: API server → whether the load
    balancer considers it ready; None when the balancer does not answer. alive: the same of servers that are alive,
    ready or not. stale_balancer: whether it runs another configuration than the one on the disk. accepting: which of
    the node's own API servers accept connections. fsync: how long etcd's disk took to sync while it was observed.
    alarms: of any etcd member. fenced: whether a recovery keeps its member from starting. copied: whether a copy of
    etcd into the cluster was begun and not ended. trusts_others: whether its member has run since before the file with
    its peers' CA was written. kept: how many directories have former data of etcd. clock: seconds since 1970, against a
    reference that all nodes' evidence shares. active: components whose standby runs. missing_standby: components
    without a complete standby. kubelet: None where the host does not say.
    """

    name: str
    problem: str = ""
    control_plane: bool = True
    units: Mapping[str, bool] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    has_etcd: bool = True
    etcd: int | None = 200
    balanced: Mapping[str, bool] | None = field(default_factory=dict)
    alive: Mapping[str, bool] = field(default_factory=dict)
    stale_balancer: bool = False
    accepting: frozenset[str] = frozenset()
    fsync: Syncs | None = None
    database: Database = Database()
    alarms: tuple[str, ...] = ()
    fenced: bool = False
    copied: bool = False
    trusts_others: bool = False
    kept: int = 0
    clock: float | None = None
    active: frozenset[str] = frozenset()
    missing_standby: frozenset[str] = frozenset()
    kubelet: OnHost | None = None


@dataclass(frozen=True, slots=True)
class PodEvidence:
    """A pod of ours that is not ready, and what the kubelet or the scheduler says about it."""

    component: str
    name: str
    node: str
    slot: str
    why: str


@dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """api: why it does not answer, or "". idle_leases: component → seconds since its lease was renewed.

    hosted: the components whose level is hosted. withdrawn: node → why its API servers get no new connections.
    """

    nodes: tuple[NodeEvidence, ...]
    api: str = ""
    unready_nodes: Mapping[str, str] = field(default_factory=dict)
    network_remedy: str = ""
    """What to do where a node's pods have no network."""
    pressed_nodes: Mapping[str, str] = field(default_factory=dict)
    """Ready nodes that take no new pods → the resource that they run out of."""
    unready_pods: tuple[PodEvidence, ...] = ()
    idle_leases: Mapping[str, float] = field(default_factory=dict)
    hosted: frozenset[str] = frozenset()
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Those of CONDITIONS with which the ControlPlane reports that something is wrong: type → message."""
    ended: tuple[str, ...] = ()
    """A sentence for each certificate on a control node's disk that has expired, while there is no API to report it."""
    admin: str = ""
    """Why the administrator's certificate needs renewal, a sentence; empty while it is valid for long enough."""
    refused: Sequence[Refused] = ()
    """By policy and namespace: workloads that get no new pods."""
    unseen: str = ""
    """Why workloads could not be read, or ""."""
    unseen_pods: str = ""
    """The same for pods in kube-system, or for some of them."""
    kubelets: InApi | None = None
    """None while the API does not answer."""


LEASE_IDLE_SECONDS = 20.0
_EVEN = "etcd has an even number of members"
CONDITIONS = {
    "RolloutFailed": (
        "True",
        "a rollout failed and is still in place, or went back to an incomplete revision",
    ),
    "CertificatesCurrent": ("False", "a certificate has expired, or is not renewed as it should be"),
    "BackupsCurrent": ("False", "backups are overdue"),
    "EtcdEvenCount": ("True", _EVEN),
    "StandbysCurrent": ("False", "a standby is older than what runs, and is not updated"),
}
"""Those of the ControlPlane that report what nothing else here does: type → status if something is wrong, and what."""


def diagnose(cluster: ClusterEvidence) -> list[Finding]:
    """See the module's contract."""
    hosts = [finding for node in cluster.nodes for finding in _host(node)]
    cut_off = [node.name for node in cluster.nodes if _is_cut_off(node, cluster)]
    between = [*_clocks(cluster), *map(_cut_off, cut_off), *_ended(cluster)]
    etcd = [
        *_copied(cluster),
        *_quorum(cluster),
        *_even(cluster),
        *_alarms(cluster),
        *_etcd(cluster, cut_off),
        *_databases(cluster),
    ]
    servers = list(_servers(cluster))
    api = list(_api(cluster, explained=bool(hosts or etcd or servers or cluster.ended)))
    inside = [] if cluster.api else list(_inside(cluster, cut_off))
    covered = [*_covered(cluster), *_kept(cluster), *_trusting_others(cluster), *_reported_by_the_operator(cluster)]
    tenants = [*_refused(cluster), *_unseen(cluster)]
    return list(
        map(_bounded, [*hosts, *between, *etcd, *servers, *api, *_kubelets(cluster), *inside, *covered, *tenants])
    )


def _bounded(finding: Finding) -> Finding:
    if len(finding.evidence) <= LONGEST_EVIDENCE:
        return finding
    return replace(finding, evidence=f"{finding.evidence[: LONGEST_EVIDENCE - 1]}…")


def _host(node: NodeEvidence) -> Iterator[Finding]:
    if node.problem:
        go_on = f"power the machine on; if it is gone permanently: autarky node remove {node.name} --dead"
        yield Finding(node.name, "its host does not answer", node.problem, go_on)
        return
    for path, free in node.free.items():
        if free < LOW_DISK_BYTES:
            seen = f"{free // 2**20} MiB are free in {path}"
            yield Finding(node.name, "its disk is nearly full", seen, f"free space in {path} on {node.name}")
    for unit in ("containerd", "kubelet"):
        if not node.units.get(unit, True):
            if unit == "kubelet" and runs_hosted(node.kubelet):
                seen = "kubelet.service is not active; the hosted one is in force, and no other change begins"
                start = "systemctl start kubelet; if it does not stay up: journalctl -u kubelet"
                yield Finding(node.name, "its kubelet has no standby", seen, f"on {node.name}: {start}")
                return
            what = f"{unit} does not run"
            yield Finding(node.name, what, f"{unit}.service is not active", f"autarky logs {unit} --node {node.name}")
            return  # without containerd there is no kubelet, and without a kubelet nothing is restarted


def _ended(cluster: ClusterEvidence) -> Iterator[Finding]:
    if cluster.ended:
        what = "certificates have expired, and the node agents have not renewed them"
        yield Finding("control plane", what, "; ".join(cluster.ended), "autarky logs node-agent")


# --- between nodes ------------------------------------------------------------------------------------


def _clocks(cluster: ClusterEvidence) -> Iterator[Finding]:
    clocks = {node.name: node.clock for node in cluster.nodes if node.clock is not None}
    controls = [clocks[node.name] for node in cluster.nodes if node.control_plane and node.name in clocks]
    middle = statistics.median_low(controls or clocks.values()) if clocks else 0.0
    for name, clock in clocks.items():
        withdrawn = cluster.withdrawn.get(name, "")
        if abs(clock - middle) > CLOCK_SECONDS:
            seen = f"it was compared with those of the {'control' if controls else 'other'} nodes"
            if withdrawn:
                seen += "; its API servers get no new connections"
            what = f"its clock is {clock - middle:+.0f} s off the others'"
            yield Finding(name, what, seen, f"synchronise the clock of {name} (NTP)")
        elif withdrawn:
            go_on = f"autarky kubectl describe node {name}"
            yield Finding(name, "its API servers get no new connections", withdrawn, go_on)


def _is_cut_off(node: NodeEvidence, cluster: ClusterEvidence) -> bool:
    """Other control nodes see live servers, and none of this node's; it sees none but its own, if any: a server that
    could not start without its etcd peers does not prove that the network works."""
    if node.balanced is None or not node.alive:
        return False
    others = [one for one in cluster.nodes if one is not node and one.control_plane and one.balanced is not None]
    seen_by_others = {server for other in others for server, alive in other.alive.items() if alive}
    seen_here = {server for server, alive in node.alive.items() if alive}
    return bool(seen_by_others) and not _of(node.name, seen_by_others) and seen_here == _of(node.name, seen_here)


def _of(node: str, servers: set[str]) -> set[str]:
    return {server for server in servers if server.rpartition("-")[0] == node}


def _cut_off(name: str) -> Finding:
    what = "it and the other nodes do not reach each other"
    seen = "its load balancer considers no other node's API server alive, and no other one any of its own"
    return Finding(name, what, seen, f"look at the network of {name}: TCP 6443, 7443, 7444 and 2379-2380 between nodes")


# --- from etcd upwards --------------------------------------------------------------------------------


def _quorum(cluster: ClusterEvidence) -> Iterator[Finding]:
    """Where there are several members: how many more may fail."""
    members = [node for node in cluster.nodes if node.control_plane and node.has_etcd]
    down = [node.name for node in members if node.problem or node.etcd != 200]
    needed = len(members) // 2 + 1
    left = len(members) - len(down)
    if len(members) == 1 or not down:
        return
    seen = f"{left} of {len(members)} members answer, {needed} are needed; not: {', '.join(down)}"
    go_on = f"bring {down[0]} back"
    if left < needed:
        yield Finding("etcd", "it has no quorum: nothing can be written, and little read", seen, go_on)
    elif left == needed:
        yield Finding("etcd", "it serves, and stops if one more member fails", seen, go_on)


def _even(cluster: ClusterEvidence) -> Iterator[Finding]:
    """Where etcd is not hosted each control node has a member; else the operator reports it, who knows which ones have
    one."""
    if cluster.api or ETCD in cluster.hosted:
        return
    even = even_count([node.name for node in cluster.nodes if node.control_plane and node.has_etcd])
    if even is not None:
        yield Finding("etcd", _EVEN, even, "autarky node add, or autarky node remove")


def _alarms(cluster: ClusterEvidence) -> Iterator[Finding]:
    """Each once: all members report the alarms of each."""
    for kind, (what, go_on) in ALARMS.items():
        if reporting := [node.name for node in cluster.nodes if kind in node.alarms]:
            yield Finding("etcd", what, f"alarm {kind}, reported by {', '.join(reporting)}", go_on)


def _databases(cluster: ClusterEvidence) -> Iterator[Finding]:
    newest = max((node.database.applied for node in cluster.nodes), default=0.0)
    for node in cluster.nodes:
        database = node.database
        if database.quota and database.size > NEARLY_FULL * database.quota:
            seen = f"{database.size / 2**20:,.0f} of {database.quota / 2**20:,.0f} MiB"
            go_on = "autarky etcd compact, then autarky etcd defrag; or a larger quota-backend-bytes in extraArgs.etcd"
            yield Finding(node.name, "etcd's database is nearly full", seen, go_on)
        if database.applied and newest - database.applied > ENTRIES_BEHIND:
            seen = f"it lacks {newest - database.applied:,.0f} entries of the log"
            yield Finding(node.name, "its etcd member is behind", seen, f"autarky logs etcd --node {node.name}")


_FENCED = (
    "a recovery of etcd keeps its member from starting, and was interrupted unless it is under way now",
    "etcd-fence.json is there",
    "run the same command again to finish it, or autarky etcd recover-quorum --abandon",
)


def _copied(cluster: ClusterEvidence) -> Iterator[Finding]:
    for node in cluster.nodes:
        if node.copied and node.control_plane:
            what = "a copy of etcd into the cluster was interrupted unless it is under way now"
            go_on = "run `autarky etcd migrate -f FILE --copy` again; the API may be away until then"
            yield Finding(node.name, what, f"{places.ETCD_COPY} is there", go_on)


def _kept(cluster: ClusterEvidence) -> Iterator[Finding]:
    """On a control node, whose member has the same, it is worth having."""
    for node in cluster.nodes:
        if node.kept and not node.control_plane:
            what = "it is no control node, and has former data of etcd, with every Secret and the keys of the CAs"
            go_on = f"on {node.name}, once nobody needs that data: rm -rf {places.ETCD_DATA}/kept.*"
            yield Finding(node.name, what, f"directories kept.* in {places.ETCD_DATA}: {node.kept}", go_on)


def _trusting_others(cluster: ClusterEvidence) -> Iterator[Finding]:
    """After a migration from an etcd of another CA, whose owner could speak as a member until then."""
    for node in cluster.nodes:
        if node.trusts_others and node.control_plane:
            what = "its etcd member accepts peers by a CA that was taken from its file"
            seen = "it has run since before peer-ca.crt was written, and reads that at its start only"
            yield Finding(node.name, what, seen, RESTARTS_MEMBERS)


def _etcd(cluster: ClusterEvidence, cut_off: list[str]) -> Iterator[Finding]:
    for node in cluster.nodes:
        if not node.control_plane or not node.has_etcd or node.problem:
            continue
        if node.fenced:
            yield Finding(node.name, *_FENCED)
        elif node.etcd != 200 and node.name not in cut_off and all(node.units.values()):
            seen = "nothing answers on its health port" if node.etcd is None else f"its health check says {node.etcd}"
            yield Finding(node.name, "etcd is not healthy", seen, f"autarky logs etcd --node {node.name}")
        if node.fsync is not None and node.fsync.seconds > SLOW_FSYNC_SECONDS:
            took = f"{1000 * node.fsync.seconds:.0f} ms"
            which = f"a sync took {took} on average" if node.fsync.few else f"one sync of a hundred took {took} or more"
            seen = f"{which}; less than 10 ms are normal"
            yield Finding(node.name, "etcd's disk is slow", seen, f"see what else uses the disk of {node.name}")


def _servers(cluster: ClusterEvidence) -> Iterator[Finding]:
    """A server that accepts connections and answers no control node's load balancer (of those that answer)."""
    balancers = [node for node in cluster.nodes if node.control_plane and node.balanced is not None]
    for node in cluster.nodes:
        for server in sorted(node.accepting):
            alive = [other.alive[server] for other in balancers if server in other.alive]
            if alive and not any(alive):
                seen = f"{server} accepts connections, and no load balancer gets an answer from it"
                go_on = f"autarky logs kube-apiserver --node {node.name}"
                yield Finding(node.name, "an API server hangs", seen, go_on)


def _api(cluster: ClusterEvidence, *, explained: bool) -> Iterator[Finding]:
    for node in cluster.nodes:
        if not node.problem and node.balanced is None:
            yield Finding(
                node.name,
                "its load balancer does not answer",
                "nothing listens on 127.0.0.1:6444",
                f"autarky logs node-load-balancer --node {node.name}",
            )
        elif node.stale_balancer:
            what, seen = "its load balancer runs an old configuration", "a different one is on its disk"
            yield Finding(node.name, what, seen, f"autarky logs node-agent --node {node.name}")
    if not cluster.api or explained:
        return
    ready = [server for node in cluster.nodes for server, up in (node.balanced or {}).items() if up]
    seen = f"{cluster.api}; the load balancers consider {', '.join(sorted(set(ready))) or 'no server'} ready"
    yield Finding("API", "it does not answer", seen, "autarky logs kube-apiserver")


def _kubelets(cluster: ClusterEvidence) -> Sequence[Finding]:
    silent = {node.name for node in cluster.nodes if node.problem}
    hosts = {node.name: node.kubelet for node in cluster.nodes if node.kubelet is not None}
    found = of_kubelets(cluster.kubelets, hosts, silent, cluster.unready_nodes)
    return [*found, *of_hosted(cluster.kubelets, hosts, silent)]


def _inside(cluster: ClusterEvidence, cut_off: list[str]) -> Iterator[Finding]:
    for component, seconds in cluster.idle_leases.items():
        if seconds > LEASE_IDLE_SECONDS:
            seen = f"its lease was renewed {seconds:.0f} s ago"
            yield Finding(component, "nobody leads", seen, f"autarky logs {component}")
    silent = {node.name for node in cluster.nodes if node.problem}
    for name, why in cluster.unready_nodes.items():
        if name in silent or name in cut_off:
            continue
        if NO_NETWORK in why:
            yield Finding(name, "its pods have no network", why, cluster.network_remedy)
        else:
            yield Finding(name, "the node is not Ready", why, f"autarky logs kubelet --node {name}")
    for name, why in cluster.pressed_nodes.items():
        yield Finding(name, "the node takes no new pods", why, f"autarky kubectl describe node {name}")
    yield from _pods([pod for pod in cluster.unready_pods if pod.node not in silent])


def _pods(unready: Sequence[PodEvidence]) -> Iterator[Finding]:
    """Of each node the first ones in the given order, and how many more: no node's pods hide another's."""
    made: Counter[str] = Counter()
    for pod in unready:
        made[pod.node] += 1
        if made[pod.node] > MOST_NAMED:
            continue
        what = f"a pod of {pod.component} is not ready"
        go_on = f"autarky kubectl -n kube-system describe pod {pod.name}"
        yield Finding(pod.node, what, pod.why or f"{pod.name} ({pod.slot}) gives no reason", go_on)
    for node, pods in made.items():
        if pods > MOST_NAMED:
            seen_there = f"{pods - MOST_NAMED} more than the {MOST_NAMED} listed"
            go_on = "autarky kubectl -n kube-system get pods -o wide"
            yield Finding(node, "more of its pods are not ready", seen_there, go_on)


def _covered(cluster: ClusterEvidence) -> Iterator[Finding]:
    """Nothing is down, but the cluster runs on standbys, or lacks one."""
    for node in cluster.nodes:
        for component in sorted(node.active & cluster.hosted):
            seen = "its standby is active"
            go_on = "autarky kubectl -n kube-system logs ds/node-agent --tail=20"
            yield Finding(node.name, f"the hosted {component} does not serve without its standby", seen, go_on)
        for component in sorted(node.missing_standby):
            what = f"there is no complete standby of {component}"
            yield Finding(node.name, what, "nothing would bring it back after a reboot", "autarky up")


def _reported_by_the_operator(cluster: ClusterEvidence) -> Iterator[Finding]:
    if cluster.admin:
        yield Finding("your kubeconfig", "its certificate needs renewal", cluster.admin, "autarky up")
    for condition, (_, what) in CONDITIONS.items():
        if condition in cluster.conditions:
            go_on = "autarky kubectl describe controlplane cluster"
            yield Finding("control plane", what, cluster.conditions[condition], go_on)


# --- outside of the control plane ------------------------------------------------------------------------


def _refused(cluster: ClusterEvidence) -> Iterator[Finding]:
    """One for each policy and namespace: whoever creates many workloads does not hide those of others."""
    for (policy, namespace), group in groupby(cluster.refused, key=lambda one: (one.policy, one.namespace)):
        found = [f"{one.workload} has {one.why}" for one in group]
        more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
        what = f"the policy {policy} would refuse new pods; those that run stay until they end"
        go_on = INSTEAD[policy]
        if policy in EXCEPTED_BY_NAMESPACE:
            go_on += f": autarky kubectl edit validatingadmissionpolicybinding {policy}"
        yield Finding(f"namespace {namespace}", what, "; ".join([*found[:MOST_NAMED], *more]), go_on)


def _unseen(cluster: ClusterEvidence) -> Iterator[Finding]:
    """There may be more of workers' pods and of tenants' objects than the API returns in time: that says nothing about
    the API."""
    if cluster.unseen_pods:
        go_on = "autarky kubectl -n kube-system get pods -o wide"
        yield Finding("pods", "not all of them could be looked at", cluster.unseen_pods, go_on)
    if cluster.unseen:
        yield Finding("workloads", "they could not be looked at", cluster.unseen, "autarky doctor")
