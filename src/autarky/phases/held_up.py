"""Workers that hold up an add-on: a DaemonSet that gets no further, and lacks pods nowhere but on them; a Deployment
that lacks only those that are on one of them.

Contract: one is excused only after `ON_WORKERS` seconds without progress, counted as waits count it: a pod that is
ready now and then is none. It is looked at no more often than every few seconds, and not for long: whoever is root on a
worker may make any number of pods.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

from autarky.control.addons import health, on_workers
from autarky.errors import AutarkyError
from autarky.model import patience
from autarky.phases.context import Context
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE

LOOK_EVERY, LOOK_SECONDS = 5.0, 20.0
OWNED = {"DaemonSet": "ControllerRevision", "Deployment": "ReplicaSet"}
"""What says which template is the present one."""


@dataclass(slots=True)
class _Seen:
    """come: the most of it that there has been, since when. looked: when its pods were looked at last, and what that
    said."""

    come: int
    since: float
    looked: float | None = None
    workers: tuple[str, ...] = ()


@dataclass(slots=True)
class HeldUp:
    """The DaemonSets and Deployments of one wait."""

    context: Context
    _seen: dict[str, _Seen] = field(default_factory=dict)

    async def by(self, subject: str, live: Object | None) -> tuple[str, ...]:
        """The workers that hold it up; none of any other object, and while it may come by itself."""
        if live is None or live["kind"] not in OWNED:
            return ()
        now, come = self.context.clock.monotonic(), health.come(live)
        seen = self._seen.setdefault(subject, _Seen(come, now))
        if come > seen.come:
            seen.come, seen.since = come, now
        if now - seen.since < patience.ON_WORKERS:
            return ()
        if seen.looked is None or now - seen.looked >= LOOK_EVERY:
            seen.workers = await _look(self.context, live)
            seen.looked = self.context.clock.monotonic()
        return seen.workers


async def _look(context: Context, live: Object) -> tuple[str, ...]:
    """Empty also where it cannot be seen: then it is waited for."""
    kube, namespace = context.kube(), live["metadata"].get("namespace")
    selected = ((live.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    labels = ",".join(f"{name}={value}" for name, value in selected.items()) or None
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            nodes = await kube.list("v1", "Node")
            owned = await kube.list("apps/v1", OWNED[live["kind"]], namespace=namespace, labels=labels)
            owner = live if live["kind"] == "DaemonSet" else on_workers.current_set(live, owned)
            async with aclosing(kube.each("v1", "Pod", namespace=namespace, labels=labels)) as found:
                pods = [pod async for pod in found if owner is not None and on_workers.is_owned(pod, owner)]
    except (TimeoutError, AutarkyError):
        return ()
    control = {node.name for node in context.control_nodes}
    workers = {
        node["metadata"]["name"]
        for node in nodes
        if CONTROL_PLANE_ACTIVE not in (node["metadata"].get("labels") or {})
        and node["metadata"]["name"] not in control
    }
    if live["kind"] == "Deployment":
        return tuple(on_workers.lacking_on_one(live, pods, owned, workers))
    names = [node["metadata"]["name"] for node in nodes]
    return tuple(on_workers.lacking(live, pods, owned, workers, context.absent, nodes=names))
