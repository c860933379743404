"""What runs where: every component of every level on every node, by slot, version and health.

It only looks. While the API answers, pods and nodes say what they run; while it is down, the hosts' own ports
and manifests do. A source that does not answer fails nothing here: what is not known is "unknown".
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from autarky.control.certificates import decide as certificates
from autarky.control.common.pods import has_ended, is_mirror, is_ready, is_what_it_says, pressure
from autarky.control.common.shapes import condition
from autarky.control.kubelet.decide import hosted_report
from autarky.control.slots import manifests as standby
from autarky.errors import AutarkyError
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.components import (
    COMPONENTS,
    ETCD,
    HOST,
    HOSTED,
    KUBELET,
    LOAD_BALANCER,
    NAME_LABEL,
    STANDBY,
    STATIC,
    WITH_STANDBY,
    labelled,
)
from autarky.phases import expiry
from autarky.phases.context import Context
from autarky.phases.external_etcd import seen_health
from autarky.phases.hosts import observe
from autarky.phases.labelled import find_labelled
from autarky.phases.looking import in_time
from autarky.phases.ownership import follow
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM
from autarky.status import kubelets

_LABELS = sorted(component.label_value for component in COMPONENTS.values() if component.image)
_OURS = f"{NAME_LABEL} in ({','.join(_LABELS)})"
"""The pods that are shown (`labelled`)."""
MOST_LETTERS = 200
"""Characters of a pod's version or detail that are shown: a kubelet can make up any text."""


