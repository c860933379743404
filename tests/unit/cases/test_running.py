"""Running the rotation: the clock is looked at before each group, and what a change touches is not left out unseen."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from cases import running, situation
from cases.listing import PYTEST, Case, Need
from cases.pieces import Piece
from cases.records import Record
from cases.running import Runner, left_of_ci, rotate, run_pytest
from cases.situation import Situation

CASES = [
    Case("tests/e2e/test_a.py::test_1", "test_a", rotation=True),
    Case("tests/e2e/test_a.py::test_short", "test_a"),
    Case("tests/e2e/test_b.py::test_2", "test_b", rotation=True, needs=(Need("v1.37.1"),)),
    Case("tests/e2e/test_a.py::test_3", "test_a", rotation=True),
]
A1, SHORT, B2, A3 = (case.id for case in CASES)
SETUP = 0.0
RECORDED = 4
"""A run whose passes are recorded takes them in the order of how long they have waited."""


def a_record(run: int, scenario: str = "as it is") -> Record:
    return Record(seconds=100.0, setup=SETUP, tree="another", scenario=scenario, date="2026-11-24", run=run)


@dataclass
class Clock(Runner):
    """A runner that runs nothing: `takes` seconds go by for each group."""

    takes: float = 130.0
    left: float = 1000.0
    ran: list[list[str]] = field(default_factory=list)

    def run(self, group: Sequence[Piece]) -> None:
        self.ran.append([case for piece in group for case in piece.ids])
        self.left -= self.takes


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Situation]:
    monkeypatch.setattr(situation, "missing_builds", lambda _needs: {})

    def make(records: dict[str, Record], *changed: str) -> Situation:
        made = Situation(CASES, {case.id: Record() for case in CASES} | records, "this tree")
        made.__dict__ |= {"scenarios": {case.id: "as it is" for case in CASES}, "changed": set(changed)}
        return made

    return make


Find = Callable[..., Situation]


def rotated(situation: Situation, clock: Clock) -> int:
    return rotate(situation, lambda: clock.left, clock)


def test_groups_run_in_turn_and_each_brings_what_else_fits_of_its_place(found: Find) -> None:
    clock = Clock(RECORDED, left=1000.0)
    assert rotated(found({A1: a_record(1), B2: a_record(2), A3: a_record(3)}), clock) == 0
    assert clock.ran == [[A1, A3], [B2]]


def test_one_after_the_other_is_taken_as_long_as_there_is_time(found: Find) -> None:
    """Three of 130 s at most, for which there are 270: the second group has 140 left."""
    clock = Clock(RECORDED, left=270.0)
    assert rotated(found({A1: a_record(1), B2: a_record(2), A3: a_record(3)}), clock) == 0
    assert clock.ran == [[A1], [B2]]


def test_a_group_that_took_longer_than_it_was_said_to_costs_the_next_ones_their_turn(found: Find) -> None:
    clock = Clock(RECORDED, left=270.0, takes=200.0)
    assert rotated(found({A1: a_record(1), B2: a_record(2), A3: a_record(3)}), clock) == 0
    assert clock.ran == [[A1]]


def test_a_group_that_was_quicker_lets_others_have_theirs(found: Find) -> None:
    clock = Clock(RECORDED, left=270.0, takes=50.0)
    rotated(found({A1: a_record(1), B2: a_record(2), A3: a_record(3)}), clock)
    assert clock.ran == [[A1], [B2], [A3]]


def test_with_no_time_left_nothing_runs_which_is_said_and_no_failure(
    found: Find, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(None, left=-60.0)
    assert rotated(found({A1: a_record(1), B2: a_record(2), A3: a_record(3)}), clock) == 0
    assert clock.ran == []
    assert "0:00 are left, which is too short for any other: 3 wait" in capsys.readouterr().out


def test_ci_fails_for_what_was_touched_has_not_passed_and_did_not_fit(
    found: Find, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(None, left=50.0)
    assert rotated(found({A1: a_record(1), B2: a_record(9, "as it was"), A3: a_record(3)}), clock) == 1
    assert f"./run cases run '{B2}'" in capsys.readouterr().out


NEVER = Record(run=9)


def test_ci_fails_for_what_the_change_adds_has_never_passed_and_did_not_fit(
    found: Find, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(None, left=50.0)
    assert rotated(found({A1: a_record(1), B2: NEVER, A3: a_record(3)}, B2), clock) == 1
    assert f"./run cases run '{B2}'" in capsys.readouterr().out


def test_ci_tries_what_the_change_adds_where_it_fits(found: Find) -> None:
    """300 s are assumed, and a minute for its cluster."""
    clock = Clock(None, left=500.0)
    assert rotated(found({A1: a_record(1), B2: NEVER, A3: a_record(3)}, B2), clock) == 0
    assert clock.ran[0] == [B2]


def test_ci_leaves_out_what_has_never_passed_and_nobody_touches_and_says_so(
    found: Find, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(None)
    assert rotated(found({A1: a_record(1), B2: NEVER, A3: a_record(3)}), clock) == 0
    assert clock.ran == [[A1, A3]]
    assert "1 groups have never passed" in capsys.readouterr().out


CHAIN = [Case(f"tests/e2e/test_c.py::test_{name}", "test_c", rotation=True, chain="") for name in "456"]


@pytest.mark.parametrize(("left", "ran"), [(1000.0, [[case.id for case in CHAIN]]), (50.0, [])])
def test_a_case_that_has_never_passed_hides_no_other_of_its_chain(
    found: Find, capsys: pytest.CaptureFixture[str], left: float, ran: list[list[str]]
) -> None:
    """The second is other than what passed, the third one is new: where the chain does not fit, CI fails for it."""
    situation, clock = found({}), Clock(None, left=left)
    chained = (a_record(1), a_record(1, "as it was"), NEVER)
    situation.cases, situation.records = CHAIN, dict(zip((case.id for case in CHAIN), chained, strict=True))
    situation.__dict__["scenarios"] = {case.id: "as it is" for case in CHAIN}
    assert rotated(situation, clock) == (0 if ran else 1)
    assert clock.ran == ran
    assert (f"./run cases run '{CHAIN[0].id}'" in capsys.readouterr().out) == (not ran)


def test_a_chain_of_which_a_case_has_never_passed_is_taken_when_its_turn_comes(found: Find) -> None:
    situation, clock = found({}), Clock(None)
    situation.cases, situation.records = CHAIN[1:], {CHAIN[1].id: a_record(1), CHAIN[2].id: NEVER}
    situation.__dict__["scenarios"] = {case.id: "as it is" for case in CHAIN}
    assert rotated(situation, clock) == 0
    assert clock.ran == [[case.id for case in CHAIN[1:]]]


def test_ci_does_not_fail_for_what_was_touched_and_has_passed_by_hand(found: Find) -> None:
    clock = Clock(None, left=50.0)
    assert rotated(found({A1: a_record(1), B2: a_record(9), A3: a_record(3)}, B2), clock) == 0


def test_what_was_touched_goes_first(found: Find) -> None:
    clock = Clock(None, left=140.0)
    rotated(found({A1: a_record(1), B2: a_record(9), A3: a_record(3)}, B2), clock)
    assert clock.ran == [[B2]]


def test_ci_fails_when_a_case_did(found: Find) -> None:
    clock = Clock(None, failed=["test_a"])
    assert rotated(found({A1: a_record(1), B2: a_record(9), A3: a_record(3)}), clock) == 1


# --- pytest -------------------------------------------------------------------------------------------

PIECES = [Piece((CASES[2],), 100.0, 0.0), Piece((CASES[3],), 100.0, 0.0)]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that ran; pytest fails for test_a."""
    commands: list[list[str]] = []

    def run(argv: Sequence[str], **_: object) -> None:
        commands.append([str(word) for word in argv])

    def run_pytest(arguments: Sequence[str], seconds: float | None) -> None:
        assert seconds is None, "no clock is kept"
        run([*PYTEST, *arguments])
        if any("test_a" in word for word in arguments):
            raise subprocess.CalledProcessError(1, list(arguments))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(running, "run_pytest", run_pytest)
    return commands


