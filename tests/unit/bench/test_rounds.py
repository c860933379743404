"""What is around benchmarks: their order, the table, the record, the exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import _rounds
import pytest
from _figures import Figure
from _record import read

GOOD = Figure("up", "everything Ready", "s", (1.0,), (2.0,), 1.0)
BAD = Figure("reboot", "power on → /readyz", "s", (3.0,), (2.0,), 1.0)


class Bench:
    """Runs benchmarks that are done at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self._monkeypatch, self._file = monkeypatch, file
        monkeypatch.setattr(_rounds, "get_payload", self._nothing_to_build)
        monkeypatch.setenv("XDG_STATE_HOME", "of the user")

    async def _nothing_to_build(self, *_, **__):
        return "the payload"

    def __call__(self, *benchmarks, options=()):
        self._monkeypatch.setattr(sys, "argv", ["bench", "--json", str(self._file), *options])
        _rounds.main("what it does", benchmarks)

    @property
    def kept(self) -> tuple[Figure, ...] | None:
        """What the record has, if there is one."""
        return read(self._file.read_text()).figures if self._file.exists() else None


@pytest.fixture
def bench(monkeypatch, tmp_path):
    return Bench(monkeypatch, tmp_path / "new" / "record.json")


def benchmark(*figures, called=None):
    async def measure(payload, rounds):
        if called is not None:
            called.append((payload, rounds))
        return figures

    return measure


async def failing(_payload, _rounds):
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
    assert called == [("the payload", rounds)] * 2


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_less_than_one_round_is_refused(bench, number):
    with pytest.raises(SystemExit) as ended:
        bench(benchmark(GOOD), options=("--rounds", number))
    assert ended.value.code == 2
    assert bench.kept is None
