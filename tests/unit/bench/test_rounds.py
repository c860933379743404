"""What is around benchmarks: their order, the table, the record, the exit code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import _rounds
import pytest
from _figures import Figure
from _product import THIS_TREE, Product
from _record import Record, read
from _tree import ROOT, Tree

GOOD = Figure("up", "everything Ready", "s", (1.0,), (2.0,), 1.0)
BAD = Figure("reboot", "power on → /readyz", "s", (3.0,), (2.0,), 1.0)


CLEAN = Tree("0123abc", (), "feed")


class Bench:
    """Runs benchmarks that are done at once, in a state directory of their own. `trees`: what each checkout is at its
    next looks, the last one from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._monkeypatch, self._file = monkeypatch, directory / "new" / "record.json"
        self.trees = {ROOT: [CLEAN]}
        self.left: list[Product] = []
        monkeypatch.setattr(_rounds, "get_payload", self._nothing_to_build)
        monkeypatch.setattr(_rounds, "take_leftovers_away", self._take_leftovers_away)
        monkeypatch.setattr(_rounds, "tree_of", self._tree_of)
        monkeypatch.setattr(_rounds, "STATE", directory)
        monkeypatch.setattr("_alone.STATE", directory)
        monkeypatch.setenv("XDG_STATE_HOME", "of the user")

    async def _nothing_to_build(self, *_, **__):
        return "the payload"

    async def _take_leftovers_away(self, product):
        self.left.append(product)

    def _tree_of(self, root):
        trees = self.trees[root]
        return trees.pop(0) if len(trees) > 1 else trees[0]

    def __call__(self, *benchmarks, options=(), **more):
        self._monkeypatch.setattr(sys, "argv", ["bench", "--json", str(self._file), *options])
        _rounds.main("what it does", benchmarks, **more)

    @property
    def record(self) -> Record | None:
        return read(self._file.read_text()) if self._file.exists() else None

    @property
    def kept(self) -> tuple[Figure, ...] | None:
        """What the record has, if there is one."""
        return self.record.figures if self.record is not None else None


@pytest.fixture
def bench(monkeypatch, tmp_path):
    return Bench(monkeypatch, tmp_path)


def benchmark(*figures, called=None):
    async def measure(payload, product, rounds):
        if called is not None:
            called.append((payload, product, rounds))
        return figures

    return measure


async def failing(*_):
    raise SystemExit("not ready within 300 s")


def test_all_figures_of_a_run_are_in_one_table_and_in_its_record(bench, capsys):
    bench(benchmark(GOOD), benchmark(GOOD, GOOD))
    assert bench.kept == (GOOD, GOOD, GOOD)
    assert capsys.readouterr().out.count("everything Ready") == 3


def test_one_figure_that_is_not_as_wanted_is_an_exit_code_and_all_are_kept(bench, capsys):
    with pytest.raises(SystemExit) as ended:
        bench(benchmark(BAD), benchmark(GOOD))
    assert ended.value.code == 1
    assert bench.kept == (BAD, GOOD)
    assert "missed" in capsys.readouterr().out


def test_what_was_measured_before_a_benchmark_failed_is_kept(bench):
    with pytest.raises(SystemExit, match="not ready"):
        bench(benchmark(GOOD), failing, benchmark(BAD))
    assert bench.kept == (GOOD,)
    assert bench.record.ended is None


def test_a_record_that_cannot_be_written_is_known_before_anything_is_measured(bench, tmp_path):
    (tmp_path / "new").write_text("a file where a directory should be")
    called: list[object] = []
    with pytest.raises(OSError, match="new"):
        bench(benchmark(GOOD, called=called))
    assert called == []


@pytest.mark.parametrize(("options", "rounds"), [((), 3), (("--rounds", "5"), 5)])
def test_every_benchmark_has_as_many_rounds_as_are_asked_for_three_by_default(bench, options, rounds):
    called: list[object] = []
    bench(benchmark(GOOD, called=called), benchmark(GOOD, called=called), options=options)
    assert called == [("the payload", THIS_TREE, rounds)] * 2


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_less_than_one_round_is_refused(bench, number):
    with pytest.raises(SystemExit) as ended:
        bench(benchmark(GOOD), options=("--rounds", number))
    assert ended.value.code == 2
    assert bench.kept is None


