"""Whether all nodes are Ready and all workloads of ours available, as one look at the cluster says.

Contract: only looks. A node that is left out excuses what it would run, and nothing on any other one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing

from autarky.control.addons.on_workers import current_set
from autarky.control.common.pods import is_ready, lacks_network, pressure
from autarky.control.common.shapes import image_of
from autarky.control.kubelet.decide import hosted_report
from autarky.control.slots.decide.report import acting_agent
from autarky.engine.deadline import NotYet
from autarky.engine.phase import Warn
from autarky.model.cluster import Cni
from autarky.model.components import KUBELET, NAME_LABEL, NODE_AGENT
from autarky.phases.context import Context
from autarky.phases.pivot import withdrawn_pods
from autarky.phases.static_pods import unready_static_pods
from autarky.ports import Object
from autarky.render.objects import agent_parts, parts
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM

WORKLOADS = ("DaemonSet", "Deployment")


async def unavailable(context: Context) -> NotYet | None:
    """None when all nodes are Ready, all our workloads rolled out, the withdrawn standbys gone and the static pods that
    stay are Ready, else what is missing. Hosts that do not answer are not waited for, nor is what waits for the user's
    own pod network: nodes that say so, and pods that need one while no node is Ready. What one node says excuses no
    other.

    Progress is one number, so that a node whose readiness flaps makes few new values of it."""
    kube = context.kube()
    nodes = await kube.list("v1", "Node")
    networkless = _networkless(context, nodes)
    nobody_has_one = bool(networkless) and not any(is_ready(node) for node in nodes)
    unready = [name for name in unready_nodes(context, nodes) if name not in networkless]
    missing, come = [f"node {name} is not Ready" for name in unready], -len(unready)
    workloads = rendered_workloads(context)
    refusing = await _refusing(context, nodes)
    for obj in workloads:
        if nobody_has_one and not obj["spec"]["template"]["spec"].get("hostNetwork"):
            continue
        meta = obj["metadata"]
        live = await kube.get(obj["apiVersion"], obj["kind"], meta["name"], meta["namespace"])
        excused = len(refusing) if meta["name"] == KUBELET else 0
        current = await _current_set(context, live)
        lacking, pods = rolled_out(obj, live, _absent_for(context, obj), current, excused=excused)
        missing, come = missing + lacking, come + pods
    missing += await _control_nodes_without(context, workloads, refusing)
    missing += await _agents_that_do_not_act(context, nodes, workloads)
    going = await withdrawn_pods(context)
    missing, come = missing + [f"{pod} has not stopped" for pod in going], come - len(going)
    if not missing and (unready := await unready_static_pods(context)):
        missing, come = unready, come - len(unready)
    if not missing:
        return None
    pressed = [f"node {n['metadata']['name']} takes no new pods: {why}" for n in nodes if (why := pressure(n))]
    return NotYet("; ".join(missing + pressed), come)


async def waits_for_network(context: Context) -> list[Warn]:
    """What waits for the user who brings the pod network."""
    if context.cluster.network.cni is not Cni.NONE:
        return []
    unready = unready_nodes(context, await context.kube().list("v1", "Node"))
    if not unready:
        return []
    sentence = (
        f"not Ready: {', '.join(unready)}. network.cni is none: these nodes, and pods that need a network, wait for the"
        " pod network that you apply"
    )
    return [Warn(sentence, in_plan=True)]


def _networkless(context: Context, nodes: Sequence[Object]) -> set[str]:
    """The nodes whose pods have no network yet, if the user brings it."""
    if context.cluster.network.cni is not Cni.NONE:
        return set()
    return {node["metadata"]["name"] for node in nodes if lacks_network(node)}


def rendered_workloads(context: Context) -> list[Object]:
    inputs = context.inputs()
    all_parts = [*parts(inputs), *agent_parts(inputs)]
    return [obj for part in all_parts for obj in part.objects if obj["kind"] in WORKLOADS]


def unready_nodes(context: Context, nodes: Sequence[Object]) -> list[str]:
    ready = {node["metadata"]["name"] for node in nodes if is_ready(node)}
    return [node.name for node in context.present(context.cluster.nodes) if node.name not in ready]


def _absent_for(context: Context, obj: Object) -> int:
    """How many of the nodes that are left out would run its pods: a worker that is left out, perhaps on purpose, does
    not excuse a missing pod on a control node."""
    if CONTROL_PLANE_ACTIVE not in obj["spec"]["template"]["spec"].get("nodeSelector", {}):
        return len(context.absent)
    return len(context.absent.keys() & {node.name for node in context.cluster.control_nodes})


async def _refusing(context: Context, nodes: Sequence[Object]) -> set[str]:
    """The nodes on which the hosted kubelet may not be in force, as they report: they are to have another version. Only
    where that is about a pod of the DaemonSet there that is not Ready: one that is Ready is counted already."""
    reported = {node["metadata"]["name"]: hosted_report.read(node["metadata"]) for node in nodes}
    refused = {
        name: said.pod
        for name, said in reported.items()
        if said is not None and said.state is hosted_report.State.REFUSED and name not in context.absent
    }
    return {name for name, uid in refused.items() if await has_unready(context, name, uid)}


async def has_unready(context: Context, node: str, uid: str) -> bool:
    """Whether that pod is there, is the hosted kubelet's DaemonSet's, and is not Ready."""
    found = await _pods_on(context, node, labels=f"{NAME_LABEL}={KUBELET}")
    return any(pod["metadata"]["uid"] == uid and not is_ready(pod) and KUBELET in _daemonsets_of(pod) for pod in found)


async def _control_nodes_without(
    context: Context, workloads: Sequence[Object], refusing: Collection[str] = ()
) -> list[str]:
    """If a node is left out, a DaemonSet may lack one pod, and its status does not say on which node. Each control node
    that is present must have a Ready one. refusing: of the kubelet's."""
    if not context.absent and not refusing:
        return []
    control = context.present(context.cluster.control_nodes)
    ready = {node.name: [pod for pod in await _pods_on(context, node.name) if is_ready(pod)] for node in control}
    has = {(owner, node) for node, pods in ready.items() for pod in pods for owner in _daemonsets_of(pod)}
    return [
        f"DaemonSet {obj['metadata']['name']} has no pod that is Ready on {node.name}"
        for obj in workloads
        if obj["kind"] == "DaemonSet"
        for node in control
        if (obj["metadata"]["name"], node.name) not in has
        and not (obj["metadata"]["name"] == KUBELET and node.name in refusing)
    ]


