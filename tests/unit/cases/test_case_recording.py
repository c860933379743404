"""What is recorded: passes only, with the time of the case itself and that of its cluster apart."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cases.recording import Recorder
from cases.records import Record, read_all
from cases.tree import ROOT

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


def ran(
    recorder: Recorder,
    case: str,
    *seconds: float,
    failed: str = "",
    place: str = "test_ha",
    made: dict[str, float] | None = None,
) -> None:
    """`seconds` of setup, call and teardown. `made`: what it makes in its setup for all of its module, in seconds."""
    recorder.begin(case, place)
    for fixture, took in (made or {}).items():
        recorder.make(fixture, took)
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


def times(directory: Path) -> dict[str, tuple[float | None, float | None]]:
    return {case: (one.seconds, one.setup) for case, one in read_all(directory).items()}


def test_what_a_later_case_makes_for_all_of_its_place_is_setup_of_that(recorder: Recorder, tmp_path: Path) -> None:
    """It has paid for all of the place: alone it would have that before it."""
    ran(recorder, A, 50.0, 10.0, 0.0, made={"machine": 50.0})
    ran(recorder, B, 442.0, 20.0, 1.0, made={"up": 440.0})
    ran(recorder, C, 40.0, 5.0, 0.0)
    assert times(tmp_path) == {A: (10.0, 50.0), B: (23.0, 490.0), C: (45.0, None)}


def test_what_is_soon_made_is_time_of_its_case(recorder: Recorder, tmp_path: Path) -> None:
    ran(recorder, A, 50.0, 10.0, 0.0)
    ran(recorder, B, 31.0, 20.0, 0.0, made={"writer": 29.0})
    assert times(tmp_path)[B] == (51.0, None)


def test_what_is_made_again_for_another_parameter_is_time_of_its_case(recorder: Recorder, tmp_path: Path) -> None:
    ran(recorder, A, 50.0, 10.0, 0.0, made={"cluster": 50.0})
    ran(recorder, B, 60.0, 10.0, 0.0, made={"cluster": 60.0})
    assert times(tmp_path)[B] == (70.0, None)


def test_what_a_case_has_made_is_there_although_it_failed(recorder: Recorder, tmp_path: Path) -> None:
    ran(recorder, A, 50.0, 10.0, 0.0, failed="call")
    ran(recorder, B, 100.0, 20.0, 0.0, made={"up": 90.0})
    assert times(tmp_path) == {B: (30.0, 140.0)}


def test_what_the_end_of_a_place_finds_wrong_leaves_no_record_of_its_cases_and_those_of_others(
    recorder: Recorder, tmp_path: Path
) -> None:
    """What was recorded in an earlier session is there again."""
    earlier = Recorder(40, directory=tmp_path, hash_tree=lambda: "this tree", hash_scenario=str)
    ran(earlier, B, 1.0, 3.0, 0.0)
    before = read_all(tmp_path)
    ran(recorder, A, 1.0, 2.0, 0.0)
    ran(recorder, B, 1.0, 2.0, 0.0)
    ran(recorder, C, 1.0, 2.0, 0.0, failed="teardown")
    assert read_all(tmp_path) == before
    ran(recorder, A, 1.0, 2.0, 0.0, place="test_power")
    ran(recorder, C, 1.0, 2.0, 0.0, failed="teardown")
    assert read_all(tmp_path).keys() == {A, B}


@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
def test_a_case_that_failed_in_any_phase_keeps_the_record_that_it_had(
    recorder: Recorder, tmp_path: Path, phase: str
) -> None:
    ran(recorder, A, 1.0, 2.0, 0.0, place="another")
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


# --- pytest -------------------------------------------------------------------------------------------

MODULE = """
import time
import pytest


@pytest.fixture(scope="module")
def machine(): time.sleep(0.3)


@pytest.fixture(scope="module")
def up(machine): time.sleep(1.5)


@pytest.fixture
def settled(up): time.sleep(0.1)


def test_1(machine): ...


def test_2(settled): ...


def test_3(settled): ...
"""
SESSION = """
import sys
from pathlib import Path
import pytest
from cases import recording
recording.LARGE_SETUP = 1.5
recorder = recording.Recorder(
    41, directory=Path("records"), hash_tree=lambda: "this tree", hash_scenario=lambda case: "as it is"
)
sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:randomly", "tests/e2e"], plugins=[recorder]))
"""


def pytest_in(directory: Path, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (directory / "tests/e2e").mkdir(parents=True)
    (directory / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (directory / "tests/e2e/test_m.py").write_text(MODULE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), **variables}
    argv = (sys.executable, *argv)
    return subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_pytest_tells_what_is_made_for_all_of_a_module(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "-c", SESSION)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {case[-1]: one for case, one in times(tmp_path / "records").items()}
    assert found.keys() == {"1", "2", "3"}
    assert 0.3 <= (found["1"][1] or 0) < 1.5
    assert (found["2"][1] or 0) >= 1.8
    assert 0.1 <= (found["2"][0] or 0) < 1.5
    assert found["3"][1] is None


@pytest.mark.parametrize("variable", ["AUTARKY_ROUNDS", "AUTARKY_EVERY_WRITE", "AUTARKY_RENEWALS"])
def test_nothing_is_recorded_while_a_variable_makes_cases_of_another_length(tmp_path: Path, variable: str) -> None:
    done = pytest_in(
        tmp_path, "-m", "pytest", "-p", "cases.recording", "--record", "--collect-only", "tests/e2e", **{variable: "1"}
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{variable} makes other cases of them" in done.stderr
    assert "./run cases run --no-record" in done.stderr
