"""docs/measurements.md holds nothing but what bench/measurements.json and bench/apart have. That is all that these
tests show: they measure nothing, and while there is no record, they show that the document has no figures.

`UPDATE_GOLDEN=1 pytest` writes the document again.
"""

from __future__ import annotations

import os

from _document import APART, PLACE, document
from _record import RECORDED, recorded, recorded_apart
from record import refusals

from unit.docs.documents import ROOT

A_RUN_IS_RECORDED = True
"""True with the first run that is recorded. From then on its record cannot get lost."""


def test_the_document_says_what_the_record_gives_and_has_no_figures_while_there_is_no_record():
    text = document(recorded(), recorded_apart())
    if os.environ.get("UPDATE_GOLDEN"):
        PLACE.write_text(text)
    assert PLACE == ROOT / "docs/measurements.md"
    assert PLACE.read_text() == text, "if that is wanted, UPDATE_GOLDEN=1 pytest"


def test_there_is_a_record_if_and_only_if_a_run_is_said_to_be_recorded():
    assert RECORDED.exists() == A_RUN_IS_RECORDED, f"set A_RUN_IS_RECORDED of {__file__} to {RECORDED.exists()}"


def test_a_record_if_there_is_one_is_of_a_run_that_would_be_recorded_again():
    record = recorded()
    assert record is None or refusals(record) == []


def test_so_is_each_record_of_a_benchmark_that_is_run_by_itself():
    for name, record in recorded_apart().items():
        assert name in APART
        assert refusals(record) == []
        assert record.of(name) == list(record.figures)
