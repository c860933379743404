"""Collecting the evidence for `autarky doctor`: from hosts and API, whichever of them answer.

It only looks. A source that does not answer fails nothing here: its silence is evidence.
"""

from __future__ import annotations

import asyncio
import math
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from autarky import places
from autarky.control.addons import add_ons_of
from autarky.control.common.shapes import condition, plain
from autarky.control.etcd.decide import figures
from autarky.control.etcd.manifests.pods import PEER_CA
from autarky.control.guards.decide import Refused
from autarky.control.kubelet.manifests import files
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots import manifests as standby
from autarky.control.upgrade.decide.reported import parsed
from autarky.doctor.diagnosis import ALARMS, CONDITIONS, ClusterEvidence, Database, NodeEvidence, PodEvidence, Syncs
from autarky.doctor.diagnosis.kubelets import InApi, OnHost
from autarky.errors import ApiError, AutarkyError
from autarky.model import ports
from autarky.model.cluster import Cluster, Node
from autarky.model.components import API_SERVER, COMPONENTS, KUBELET, LED_BY_LEASE, WITH_STANDBY
from autarky.model.versions import Version
from autarky.phases.context import Context
from autarky.phases.expiry import ADMINISTRATOR
from autarky.phases.hosted_kubelets import rolled_back
from autarky.phases.hosts import observe
from autarky.phases.labelled import find_labelled
from autarky.phases.refused import find_refused
from autarky.ports import Host, Object
from autarky.programs import program
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM, WITHDRAWN
from autarky.status.look import Row, gather_with_nodes

UNITS = ("containerd", "kubelet")
_MOST_PROCESSES = 10
_DISKS = ("/", places.ETCD_DATA)
SYNC_SECONDS = 3
"""How long etcd's disk is observed: an idle cluster writes its leases several times meanwhile."""
_DATABASE = ("size", "quota", "applied")
_SERVERS = {str(port): slot for slot, port in nllb.API_PORTS}
_PROGRAM = program(
    __file__,
    "doctor.sh",
    units=" ".join(UNITS),
    disks=" ".join(_DISKS),
    manifests=places.MANIFESTS,
    fence=places.ETCD_FENCE,
    kept=f"{places.ETCD_DATA}/kept.",
    copy=places.ETCD_COPY,
    peer_ca=PEER_CA,
    kubelets=files.KUBELETS,
    slot_lock=files.LOCK,
    etcd_port=ports.ETCD_HEALTH,
    balancer_port=ports.NLLB_HEALTH,
    configuration_path=nllb.CONFIGURATION_PATH,
    configuration_file=nllb.CONFIG_PATH,
    api_ports=" ".join(map(str, COMPONENTS[API_SERVER].ports)),
    sync_seconds=SYNC_SECONDS,
)


def _network_remedy(cluster: Cluster) -> str:
    network = next((one for one in add_ons_of(cluster) if one.cni is not None), None)
    if network is not None:
        return f"autarky logs {network.component}"
    return "apply a pod network of your own: network.cni of the cluster file is none"


