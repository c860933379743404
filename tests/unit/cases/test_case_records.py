"""Records are files that are found by the id of their case, and go along with a rename."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import records
from cases.records import BadRecord, Record, case_of, latest_run, path_of, read_all, write

A = "tests/e2e/test_ha.py::test_a[n1]"
B = "tests/e2e/test_ha.py::test_a[deploy/kube-scheduler]"
PASSED = Record(seconds=69.4, setup=54.6, tree="3f1c", scenario="a90b", date="2026-11-24", run=41)


@given(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), st.text(min_size=1, max_size=40))
def test_a_path_and_its_case_name_each_other(module: str, name: str) -> None:
    case = f"tests/e2e/test_{module}.py::test_{name}"
    path = path_of(case, Path("/records"))
    assert path.parent == Path(f"/records/test_{module}")
    assert case_of(path) == case


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_two_cases_have_two_files(one: str, other: str) -> None:
    paths = {path_of(f"tests/e2e/test_m.py::{name}") for name in (one, other)}
    assert len(paths) == len({one, other})


@pytest.mark.parametrize("wrong", ["test_ha.py::test_a", "tests/e2e/test_ha.py", "tests/unit/test_x.py::test_a", ""])
def test_what_is_no_id_of_a_case_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no id of a case"):
        path_of(wrong)


def test_what_is_written_is_read_and_is_one_line(tmp_path: Path) -> None:
    for case, record in ((A, PASSED), (B, Record(run=3))):
        write(case, record, tmp_path)
    assert read_all(tmp_path) == {A: PASSED, B: Record(run=3)}
    text = path_of(A, tmp_path).read_text()
    assert text == (
        '{"seconds": 69.4, "setup": 54.6, "tree": "3f1c", "scenario": "a90b", "date": "2026-11-24", "run": 41}\n'
    )
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == [
        "test_a[deploy%2Fkube-scheduler].json",
        "test_a[n1].json",
    ]


def test_the_latest_run_is_the_highest_number() -> None:
    assert latest_run({A: Record(run=3), B: Record(run=41)}) == 41
    assert latest_run({}) == 0


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": 1}', '{"run": "x"}', '{"other": 1}'])
def test_what_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    path = write(A, PASSED, tmp_path)
    path.write_text(text)
    with pytest.raises(BadRecord, match="test_a"):
        read_all(tmp_path)


# --- renames ------------------------------------------------------------------------------------------


def test_a_rename_of_a_test_takes_the_records_of_all_its_parameters_along(tmp_path: Path) -> None:
    other = "tests/e2e/test_ha.py::test_another"
    for case in (A, B, other):
        write(case, PASSED, tmp_path)
    records.move("tests/e2e/test_ha.py::test_a", "tests/e2e/test_ha.py::test_b", tmp_path)
    assert read_all(tmp_path).keys() == {A.replace("test_a", "test_b"), B.replace("test_a", "test_b"), other}


def test_a_rename_of_a_module_takes_all_its_records_along(tmp_path: Path) -> None:
    write(A, PASSED, tmp_path)
    write(A.replace("test_ha", "test_ha_power"), Record(), tmp_path)
    moved = records.move("tests/e2e/test_ha.py", "tests/e2e/test_three.py", tmp_path)
    assert moved == [(A, A.replace("test_ha", "test_three"))]
    assert read_all(tmp_path).keys() == {A.replace("test_ha", "test_three"), A.replace("test_ha", "test_ha_power")}


def test_a_new_name_that_is_listed_but_has_not_passed_is_taken(tmp_path: Path) -> None:
    write(A, PASSED, tmp_path)
    write(B, Record(run=50), tmp_path)
    records.move(A, B, tmp_path)
    assert read_all(tmp_path) == {B: PASSED}


def test_a_record_of_a_pass_is_never_written_over_by_a_rename(tmp_path: Path) -> None:
    for case in (A, B):
        write(case, PASSED, tmp_path)
    with pytest.raises(ValueError, match="has a record of its own"):
        records.move(A, B, tmp_path)
    assert read_all(tmp_path).keys() == {A, B}


def test_a_rename_of_what_has_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no record of"):
        records.move(A, B, tmp_path)


@pytest.mark.parametrize("half", ["", '{"seconds": 1.0'])
def test_what_a_killed_run_has_begun_to_write_is_no_record(tmp_path: Path, half: str) -> None:
    write(A, PASSED, tmp_path)
    path = path_of(B, tmp_path)
    path.with_name(f".{path.name}").write_text(half)
    assert read_all(tmp_path) == {A: PASSED}
