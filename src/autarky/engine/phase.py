"""A phase: one step of an operation that can be looked at, planned, run, killed and run again.

Contract of every phase:
- `plan` only looks. It returns the changes that `run` would make, as sentences; an empty list means
  that this part of the world is already as wanted. It may also report what others have changed and `run`
  leaves alone (`Kept`), and warn of something (`Warn`): these are not changes. What cannot be seen yet
  (a host that does not exist, an API that is down) is planned as if it had to be made.
- `run` makes the changes and returns when they are verified. It may be killed at any point; `plan`
  and `run` again must converge (rule 5).
- A phase may name in `needs` earlier phases without whose work its own would fail or do harm. It is not run while one
  of them is left out of the run and still has changes to make.
- Neither `plan` nor `run` prints. They raise AutarkyError; anything else is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from autarky.ports import Progress

Context_contra = TypeVar("Context_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Change:
    """One change, as a sentence in the imperative: "write /etc/kubernetes/pki/ca.crt on n1"."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A value that somebody else has set, and that is left as it is: no change, but worth knowing.

    subject, field: what of which object; ours, live: the two values as text; manager, since: who set it and when
    (RFC 3339), empty where that is not known.
    """

    subject: str
    field: str
    ours: str
    live: str
    manager: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Warn:
    """Something to know that stops nothing; not a change. in_plan: it is about the cluster rather than about this run,
    so that a plan ends with it."""

    sentence: str
    in_plan: bool = False


def needs_of(phase: object) -> tuple[str, ...]:
    """The phases that this one names in `needs`; most name none."""
    return getattr(phase, "needs", ())


class Phase(Protocol[Context_contra]):
    """See the module's contract. `name` is verb-noun ("prepare-hosts"), `timeout` in seconds."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def timeout(self) -> float: ...

    async def plan(self, context: Context_contra) -> Sequence[Change | Kept | Warn]: ...

    async def run(self, context: Context_contra, progress: Progress) -> None: ...
