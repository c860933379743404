"""What the agent says: each thing once, until it is another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autarky.control.base import node_metrics as metrics

Say = Callable[..., None]
"""`say(sentence, **values)` writes one structured line."""


@dataclass(slots=True)
class Told:
    """Remembers what it said last about each subject."""

    say: Say
    _said: dict[str, str] = field(default_factory=dict)

    def tell(self, subject: str, sentence: str) -> None:
        """Say it when it has changed; counting seconds are no change."""
        kind = "".join(c for c in sentence if not c.isdigit())
        if self._said.get(subject) != kind:
            self._said[subject] = kind
            metrics.DECISIONS.labels(subject).inc()
            self.say(sentence, component=subject)
