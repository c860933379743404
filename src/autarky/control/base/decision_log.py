"""The decision log: a decision is logged when it differs from the last one about its subject."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

Say = Callable[..., None]
"""`say(sentence, **values)` writes one structured line."""


def _uncounted(_subject: str) -> None:
    return None


@dataclass(slots=True)
class DecisionLog:
    """Remembers the last sentence about each subject. key: the log field that holds the subject. counted: called with
    the subject of every logged line."""

    say: Say
    key: str = "component"
    counted: Callable[[str], None] = _uncounted
    _said: dict[str, str] = field(default_factory=dict)

    def tell(self, subject: str, sentence: str, **values: object) -> None:
        """Log the sentence if it has changed, digits aside. subject: "" for the logging component itself."""
        kind = "".join(letter for letter in sentence if not letter.isdigit())
        if self._said.get(subject) != kind:
            self._said[subject] = kind
            self.counted(subject)
            self.say(sentence, **({self.key: subject} if subject else {}), **values)

    def remember_only(self, subjects: Collection[str]) -> None:
        """The others are gone; a later subject of the same name is a different one."""
        self._said = {subject: kind for subject, kind in self._said.items() if subject in subjects}