async def evidence(context: Context) -> ClusterEvidence:
    """Everything that can be seen now."""
    with suppress(AutarkyError):  # what the hosts do not say is found below, host by host
        await observe(context)
    await _find_labelled(context)
    nodes = tuple(await asyncio.gather(*(_node(context, node) for node in context.cluster.nodes)))
    status, live = await gather_with_nodes(context)
    hosted = frozenset(c for c in WITH_STANDBY if context.cluster.hosts_level(COMPONENTS[c].level))
    if status.api != "ready":
        ended = tuple(one for one in status.overdue if ADMINISTRATOR not in one)
        return ClusterEvidence(nodes, api=status.api, hosted=hosted, ended=ended)
    try:
        idle_leases = await _idle_leases(context, nodes)
        plane = await _plane(context)
        daemon_set = await context.kube().get("apps/v1", "DaemonSet", KUBELET, SYSTEM) or {}
        back = await rolled_back(context.kube(), plane)
    except AutarkyError as error:  # it has gone meanwhile: what it no longer says is unknown, not down
        return ClusterEvidence(nodes, api=str(error), hosted=hosted)
    refused, unseen = await _refused(context)
    unready = [row for row in status.rows if row.health not in {"ready", "dormant"}]
    pods = tuple(PodEvidence(r.component, r.component, r.node, r.slot, r.detail) for r in unready if r.level > 0)
    return ClusterEvidence(
        nodes,
        unready_nodes={row.node: row.detail for row in unready if row.level == 0},
        network_remedy=_network_remedy(context.cluster),
        pressed_nodes={
            row.node: row.detail for row in status.rows if row.level == 0 and row.health == "ready" and row.detail
        },
        unready_pods=pods,
        idle_leases=idle_leases,
        hosted=hosted,
        withdrawn=_withdrawn(live),
        conditions=_conditions(plane),
        admin=next((one for one in status.overdue if ADMINISTRATOR in one), ""),
        refused=refused,
        unseen=unseen,
        unseen_pods=status.unseen,
        kubelets=InApi(
            plane, live, _servers(status.rows), _now(context, nodes, ""), daemon_set, back.sentence if back else ""
        ),
    )


async def _find_labelled(context: Context) -> None:
    """From the API, or from the disks where it does not answer or goes away meanwhile."""
    try:
        await find_labelled(context, api=await context.api_answers())
    except AutarkyError:
        await find_labelled(context, api=False)


async def _refused(context: Context) -> tuple[list[Refused], str]:
    """The workloads, and why they could not be read, or "": tenants can create any number of any size, and a list that
    takes too long must not hide what the API says of the cluster."""
    try:
        return await find_refused(context), ""
    except AutarkyError as error:
        return [], str(error) or type(error).__name__


def _withdrawn(nodes: Sequence[Object]) -> dict[str, str]:
    """Of control nodes only: a worker can write the annotation itself, and nobody acts on it."""
    control = [node["metadata"] for node in nodes if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})]
    said = {meta["name"]: (meta.get("annotations") or {}).get(WITHDRAWN) for meta in control}
    return {name: why for name, why in said.items() if why}


def _servers(rows: Sequence[Row]) -> list[Version]:
    """Of the API servers that run. A standby that does not has none."""
    versions = (parsed(row.version) for row in rows if row.component == API_SERVER)
    return [version for version in versions if version is not None]


async def _plane(context: Context) -> Object:
    """Empty where it is gone, which is no failure (rule 10)."""
    try:
        return await context.kube().get(API_VERSION, "ControlPlane", CONTROL_PLANE) or {}
    except ApiError as error:
        if error.status != 404:
            raise
        return {}


def _conditions(plane: Object) -> dict[str, str]:
    """What the operator reports as wrong."""
    found = {name: condition(plane, name) for name in CONDITIONS}
    wrong = {name: status for name, (status, _) in CONDITIONS.items()}
    return {name: one["message"] for name, one in found.items() if one.get("status") == wrong[name]}


async def _clock(context: Context, host: Host) -> float | None:
    """The host's clock, as if read when our clock started the collection: half the round trip is uncertain."""
    before = context.clock.monotonic()
    said = (await host.run(["date", "+%s.%N"], check=False)).text
    seconds = _float(said)
    return None if seconds is None else seconds - (before + context.clock.monotonic()) / 2


def _syncs(words: Sequence[str]) -> Syncs | None:
    """Of `sum:S count:N BOUND:NUMBER… / sum:S count:N BOUND:NUMBER…`, before and afterwards, in etcd's words; None when
    nothing was synced meanwhile, or that is not understood."""
    text = " ".join(words)
    before, after = (_named(part) for part in (*text.split("/", 1), "")[:2])
    if not {"sum", "count"} <= before.keys() & after.keys() or after["count"] <= before["count"]:
        return None
    slowest = figures.slowest(*(_buckets(one) for one in (before, after)))
    if slowest is not None:
        return Syncs(slowest)
    return Syncs((after["sum"] - before["sum"]) / (after["count"] - before["count"]), few=True)


