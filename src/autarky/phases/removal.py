"""Taking one node out of the cluster, in a safe order: what it serves, then what it holds, then what is known of it.

Contract: refused where a safety rule forbids it (control/admission/decide/removal.py), before anything is touched. Each
step looks first, so that a killed removal continues where it stopped. A worker's membership goes first
(distrust.py). Of a machine that is gone (`dead`) only what the cluster knows is cleaned, never its host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autarky.control.admission.decide import removal
from autarky.control.api_server.manifests import READY_PATH
from autarky.control.certificates.manifests.specs import certificates_of
from autarky.control.common.pods import has_ended, internal_address
from autarky.control.common.slim import bare
from autarky.control.control_nodes.decide.serving import STEADY_SECONDS
from autarky.control.control_nodes.observe import ANSWER_SECONDS, SeenToServe, ask_address
from autarky.control.hosts.decide.belonging import Refusal
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError, Refused, Unreachable, UserError
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.phases import belonging, forget, members
from autarky.phases.context import Context, for_each, memory_of
from autarky.phases.distrust import is_plain_worker
from autarky.phases.hosts import look
from autarky.phases.promote import ETCD_MEMBER, etcd_members
from autarky.phases.records import refuse_moved_etcd
from autarky.ports import Host, Object, Progress
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED
from autarky.store import write_private

LEAVE_TIMEOUT = 180.0
DRAIN_TIMEOUT = 600.0
SILENCE_SECONDS = 25.0
"""A kubelet renews its lease every 10 s: one that has missed two renewals while we watched counts as silent."""
_STILL_RENEWED = (
    "something renews the lease of {name}: its kubelet still runs, or somebody has its certificate; after the"
    " removal that certificate is not renewed and can create nothing, but until it expires it can read what every"
    " kubelet may; pods of {name} may still run while others take their place"
)
WATCH_SECONDS = 2 * STEADY_SECONDS
"""How long to watch whether another control node serves: one that has just joined needs some time."""


@dataclass(frozen=True, slots=True)
class CheckRemoval:
    """It only looks, so that all of it happens in `plan`: a dry run refuses the same."""

    node: Node
    dead: bool
    name: str = "check-removal"
    title: str = "Check whether the node may go"
    timeout: float = 90

    async def plan(self, context: Context) -> Sequence[Warn]:
        # A worker may go also while etcd moves: it may be what that waits for.
        passed_over = self.node.name if self.dead else None
        await look(context, passed_over=passed_over, etcd_moves=not self.node.control_plane)
        return [Warn(sentence) for sentence in await self._refuse(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        """There is never anything to run."""

    async def _refuse(self, context: Context) -> list[str]:
        """Warnings: what was seen that stops nothing."""
        if not await context.api_answers():
            raise Unreachable("the API does not answer, and without it no node can be removed; see `autarky doctor`")
        live = await context.kube().get("v1", "Node", self.node.name)
        if live is None and self.node.name in context.absent:
            return []  # an earlier run has deleted it
        answers, worker = self.node.name not in context.absent, await is_plain_worker(context, self.node)
        if not worker:
            refuse_moved_etcd(context)
        foreign = await self._foreign(context) if worker and self.dead and answers else None
        answers = answers and foreign is None
        renewed = self.dead and not answers and not await is_silent(context, self.node)
        await refuse_removal(context, self.node, answers=answers, dead=self.dead, renewed=renewed, worker=worker)
        sentences = [] if foreign is None else [f"host {self.node.name} {foreign.seen}: it is left as it is"]
        return [*sentences, _STILL_RENEWED.format(name=self.node.name)] if renewed else sentences

    async def _foreign(self, context: Context) -> Refusal | None:
        """Why the host that answers is not ours. It is not touched anyway, and does not keep a worker from leaving."""
        said = context.owners.get(self.node.name)
        return None if said is None else await belonging.refusal(context, self.node.name, said)


async def refuse_removal(
    context: Context, node: Node, *, answers: bool, dead: bool, renewed: bool = False, worker: bool = False
) -> None:
    """Raises Refused where a safety rule forbids the removal of the node."""
    nodes, members_seen = await asyncio.gather(context.kube().list("v1", "Node"), _healthy_members(context))
    control_nodes = frozenset(_name(found) for found in nodes if _ROLE & _labels(found))
    refusal = removal.refuse(removal.Seen(node.name, control_nodes, members_seen, answers, dead, renewed, worker))
    if refusal is None and node.name in control_nodes:
        stay = [found for found in nodes if _labels(found) >= _ROLE and _name(found) != node.name]
        refusal = removal.refuse_unserved(node.name, await _what_stands_against_serving(context, stay))
    if refusal is not None:
        raise Refused(refusal.rule, refusal.seen, refusal.go_on)


_ROLE = {CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED}


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _labels(node: Object) -> set[str]:
    return set(node["metadata"].get("labels") or {})


async def _what_stands_against_serving(context: Context, nodes: Sequence[Object]) -> dict[str, str | None]:
    """Watched until one of them has been seen to serve for a while, or none can be."""
    by_name = {_name(node): node for node in nodes}
    seen = SeenToServe(lambda name: _ask_whether_it_serves(context, by_name[name]), context.clock)
    end = context.clock.monotonic() + WATCH_SECONDS
    while True:
        found = await seen.look(sorted(by_name))
        if not found or None in found.values() or context.clock.monotonic() > end:
            return found
        await context.clock.sleep(1)


async def _ask_whether_it_serves(context: Context, node: Object) -> str | None:
    """At its address; where that cannot be reached from here, by what its own load balancer says of its servers."""
    address = internal_address(node)

    async def ask(url: str) -> str | None:
        client = context.connect([url], "super-admin")
        try:
            return await client.healthy(READY_PATH, timeout=ANSWER_SECONDS)
        finally:
            await client.close()

    seen = "its address is not known" if address is None else await ask_address(ask, address)
    return None if seen is None or await _is_balanced(context, _name(node)) else seen


async def _is_balanced(context: Context, name: str) -> bool:
    host = context.machines.host(name) if name not in context.absent else None
    if host is None:
        return False
    answers = [await _says_ok(host, ports.NLLB_HEALTH, f"/{name}-{slot}") for slot in nllb.SLOTS]
    return any(answers)


async def _healthy_members(context: Context) -> dict[str, bool]:
    """etcd's voting members and whether each answers on its own health port: of a host that does not answer, no. A
    member may be a worker by the cluster file, which a label has made a control node."""
    if context.cluster.external_etcd is not None:
        return {}
    known = await etcd_members(context.kube())
    names = {m["metadata"]["name"] for m in known if (m.get("status") or {}).get("phase") in ("Member", "Leaving")}
    nodes = [node for node in context.complete.nodes if (node.name in names if known else node.control_plane)]
    health = await for_each(nodes, lambda node: _is_healthy(context, node))
    return {**dict.fromkeys(names, False), **health}


async def _is_healthy(context: Context, node: Node) -> bool:
    host = context.machines.host(node.name) if node.name not in context.absent else None
    return host is not None and await _says_ok(host, ports.ETCD_HEALTH, "/readyz")


async def _says_ok(host: Host, port: int, path: str) -> bool:
    """Whether plain HTTP on the host's loopback answers 200."""
    script = (
        f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && "
        'read -t 5 -r line <&3 && echo "$line"'
    )
    try:
        return " 200 " in (await host.run(["bash", "-c", script], check=False)).text
    except Unreachable:
        return False


