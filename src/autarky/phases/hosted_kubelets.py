"""Waiting until the hosted kubelets (level 0) have the version that the control plane was upgraded to. The operator
sets the image of their DaemonSet once no host's kubelet is to change any more, and gives each pod its turn.

Contract: only looks. Nothing is waited for where kubelets do not follow, or the DaemonSet is gone or has an image of
somebody's own; nor on a node that is to have another version. A DaemonSet that was rolled back, and a control node's
hosted kubelet that has failed, are a UserError with the reason. A worker's that has failed leaves its node out, and one
that says nothing is noted: what a worker says is about itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autarky.control.common.shapes import image_of, mapping, name_of
from autarky.control.common.skew import image_version
from autarky.control.kubelet.decide import hosted, hosted_report, takeovers, wanted
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.rollout.decide.failures import TRY_AGAIN, Failure
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.manifests import failure_in, secret_name
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.templates import with_tag
from autarky.engine.deadline import NotYet, poll_until
from autarky.errors import TimedOut, UserError
from autarky.model.components import COMPONENTS, KUBELET
from autarky.model.versions import Version
from autarky.phases.available import has_unready
from autarky.phases.context import Context
from autarky.phases.version_check import needed_control_plane
from autarky.ports import Kube, Object, Progress
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM

TIMEOUT, STILL = 1800.0, 300.0
"""Seconds for all hosted kubelets; and without a step of any of them."""
BETWEEN_LOOKS = 2.0
REFUSED_SECONDS = 30.0
"""For so long an agent may not have seen yet that this version is wanted."""
TRY = f"kubectl -n {SYSTEM} annotate {COMPONENTS[KUBELET].for_kubectl} {TRY_AGAIN}=now"


def followed_version(plane: Mapping[str, Any]) -> Version | None:
    """That the hosted kubelets follow to; None where there are none, or they do not follow."""
    return reported.lowest_version(plane) if wanted.is_hosted(plane) and wanted.follows(plane) else None


async def are_behind(kube: Kube, plane: Mapping[str, Any]) -> bool:
    """Whether the DaemonSet has another version than kubelets are to follow to."""
    found = await _followed(kube, plane)
    return found is not None and _is_behind(*found)


async def rolled_back(kube: Kube, plane: Mapping[str, Any]) -> Failure | None:
    """Why the DaemonSet stays at another version than kubelets are to follow to; None where it does not."""
    found = await _followed(kube, plane)
    return None if found is None else await _failure_of(kube, *found)


async def _followed(kube: Kube, plane: Mapping[str, Any]) -> tuple[Object, Version] | None:
    """The DaemonSet, and the version that it is to follow to; None where one of them is not."""
    version = followed_version(plane)
    live = None if version is None else await kube.get("apps/v1", "DaemonSet", KUBELET, SYSTEM)
    return None if version is None or live is None else (live, version)


def _is_behind(live: Object, version: Version) -> bool:
    return takeovers.is_behind(image_of(live["spec"]["template"], KUBELET), version)


async def _failure_of(kube: Kube, live: Object, version: Version) -> Failure | None:
    """As the operator finds it, which judges again what broke the skew."""
    template = live["spec"]["template"]
    if not _is_behind(live, version):
        return None
    secret = await kube.get("v1", "Secret", secret_name(KUBELET), SYSTEM)
    failure = failure_in(secret, revision_of(with_tag(template, KUBELET, version)))
    return None if failure is None or failure.by_skew else failure


def sentence_of(failure: Failure, version: Version | None) -> str:
    return f"the hosted kubelets do not get {version}: the DaemonSet was rolled back ({failure.sentence})"


async def until_followed(context: Context, progress: Progress) -> None:
    """See the module's contract."""
    waits = _Waits(context, progress)
    try:
        await poll_until(
            "every hosted kubelet has the control plane's version",
            waits.look,
            timeout=TIMEOUT,
            still=STILL,
            progress=progress,
            clock=context.clock,
            interval=BETWEEN_LOOKS,
        )
    except TimedOut:
        if not waits.last or any(one.control for one in waits.last.values()):
            raise
        for name, one in sorted(waits.last.items()):
            why = one.why or "its node does not say why"
            progress.note(f"the hosted kubelet of {name} does not get {waits.version}: {why}")
    for name, one in sorted(waits.failed.items()):
        context.leave_out(name, f"its hosted kubelet does not get {waits.version}: {one.why}")