async def _agents_that_do_not_act(context: Context, nodes: Sequence[Object], workloads: Sequence[Object]) -> list[str]:
    """Control nodes that are present, and whose hosted agent does not act, by its own report. (Until it does, the
    standby agent answers its probes.) Agents of an earlier release do not say so: whoever has pinned their image gets
    them by it."""
    present = {node.name for node in context.present(context.cluster.control_nodes)}
    active = [node for node in nodes if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})]
    acting = {node["metadata"]["name"]: acting_agent(node) for node in active if node["metadata"]["name"] in present}
    if "" in acting.values() and await _is_pinned(context, workloads):
        acting = {name: uid for name, uid in acting.items() if uid}
    lacking = [name for name, uid in sorted(acting.items()) if uid not in await _hosted_agents(context, name)]
    return [f"the node agent of {name} does not act yet" for name in lacking]


async def _is_pinned(context: Context, workloads: Sequence[Object]) -> bool:
    """Whether somebody has given the node agents another image than ours, which `up` keeps."""
    wanted = [obj for obj in workloads if obj["metadata"]["name"] == NODE_AGENT]
    live = await context.kube().get("apps/v1", "DaemonSet", NODE_AGENT, SYSTEM) if wanted else None
    images = [image_of(obj["spec"]["template"], NODE_AGENT) for obj in (*wanted, live) if obj is not None]
    return len(set(images)) > 1


async def _hosted_agents(context: Context, node: str) -> set[str]:
    """Their uids."""
    found = await _pods_on(context, node, labels=f"{NAME_LABEL}={NODE_AGENT}")
    return {pod["metadata"]["uid"] for pod in found if NODE_AGENT in _daemonsets_of(pod)}


async def _pods_on(context: Context, node: str, *, labels: str | None = None) -> list[Object]:
    """Of that node only: a worker may make any number of pods."""
    only = context.kube().each("v1", "Pod", namespace=SYSTEM, labels=labels, fields=f"spec.nodeName={node}")
    async with aclosing(only) as pods:
        return [pod async for pod in pods]


def _daemonsets_of(pod: Object) -> list[str]:
    owners = pod["metadata"].get("ownerReferences", [])
    return [owner["name"] for owner in owners if owner["kind"] == "DaemonSet"]


async def _current_set(context: Context, live: Object | None) -> Object | None:
    """Of a Deployment that still has former pods: the ReplicaSet of its template. Its own status does not say which of
    its pods are available."""
    status = (live or {}).get("status", {})
    if live is None or live["kind"] != "Deployment" or status.get("replicas", 0) <= status.get("updatedReplicas", 0):
        return None
    labels = ",".join(f"{name}={value}" for name, value in live["spec"]["selector"]["matchLabels"].items())
    sets = await context.kube().list("apps/v1", "ReplicaSet", namespace=live["metadata"]["namespace"], labels=labels)
    found = current_set(live, sets)
    return None if found is None else dict(found)


def rolled_out(
    obj: Object, live: Object | None, absent: int, current: Object | None = None, *, excused: int = 0
) -> tuple[list[str], int]:
    """(what is missing, how many pods are as wanted). `absent`: how many nodes cannot run theirs. `current`: the
    ReplicaSet that counts, where there are former pods. `excused`: how many of its pods are there and need not be
    available; they need be updated all the same."""
    name = f"{obj['kind']} {obj['metadata']['name']}"
    if live is None:
        return [f"{name} does not exist"], 0
    status = live.get("status", {})
    if status.get("observedGeneration", 0) < live["metadata"]["generation"]:
        return [f"the last change of {name} was not observed by its controller yet"], 0
    if obj["kind"] == "DaemonSet":
        want, have = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
        updated = status.get("updatedNumberScheduled", 0)
    else:
        want, updated = live["spec"]["replicas"], status.get("updatedReplicas", 0)
        former = status.get("replicas", 0) - updated
        # Where none is left that would have to stay, it need not be settled, which would hold up a first `up`.
        have = status.get("readyReplicas", 0) if former <= 0 else _available(current)
        if former > 0 and not absent:
            return [f"{name} has {former} pods of a former revision"], min(have, want) + min(updated, want)
    enough = max(want - absent, min(want, 1))
    come = min(have, want) + min(updated, want)
    if have < enough - excused or updated < enough or (want == 0 and obj["kind"] == "DaemonSet"):
        return [f"{name} has {have} of {want} pods available, {updated} updated"], come
    return [], come


def _available(current: Object | None) -> int:
    return int((current or {}).get("status", {}).get("availableReplicas", 0))
