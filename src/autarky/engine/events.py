"""What the engine says while it works. Renderers in `ui` subscribe; nothing in a phase ever prints.

Every event is a frozen value that turns into one JSON object (`as_dict`), which is the documented
form of `-o json` (JSON Lines). Field names are stable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events: when (Unix seconds), in which operation ("up") and phase ("prepare-hosts")."""

    kind: ClassVar[str] = "event"
    time: float
    operation: str
    phase: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStarted(Event):
    """`phases` and `titles` are the names and titles of all its phases, in order; empty when it has none."""

    kind: ClassVar[str] = "operation-started"
    title: str
    phases: tuple[str, ...]
    titles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted(Event):
    kind: ClassVar[str] = "phase-started"
    title: str
    number: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Event):
    """One change that a phase will make (or would, in a dry run)."""

    kind: ClassVar[str] = "change"
    sentence: str
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted(Event):
    """Somebody else has changed a field, and it is left so: what we had set, what it is now, who did it and when
    (RFC 3339); the last two are empty where that is not known."""

    kind: ClassVar[str] = "drift"
    subject: str
    field: str
    ours: str
    live: str
    manager: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """Something to know that stops nothing. in_plan: about the cluster, so that the result of a dry run includes it."""

    kind: ClassVar[str] = "warning"
    sentence: str
    in_plan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Event):
    kind: ClassVar[str] = "note"
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(Event):
    kind: ClassVar[str] = "progress"
    what: str
    done: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """A wait goes on: what for, seconds left, and the last thing seen. An empty `last` says that it is over."""

    kind: ClassVar[str] = "waiting"
    what: str
    deadline: float
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnded(Event):
    """outcome: "changed", "unchanged", "skipped", "planned" (dry run), "failed" or "interrupted"."""

    kind: ClassVar[str] = "phase-ended"
    title: str
    outcome: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEnded(Event):
    """outcome: "changed", "unchanged", "planned", "failed", "interrupted", or "done" (not a list of phases)."""

    kind: ClassVar[str] = "operation-ended"
    title: str
    outcome: str
    seconds: float
    changes: int
    detail: str = ""


Subscriber = Callable[[Event], None]
