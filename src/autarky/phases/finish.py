"""The end of `up`: every workload of ours is available, and the user gets a kubeconfig."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from autarky.control.addons.on_workers import current_set
from autarky.control.common.pods import is_ready, lacks_network, pressure
from autarky.control.rollout.decide.stepping import SERVES_SECONDS
from autarky.control.slots.decide.report import acting_agent
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change, Warn
from autarky.model import patience
from autarky.model.cluster import Cni
from autarky.model.components import NAME_LABEL, NODE_AGENT
from autarky.phases import members
from autarky.phases.context import Context, left_out, memory_of
from autarky.phases.held_up import LOOK_EVERY, HeldUp
from autarky.phases.pivot import withdrawn_pods
from autarky.phases.static_pods import unready_by_node, unready_static_pods
from autarky.phases.went_back import WentBack, changed
from autarky.ports import Object, Progress
from autarky.render.kubeconfig import client_kubeconfig
from autarky.render.objects import agent_parts, parts
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM
from autarky.store import write_private

WORKLOADS = ("DaemonSet", "Deployment")


@dataclass(frozen=True, slots=True)
class AwaitWorkloads:
    name: str = "await-workloads"
    title: str = "Wait until everything is available"
    timeout: float = patience.most(patience.WORKLOADS)
    needs: tuple[str, ...] = ("apply-objects", "join-nodes", "apply-agents")

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not await context.api_answers():
            return [Change("wait until all workloads are available")]
        if names := await changed(context):
            return [Change(f"see why {', '.join(names)} is not as it was applied")]
        waiting = await unavailable(context)
        return [*([Change(f"wait: {waiting.sentence}")] if waiting else []), *await _waits_for_network(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        applied, workers = WentBack(context), _Workers(context)

        async def missing() -> str | NotYet | None:
            found = await applied.look() or await unavailable(context)
            if found is not None and await workers.leave_out(progress):
                return await unavailable(context)
            return found

        await poll_until(
            "all nodes are Ready and all workloads available",
            missing,
            timeout=patience.WORKLOADS,
            still=patience.STEP,
            progress=progress,
            clock=context.clock,
        )
        for warning in await _waits_for_network(context):
            progress.note(warning.sentence)


@dataclass(slots=True)
class _Workers:
    """Workers that joined before this run, and hold it up: whoever is root there may intend that, and it keeps add-ons
    and settings from all others. After `ON_WORKERS` seconds they are left out, like those whose hosts do not answer.
    One that is Ready now and then is no better, until it has been for SERVES_SECONDS."""

    context: Context
    _held: HeldUp = field(init=False)
    _since: dict[str, float] = field(default_factory=dict, init=False)
    _well: dict[str, float] = field(default_factory=dict, init=False)
    """Node → since when it has been ready again without a break."""
    _unready: Sequence[str] = field(default=(), init=False)
    _looked: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._held = HeldUp(self.context)

    async def leave_out(self, progress: Progress) -> bool:
        """Whether any was."""
        control = {node.name for node in self.context.cluster.control_nodes}
        workers = self.context.joined - control - self.context.absent.keys()
        if not workers:
            return False
        found = await self._not_ready(workers) | await self._lacking()
        late = sorted(workers & found.keys())
        for name in late:
            self.context.absent[name] = found[name]
            progress.note(left_out(self.context, name))
        return bool(late)

    async def _not_ready(self, workers: Collection[str]) -> dict[str, str]:
        """Nor are its own static pods, by its own word."""
        nodes = await self.context.kube().list("v1", "Node")
        unready = {*_unready_nodes(self.context, nodes), *await self._with_unready_pods(workers)}
        now = self.context.clock.monotonic()
        self._forget_those_that_are_well(unready, now)
        since = {name: self._since.setdefault(name, now) for name in unready}
        why = f"it was not ready within {patience.ON_WORKERS:.0f} s"
        return {name: why for name, began in since.items() if now - began >= patience.ON_WORKERS}

    def _forget_those_that_are_well(self, unready: Collection[str], now: float) -> None:
        """Else one would be left out for two moments that lie far apart, because another one has held up the wait."""
        self._well = {name: self._well.get(name, now) for name in self._since.keys() - {*unready}}
        for name, began in self._well.items():
            if now - began >= SERVES_SECONDS:
                del self._since[name]

    async def _with_unready_pods(self, workers: Collection[str]) -> Collection[str]:
        """As of the last look: they may make any number of pods."""
        now = self.context.clock.monotonic()
        if self._looked is None or now - self._looked >= LOOK_EVERY:
            nodes = [node for node in self.context.present(self.context.cluster.nodes) if node.name in workers]
            found = await unready_by_node(self.context, nodes)
            self._unready = [name for name, components in found.items() if components]
            self._looked = self.context.clock.monotonic()
        return self._unready

    async def _lacking(self) -> dict[str, str]:
        """On which a DaemonSet of ours lacks pods, or CoreDNS does, and on no control node."""
        found: dict[str, str] = {}
        for obj in _workloads(self.context):
            meta, kube = obj["metadata"], self.context.kube()
            live = await kube.get(obj["apiVersion"], obj["kind"], meta["name"], meta["namespace"])
            if _rolled_out(obj, live, 0)[0]:
                for name in await self._held.by(f"{obj['kind']} {meta['name']}", live):
                    found[name] = f"no pod of {meta['name']} became available there within {patience.ON_WORKERS:.0f} s"
        return found


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
    unready = [name for name in _unready_nodes(context, nodes) if name not in networkless]
    missing, come = [f"node {name} is not Ready" for name in unready], -len(unready)
    workloads = _workloads(context)
    for obj in workloads:
        if nobody_has_one and not obj["spec"]["template"]["spec"].get("hostNetwork"):
            continue
        meta = obj["metadata"]
        live = await kube.get(obj["apiVersion"], obj["kind"], meta["name"], meta["namespace"])
        lacking, pods = _rolled_out(obj, live, _absent_for(context, obj), await _current_set(context, live))
        missing, come = missing + lacking, come + pods
    missing += await _control_nodes_without(context, workloads)
    missing += await _agents_that_do_not_act(context, nodes)
    going = await withdrawn_pods(context)
    missing, come = missing + [f"{pod} has not stopped" for pod in going], come - len(going)
    if not missing and (unready := await unready_static_pods(context)):
        missing, come = unready, come - len(unready)
    if not missing:
        return None
    pressed = [f"node {n['metadata']['name']} takes no new pods: {why}" for n in nodes if (why := pressure(n))]
    return NotYet("; ".join(missing + pressed), come)


async def _waits_for_network(context: Context) -> list[Warn]:
    """What waits for the user who brings the pod network."""
    if context.cluster.network.cni is not Cni.NONE:
        return []
    unready = _unready_nodes(context, await context.kube().list("v1", "Node"))
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


def _workloads(context: Context) -> list[Object]:
    inputs = context.inputs()
    all_parts = [*parts(inputs), *agent_parts(inputs)]
    return [obj for part in all_parts for obj in part.objects if obj["kind"] in WORKLOADS]


def _unready_nodes(context: Context, nodes: Sequence[Object]) -> list[str]:
    ready = {node["metadata"]["name"] for node in nodes if is_ready(node)}
    return [node.name for node in context.present(context.cluster.nodes) if node.name not in ready]


def _absent_for(context: Context, obj: Object) -> int:
    """How many of the nodes that are left out would run its pods: a worker that is left out, perhaps on purpose, does
    not excuse a missing pod on a control node."""
    if CONTROL_PLANE_ACTIVE not in obj["spec"]["template"]["spec"].get("nodeSelector", {}):
        return len(context.absent)
    return len(context.absent.keys() & {node.name for node in context.cluster.control_nodes})


async def _control_nodes_without(context: Context, workloads: Sequence[Object]) -> list[str]:
    """If a node is left out, a DaemonSet may lack one pod, and its status does not say on which node. Each control node
    that is present must have a Ready one."""
    if not context.absent:
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
    ]


async def _agents_that_do_not_act(context: Context, nodes: Sequence[Object]) -> list[str]:
    """Control nodes that are present, and whose hosted agent does not act, by its own report. (Until it does, the
    standby agent answers its probes.)"""
    present = {node.name for node in context.present(context.cluster.control_nodes)}
    active = [node for node in nodes if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})]
    acting = {node["metadata"]["name"]: acting_agent(node) for node in active if node["metadata"]["name"] in present}
    lacking = [name for name, uid in sorted(acting.items()) if uid not in await _hosted_agents(context, name)]
    return [f"the node agent of {name} does not act yet" for name in lacking]


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


def _rolled_out(obj: Object, live: Object | None, absent: int, current: Object | None = None) -> tuple[list[str], int]:
    """(what is missing, how many pods are as wanted). `absent`: how many nodes cannot run theirs. `current`: the
    ReplicaSet that counts, where there are former pods."""
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
    if have < enough or updated < enough or (want == 0 and obj["kind"] == "DaemonSet"):
        return [f"{name} has {have} of {want} pods available, {updated} updated"], come
    return [], come


def _available(current: Object | None) -> int:
    return int((current or {}).get("status", {}).get("availableReplicas", 0))


@dataclass(frozen=True, slots=True)
class WriteKubeconfig:
    name: str = "write-kubeconfig"
    title: str = "Write the kubeconfig"
    timeout: float = 10
    needs: tuple[str, ...] = ("issue-certificates",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known or not context.pki.complete():
            return [Change("write the kubeconfig")]
        files = self._files(context).items()
        return [Change(f"write {p}") for p, content in files if not p.exists() or p.read_bytes() not in content]

    async def run(self, context: Context, progress: Progress) -> None:
        for path, (content, *_) in self._files(context).items():
            write_private(path, content)

    def _files(self, context: Context) -> dict[Path, list[bytes]]:
        """Path → the acceptable contents, the first of which is written. A kubeconfig may name any of the servers
        first: `autarky kubeconfig` switches it to one that answers."""
        endpoint = context.cluster.control_plane_endpoint
        servers = context.servers if endpoint is None else [f"https://{endpoint}"]
        kubeconfigs = [
            client_kubeconfig(context.inputs(), "kubernetes-admin", "admin", server=server, servers=sorted(servers))
            for server in servers
        ]
        # A worker whose removal was interrupted has no address any more, and must be known to continue its removal.
        rendered, before = {node.name for node in context.complete.nodes}, members.remembered(context.directory)
        left = [before[node.name] for node in context.unlisted if node.name in before.keys() - rendered]
        nodes = memory_of([*context.complete.nodes, *left])
        return {context.directory / "kubeconfig": kubeconfigs, members.path_of(context.directory): [nodes]}
