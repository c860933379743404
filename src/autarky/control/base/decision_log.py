"""The log of decisions: each is said once, until it is another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Say = Callable[..., None]
"""`say(sentence, **values)` writes one structured line."""


def _uncounted(_subject: str) -> None:
    return None


@dataclass(slots=True)
class DecisionLog:
    """Remembers what it said last about each subject. key: what a line calls the subject. counted: hears of whatever
    is said."""

    say: Say
    key: str = "component"
    counted: Callable[[str], None] = _uncounted
    _said: dict[str, str] = field(default_factory=dict)

    def tell(self, subject: str, sentence: str, **values: object) -> None:
        """Say it when it has changed; counting seconds are no change. subject: "" for whoever says it."""
        kind = "".join(letter for letter in sentence if not letter.isdigit())
        if self._said.get(subject) != kind:
            self._said[subject] = kind
            self.counted(subject)
            self.say(sentence, **({self.key: subject} if subject else {}), **values)

    @property
    def subjects(self) -> set[str]:
        return set(self._said)

    def forget(self, subjects: Iterable[str]) -> None:
        """They are gone: the next of that name is another one."""
        for subject in subjects:
            self._said.pop(subject, None)
