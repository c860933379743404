from __future__ import annotations

import io
import json

from autarky.ui.jsonl import JsonLinesRenderer
from autarky.ui.stream import LastingStream


def test_every_event_is_one_object_on_one_line(failing_run):
    out = io.StringIO()
    renderer = JsonLinesRenderer(LastingStream(out))
    for event in failing_run:
        renderer.handle(event)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(failing_run)
    assert json.loads(lines[0]) == {
        "kind": "operation-started",
        "time": 1_800_000_000.0,
        "operation": "up",
        "phase": "",
        "title": "cluster one",
        "phases": ["get-payload", "start", "pivot"],
        "titles": ["Get the components", "Start the control plane", "Pivot"],
    }
    assert json.loads(lines[7]) == {
        "kind": "waiting",
        "time": 1_800_000_003.0,
        "operation": "up",
        "phase": "start",
        "what": "the API answers",
        "deadline": 179,
        "last": "connection\nrefused",
    }
    assert json.loads(lines[-1])["outcome"] == "failed"


def test_no_locale_can_break_a_line(script):
    out = io.StringIO()
    JsonLinesRenderer(LastingStream(out)).handle(script.note("«é» \udcff \u2028"))
    assert out.getvalue().isascii()
    assert json.loads(out.getvalue())["sentence"] == "«é» \udcff \u2028"