def test_what_an_interrupted_run_left_is_taken_away_before_anything_is_measured(bench):
    called: list[object] = []

    async def measure(*_):
        called.extend(bench.left)
        return (GOOD,)

    bench(measure, measure)
    assert called == [THIS_TREE, THIS_TREE]
    assert bench.left == [THIS_TREE]


# --- the tree -------------------------------------------------------------------------------------


def test_a_tree_that_stays_as_it_is_is_in_the_record_from_the_beginning_to_the_end(bench, capsys):
    bench(benchmark(GOOD))
    assert bench.record.began.own == bench.record.ended.own == CLEAN
    said = capsys.readouterr().out
    assert "has changed" not in said
    assert "not committed" not in said


@pytest.mark.parametrize(
    "end", [Tree("4567def", (), "feed"), Tree("0123abc", (), "beef"), Tree("0123abc", ("run",), "feed")]
)
def test_a_tree_that_changes_while_it_is_measured_is_told_and_kept_and_an_exit_code(bench, capsys, end):
    bench.trees[ROOT].append(end)
    with pytest.raises(SystemExit) as ended:
        bench(benchmark(GOOD), benchmark(GOOD))
    assert ended.value.code == 1
    assert (bench.record.began.own, bench.record.ended.own) == (CLEAN, end)
    assert bench.kept == (GOOD, GOOD)
    assert f"the tree has changed: it was {CLEAN}; it is {end}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tree", "seen"),
    [
        (
            Tree("0123abc", ("src/autarky/new.py",), "feed"),
            "the tree has changes that are not committed; `bench record` takes no such run: src/autarky/new.py\n",
        ),
        (Tree("", (), "feed"), "the commit of this tree is not known; `bench record` takes no such run\n"),
    ],
)
def test_what_keeps_a_run_from_being_recorded_is_told_before_an_hour_is_spent(bench, capsys, tree, seen):
    bench.trees[ROOT] = [tree]
    reported = []

    async def measure(*_):
        reported.append(capsys.readouterr().out)
        return (GOOD,)

    bench(measure)
    assert reported == [seen]


# --- another tree's commands ----------------------------------------------------------------------


@pytest.fixture
def other(bench, monkeypatch):
    """That of the directory `other`, which is a clean checkout."""
    product = Product(Path("/other"), "python", {}, ("start-control-plane",))

    def product_of(directory, _release):
        return product if directory == Path("other") else THIS_TREE

    monkeypatch.setattr(_rounds, "product_of", product_of)
    bench.trees[product.root] = [Tree("4567def", (), "beef")]
    return product


def test_another_trees_commands_are_measured_and_the_record_names_that_tree(bench, other, capsys):
    called: list[tuple[str, Product, int]] = []
    bench(benchmark(GOOD, called=called), options=("--product", "other"))
    assert [product for _, product, _ in called] == bench.left == [other]
    assert (bench.record.began.own.commit, bench.record.began.product.commit) == ("0123abc", "4567def")
    assert bench.record.ended == bench.record.began
    assert "the commands of /other are measured: commit 4567def" in capsys.readouterr().out


def test_a_change_of_the_other_tree_is_one_as_well(bench, other, capsys):
    bench.trees[other.root].append(Tree("4567def", (), "f00d"))
    with pytest.raises(SystemExit) as ended:
        bench(benchmark(GOOD), options=("--product", "other"))
    assert ended.value.code == 1
    assert "the product's tree has changed" in capsys.readouterr().out


def test_without_another_tree_the_record_names_none(bench, other):
    bench(benchmark(GOOD))
    assert bench.record.began.product is None


def test_a_benchmark_may_have_options_of_its_own_and_another_yardstick(bench, capsys):
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--objects", type=_rounds.at_least_one, default=7)
    bench(benchmark(GOOD), options=("--objects", "5"), beside="without", more_options=[own])
    assert "without" in capsys.readouterr().out
    assert bench.kept == (GOOD,)