def _named(part: str) -> dict[str, float]:
    pairs = (word.partition(":") for word in part.split())
    return {name: found for name, _, number in pairs if (found := _float(number)) is not None}


def _buckets(named: Mapping[str, float]) -> dict[float, float]:
    """Upper bound → how many were no longer."""
    bounds = ((math.inf if name == "+Inf" else _float(name), number) for name, number in named.items())
    return {bound: number for bound, number in bounds if bound is not None}


async def _node(context: Context, node: Node) -> NodeEvidence:
    has_etcd = node.control_plane and context.cluster.external_etcd is None
    host = context.machines.host(node.name)
    if host is None or node.name in context.absent:
        why = context.absent.get(node.name, "its machine does not run")
        return NodeEvidence(node.name, problem=why, control_plane=node.control_plane, has_etcd=has_etcd)
    try:
        return await _looked_at(context, node, host)
    except AutarkyError as error:
        return NodeEvidence(node.name, problem=str(error), control_plane=node.control_plane, has_etcd=has_etcd)


@dataclass(slots=True)
class SaidByScript:
    """What `doctor.sh` has printed, as `NodeEvidence` has it. balancer: whether the load balancer answers."""

    units: dict[str, bool] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    has_member: bool = False
    fenced: bool = False
    copied: bool = False
    trusts_others: bool = False
    kept: int = 0
    etcd: int | None = None
    balancer: bool = False
    servers: dict[str, bool] = field(default_factory=dict)
    alive: dict[str, bool] = field(default_factory=dict)
    stale: bool = False
    accepting: set[str] = field(default_factory=set)
    fsync: Syncs | None = None
    database: dict[str, float] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    kubelet: dict[str, dict[str, str]] = field(default_factory=dict)
    last_words: list[str] = field(default_factory=list)
    kubelets: dict[str, int] = field(default_factory=dict)


def read_said(text: str, asked: Collection[str]) -> SaidByScript:
    """Never raises: a host can print anything; a line that is not understood is skipped, and so is a server that it was
    not asked for."""
    said = SaidByScript()
    for line in text.splitlines():
        words = line.split()
        _read_of_etcd(said, words)
        _read_of_kubelet(said, words)
        match words:
            case ["unit", unit, state]:
                said.units[unit] = state == "active"
            case ["free", path, size] if path in _DISKS and (number := _number(size)) is not None:
                said.free[path] = number
            case ["balancer", status]:
                said.balancer = status != "-"
            case ["server", server, status] if server in asked:
                said.servers[server] = status == "200"
            case ["alive", server, status] if server in asked:
                said.alive[server] = status == "200"
            case ["stale", answer]:
                said.stale = answer == "yes"
            case ["accepts", port] if port in _SERVERS:
                said.accepting.add(_SERVERS[port])
    return said


def _read_of_etcd(said: SaidByScript, words: Sequence[str]) -> None:
    match words:
        case ["member", "-"]:
            said.has_member = True
        case ["fence", "-"]:
            said.fenced = True
        case ["copy", "-"]:
            said.copied = True
        case ["trusts", "-"]:
            said.trusts_others = True
        case ["kept", "-"]:
            said.kept += 1
        case ["etcd", status]:
            said.etcd = _number(status)
        case ["database", what, value] if what in _DATABASE and (found := _float(value)) is not None:
            said.database[what] = found
        case ["alarm", kind] if kind in ALARMS and kind not in said.alarms:
            said.alarms.append(kind)
        case ["syncs", *times]:
            said.fsync = _syncs(times)


