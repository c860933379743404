"""What the operator's loop asks of each of its duties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

MANAGER = "autarky-operator"
"""Field manager of everything that the operator applies."""
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

    def tell(self, sentence: str, subject: str = "", **values: object) -> None:
        """One line per decision: what was said of the subject last is not said again; counting seconds are
        no news."""
        kind = "".join(letter for letter in sentence if not letter.isdigit())
        if self._said.get(subject) != kind:
            self._said[subject] = kind
            self.say(sentence, **({"subject": subject} if subject else {}), **values)
