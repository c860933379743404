"""What is recorded: passes only, with the time of the case itself and that of its cluster apart."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cases.recording import Recorder
from cases.records import Record, read_all

A, B, C = (f"tests/e2e/test_ha.py::test_{name}" for name in "abc")


class Tree:
    """The hash of the tree, which somebody may change meanwhile."""

    now = "this tree"


@pytest.fixture
def tree() -> Tree:
    return Tree()


@pytest.fixture
def recorder(tmp_path: Path, tree: Tree) -> Recorder:
    return Recorder(41, directory=tmp_path, hash_tree=lambda: tree.now, hash_scenario=lambda case: f"hash of {case}")


def ran(recorder: Recorder, case: str, *seconds: float, failed: str = "", place: str = "test_ha") -> None:
    """`seconds` of setup, call and teardown."""
    recorder.begin(case, place)
    for phase, took in zip(("setup", "call", "teardown"), seconds, strict=True):
        if failed == "setup" and phase == "call":
            continue  # pytest calls nothing then
        recorder.hear(case, phase, took, passed=phase != failed)


def test_a_pass_is_recorded_with_what_passed_and_when(recorder: Recorder, tmp_path: Path) -> None:
    ran(recorder, A, 54.61, 69.38, 0.0)
    today = datetime.now(UTC).date().isoformat()
    assert read_all(tmp_path) == {
        A: Record(seconds=69.4, setup=54.6, tree="this tree", scenario=f"hash of {A}", date=today, run=41)
    }


def test_only_the_first_on_a_cluster_has_its_setup_and_others_count_their_own(
    recorder: Recorder, tmp_path: Path
) -> None:
    ran(recorder, A, 50.0, 10.0, 0.0)
    ran(recorder, B, 2.0, 20.0, 9.0)
    ran(recorder, C, 30.0, 5.0, 0.0, place="test_power")
    found = read_all(tmp_path)
    assert {case: (one.seconds, one.setup) for case, one in found.items()} == {
        A: (10.0, 50.0),
        B: (31.0, None),
        C: (5.0, 30.0),
    }


@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
def test_a_case_that_failed_in_any_phase_keeps_the_record_that_it_had(
    recorder: Recorder, tmp_path: Path, phase: str
) -> None:
    ran(recorder, A, 1.0, 2.0, 0.0)
    before = read_all(tmp_path)
    ran(recorder, A, 5.0, 6.0, 0.0, failed=phase)
    ran(recorder, B, 5.0, 6.0, 0.0, failed=phase)
    assert read_all(tmp_path) == before


def test_nothing_is_recorded_when_somebody_has_changed_the_sources_meanwhile(
    recorder: Recorder, tmp_path: Path, tree: Tree
) -> None:
    tree.now = "another tree"
    ran(recorder, A, 1.0, 2.0, 0.0)
    assert read_all(tmp_path) == {}
