"""`./run bench record FILE`: a run becomes the one that docs/measurements.md tells of."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import _record
import _scale
import pytest
import record
from _document import APART, SECTIONS, document
from _figures import Figure
from _floor import API, FLOOR
from _record import Machine, Record, Trees, read, written
from _tree import Tree

TREE = Trees(Tree("0123abc", (), "feed"))
OTHER = Tree("4567def", (), "beef")
COMPLETE = Record(
    "2026-11-29T10:11:12+00:00",
    TREE,
    Machine(2, 2**34, "6.1.0", 1),
    {"autarky": "0.1.0"},
    tuple(Figure(name, "everything Ready", "s", (1.0, 3.0, 2.0), (4.0, 4.0, 4.0), 0.6) for name in SECTIONS),
    TREE,
)


@pytest.fixture
def recording(monkeypatch, tmp_path):
    """Records a file with that text; returns what was written."""
    run, place = tmp_path / "measurements.json", tmp_path / "measurements.md"
    for module in (record, _record):
        monkeypatch.setattr(module, "RECORDED", run)
        monkeypatch.setattr(module, "RECORDED_APART", tmp_path / "apart")
    monkeypatch.setattr(record, "PLACE", place)

    def go(text):
        file = tmp_path / "a run"
        if text is not None:
            file.write_text(text)
        monkeypatch.setattr(sys, "argv", ["record", str(file)])
        record.main()
        return run.read_text() if run.exists() else None, place.read_text()

    return go


def test_a_run_of_all_benchmarks_is_kept_and_the_document_is_written_of_it(recording):
    run, text = recording(written(COMPLETE))
    assert read(run) == COMPLETE
    assert text == document(COMPLETE)


def test_a_run_that_has_missed_a_ratio_is_kept_and_the_document_says_so_in_its_row(recording):
    slow = Figure("reboot", "power on → /readyz", "s", (9.0, 9.0, 9.0), (4.0, 4.0, 4.0), 1.25)
    run, text = recording(written(COMPLETE.extended([slow])))
    assert not read(run).figures[-1].kept
    rows = [line for line in text.splitlines() if line.startswith("|") and "missed" in line]
    assert rows == ["| power on → /readyz | 9.0 s (9.0–9.0) | 4.0 s (4.0–4.0) | 2.25 | at most 1.25: missed |"]


@pytest.mark.parametrize("name", APART)
def test_the_record_of_a_benchmark_that_is_run_by_itself_is_kept_beside_the_run_of_all(recording, tmp_path, name):
    recording(written(COMPLETE))
    alone = replace(COMPLETE, figures=(Figure(name, "3 nodes: what it measures", "s", (5.0,), (4.0,)),))
    run, text = recording(written(alone))
    assert run == written(COMPLETE)
    assert read((tmp_path / "apart" / f"{name}.json").read_text()) == alone
    assert text == document(COMPLETE, {name: alone})
    head = "of nodes | 3" if name == _scale.NAME else f"autarky | {APART[name].beside} | ratio"
    assert re.search(rf"^\| in 1 round[,| ]+{re.escape(head)} \| wanted \|$", text, re.MULTILINE)


def began(tree: Tree) -> Record:
    return replace(COMPLETE, began=Trees(tree), ended=Trees(tree))


AGAIN = "run `./run bench` again, and change nothing meanwhile"
REFUSED = [
    (began(Tree("", (), "feed")), "its commit is not known: run `./run bench` in a checkout of git"),
    (
        began(Tree("0123abc", ("run", "src/autarky/new.py"), "feed")),
        "its tree had what commit 0123abc has not: run, src/autarky/new.py; commit or remove it, and run `./run bench`",
    ),
    (replace(COMPLETE, ended=None), "it did not come to its end: run `./run bench` again"),
    (
        replace(COMPLETE, ended=Trees(OTHER)),
        f"the tree has changed: it was {TREE.own}; it is {OTHER}: {AGAIN}",
    ),
    (
        replace(COMPLETE, began=Trees(TREE.own, OTHER), ended=Trees(TREE.own, OTHER)),
        "it measured the commands of another tree (commit 4567def, sources beef): run `./run bench` without --product",
    ),
    (replace(COMPLETE, figures=COMPLETE.figures[1:]), "it has nothing of up: run all benchmarks (`./run bench`)"),
    (
        COMPLETE.extended([Figure("reboot", "power on → /readyz", "s", (1.0, 1.0), (2.0, 2.0))]),
        "it has too few rounds (reboot 2): run `./run bench` with 3 or more",
    ),
    (
        COMPLETE.extended([Figure(FLOOR, API, "s", (1.0,), (None,))]),
        "it has too few rounds (floor 1): run `./run bench` with 3 or more",
    ),
]


@pytest.mark.parametrize(("run", "reason"), REFUSED)
def test_a_run_that_does_not_show_what_the_document_would_say_is_refused_with_why_and_what_to_do(
    recording, tmp_path, run, reason
):
    with pytest.raises(SystemExit) as refused:
        recording(written(run))
    assert str(refused.value) == f"{tmp_path / 'a run'} is not taken:\n  - {reason}"
    assert not list(tmp_path.glob("measurements.*"))


def test_all_that_is_wrong_with_a_run_is_told_at_once():
    assert record.refusals(COMPLETE) == []
    wrong = replace(COMPLETE, began=Trees(Tree("0123abc", ("run",), "feed"), OTHER), ended=None, figures=())
    assert len(record.refusals(wrong)) == 4


@pytest.mark.parametrize("text", [None, "", "[]", '{"figures": []}'])
def test_what_is_no_record_of_a_run_is_refused(recording, tmp_path, text):
    with pytest.raises(SystemExit, match="is no record of a run"):
        recording(text)
    assert not list(tmp_path.glob("measurements.*"))
