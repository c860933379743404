"""Tier 1: everything, but what CI has no time for; what the change touches comes first; by hand always all of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import running, situation
from cases.listing import Case, Need
from cases.pieces import Piece
from cases.records import Record
from cases.rotation import SLOWER, Candidate, cost
from cases.running import STARTED, clock, left_for_short, run_short
from cases.short import (
    KNOWN_SECONDS,
    LONGEST_SECONDS,
    MARGIN,
    pace,
    pick_short,
    seconds_of_short,
    shows_too_little,
)
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


@given(candidates(), st.floats(0, 3000), st.floats(1, 3))
def test_what_fits_is_taken_by_the_pace_what_is_touched_first_and_what_needs_builds_last(
    found: list[Candidate], left: float, slower: float
) -> None:
    picked = pick_short(found, left, BUILDS, "tree", slower)
    assert sorted([*picked.taken, *picked.too_long], key=found.index) == found
    assert cost(picked.taken, BUILDS, slower) <= left or not picked.taken
    for waits in picked.too_long:
        before = [one for one in picked.taken if (one.touched, not one.builds) >= (waits.touched, not waits.builds)]
        assert cost([*before, waits], BUILDS, slower) > left


@given(candidates())
def test_with_time_enough_nothing_waits(found: list[Candidate]) -> None:
    assert pick_short(found, 1e6, BUILDS, "tree").too_long == ()


def test_where_the_time_is_too_short_by_a_second_what_has_to_be_built_for_waits() -> None:
    plain, built = (
        Candidate(Piece((Case(f"tests/e2e/test_one.py::test_{n}", "one"),), 100.0, 60.0, n)) for n in range(2)
    )
    built = replace(built, builds=frozenset(BUILDS))
    needed = 2 * (100 + 100 + 60 + 300 + 60)
    assert pick_short([built, plain], needed, BUILDS, "tree", 2.0).too_long == ()
    assert pick_short([built, plain], needed - 1, BUILDS, "tree", 2.0).too_long == (built,)
    assert pick_short([plain, replace(built, touched=True)], needed - 1, BUILDS, "tree", 2.0).too_long == (plain,)


def test_who_goes_short_differs_from_tree_to_tree() -> None:
    found = [Candidate(Piece((Case(f"tests/e2e/test_one.py::test_{n}", "one"),), 100.0, 0.0, n)) for n in range(4)]
    late = {pick_short(found, 200.0, BUILDS, f"tree {n}", 1.0).too_long for n in range(50)}
    assert len(late) > 3


def test_the_pace_is_what_has_run_and_a_margin_and_never_quicker_than_recorded() -> None:
    assert pace(0.0, 0.0) == SLOWER
    assert pace(90.0, KNOWN_SECONDS - 1) == SLOWER, "the start of pytest is most of it"
    assert pace(400.0, 200.0) == pytest.approx(2 * MARGIN)
    assert pace(100.0, 200.0) == 1.0


def test_less_than_a_third_shows_too_little() -> None:
    assert shows_too_little(0.0, 300.0)
    assert shows_too_little(99.0, 300.0)
    assert not shows_too_little(100.0, 300.0)
    assert not shows_too_little(0.0, 0.0)


def test_the_time_is_counted_from_the_start_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds_of_short(1000.0, 1000.0) == LONGEST_SECONDS < 90 * 60
    assert seconds_of_short(1000.0, 1600.0) == LONGEST_SECONDS - 600
    monkeypatch.setenv(STARTED, "7.5")
    monkeypatch.setattr(running, "boot_seconds", lambda: 10.0)
    assert left_for_short() == LONGEST_SECONDS - 2.5
    assert (left := clock(left_for_short)) is not None
    assert left() == LONGEST_SECONDS - 2.5
    monkeypatch.delenv(STARTED)
    assert left_for_short() is None
    assert clock(left_for_short) is None


# --- running it ----------------------------------------------------------------------------------------------------

CASES = [
    Case("tests/e2e/test_a.py::test_1", "test_a"),
    Case("tests/e2e/test_a.py::test_2", "test_a", needs=(Need("v1.37.1"),)),
    Case("tests/e2e/test_a.py::test_long", "test_a", rotation=True, needs=(Need("v1.35.9"),)),
    Case("tests/e2e/test_b.py::test_3", "test_b", chain="b"),
    Case("tests/e2e/test_b.py::test_rotates", "test_b", chain="b", rotation=True),
]
A, NEEDY, _, B, _ = (case.id for case in CASES)
PASSED = Record(seconds=100.0, setup=60.0, tree="another", scenario="as it is", date="2026-11-24", run=1)


@dataclass
class Clock:
    """Calls of pytest take `slower` times what is recorded, and are kept, by the cases that they name."""

    slower: float = 1.0
    now: float = 0.0
    called: list[list[str]] = field(default_factory=list)
    fails: frozenset[str] = frozenset()

    def run(self, arguments: Sequence[str], seconds: float | None) -> None:
        cases = [word for word in arguments if "::" in word]
        assert (seconds is None) == (not cases), "by the clock, or by hand"
        self.called.append(cases or list(arguments))
        self.now += self.slower * (60 + 100 * len(cases))
        if not self.fails.isdisjoint(cases or {"all"}):
            raise subprocess.CalledProcessError(3, list(arguments))


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(running, "run_pytest", made.run)
    monkeypatch.setattr(running, "boot_seconds", lambda: made.now)
    return made


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


def left_of(clocked: Clock, seconds: float) -> Callable[[], float]:
    return lambda: seconds - clocked.now


def test_by_hand_all_short_cases_run_in_one_call(clocked: Clock, built, make) -> None:
    assert run_short(make(), None) == 0
    [argv] = clocked.called
    assert argv[-3:] == ["-m", "not rotation", "tests/e2e"]
    assert built == [Need("v1.37.1")]


def test_with_time_enough_all_short_cases_run_those_of_a_chain_too_that_the_rotation_has_the_end_of(
    clocked: Clock, built, make, capsys
) -> None:
    assert run_short(make(), left_of(clocked, 5000.0)) == 0
    assert sorted(clocked.called) == [[A, NEEDY], [B]]
    assert built == [Need("v1.37.1")]
    assert "left to the next run" not in capsys.readouterr().out


def test_what_is_not_built_waits_is_named_and_not_built_for(clocked: Clock, built, make, capsys) -> None:
    assert run_short(make(), left_of(clocked, 500.0)) == 0
    assert sorted(clocked.called) == [[A], [B]]
    assert built == []
    assert f"left to the next run, as CI has not the time for them:\n  {NEEDY}\n" in capsys.readouterr().out


def test_on_a_slow_day_what_comes_later_is_asked_for_by_the_pace(clocked: Clock, make, capsys) -> None:
    clocked.slower = 3.0
    assert run_short(make(), left_of(clocked, 900.0)) == 0
    [[ran]] = clocked.called
    [late] = {A, B} - {ran}
    assert late in (said := capsys.readouterr().out), "480 seconds are gone, and 160 more would take 528 at this pace"
    assert "they took 3.0 times what is recorded" in said


def test_what_did_not_fit_is_asked_again_when_the_others_were_quicker(clocked: Clock, built, make) -> None:
    """At the pace that is supposed first, all of it would be too long. The tree decides whose turn it is first."""
    clocked.slower, found = 0.5, make()
    limit = SLOWER * (260 + 160 + sum(BUILDS.values())) - 1
    ran = []
    for number in range(10):
        found.tree, clocked.called = f"tree {number}", []
        assert run_short(found, left_of(clocked, clocked.now + limit)) == 0
        ran.append(clocked.called)
        assert sorted(case for group in clocked.called for case in group) == [A, NEEDY, B]
    assert [[A], [B], [NEEDY]] in ran
    assert [[B], [A, NEEDY]] in ran


def test_what_the_change_touches_comes_first(clocked: Clock, built, make) -> None:
    assert run_short(make(NEEDY), left_of(clocked, 690.0)) == 0
    assert clocked.called[0] == [NEEDY]


def test_a_failure_is_the_commands_and_ends_nothing(clocked: Clock, make) -> None:
    clocked.fails = frozenset({B, "all"})
    assert run_short(make(), None) == 3
    clocked.called.clear()
    assert run_short(make(), left_of(clocked, 5000.0)) == 1
    assert sorted(clocked.called) == [[A, NEEDY], [B]]


def test_what_nobody_has_seen_pass_and_has_no_time_fails(clocked: Clock, make, capsys) -> None:
    found = make()
    found.__dict__["scenarios"] |= {A: "another"}
    assert run_short(found, left_of(clocked, 100.0)) == 1
    assert f"./run cases run '{A}'" in capsys.readouterr().out


def test_a_run_that_had_no_time_for_any_has_shown_nothing_and_fails(clocked: Clock, make, capsys) -> None:
    assert run_short(make(), left_of(clocked, 0.0)) == 1
    assert clocked.called == []
    assert "which shows too little" in capsys.readouterr().out
