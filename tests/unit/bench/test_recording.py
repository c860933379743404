"""`./run bench record FILE`: a run becomes the one that docs/measurements.md tells of."""

from __future__ import annotations

import sys

import pytest
import record
from _document import SECTIONS, document
from _figures import Figure
from _record import Machine, Record, read, written

WHOLE = Record(
    "2026-11-29T10:11:12+00:00",
    "0123abc",
    False,
    Machine(2, 2**34, "6.1.0", 1),
    {"autarky": "0.1.0"},
    tuple(Figure(name, "everything Ready", "s", (1.0,), (2.0,)) for name in SECTIONS),
)
PART = Record(WHOLE.date, WHOLE.commit, WHOLE.dirty, WHOLE.machine, WHOLE.versions, WHOLE.figures[1:])


@pytest.fixture
def recording(monkeypatch, tmp_path):
    """Records a file with that text; returns what was written."""
    run, place = tmp_path / "measurements.json", tmp_path / "measurements.md"
    monkeypatch.setattr(record, "RECORDED", run)
    monkeypatch.setattr(record, "PLACE", place)

    def go(text):
        file = tmp_path / "a run"
        if text is not None:
            file.write_text(text)
        monkeypatch.setattr(sys, "argv", ["record", str(file)])
        record.main()
        return run.read_text(), place.read_text()

    return go


def test_a_run_of_all_benchmarks_is_kept_and_the_document_is_written_of_it(recording):
    run, text = recording(written(WHOLE))
    assert read(run) == WHOLE
    assert text == document(WHOLE)


def test_a_run_that_lacks_a_benchmark_is_refused_with_its_name(recording, tmp_path):
    with pytest.raises(SystemExit, match="has nothing of up: record a run of all benchmarks"):
        recording(written(PART))
    assert not list(tmp_path.glob("measurements.*"))


@pytest.mark.parametrize("text", [None, "", "[]", '{"figures": []}'])
def test_what_is_no_record_of_a_run_is_refused(recording, tmp_path, text):
    with pytest.raises(SystemExit, match="is no record of a run"):
        recording(text)
    assert not list(tmp_path.glob("measurements.*"))
