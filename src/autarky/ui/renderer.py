"""What every renderer is: a subscriber of events that can be ticked and closed.

Contract: `handle` gets each event once and in order, returns at once and never raises. `tick` is called
several times a second while work goes on. `close` is called once, at the end, whatever the outcome.
"""

from __future__ import annotations

from typing import Protocol

from autarky.engine.events import Event


class Renderer(Protocol):
    """See the module's contract."""

    @property
    def tells_errors(self) -> bool:
        """Whether this renderer shows people the text of an error."""
        ...

    def handle(self, event: Event) -> None: ...

    def tick(self) -> None: ...

    def close(self) -> None: ...