async def is_silent(context: Context, node: Node) -> bool:
    """Whether nothing renews the node's lease. Watched for a while, however old it looks: the clock here need not be
    that of the cluster."""
    first = await _renewed(context, node)
    if first is None:
        return True
    end = context.clock.monotonic() + SILENCE_SECONDS
    while context.clock.monotonic() < end:
        await context.clock.sleep(1)
        if await _renewed(context, node) != first:
            return False
    return True


async def _renewed(context: Context, node: Node) -> str | None:
    lease = await context.kube().get("coordination.k8s.io/v1", "Lease", node.name, "kube-node-lease")
    renewed: str | None = (lease or {}).get("spec", {}).get("renewTime")
    return renewed


@dataclass(frozen=True, slots=True)
class TakeOutOfTheFile:
    """Takes the node out of the file that the command line keeps (`write`), before anything else is touched: a killed
    removal may leave a node that is not in the file, which is reported, but none that the next `up` joins again."""

    node: Node
    write: Callable[[], None] | None
    """None where that file does not have the node."""
    name: str = "take-out-of-the-file"
    title: str = "Take the node out of the cluster file"
    timeout: float = 10

    async def plan(self, context: Context) -> Sequence[Change]:
        return [] if self.write is None else [Change(f"take node {self.node.name} out of the file that autarky keeps")]

    async def run(self, context: Context, progress: Progress) -> None:
        if self.write is not None:
            self.write()


@dataclass(frozen=True, slots=True)
class DrainNode:
    """No new pods come to the node; with `evict`, its pods move elsewhere as their disruption budgets allow."""

    node: Node
    evict: bool
    name: str = "drain-node"
    title: str = "Cordon and drain the node"
    timeout: float = DRAIN_TIMEOUT

    async def plan(self, context: Context) -> Sequence[Change]:
        live = await context.kube().get("v1", "Node", self.node.name)
        if live is None:
            return []
        changes = [] if live["spec"].get("unschedulable") else [Change(f"cordon node {self.node.name}")]
        pods = await self._pods(context) if self.evict else []
        return [*changes, *(Change(f"evict pod {_full_name(pod)}") for pod in pods)]

    async def run(self, context: Context, progress: Progress) -> None:
        await context.kube().patch("v1", "Node", self.node.name, {"spec": {"unschedulable": True}})
        if not self.evict:
            return

        async def drained() -> str | None:
            pods = await self._pods(context)
            refused = [said for pod in pods if (said := await _evict(context, pod)) is not None]
            return "; ".join(refused) or (f"{len(pods)} pods are left" if pods else None)

        what = f"node {self.node.name} is drained"
        await poll_until(what, drained, timeout=DRAIN_TIMEOUT - 10, progress=progress, clock=context.clock, interval=1)

    async def _pods(self, context: Context) -> list[Object]:
        """Those that another node can run: not DaemonSets' pods, not static ones, not those that have ended. Only
        what identifies them is kept: they may be many, and large."""
        pods = context.kube().each("v1", "Pod", fields=f"spec.nodeName={self.node.name}")
        return [bare(pod) async for pod in pods if _can_move(pod)]