@dataclass(frozen=True, slots=True)
class Row:
    """health: "ready", "not ready", "dormant", "listening", "down" or "unknown". change: of a kubelet, what is
    under way, or why the last change did not stay."""

    level: int
    component: str
    node: str
    slot: str
    version: str
    health: str
    detail: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    cluster: str
    version: str
    self_hosted: str
    api: str
    rows: tuple[Row, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    """Node → why its host does not answer."""
    certificates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node → certificate → when it expires. The administrator's own under `expiry.ADMINISTRATOR`."""
    overdue: tuple[str, ...] = ()
    """A sentence for each certificate that has expired, or is not renewed."""
    unseen: str = ""
    """Why not all pods could be read although the API answers, or ""."""

    @property
    def healthy(self) -> bool:
        served = self.api == "ready" and not self.absent and not self.unseen
        return served and not self.overdue and all(row.health in {"ready", "dormant"} for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "healthy": self.healthy}


async def gather(context: Context) -> Status:
    """Look at hosts and API concurrently and combine the results. If the API goes away meanwhile, report its error."""
    status, _ = await gather_with_nodes(context)
    return status


async def gather_with_nodes(context: Context) -> tuple[Status, list[Object]]:
    """And the Nodes as they were listed; none where the API does not answer."""
    problem = await _observed(context)
    why_down = await _why_down(context, problem)
    rows, nodes, unseen = list[Row](), list[Object](), ""
    reported: dict[str, certificates.Reported] = {}
    if why_down is None:
        try:
            rows, nodes, unseen = await _from_api(context)
            reported = expiry.reported_by_nodes(nodes)
        except AutarkyError as error:
            why_down = str(error)
    if why_down is not None:
        rows, reported, unseen = await _from_hosts(context), await expiry.on_disks(context), ""
    rows = [_as_known(context, row) for row in rows]
    reported |= expiry.administrators(context)
    status = Status(
        cluster=context.cluster.name,
        version=str(context.cluster.kubernetes_version),
        self_hosted=context.cluster.self_hosted_text,
        api="ready" if why_down is None else why_down,
        rows=tuple(sorted(rows, key=lambda row: (row.level, row.component, row.node, row.slot))),
        absent=dict(context.absent),
        certificates={
            node: {name: certificates.stamp(end) for name, end in one.ends.items()} for node, one in reported.items()
        },
        overdue=tuple(certificates.wrong(reported, datetime.now(UTC))),
        unseen=unseen,
    )
    return status, nodes


def _as_known(context: Context, row: Row) -> Row:
    """The API shows the last state of a node for 40 s after it has gone."""
    if row.node not in context.absent or row.health not in {"ready", "not ready"}:
        return row
    return replace(row, health="unknown", detail=f"its host does not answer: {context.absent[row.node]}")


async def _observed(context: Context) -> str | None:
    try:
        await observe(context)
    except AutarkyError as error:
        return str(error)
    return None


async def _why_down(context: Context, problem: str | None) -> str | None:
    """None while it answers."""
    if await context.api_answers():
        return None
    if not context.servers:
        off = [node.name for node in context.cluster.nodes if node.name not in context.facts]
        return problem or f"not running: {', '.join(off)}"
    if not context.pki.complete("super-admin"):
        return problem or "not there yet: `autarky up` has issued no credentials"
    return await context.kube().healthy("/readyz")  # None: it has come back since


# --- with the API ------------------------------------------------------------------------------------


async def _from_api(context: Context) -> tuple[list[Row], list[Object], str]:
    """The rows, the Nodes, and why not all pods could be read, or ""."""
    await follow(context)
    await find_labelled(context, api=True)
    nodes, dormant = await asyncio.gather(context.kube().list("v1", "Node"), _standbys(context))
    where = {node.name for node in context.cluster.control_nodes}  # also before they have the label
    where |= {n["metadata"]["name"] for n in nodes if CONTROL_PLANE_ACTIVE in (n["metadata"].get("labels") or {})}
    running, unseen = await _pod_rows(context, where)
    if unseen:
        await find_labelled(context, api=True)  # raises where the API has gone meanwhile
    active = {(row.component, row.node) for row in running if row.slot == "standby"}
    of_kubelets = {row.node: row.detail for row in running if row.component == KUBELET}
    rows = [
        *(_kubelet_row(node, of_kubelets.get(node["metadata"]["name"], "")) for node in nodes),
        *(row for row in running if row.component != KUBELET),
        *(row for row in dormant if (row.component, row.node) not in active),
        *await external_etcd_rows(context),
    ]
    return rows, nodes, unseen


async def _pod_rows(context: Context, control_nodes: Collection[str]) -> tuple[list[Row], str]:
    """Those that were read in time: kubelets can create any number of pods of any size, and a list that takes too long
    must not hide the rest. Of a node's static pods one row per component and slot, a ready one if there is any."""
    by_controllers, by_kubelets = list[Row](), dict[tuple[str, str, str], Row]()
    unseen = ""
    try:
        async with in_time():
            async for pod in context.kube().each("v1", "Pod", namespace=SYSTEM, labels=_OURS):
                row = _pod_row(pod, control_nodes)
                if row is None:
                    continue
                place = (row.component, row.node, row.slot)
                if not is_mirror(pod):
                    by_controllers.append(row)
                elif place not in by_kubelets or row.health == "ready":
                    by_kubelets[place] = row
    except AutarkyError as error:  # what was found stays
        unseen = str(error)
    return [*by_controllers, *by_kubelets.values()], unseen


def _kubelet_row(node: Object, pod: str) -> Row:
    """In the slot that is in force. pod: why its pod of the DaemonSet has not started."""
    said, reported = condition(node, "Ready"), hosted_report.read(node["metadata"])
    ready = said.get("status") == "True"
    version = node["status"].get("nodeInfo", {}).get("kubeletVersion", "unknown")
    detail = pressure(node) if ready else said.get("message", "no heartbeat")
    name, health = node["metadata"]["name"], "ready" if ready else "not ready"
    slot = HOSTED if reported is not None and reported.state.is_of_node else HOST
    change = "; ".join(filter(None, (kubelets.change(node), kubelets.hosted(reported, pod))))
    return Row(0, KUBELET, name, slot, version, health, detail, change)


def _pod_row(pod: Object, control_nodes: Collection[str]) -> Row | None:
    """None for what is not ours, or is a worker's static pod that only poses as ours."""
    labels = pod["metadata"].get("labels", {})
    component = labelled(labels)
    if component is None or has_ended(pod):
        return None
    if component.name != LOAD_BALANCER and not is_what_it_says(pod, control_nodes):
        return None
    ready = is_ready(pod)
    image = pod["spec"]["containers"][0]["image"].rpartition(":")[2][:MOST_LETTERS]
    slot = component.slot_of(labels)
    node = pod["spec"].get("nodeName", "-")
    health = "ready" if ready else "not ready"
    return Row(component.level, component.name, node, slot, image, health, _why_not_ready(pod))


def _why_not_ready(pod: Object) -> str:
    """The first waiting or unready reason that the kubelet or the scheduler gives."""
    for container in pod["status"].get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason', 'waiting')}: {waiting.get('message', '')}".rstrip(": ")[:MOST_LETTERS]
    scheduled = condition(pod, "PodScheduled")
    return str(scheduled.get("message", ""))[:MOST_LETTERS] if scheduled.get("status") == "False" else ""


# --- without the API ---------------------------------------------------------------------------------


async def _from_hosts(context: Context) -> list[Row]:
    """By the hosts' own ports. Everything on a host that does not answer is unknown."""
    await find_labelled(context, api=False)
    rows = [row for node in context.cluster.nodes for row in _port_rows(context, node)]
    standbys = await _standbys(context)
    shown = {(row.component, row.node, row.slot) for row in rows}
    left = [row for row in standbys if (row.component, row.node, row.slot) not in shown]
    return [*rows, *left, *await external_etcd_rows(context)]


def _port_rows(context: Context, node: Node) -> Iterable[Row]:
    facts = context.facts.get(node.name)
    listening = facts.listening_ports if facts is not None else frozenset()

    def row(component: str, slot: str, port: int) -> Row:
        health = "listening" if port in listening else "down" if facts is not None else "unknown"
        detail = "" if facts is not None else "the host does not answer"
        return Row(COMPONENTS[component].level, component, node.name, slot, "unknown", health, detail)

    yield row(KUBELET, HOSTED if ports.KUBELET_HOSTED_HEALTH in listening else HOST, ports.KUBELET)
    yield row(LOAD_BALANCER, STATIC, ports.NLLB_API)
    if node in context.control_nodes:
        # A control node made by its label need not have a member of its own.
        if context.cluster.external_etcd is None and (node.control_plane or ports.ETCD_CLIENT in listening):
            yield row(ETCD, STATIC, ports.ETCD_CLIENT)
        for component in WITH_STANDBY:
            one = COMPONENTS[component]
            yield row(component, HOSTED, one.port)
            if one.standby_port in listening:
                yield row(component, STANDBY, one.standby_port)


async def _standbys(context: Context) -> list[Row]:
    """The standbys on disk, by their revision; "dormant" unless a manifest of theirs is in place."""
    rows = []
    for node in context.present(context.control_nodes):
        host = context.machines.host(node.name)
        if host is None:
            continue
        try:
            listed = standby.parse_list((await host.run([standby.SCRIPT_PATH, "list"], check=False)).text)
        except AutarkyError:
            continue
        for component, (revision, activations) in listed.items():
            if revision is not None:
                health = "not ready" if activations else "dormant"
                rows.append(
                    Row(COMPONENTS[component].level, component, node.name, STANDBY, "-", health, f"revision {revision}")
                )
    return rows


async def external_etcd_rows(context: Context) -> Sequence[Row]:
    """One for each endpoint of an external etcd, as a control node sees it."""
    external = context.cluster.external_etcd
    if external is None:
        return ()
    seen = await seen_health(context)
    return [_endpoint_row(one, seen.get(one)) for one in external.endpoints]


def _endpoint_row(endpoint: str, wrong: str | None) -> Row:
    """wrong: what is wrong with it, "" when it is healthy, None when nobody could check."""
    if wrong is None:
        unseen = "no control node that answers has etcdctl and the client certificate to look with"
        return Row(1, "etcd", "-", "external", "-", "unknown", f"{endpoint}: {unseen}")
    health = "not ready" if wrong else "ready"
    return Row(1, "etcd", "-", "external", "-", health, f"{endpoint}: {wrong}" if wrong else endpoint)
