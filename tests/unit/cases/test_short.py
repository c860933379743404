"""Tier 1: everything, but what CI has no time to build for; never what the change touches, never by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import running, situation
from cases.listing import Case, Need
from cases.pieces import Piece
from cases.records import Record
from cases.rotation import Candidate
from cases.running import STARTED, left_for_short, run_short
from cases.short import LONGEST_SECONDS, left_out, seconds_of_short
from cases.situation import Situation

BUILDS = {"kubernetes v1.37.1": 300.0, "etcd v3.7.0": 60.0}
SECONDS = st.floats(0, 600)


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    return [
        Candidate(
            Piece((Case(f"tests/e2e/test_one.py::test_{position}", "one"),), draw(SECONDS), 60.0, position),
            touched=draw(st.booleans()),
            builds=draw(st.frozensets(st.sampled_from(sorted(BUILDS)))),
        )
        for position in range(draw(st.integers(0, 6)))
    ]


@given(candidates(), st.floats(0, 3000))
def test_left_out_is_only_what_has_to_be_built_for_and_is_not_touched(found: list[Candidate], left: float) -> None:
    out = left_out(found, left, BUILDS)
    assert set(out) <= {one.piece for one in found if one.builds and not one.touched}
    if out:
        assert set(out) == {one.piece for one in found if one.builds and not one.touched}, "all, or none"


@given(candidates())
def test_without_a_clock_or_with_time_enough_nothing_is_left_out(found: list[Candidate]) -> None:
    assert left_out(found, None, BUILDS) == []
    assert left_out(found, 1e6, BUILDS) == []


def test_where_the_time_is_too_short_by_a_second_what_has_to_be_built_for_waits() -> None:
    plain, built = (
        Candidate(Piece((Case(f"tests/e2e/test_one.py::test_{n}", "one"),), 100.0, 60.0, n)) for n in range(2)
    )
    built = replace(built, builds=frozenset(BUILDS))
    needed = 100 + 100 + 60 + 300 + 60
    assert left_out([plain, built], needed, BUILDS) == []
    assert left_out([plain, built], needed - 1, BUILDS) == [built.piece]
    assert left_out([plain, replace(built, touched=True)], needed - 1, BUILDS) == []


def test_the_time_is_counted_from_the_start_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds_of_short(1000.0, 1000.0) == LONGEST_SECONDS < 90 * 60
    assert seconds_of_short(1000.0, 1600.0) == LONGEST_SECONDS - 600
    monkeypatch.setenv(STARTED, "7.5")
    monkeypatch.setattr(running, "boot_seconds", lambda: 10.0)
    assert left_for_short() == LONGEST_SECONDS - 2.5
    monkeypatch.delenv(STARTED)
    assert left_for_short() is None


# --- running it ----------------------------------------------------------------------------------------------------

CASES = [
    Case("tests/e2e/test_a.py::test_1", "test_a"),
    Case("tests/e2e/test_a.py::test_2", "test_a", needs=(Need("v1.37.1"),)),
    Case("tests/e2e/test_a.py::test_long", "test_a", rotation=True, needs=(Need("v1.35.9"),)),
]
PASSED = Record(seconds=100.0, setup=60.0, tree="another", scenario="as it is", date="2026-11-24", run=1)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []

    def run(argv: list[object], **_: object) -> None:
        found.append([str(word) for word in argv])

    monkeypatch.setattr(subprocess, "run", run)
    return found


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Need]:
    found: list[Need] = []
    monkeypatch.setattr(running, "build", found.extend)
    monkeypatch.setattr(situation, "missing_builds", lambda needs: BUILDS if needs else {})
    return found


@pytest.fixture
def make(built: list[Need]) -> Callable[..., Situation]:
    def of(*changed: str) -> Situation:
        made = Situation(CASES, {case.id: PASSED for case in CASES}, "this tree")
        made.__dict__ |= {"scenarios": {case.id: "as it is" for case in CASES}, "changed": set(changed)}
        return made

    return of


def test_what_is_left_out_is_named_and_not_built_for(called, built, make, capsys) -> None:
    assert run_short(make(), 100.0) == 0
    [argv] = called
    assert f"--deselect={CASES[1].id}" in argv
    assert argv[-3:] == ["not rotation", f"--deselect={CASES[1].id}", "tests/e2e"]
    assert built == []
    assert CASES[1].id in capsys.readouterr().out


@pytest.mark.parametrize(("left", "changed"), [(None, ()), (10_000.0, ()), (100.0, (CASES[1].id,))])
def test_otherwise_all_short_cases_run_and_what_they_need_is_built(called, built, make, capsys, left, changed) -> None:
    assert run_short(make(*changed), left) == 0
    [argv] = called
    assert argv[-3:] == ["-m", "not rotation", "tests/e2e"]
    assert built == [Need("v1.37.1")]
    assert capsys.readouterr().out == ""


def test_a_failure_is_the_commands(monkeypatch: pytest.MonkeyPatch, make) -> None:
    def run(argv: list[object], **_: object) -> None:
        raise subprocess.CalledProcessError(3, [str(word) for word in argv])

    monkeypatch.setattr(subprocess, "run", run)
    assert run_short(make(), None) == 3
