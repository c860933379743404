"""`./run cases` by what it says, and as of which run it records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cases import __main__ as commands
from cases.listing import Case
from cases.pieces import Piece
from cases.records import Record
from cases.running import Runner
from cases.situation import Situation

CASES = [
    Case("tests/e2e/test_a.py::test_1", "test_a", rotation=True),
    Case("tests/e2e/test_a.py::test_2", "test_a", rotation=True, chain=""),
    Case("tests/e2e/test_a.py::test_3", "test_a", rotation=True, chain=""),
    Case("tests/e2e/test_b.py::test_4", "test_b"),
]
ONE, TWO, THREE, FOUR = (case.id for case in CASES)
PASSED = Record(600.0, 60.0, "this tree", "as it is", "2026-11-24", 7)


@pytest.fixture
def situation(monkeypatch: pytest.MonkeyPatch) -> Situation:
    """All have passed on this tree; the base of the change has all."""
    made = Situation(CASES, {case.id: PASSED for case in CASES}, "this tree")
    scenarios = {case.id: "as it is" for case in CASES}
    made.__dict__ |= {"scenarios": scenarios, "base": "a commit", "changed": set()}
    monkeypatch.setattr(commands, "Situation", lambda: made)
    return made


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int | None]]:
    """What ran, and as of which run it was recorded."""
    found: list[tuple[list[str], int | None]] = []

    def run_groups(groups: Sequence[Sequence[Piece]], runner: Runner) -> int:
        found.append(([case for group in groups for piece in group for case in piece.ids], runner.record))
        return 0

    monkeypatch.setattr(commands, "run_groups", run_groups)
    return found


def cases(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["cases", *argv])
    return commands.main()


def change(situation: Situation, **records: Record) -> None:
    situation.records = {**situation.records, **{globals()[name]: record for name, record in records.items()}}


@pytest.mark.usefixtures("situation")
@pytest.mark.parametrize(
    ("command", "run"),
    [
        (("shard", "--run"), 8),  # whoever is not in it has waited for one run more
        (("run", ONE), 7),  # no turn of the rotation: whoever is not named has been passed over by nobody
        (("run", ONE, "--no-record"), None),
    ],
)
def test_what_is_run_by_its_name_is_no_run_of_the_rotation(
    monkeypatch: pytest.MonkeyPatch,
    called: list[tuple[list[str], int | None]],
    command: tuple[str, ...],
    run: int | None,
) -> None:
    monkeypatch.setattr(commands, "in_ci", lambda: False)
    assert cases(monkeypatch, *command) == 0
    assert called[0][1] == run


@pytest.mark.usefixtures("situation")
def test_a_case_of_a_chain_brings_the_others(
    monkeypatch: pytest.MonkeyPatch, called: list[tuple[list[str], int | None]]
) -> None:
    cases(monkeypatch, "run", THREE)
    assert called[0][0] == [TWO, THREE]


# --- stale --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("situation")
def test_where_all_have_passed_on_this_very_tree_nothing_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cases(monkeypatch, "stale") == 0
    assert "0 of 4 cases have not passed on this very tree" in capsys.readouterr().out


def test_stale_is_what_has_passed_on_another_tree_or_never(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], situation: Situation
) -> None:
    change(situation, TWO=replace(PASSED, tree="another"), FOUR=Record(run=7))
    assert cases(monkeypatch, "stale") == 1
    *listed, said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in listed] == [["2026-11-24", TWO], ["never", FOUR]]
    assert "2 of 4 cases have not passed on this very tree" in said
    assert said.endswith("they take 0.5 h"), (
        "a chain of 20 minutes, two setups, and 5 minutes for what nobody has timed"
    )


# --- turn and check -----------------------------------------------------------------------------------


def test_turn_tells_what_is_stale_and_what_no_run_of_ci_has_the_time_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], situation: Situation
) -> None:
    change(situation, FOUR=replace(PASSED, tree="another"))
    assert cases(monkeypatch, "turn") == 0
    said = capsys.readouterr().out
    assert "1 of 4 cases have not passed on this very tree: ./run cases stale" in said
    assert said.splitlines()[-2:] == [
        "cases: 1 groups may take longer than these 15 minutes, and are run by hand only:",
        f"   27:18  {TWO} and 1 more of its chain",
    ]


def test_check_names_what_has_not_passed_for_two_weeks_and_does_not_fail_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], situation: Situation
) -> None:
    change(situation, TWO=replace(PASSED, date="2026-11-02"))
    assert cases(monkeypatch, "check") == 0
    said = f"{TWO} passed last on 2026-11-02, more than 14 days before the latest pass: ./run cases run '{TWO}'"
    assert said in capsys.readouterr().out


def test_check_fails_for_a_case_that_has_never_passed_whichever_commit_added_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], situation: Situation
) -> None:
    change(situation, FOUR=Record(run=7))
    assert cases(monkeypatch, "check") == 1
    assert f"{FOUR} has never passed: ./run cases run '{FOUR}'" in capsys.readouterr().out


def test_check_says_that_nobody_looks_at_what_is_touched_where_there_is_nothing_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], situation: Situation
) -> None:
    situation.__dict__ |= {"base": None}
    assert cases(monkeypatch, "check") == 0
    assert "nobody looks at what is touched" in capsys.readouterr().out
