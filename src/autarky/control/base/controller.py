"""A controller keeps one thing of a cluster as it is wanted; both agents run theirs in the same way (`reconciler`).

Contract: level-triggered. Every `reconcile` looks at everything anew, decides by a pure function, acts, and says one
sentence for each decision. It may be cut at any await, and is called again whenever something has changed, or when the
seconds are over that it has asked for. What it raises is told, and it is tried again after a pause; no other controller
hears of it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from autarky.control.base.decision_log import DecisionLog, Say
from autarky.kube import Reflector

MANAGER = "autarky-operator"
"""Field manager of everything that the operator applies."""
T = TypeVar("T")
R = TypeVar("R")


class Controller(ABC):
    """gather: seconds to wait once something has changed: changes come in swarms."""

    __slots__ = ()
    name: ClassVar[str]
    gather: ClassVar[float] = 0.0

    @abstractmethod
    async def reconcile(self) -> float | None:
        """Look, decide, act; the seconds after which it wants to look again though nothing changes, or None."""

    @property
    def wakes(self) -> asyncio.Event | None:
        """Its event `changed`, set by whoever sees a change of what it looks at; None where nothing tells of any."""
        found: asyncio.Event | None = getattr(self, "changed", None)
        return found

    def sources(self) -> Sequence[Reflector]:
        """Live copies of its own, to be followed beside it. There may be more of them later."""
        return ()


@dataclass(slots=True)
class ClusterController(Controller):
    """One of the operator's. They have their live copies in common, and are all called when one of these changes."""

    say: Say
    _log: DecisionLog = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._log = DecisionLog(self.say, key="subject")

    async def each(self, subjects: Iterable[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
        """Do it for each of them, whatever becomes of the others; then the first failure is raised, if there was one.
        What one odd object makes of its own turn must not end that of the next one."""
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

    def forget(self, subjects: Iterable[str]) -> None:
        """What was said of them: they are gone, and others will come. What was said of the controller itself stays."""
        self._log.forget(one for one in subjects if one)

    def remember_only(self, subjects: Collection[str]) -> None:
        """The others are gone."""
        self.forget(self._log.subjects - set(subjects))

    def tell(self, sentence: str, subject: str = "", **values: object) -> None:
        """Say it, unless it was said of the subject last."""
        self._log.tell(subject, sentence, **values)