def test_what_a_group_needs_is_built_first_and_then_pytest_runs_its_cases(called: list[list[str]]) -> None:
    Runner(None).run(PIECES[:1])
    built, tested = (command[1:] for command in called)
    assert built == ["-m", "autarky", "payload", "get", "v1.37.1", "--group=cluster"]
    assert tested == ["-m", "pytest", "-p", "no:randomly", B2]


def test_a_recorded_run_has_one_number_for_all_its_groups(called: list[list[str]]) -> None:
    runner = Runner(42)
    for piece in PIECES:
        runner.run([piece])
    assert [command[5:7] for command in called if "pytest" in command] == [["--record", "--record-run=42"]] * 2


def test_a_group_that_fails_keeps_no_other_from_running(called: list[list[str]]) -> None:
    runner = Runner(None)
    for piece in reversed(PIECES):
        runner.run([piece])
    assert runner.failed == ["test_a"]
    assert runner.end() == 1
    assert called[-1][-1] == B2


def test_a_group_may_take_what_is_left_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []
    monkeypatch.setattr(running, "run_pytest", lambda _, seconds: given.append(seconds))
    lefts = iter([70.0, -5.0])
    runner = Runner(None, limit=lambda: next(lefts))
    runner.run(PIECES[1:])
    runner.run(PIECES[1:])
    assert given == [70.0, 0.0]


@pytest.mark.parametrize("ignored", [False, True], ids=["in the foreground", "in the background of a shell"])
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import time\ntry: time.sleep(60)\nfinally: print('taken down', flush=True)", "taken down"),
        ("import signal, time\nsignal.signal(signal.SIGINT, lambda *_: print('deaf', flush=True))\ntime.sleep(60)", ""),
    ],
    ids=["that takes its cluster down", "that does not hear it"],
)
def test_pytest_that_hangs_is_interrupted_and_fails(
    program: str, said: str, ignored: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    monkeypatch.setattr(running, "PYTEST", (sys.executable, "-c", program))
    monkeypatch.setattr(running, "CLEANS_UP_WITHIN", 1.0)
    began = time.monotonic()
    try:
        with pytest.raises(subprocess.CalledProcessError):
            run_pytest([], 5.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 60
    out = capfd.readouterr().out
    assert "interrupted, as it has not ended within 0:05" in out
    assert said in out


def test_pytest_that_ends_in_time_passes_or_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PYTEST", (sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]))"))
    run_pytest(["0"], 30.0)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_pytest(["3"], None)
    assert failed.value.returncode == 3


# --- the clock ----------------------------------------------------------------------------------------


def test_what_ci_has_left_counts_from_its_start_by_the_boot_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTARKY_CI_STARTED", "1000.25")
    monkeypatch.setattr(running, "boot_seconds", lambda: 1000.25 + 3600)
    assert left_of_ci() == 15 * 60 - 120
    monkeypatch.delenv("AUTARKY_CI_STARTED")
    assert left_of_ci() is None