def _read_of_kubelet(said: SaidByScript, words: Sequence[str]) -> None:
    match words:
        case ["kubelet", "words", *line]:
            said.last_words.append(" ".join(line))
        case ["kubelet", "process", pid, age] if _number(pid) and (seconds := _number(age)) is not None:
            said.kubelets[pid] = seconds
        case ["kubelet", "host" | "ask" | "trial" | "result" | "hosted" as name, key, *value]:
            said.kubelet.setdefault(name, {}).setdefault(key, plain(" ".join(value)))


def on_host(said: SaidByScript) -> OnHost | None:
    if (host := said.kubelet.get("host")) is None:
        return None
    found = {name: said.kubelet.get(name, {}) for name in ("ask", "trial", "result", "hosted")}
    return OnHost(
        "base" in host,
        host.get("current", ""),
        host.get("boot", ""),
        _number(host.get("uptime", "")) or 0,
        **found,
        words=plain(" ".join(said.last_words)),
        in_force=dict(list(said.kubelets.items())[:_MOST_PROCESSES]),
    )


def _number(word: str) -> int | None:
    """A number of bytes, or a status. Neither has more digits than these."""
    return int(word) if re.fullmatch("[0-9]{1,18}", word) else None


def _float(word: str) -> float | None:
    """A size or a time; None for one that is no usable number."""
    try:
        found = float(word)
    except ValueError:
        return None
    return found if abs(found) < 1e18 else None


async def _looked_at(context: Context, node: Node, host: Host) -> NodeEvidence:
    servers = [f"{n.name}-{slot}" for n in context.control_nodes for slot in nllb.SLOTS]
    clock = await _clock(context, host)
    text = (await host.run(["bash", "-c", _PROGRAM, "bash", *servers], timeout=60)).text
    said = read_said(text, servers)
    is_control = node in context.control_nodes
    listing = await host.run([standby.SCRIPT_PATH, "list"], check=False) if is_control else None
    standbys = standby.parse_list(listing.text) if listing is not None and listing.status == 0 else {}
    return NodeEvidence(
        node.name,
        control_plane=is_control,
        units=said.units,
        free=said.free,
        has_etcd=context.cluster.external_etcd is None and (node.control_plane or said.has_member),
        etcd=said.etcd,
        balanced=said.servers if said.balancer else None,
        alive=said.alive if said.balancer else {},
        stale_balancer=said.stale,
        accepting=frozenset(f"{node.name}-{slot}" for slot in said.accepting),
        fsync=said.fsync,
        database=Database(*(said.database.get(name, 0.0) for name in _DATABASE)),
        alarms=tuple(said.alarms),
        fenced=said.fenced,
        copied=said.copied,
        trusts_others=said.trusts_others,
        kept=said.kept,
        clock=clock,
        active=frozenset(component for component, (_, activations) in standbys.items() if activations),
        kubelet=on_host(said),
        missing_standby=frozenset(c for c in WITH_STANDBY if is_control and standbys.get(c, (None, ()))[0] is None),
    )


async def _idle_leases(context: Context, nodes: Sequence[NodeEvidence]) -> dict[str, float]:
    """Seconds since each level 3 lease was renewed, by the clock of the node that renews it."""
    idle = {}
    for name in LED_BY_LEASE:
        lease = await context.kube().get("coordination.k8s.io/v1", "Lease", name, SYSTEM)
        spec = (lease or {}).get("spec", {})
        stamp = spec.get("renewTime")
        if stamp:
            now = _now(context, nodes, spec.get("holderIdentity") or "")
            idle[name] = now - datetime.fromisoformat(stamp).timestamp()
    return idle


def _now(context: Context, nodes: Sequence[NodeEvidence], holder: str) -> float:
    """Seconds since 1970 on the host that the identity ("HOST_UUID") names; else on the control nodes, as most of them
    have it. Our own clock may be off, and is asked only where none of theirs is known."""
    clocks = {node.name: node.clock for node in nodes if node.control_plane and node.clock is not None}
    if not clocks:
        return context.clock.time()
    clock = clocks.get(holder.rpartition("_")[0].casefold(), statistics.median_low(clocks.values()))
    return clock + context.clock.monotonic()
