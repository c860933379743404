"""What the operator's loop asks of each of its duties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

MANAGER = "autarky-operator"
"""Field manager of everything that the operator applies."""
T = TypeVar("T")
R = TypeVar("R")
Say = Callable[..., None]
"""(sentence, **values): one structured line."""


@dataclass(slots=True)
class Duty(ABC):
    """Level-triggered: every round looks at everything anew. It may be cut at any await, and is run again
    whenever anything has changed; what it raises of AutarkyError is told, and the round repeated soon."""

    say: Say
    name = "duty"
    _said: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @abstractmethod
    async def round(self) -> float | None:
        """Look, decide, act; seconds after which it wants to look again though nothing changes, or None."""

    async def each(self, subjects: Iterable[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
        """Do it for each of them, whatever becomes of the others; then the first failure is raised, if there was one.
        What one odd object makes of its own round must not end that of the next one."""
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
        """What was said of them: they are gone, and others will come. What was said of the duty itself stays."""
        for subject in [one for one in subjects if one]:
            self._said.pop(subject, None)

    def tell(self, sentence: str, subject: str = "", **values: object) -> None:
        """One line per decision: what was said of the subject last is not said again; counting seconds are
        no news."""
        kind = "".join(letter for letter in sentence if not letter.isdigit())
        if self._said.get(subject) != kind:
            self._said[subject] = kind
            self.say(sentence, **({"subject": subject} if subject else {}), **values)
