"""The controllers of backups: one asks for those that are due and gives up old ones, one has them made and removed.

Contract: all that is remembered is in the objects. A status is written before the pod that it tells of is created, and
what a pod said is written before the pod is deleted, so that a crash between any two of them repeats a step and loses
none. Deleting a Backup removes no archive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from prometheus_client import Gauge

from autarky.control.backup.decide import schedule as schedules
from autarky.control.backup.decide import seen
from autarky.control.backup.decide.schedule import Made, Schedule, made_of, phase_of, since_1970
from autarky.control.backup.decide.step import (
    AGAIN_SECONDS,
    MOST_ATTEMPTS,
    Asked,
    DropPod,
    Forget,
    Nodes,
    Phase,
    Record,
    Start,
    Step,
    Verb,
    Wait,
    step,
)
from autarky.control.backup.decide.turns import in_turn
from autarky.control.backup.manifests import definitions, pods
from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.certificates.decide import stamp
from autarky.control.common.pods import is_mirror
from autarky.control.common.shapes import node_is_ready
from autarky.errors import Conflict
from autarky.model.components import OPERATOR
from autarky.model.etcd_members import Phase as MemberPhase
from autarky.ports import Clock, Kube, Object
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM

VERIFIED = Gauge(
    "autarky_backup_last_verified_timestamp_seconds", "When the newest complete backup was verified", ["schedule"]
)
WORKING = {Phase.RUNNING: Verb.MAKE, Phase.REMOVING: Verb.REMOVE}
LOOK_SECONDS = 20.0
"""While a pod works: whether its node still answers changes without an event."""


@dataclass(slots=True)
class Backups(ClusterController):
    """Has archives made and removed, by a pod each."""

    view: View
    kube: Kube
    clock: Clock
    name: ClassVar[str] = "backups"
    _changed: dict[str, str] = field(default_factory=dict, init=False)
    """Backup → its version before the last change of its status: while the live copy shows that one, it is behind."""
    _first_seen: dict[str, float] = field(default_factory=dict, init=False)
    """Pod, by its uid → when, on the monotonic clock."""
    _queue: list[str] = field(default_factory=list, init=False)
    """Those that could have a pod, whoever is next first."""

    async def reconcile(self) -> float | None:
        view = self.view
        if not current([view.backups, view.nodes, view.pods, view.etcd_members]):
            return None
        objects = sorted(view.backups.items.values(), key=_created)
        self.remember_only(obj["metadata"]["name"] for obj in objects)
        workers = {obj["metadata"]["name"]: _pod_of(obj, view) for obj in objects}
        await self.each(self._strays(objects), self._drop)
        busy = {name for name, pod in workers.items() if pod is not None} | self._at_work(objects)
        there = {pod["metadata"]["uid"] for pod in workers.values() if pod is not None}
        self._first_seen = {uid: at for uid, at in self._first_seen.items() if uid in there}
        nodes = _nodes(view, objects, self.clock.time())
        self._queue = in_turn(self._queue, self._waiting([obj for obj in objects if not workers[_name(obj)]], nodes))
        objects.sort(key=lambda obj: self._queue.index(_name(obj)) if _name(obj) in self._queue else -1)
        await self.each(objects, lambda obj: self._one(obj, workers[_name(obj)], nodes, busy))
        if busy:
            return LOOK_SECONDS
        waits = any(phase_of(obj) is Phase.NOT_REMOVED for obj in objects)
        return AGAIN_SECONDS / 4 if waits else None

    def _waiting(self, objects: Sequence[Object], nodes: Nodes) -> list[Asked]:
        """Those that would have a pod if nobody else did. One that is malformed is reported where it is acted on."""
        found: list[Asked] = []
        for obj in objects:
            with suppress(KeyError, TypeError, ValueError):
                found.append(seen.asked_of(obj, self.clock.time()))
        return [one for one in found if isinstance(step(one, None, nodes, busy=False), Start)]

    def _at_work(self, objects: Sequence[Object]) -> set[str]:
        """Also those whose pod the live copy does not show yet."""
        versions = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in objects}
        self._changed = {name: old for name, old in self._changed.items() if versions.get(name) == old}
        at_work = (obj for obj in objects if phase_of(obj) in WORKING and not seen.waits(obj))
        return {*self._changed, *(obj["metadata"]["name"] for obj in at_work)}

    async def _one(self, obj: Object, pod: Object | None, nodes: Nodes, busy: set[str]) -> None:
        name = obj["metadata"]["name"]
        if name in self._changed:
            return  # what would be decided has been decided already
        worker = None if pod is None else seen.worker_of(pod, self._age(pod))
        asked = seen.asked_of(obj, self.clock.time())
        if pod is None and asked.phase in WORKING and await self._is_there(obj, WORKING[asked.phase], asked.attempt):
            return  # the live copy of the pods is behind
        found = step(asked, worker, nodes, busy=bool(busy - {name}), ahead=name in self._queue[1:])
        if isinstance(found, Start):
            if busy - {name}:
                return  # it has waited for its node, and waits for its turn now
            busy.add(name)
        await self._do(obj, pod, found)

    def _age(self, pod: Object) -> float:
        """Seconds since it was first seen: the clocks of nodes may differ."""
        now = self.clock.monotonic()
        return now - self._first_seen.setdefault(pod["metadata"]["uid"], now)

    async def _do(self, obj: Object, pod: Object | None, found: Step) -> None:
        name = obj["metadata"]["name"]
        match found:
            case Start(verb, node, attempt):
                phase = Phase.RUNNING if verb is Verb.MAKE else Phase.REMOVING
                status = {
                    "phase": phase.value,
                    "attempt": attempt,
                    "message": "",
                    "started": stamp(datetime.fromtimestamp(self.clock.time(), UTC)),
                }
                # The archive lies where it was made, whoever removes it.
                await self._status(obj, status | ({"node": node} if verb is Verb.MAKE else {}))
                await self._create(obj, verb, node, attempt)
                self.tell(f"a pod on {node} is to {verb.value} its archive (attempt {attempt})", name)
            case Record(phase, message, result):
                await self._status(obj, {**result, "phase": phase.value, "message": message})
                self.tell(message or f"{result.get('file')} is complete and verified", name)
                if pod is not None:
                    await self._drop(pod)
            case DropPod(why):
                self.tell(f"its pod is deleted: {why}", name)
                if pod is not None:
                    await self._drop(pod)
            case Forget(why):
                self.tell(f"the Backup is deleted: {why}", name)
                if pod is not None:
                    await self._drop(pod)
                await self.kube.delete(API_VERSION, definitions.BACKUP, name)
            case Wait(why):
                if why and why != (obj.get("status") or {}).get("message"):
                    await self._status(obj, {"message": why, "phase": phase_of(obj).value})
                    self.tell(why, name)

    async def _is_there(self, obj: Object, verb: Verb, attempt: int) -> bool:
        name = pods.name(obj["metadata"]["uid"], verb.value, attempt)
        found = await self.kube.get("v1", "Pod", name, SYSTEM)
        return found is not None and not is_mirror(found)  # which is what some kubelet says

    async def _status(self, obj: Object, status: Mapping[str, Any]) -> None:
        """`obj` is as it was read: another operator may have changed it meanwhile, and then this fails."""
        name, version = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": dict(status)}
        written = await self.kube.patch(API_VERSION, definitions.BACKUP, name, patch, subresource="status")
        if written["metadata"]["resourceVersion"] != version:
            self._changed[name] = version

    async def _create(self, obj: Object, verb: Verb, node: str, attempt: int) -> None:
        image = _own_image(self.view)
        beside = seen.beside(obj, self.view.backups.items.values()) if verb is Verb.REMOVE else []
        wanted = pods.pod(obj, verb.value, node, attempt, image=image, plane=self.view.control_plane, beside=beside)
        with suppress(Conflict):  # it is there already: this is done again after a crash
            await self.kube.create(wanted)

    def _strays(self, objects: Sequence[Object]) -> list[Object]:
        """Pods whose Backup is gone."""
        names = {obj["metadata"]["name"] for obj in objects}
        return [pod for pod in _pods(self.view) if pod["metadata"]["labels"].get(pods.BACKUP_LABEL) not in names]

    async def _drop(self, pod: Object) -> None:
        grace = _grace(pod, self.view)
        if "deletionTimestamp" not in pod["metadata"] or grace == 0:
            await self.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM, grace_seconds=grace)


@dataclass(slots=True)
class Schedules(ClusterController):
    """Asks for the backups that are due, gives up those that have outlived their use, and says how old the last one is.

    seen: a sentence for each schedule whose last backup is too old; None where there are no schedules."""

    view: View
    kube: Kube
    clock: Clock
    name: ClassVar[str] = "backup schedules"
    seen: tuple[str, ...] | None = field(default=None, init=False)
    _asked: dict[str, float] = field(default_factory=dict, init=False)
    """Schedule → when it last asked for one, on the monotonic clock."""
    _measured: set[str] = field(default_factory=set, init=False)

    async def reconcile(self) -> float | None:
        view, now = self.view, self.clock.time()
        if not current([view.backups, view.backup_schedules]):
            return None
        objects = list(view.backup_schedules.items.values())
        self.remember_only(obj["metadata"]["name"] for obj in objects)
        self._forget_measures({obj["metadata"]["name"] for obj in objects})
        late: list[str] = []
        rests = await self.each(objects, lambda obj: self._one(obj, now, late))
        self.seen = tuple(sorted(late)) if objects else None
        return min((rest for rest in rests if rest is not None), default=None)

    async def _one(self, obj: Object, now: float, late: list[str]) -> float | None:
        name, wanted = obj["metadata"]["name"], _schedule(obj)
        own = [one for one in self.view.backups.items.values() if _label(one, definitions.OF_SCHEDULE) == name]
        made = [made_of(one) for one in own]
        lateness = schedules.lateness(wanted, made, since_1970(obj["metadata"]["creationTimestamp"]), now)
        message = "; ".join(filter(None, (lateness, schedules.from_the_future(made, now))))
        if lateness:
            late.append(f"{name}: {message}")
        await self._say(obj, _newest(own, made, now), message, now)
        for one in schedules.outlived(wanted, made, now):
            await self.kube.patch(API_VERSION, definitions.BACKUP, one, {"spec": {"state": definitions.REMOVED}})
            self.tell(f"{one} has outlived its use", name)
        due = schedules.due_in(wanted, made, now)
        if due != 0:
            return due
        pause = schedules.pause_after(wanted, made, now)
        since = self.clock.monotonic() - self._asked.get(name, -math.inf)
        if since < pause:
            return pause - since  # whatever the clocks say: this one is behind that of the API server
        self._asked[name] = self.clock.monotonic()
        await self._ask(name, obj, now)
        return pause

    def _forget_measures(self, there: set[str]) -> None:
        """A schedule that is gone is not overdue forever."""
        for name in self._measured - there:
            VERIFIED.remove(name)
        self._measured &= there

    async def _ask(self, name: str, obj: Object, now: float) -> None:
        there = {_name(one) for one in self.view.backups.items.values()}
        asked = definitions.backup(schedules.free_name(name, now, there), obj["spec"]["template"], name)
        try:
            await self.kube.create(asked)
        except Conflict:
            return  # another operator has just asked, and the live copy is behind
        self.tell(f"{asked['metadata']['name']} is asked for", name)

    async def _say(self, obj: Object, last: Object | None, message: str, now: float) -> None:
        name = obj["metadata"]["name"]
        verified = None if last is None else _verified(last, now)
        self._measured.add(name)
        VERIFIED.labels(name).set(0 if verified is None else since_1970(verified))
        status = {"message": message}
        if last is not None and verified is not None:
            status |= {"lastBackup": last["metadata"]["name"], "lastVerified": verified}
        before = obj.get("status") or {}
        if any(before.get(key) != value for key, value in status.items()):
            await self.kube.patch(API_VERSION, definitions.SCHEDULE, name, {"status": status}, subresource="status")


# --- what is seen --------------------------------------------------------------------------------------


def _pods(view: View) -> list[Object]:
    """Ours: a mirror pod is only what a kubelet says."""
    return [
        pod
        for pod in view.pods.items.values()
        if pods.BACKUP_LABEL in (pod["metadata"].get("labels") or {}) and not is_mirror(pod)
    ]


def _pod_of(obj: Object, view: View) -> Object | None:
    """By its name, which only we know; that of the newest attempt."""
    uid = obj["metadata"]["uid"]
    names = [pods.name(uid, verb.value, attempt) for attempt in range(MOST_ATTEMPTS, 0, -1) for verb in Verb]
    found = {pod["metadata"]["name"]: pod for pod in _pods(view)}
    return next((found[name] for name in names if name in found), None)


def _nodes(view: View, backups: Sequence[Object], now: float) -> Nodes:
    """Able are Ready control nodes whose member votes, and of which nothing is said that keeps it from being well,
    unless that is said of all. First those that made one the longest ago: archives in their directories are then not
    all on one disk."""
    node_of = {obj["metadata"]["name"]: (obj.get("status") or {}).get("node") for obj in backups}
    made = schedules.oldest_first([made_of(obj) for obj in backups], now)
    last = {node_of[one.name]: turn for turn, one in enumerate(made, 1)}
    members = {obj["metadata"]["name"]: obj.get("status") or {} for obj in view.etcd_members.items.values()}
    voting = {name for name, one in members.items() if one.get("phase") == MemberPhase.MEMBER.value}
    ready = {
        name: node_is_ready(node)
        for (_, name), node in view.nodes.items.items()
        if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})
    }
    able = [name for name, well in ready.items() if well and (not members or name in voting)]
    able = [name for name in able if not members.get(name, {}).get("message")] or able
    there = {name for _, name in view.nodes.items}
    silent = {name for (_, name), node in view.nodes.items.items() if node_is_ready(node) is None}
    return Nodes(sorted(able, key=lambda name: (last.get(name, 0), name)), silent, there)


def _grace(pod: Object, view: View) -> int | None:
    """None: the pod's own. 0 where its node is not there to end it."""
    node = view.nodes.items.get((None, pod["spec"].get("nodeName")))
    return 0 if node is None or node_is_ready(node) is None else None


