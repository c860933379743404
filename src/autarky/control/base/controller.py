"""A controller keeps one part of a cluster in its desired state; both agents run theirs through `reconciler`.

Contract: level-triggered. Every `reconcile` observes everything again, decides by a pure function, acts, and logs one
sentence for each decision. It may be cancelled at any await. It is called again when something has changed, or after
the seconds that it returned. Whatever it raises is logged, and it is retried after a pause; other controllers are not
affected.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from autarky.control.base.decision_log import DecisionLog, Say
from autarky.control.base.shield import LONGEST_PAUSE
from autarky.kube import Reflector

MANAGER = "autarky-operator"
"""Field manager of everything that the operator applies."""
T = TypeVar("T")
R = TypeVar("R")


class Controller(ABC):
    """gather: seconds to wait after a change, because changes come in bursts."""

    __slots__ = ()
    name: ClassVar[str]
    gather: ClassVar[float] = 0.0
    rest: ClassVar[float | None] = None
    """Seconds after which it looks again though nothing changes, where `reconcile` does not say; None: it need not."""
    longest_pause: ClassVar[float] = LONGEST_PAUSE
    """Most seconds until it is retried after a failure. Lower where others wait for it."""

    @abstractmethod
    async def reconcile(self) -> float | None:
        """Observe, decide, act. Returns the seconds until the next one if nothing changes; None: `rest`."""

    @property
    def wakes(self) -> asyncio.Event | None:
        """Its event `changed`, set when something that it observes changes; None where nothing reports changes."""
        found: asyncio.Event | None = getattr(self, "changed", None)
        return found

    def sources(self) -> Sequence[Reflector]:
        """Its own live copies, to be run beside it. There may be more of them later."""
        return ()


@dataclass(slots=True)
class ClusterController(Controller):
    """A controller of the operator. They share their live copies, and all reconcile when one of these changes."""

    longest_pause: ClassVar[float] = 2.0  # rollouts wait for it

    say: Say
    _log: DecisionLog = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._log = DecisionLog(self.say, key="subject")

    def begin_term(self) -> None:
        """This operator leads now, perhaps not for the first time: what it has seen before is of a time in which others
        may have acted, and is to be dropped."""

    def begin_pass(self) -> None:
        """A pass over all controllers begins, of which this one may be left out, after a failure: what others read of
        its last decisions, as of just now, is to be dropped."""

    async def each(self, subjects: Iterable[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
        """Act on each of them even if others fail; then raise the first failure, if any. One malformed object must not
        keep the others from being handled."""
        done: list[R] = []
        failures: list[Exception] = []
        for subject in subjects:
            try:
                done.append(await act(subject))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return done

    def remember_only(self, subjects: Iterable[str]) -> None:
        """Forget what was logged about all other subjects: they are gone. What concerns the controller stays."""
        self._log.remember_only({"", *subjects})

    def tell(self, sentence: str, subject: str = "", **values: object) -> None:
        """Log the sentence, unless it is the last one logged about the subject."""
        self._log.tell(subject, sentence, **values)
