"""Events of changes of the kubelet, and of the hosted one (level 0), on this Node: as soon as the API takes them. Any
kubelet may send them.

Contract: an event waits in a file that outlives the agent (`pending_events`); one that the API does not accept as it
is, is dropped. The same file may be that of several senders in one process, as long as they share its PendingEvents.
What was last seen of the hosted kubelet is in a file beside it, so that another agent tells nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from autarky import places
from autarky.control.base import pending_events
from autarky.control.base.pending_events import Happened, PendingEvents
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted import Failed
from autarky.control.kubelet.decide.hosted_report import Report
from autarky.control.kubelet.decide.observed import Final
from autarky.control.kubelet.decide.report import State
from autarky.model.versions import Version
from autarky.ports import Clock, Kube, Object
from autarky.store import NOT_UNDERSTOOD, write_private

FILE = Path(places.RUN, "pending-kubelet-events.json")
SEEN = "hosted-kubelet-seen.json"
"""Beside it: the last report that counts, as in the annotation."""
CHANGED, WENT_BACK, REFUSED = "KubeletChanged", "KubeletWentBack", "KubeletRefused"
TOOK_OVER, GAVE_WAY, HOSTED_FAILED = "KubeletTookOver", "KubeletGaveWay", "KubeletHostedFailed"
WARNINGS = (WENT_BACK, REFUSED, HOSTED_FAILED)


@dataclass(slots=True)
class KubeletEvents:
    kube: Kube
    clock: Clock
    tell: Callable[[str, str], None]
    pending: PendingEvents

    def ended(self, final: Final, version: Version | None) -> None:
        """version: that is in force now."""
        because = f": {final.why}" if final.why else ""
        match final.state:
            case State.DONE:
                reason, message = CHANGED, f"the kubelet is {version} now"
            case State.WENT_BACK:
                reason, message = WENT_BACK, f"the kubelet is {version} again{because}"
            case _:
                reason, message = REFUSED, f"the kubelet stays {version}{because}"
        self.pending.append(Happened(reason, message, self.clock.time()))

    def happened(self, reason: str, message: str) -> None:
        self.pending.append(Happened(reason, message, self.clock.time()))

    async def send(self, node: Object) -> None:
        """What waits, as long as the API takes it."""
        tell = partial(self.tell, "kubelet events")
        while (one := self.pending.first) is not None:
            if not await pending_events.send(self.kube, node, one, warning=one.reason in WARNINGS, tell=tell):
                return
            self.pending.drop(one)


@dataclass(slots=True)
class HostedEvents:
    """Of the hosted kubelet. _seen: its last report; empty where it has none, None where that is not known."""

    events: KubeletEvents
    _seen: str | None = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._seen = self._file.read_text()
        except NOT_UNDERSTOOD:
            self._seen = None

    @property
    def _file(self) -> Path:
        return self.events.pending.file.with_name(SEEN)

    def look(self, report: Report | None, why: str, node: Object | None) -> None:
        """In each pass, before the Node says so. why: of the supervisor. node: what it says counts where nobody has
        noted anything, as after a restart of the machine."""
        if self._seen is None:
            if node is None:
                return
            self._seen = str((node["metadata"].get("annotations") or {}).get(hosted_report.ANNOTATION, ""))
        before, now = hosted_report.read({"annotations": {hosted_report.ANNOTATION: self._seen}}), report
        if _same(before, now):
            return
        self._seen = "" if now is None else hosted_report.text(now)
        if (said := _handed_over(before, now, why)) is not None:
            self.events.happened(*said)
        try:
            write_private(self._file, self._seen.encode())
        except OSError as error:
            self.events.tell("kubelet events", f"what was seen of the hosted kubelet cannot be noted: {error}")

    def failed(self, one: Failed) -> None:
        message = f"the hosted kubelet {one.version} has failed, and the host's is in force: {one.why}"
        self.events.happened(HOSTED_FAILED, message)


def _same(before: Report | None, now: Report | None) -> bool:
    if before is None or now is None:
        return before is now
    return (before.pod, before.state) == (now.pod, now.state)


def _handed_over(before: Report | None, now: Report | None, why: str) -> tuple[str, str] | None:
    """The reason and the message of the event; None where the same one is in force as before, or one has failed, which
    has an event of its own."""
    if now is not None and now.state is hosted_report.State.IN_FORCE:
        return TOOK_OVER, f"the hosted kubelet {now.version} is in force"
    is_over = now is None or now.state not in (hosted_report.State.PROVING, hosted_report.State.FAILED)
    if before is None or not before.state.is_of_node or not is_over:
        return None
    if now is None:
        because = "its pod does not run"
    else:
        because = "its pod was replaced" if now.pod != before.pod else why or now.why
    said = f"the host's kubelet is in force, and the hosted one ({before.version}) is not any more"
    return GAVE_WAY, f"{said}: {because}" if because else said
