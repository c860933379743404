"""What the agent asks of the API, the runtime and its kubelet when it decides about a change of the latter.

Evidence that a change has harmed pods are the sandboxes that were ready before it, of pods that lived then in the API,
and could not have ended by themselves: a tenant whose pod does that could otherwise send each kubelet back, each time.
The API's phase alone does not say so of one that is padded until its status cannot be written any more. They are noted
by the uid that the API has given their pod, which nobody can choose: a static pod whose mirror was made again is
another one.

Contract: before the script is asked, what cannot be read raises (`live`), and nothing begins. During a trial nothing
raises (`proof`), and each look has an end that leaves time to stop the script's clock.

Danger: tenants put any number of pods on a node, of any size, and could make a look at all of them never end. So
whether the API answers is asked of two small objects, and a trial looks only at the pods that were noted before it, of
which a kubelet has as many as it takes: first at those whose sandbox is gone, and at none again that is no evidence any
more, which is final; at those that run for RUNNING_SECONDS, each time at others first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from autarky.control.common import understood
from autarky.control.common.pods import is_ready
from autarky.control.common.shapes import text, within
from autarky.control.kubelet.decide import order, report
from autarky.control.kubelet.decide.observed import Live
from autarky.control.kubelet.decide.proof import Before, Seen
from autarky.control.kubelet.node.draining import OwnPod, own_pod, own_pods
from autarky.control.upgrade.decide.path import kubelet_of
from autarky.errors import ApiError, AutarkyError
from autarky.model import patience
from autarky.model.runtime import Sandbox
from autarky.ports import Cri, Kube, Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE

LOOK_SECONDS = patience.LEASE_LOOK
RUNNING_SECONDS = 1.5
"""Of a look, for the pods whose sandbox still stands."""
_BUSY = 429
LEASES = "kube-node-lease"


@dataclass(frozen=True, slots=True)
class _Api:
    """What the API says of the node. beat: when its kubelet renewed its lease last, as it wrote it."""

    answers: bool = False
    beat: str = ""
    node: Object | None = None


@dataclass(frozen=True, slots=True)
class _Ran:
    """What has become of the pods that ran before: sandboxes that are ready, and the pods that could be read, by uid
    (None: there is none of it any more). Each None where it is not known: pods, where one is not whose sandbox has
    gone."""

    sandboxes: frozenset[str] | None = None
    pods: Mapping[str, OwnPod | None] | None = None

    def uids(self, of: Callable[[OwnPod], bool]) -> frozenset[str]:
        return frozenset(uid for uid, pod in (self.pods or {}).items() if pod is not None and of(pod))


@dataclass(frozen=True, slots=True)
class Now:
    """The objects as the API has just given them, and what runs; each None where there is none."""

    node: Object | None
    plane: Object | None
    before: Before | None


@dataclass(slots=True)
class Observing:
    """healthy: whether the kubelet says so itself; None where that cannot be asked."""

    node: str
    kube: Kube
    cri: Cri
    healthy: Callable[[], Awaitable[bool | None]]
    _first_beat: tuple[str, str] = ("", "")
    """The first one that was seen in the trial of an order: it may be from before the switch."""
    _over: dict[str, OwnPod | None] = field(default_factory=dict)
    """Those pods that have ended or can do so, go, or are gone, by uid, which is never given again: of the present
    trial's."""
    _looked_at: dict[str, float] = field(default_factory=dict)
    """When the others were looked at last, by the loop's clock."""

    async def live(self) -> Live:
        """Raises like the API and the runtime."""
        now = await self.now()
        metadata = {} if now.node is None else now.node["metadata"]
        given, said = order.read(metadata), report.read(metadata)
        return Live(
            order="" if given is None else given.id,
            reported="" if said is None or said.is_final else said.order,
            plane=now.plane if now.plane is not None and understood.is_control_plane(now.plane) else None,
            before=now.before,
        )

    async def now(self) -> Now:
        """Raises like the API and the runtime."""
        node = await self.kube.get("v1", "Node", self.node)
        plane = await self.kube.get(API_VERSION, "ControlPlane", CONTROL_PLANE)
        before = None
        if node is not None:
            sandboxes, pods = await self.cri.pods(), await own_pods(self.kube, self.node)
            before = Before(is_ready(node), *evidence(sandboxes, pods))
        return Now(node, plane, before)

    async def proof(self, trial: str, before: Before, own: tuple[float, float] | None = None) -> Seen:
        """trial: the order that is under trial, or the try of a hosted kubelet. before: noted at its beginning. own:
        from when to when (seconds since the epoch) a heartbeat can only be from the kubelet that is on trial; None
        where nobody knows."""
        end = asyncio.get_running_loop().time() + LOOK_SECONDS
        api, ran, healthy = await asyncio.gather(self._api(end), self._ran(before, end), self.healthy())
        return Seen(
            answers=api.answers,
            healthy=healthy,
            # one that is not healthy yet may wait for the other slot's, which goes on beating until then
            heartbeat=self._heard("" if healthy is False else trial, api.beat, own),
            ready=api.node is not None and is_ready(api.node),
            version=kubelet_of(api.node),
            sandboxes=ran.sandboxes,
            living=None if ran.pods is None else ran.uids(lambda pod: pod.is_evidence),
            rejected=ran.uids(lambda pod: pod.rejected),
            evicted=ran.uids(lambda pod: pod.evicted),
        )

    def _heard(self, trial: str, beat: str, own: tuple[float, float] | None) -> bool:
        """The second one that is seen is, whatever the clocks say."""
        if self._first_beat[0] != trial or not self._first_beat[1]:
            self._first_beat = trial, beat
        return bool(beat) and (beat != self._first_beat[1] or (bool(trial) and _is_within(beat, own)))

    async def _api(self, end: float) -> _Api:
        """The lease is read from etcd. An error that says nothing of etcd or the server is an answer. end: by the
        loop's clock."""
        try:
            async with asyncio.timeout_at(end):
                lease = await self.kube.get("coordination.k8s.io/v1", "Lease", self.node, LEASES)
                node = await self.kube.get("v1", "Node", self.node)
        except ApiError as error:
            return _Api(answers=error.status < 500 and error.status != _BUSY)
        except (AutarkyError, TimeoutError):
            return _Api()
        return _Api(True, text(within(lease, "spec", "renewTime")), node)

    async def _ran(self, before: Before, end: float) -> _Ran:
        """Those that still run are looked at as well: a kubelet that would not have them lets them end in peace."""
        try:
            async with asyncio.timeout_at(end):
                ready = frozenset(one.id for one in await self.cri.pods() if one.ready)
        except (AutarkyError, TimeoutError):
            return _Ran()
        uids = frozenset(before.sandboxes.values())
        gone = frozenset(uid for sandbox, uid in before.sandboxes.items() if sandbox not in ready)
        self._over = {uid: pod for uid, pod in self._over.items() if uid in uids}
        living = await self._read(gone - self._over.keys(), before, end)
        is_known = gone <= living.keys() | self._over.keys()
        soon = min(end, asyncio.get_running_loop().time() + RUNNING_SECONDS)
        living |= await self._read(uids - gone - self._over.keys(), before, soon)
        return _Ran(ready, {**living, **self._over} if is_known else None)

    async def _read(self, uids: Collection[str], before: Before, end: float) -> dict[str, OwnPod | None]:
        """Those that are evidence, as many as there is time for: first those that nobody has looked at for longest."""
        clock, living = asyncio.get_running_loop().time, dict[str, OwnPod | None]()
        try:
            async with asyncio.timeout_at(end):
                for uid in sorted(uids, key=lambda uid: self._looked_at.get(uid, 0.0)):
                    self._looked_at[uid] = clock()
                    pod = await self._pod(uid, before.pods.get(uid, ""))
                    (living if pod is not None and pod.is_evidence else self._over)[uid] = pod
        except (AutarkyError, TimeoutError):
            pass
        return living

    async def _pod(self, uid: str, name: str) -> OwnPod | None:
        """None also where nobody has noted its name: agents of 0.1 did not."""
        pod = await own_pod(self.kube, self.node, *name.split("/", 1)) if "/" in name else None
        return pod if pod is not None and pod.uid == uid else None


def _is_within(beat: str, own: tuple[float, float] | None) -> bool:
    """Kubelet, script and agent read the same clock."""
    try:
        return own is not None and own[0] <= datetime.fromisoformat(beat).timestamp() <= own[1]
    except ValueError:
        return False


def evidence(sandboxes: Iterable[Sandbox], pods: Iterable[OwnPod]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """(Sandbox → the uid of its pod in the API, that uid → its namespace/name); see the module's docstring."""
    counts = {(one.namespace, one.name, one.runtime_uid): one for one in pods if one.is_evidence}
    keys = {one.id: (one.namespace, one.name, one.uid) for one in sandboxes if one.ready}
    found = {sandbox: counts[key] for sandbox, key in keys.items() if key in counts and counts[key].uid}
    return (
        {sandbox: pod.uid for sandbox, pod in found.items()},
        {pod.uid: f"{pod.namespace}/{pod.name}" for pod in found.values()},
    )