def _can_move(pod: Object) -> bool:
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences") or ()}
    return not owners & {"DaemonSet", "Node"} and not has_ended(pod)


async def _evict(context: Context, pod: Object) -> str | None:
    """None when the eviction was accepted, else why the pod stays for now."""
    if "deletionTimestamp" in pod["metadata"]:
        return None
    try:
        await context.kube().evict(pod["metadata"]["namespace"], pod["metadata"]["name"])
    except ApiError as error:
        if error.status != 429:
            raise
        return f"{_full_name(pod)}: {error}"
    return None


def _full_name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class TakeLabelAway:
    """A control node becomes a worker first: the operator and the agents take its member out of etcd, then its API
    server. Of a dead one, etcd's leader takes the member out."""

    node: Node
    name: str = "take-label-away"
    title: str = "Make a worker of the control node"
    timeout: float = LEAVE_TIMEOUT + 20

    async def plan(self, context: Context) -> Sequence[Change]:
        left = await still_control(context, self.node)
        return [Change(f"remove the control-plane label of {self.node.name}: {left}")] if left else []

    async def run(self, context: Context, progress: Progress) -> None:
        await leave_control_plane(context, self.node, progress)


async def still_control(context: Context, node: Node) -> str | None:
    """What of a control node it still is, or None."""
    live = await context.kube().get("v1", "Node", node.name)
    labels = (live or {}).get("metadata", {}).get("labels") or {}
    member = await _member(context, node)
    if member is not None and (member.get("status") or {}).get("phase") != "Removed":
        said = member.get("status") or {}
        return f"its EtcdMember is {said.get('phase', 'Pending')} {said.get('message', '')}".rstrip()
    if CONTROL_PLANE_ACTIVE in labels:
        return "the operator still counts it as a control node"
    if CONTROL_PLANE_REQUESTED in labels:
        return "it still has the label"
    return None


async def _member(context: Context, node: Node) -> Object | None:
    found = [m for m in await etcd_members(context.kube()) if m["metadata"]["name"] == node.name]
    return found[0] if found else None


async def leave_control_plane(context: Context, node: Node, progress: Progress) -> None:
    """Remove the requested label, and wait until the operator and the agents have done the rest."""
    kube = context.kube()
    if await kube.get("v1", "Node", node.name) is not None:
        await kube.patch("v1", "Node", node.name, {"metadata": {"labels": {CONTROL_PLANE_REQUESTED: None}}})
    elif await _member(context, node) is not None:
        # A Node that does not exist has no label to remove: what the operator would write is written here.
        await kube.patch(API_VERSION, ETCD_MEMBER, node.name, {"spec": {"state": "Removed"}})

    async def left() -> str | None:
        return await still_control(context, node)

    what = f"{node.name} is no longer a control node"
    await poll_until(what, left, timeout=LEAVE_TIMEOUT, progress=progress, clock=context.clock)
    progress.note(what)


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """Deletes what the API has of the node, and then its machine where that is ours to remove."""

    node: Node
    name: str = "forget-node"
    title: str = "Forget the node"
    timeout: float = 600
    """It may have created very many pods, and very large ones."""

    async def plan(self, context: Context) -> Sequence[Change]:
        changes = [Change(f"delete {what}") for what in await forget.left_of(context.kube(), self.node.name)]
        if self.node.name in members.remembered(context.directory):
            changes.append(Change(f"forget node {self.node.name} and its machine"))
        return changes

    async def run(self, context: Context, progress: Progress) -> None:
        await forget.forget(context.kube(), self.node.name)
        await context.machines.discard(self.node.name, progress)
        nodes = [node for name, node in members.remembered(context.directory).items() if name != self.node.name]
        await asyncio.to_thread(context.pki.forget, certificates_of(self.node.name))
        await asyncio.to_thread(write_private, members.path_of(context.directory), memory_of(nodes))
        progress.note(f"node {self.node.name} is out of the cluster")


def known_node(context: Context, name: str) -> Node:
    """The node of that name, in the file or not; UserError where nobody knows it."""
    known = {**members.remembered(context.directory), **{node.name: node for node in context.complete.nodes}}
    if name not in known:
        raise UserError(f"there is no node {name}", fix=f"the nodes are: {', '.join(known)}")
    return known[name]