def _own_image(view: View) -> str:
    deployment = view.deployments.items[SYSTEM, OPERATOR]
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def _schedule(obj: Object) -> Schedule:
    spec = obj["spec"]
    keep = spec.get("keep") or {}
    return Schedule(
        every=schedules.seconds(spec["every"]) or 86400.0,
        count=int(keep.get("count", definitions.DEFAULT_COUNT)),
        days=keep.get("days"),
        paused=bool(spec.get("paused")),
    )


def _newest(own: Sequence[Object], made: Sequence[Made], now: float) -> Object | None:
    last = schedules.last_complete(made, now)
    return next((obj for obj in own if last is not None and obj["metadata"]["name"] == last.name), None)


def _verified(backup: Object, now: float) -> str | None:
    """When, by the clock of its node; where that was ahead, when it was asked for."""
    verified: str | None = backup["status"].get("verified")
    ahead = verified is not None and schedules.is_ahead(since_1970(verified), now)
    return str(backup["metadata"]["creationTimestamp"]) if ahead else verified


def _label(obj: Object, name: str) -> str | None:
    found = (obj["metadata"].get("labels") or {}).get(name)
    return None if found is None else str(found)


def _created(obj: Object) -> tuple[str, str]:
    return str(obj["metadata"]["creationTimestamp"]), _name(obj)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