class Stands(Protocol):
    """A node that is waited for. state: as it reports it."""

    @property
    def control(self) -> bool: ...
    @property
    def state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Lacks:
    """A node on which the hosted kubelet is not in force with that version."""

    control: bool
    state: str
    why: str


@dataclass(slots=True)
class _Waits:
    """last: what is waited for, as of the last look, empty where that is the DaemonSet; failed: of workers. _refused:
    node → since when its pod of that version is refused."""

    context: Context
    progress: Progress
    version: Version | None = None
    last: dict[str, _Lacks] = field(default_factory=dict)
    failed: dict[str, _Lacks] = field(default_factory=dict)
    _refused: dict[str, float] = field(default_factory=dict)

    async def look(self) -> NotYet | None:
        kube, self.last, self.failed = self.context.kube(), {}, {}
        plane = await needed_control_plane(kube)
        self.version = version = followed_version(plane)
        if version is None:
            return None
        live = await kube.get("apps/v1", "DaemonSet", KUBELET, SYSTEM)
        if live is None:
            self.progress.note("no kubelet is hosted: there is no DaemonSet kubelet, which `autarky up` applies again")
            return None
        image = image_of(live["spec"]["template"], KUBELET)
        if takeovers.is_behind(image, version):
            return await self._image(live, version)
        if image_version(image) != version:
            return None
        found = await self._nodes(plane, version)
        self.last = {name: one for name, one in found.items() if name not in self.failed}
        if not self.last:
            return None
        what = ", ".join(f"{name}: {one.state or 'says nothing'}" for name, one in list(self.last.items())[:3])
        return NotYet(f"{len(self.last)} do not have {version} yet ({what})", come=steps(self.last))

    async def _image(self, live: Object, version: Version) -> NotYet | None:
        failure = await _failure_of(self.context.kube(), live, version)
        if failure is None:
            return NotYet(f"the DaemonSet does not have {version} yet")
        fix = f"once the cause is gone: `{TRY}`"
        if failure.by_workers:
            self.progress.note(f"{sentence_of(failure, version)}; {fix}")
            return None
        raise UserError(sentence_of(failure, version), fix=fix)

    async def _nodes(self, plane: Object, version: Version) -> dict[str, _Lacks]:
        """UserError where a control node's has failed."""
        present, found = {node.name for node in self.context.present(self.context.cluster.nodes)}, dict[str, _Lacks]()
        for obj in await self.context.kube().list("v1", "Node"):
            name, metadata = name_of(obj), mapping(obj.get("metadata"))
            said = hosted_report.read(metadata)
            if name not in present or hosted.allowed(plane, metadata, version).may is not True:
                continue
            if said is not None and (said.version, said.state) == (version, State.IN_FORCE):
                continue
            control = CONTROL_PLANE_ACTIVE in mapping(metadata.get("labels"))
            found[name] = one = _Lacks(
                control, "" if said is None else str(said.state), "" if said is None else said.why
            )
            if said is None or said.version != version or not await self._has_failed(name, said):
                self._refused.pop(name, None)
            elif self._lasts(name, said):
                self._ends(name, one, version)
        return found

    async def _has_failed(self, name: str, said: Report) -> bool:
        return said.state in (State.FAILED, State.REFUSED) and await has_unready(self.context, name, said.pod)

    def _lasts(self, name: str, said: Report) -> bool:
        now = self.context.clock.monotonic()
        return said.state is State.FAILED or now - self._refused.setdefault(name, now) >= REFUSED_SECONDS

    def _ends(self, name: str, one: _Lacks, version: Version) -> None:
        if one.control:
            delete = f"kubectl -n {SYSTEM} delete pod -l k8s-app={KUBELET} --field-selector spec.nodeName={name}"
            raise UserError(
                f"node {name}: its hosted kubelet does not get {version}, and the host's is in force: {one.why}",
                fix=f"once the cause is gone: `{TRY}`; where the DaemonSet has not gone back: `{delete}`",
            )
        self.failed[name] = one


def steps(found: Mapping[str, Stands]) -> tuple[int, tuple[str, ...]]:
    """By control nodes' states, and by how many have come to an end: another word of a worker's is no progress."""
    return len(found), tuple(sorted({one.state for one in found.values() if one.control}))
