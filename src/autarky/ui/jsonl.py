"""`-o json`: each event is one JSON object on one line, on standard output, as it happens.

The objects are `Event.as_dict()`: `kind`, `time` (Unix seconds), `operation`, `phase` and the fields of
that kind. Programs are meant to read this; names are stable, new fields and kinds may be added.
"""

from __future__ import annotations

import json

from autarky.engine.events import Event
from autarky.ui.stream import LastingStream


class JsonLinesRenderer:
    """Implements Renderer. ASCII only, so that no locale can break a line."""

    tells_errors = False

    def __init__(self, stream: LastingStream) -> None:
        self._stream = stream

    def handle(self, event: Event) -> None:
        self._stream.write(json.dumps(event.as_dict()) + "\n")

    def tick(self) -> None: ...

    def close(self) -> None: ...
