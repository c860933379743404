"""docs/measurements.md is what the recorded run gives. `UPDATE_GOLDEN=1 pytest` writes it anew."""

from __future__ import annotations

import os

from _document import PLACE, SECTIONS, document
from _record import recorded

from unit.docs.documents import ROOT


def test_the_document_is_what_the_recorded_run_gives():
    text = document(recorded())
    if os.environ.get("UPDATE_GOLDEN"):
        PLACE.write_text(text)
    assert PLACE == ROOT / "docs/measurements.md"
    assert PLACE.read_text() == text, "if that is wanted, UPDATE_GOLDEN=1 pytest"


def test_the_recorded_run_if_there_is_one_has_measured_everything():
    record = recorded()
    assert record is None or record.lacking(SECTIONS) == []
