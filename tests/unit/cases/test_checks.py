"""The list of cases is wrong when one is missing, gone, waits too long or takes too long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases import checks
from cases.listing import Case
from cases.records import Record

HA, POWER = "tests/e2e/test_ha.py", "tests/e2e/test_power.py"
ONE, TWO = (
    Case(f"{HA}::test_a_power_cut_of_a_control_node", "test_ha", rotation=True),
    Case(f"{POWER}::test_x", "test_power"),
)
SCENARIOS = {ONE.id: "hash of one", TWO.id: "hash of two"}
PASSED = Record(seconds=60.0, setup=30.0, tree="t", scenario="hash of one", date="2026-11-24", run=7)
LISTED = {ONE.id: PASSED, TWO.id: replace(PASSED, scenario="hash of two")}


def problems(
    records: dict[str, Record],
    cases: tuple[Case, ...] = (ONE, TWO),
    scenarios: dict[str, str] = SCENARIOS,
) -> list[str]:
    return checks.problems(cases, records, scenarios)


def test_a_list_with_a_record_for_each_case_is_well() -> None:
    assert problems(LISTED) == []


def test_a_case_without_a_record_is_named_with_what_adds_it() -> None:
    assert problems({TWO.id: LISTED[TWO.id]}) == [f"{ONE.id} is not listed: ./run cases add"]


def test_a_listed_case_has_to_have_passed() -> None:
    never = {ONE.id: Record(run=7), TWO.id: LISTED[TWO.id]}
    assert problems(never) == [f"{ONE.id} has never passed: ./run cases run '{ONE.id}'"]


def test_a_record_without_a_case_is_named_with_what_removes_it() -> None:
    gone = f"{POWER}::test_of_another_subject"
    [problem] = problems({**LISTED, gone: Record()})
    assert problem == (
        f"{gone} has a record and is no case any more:"
        " git rm 'tests/cases/records/test_power/test_of_another_subject.json'"
    )


def test_a_rename_is_told_by_the_same_scenario_whatever_the_names() -> None:
    old = f"{POWER}::zzz"
    records = {old: PASSED, TWO.id: LISTED[TWO.id]}
    assert problems(records) == [f"{ONE.id} is not listed; when it was {old}: ./run cases rename '{old}' '{ONE.id}'"]
    assert checks.is_certain(ONE.id, old, records, SCENARIOS)


def test_a_rename_is_told_by_the_nearest_name_when_the_scenario_has_changed_too() -> None:
    near, far = f"{HA}::test_a_power_cut_of_any_control_node", f"{HA}::test_labels"
    records = {near: replace(PASSED, scenario="x"), far: replace(PASSED, scenario="y"), TWO.id: LISTED[TWO.id]}
    first, second = problems(records)
    assert f"rename '{near}' '{ONE.id}'" in first
    assert second.startswith(f"{far} has a record and is no case")
    assert not checks.is_certain(ONE.id, near, records, SCENARIOS)


def test_of_one_scenario_with_several_parameters_each_record_goes_to_its_own() -> None:
    new = [Case(f"{HA}::test_new[{node}]", "test_ha") for node in ("n1", "n2")]
    records = {f"{HA}::test_old[{node}]": PASSED for node in ("n2", "n1")}
    names = checks.former_names(new, records, dict.fromkeys([case.id for case in new], "hash of one"))
    assert names == {f"{HA}::test_new[{node}]": f"{HA}::test_old[{node}]" for node in ("n1", "n2")}
    assert not checks.is_certain(new[0].id, f"{HA}::test_old[n2]", records, {new[0].id: "hash of one"})


def test_what_has_passed_longer_ago_than_two_turns_take_fails_with_what_runs_it() -> None:
    def dated(latest: str) -> dict[str, Record]:
        return {ONE.id: replace(LISTED[ONE.id], date="2026-11-01"), TWO.id: replace(LISTED[TWO.id], date=latest)}

    [problem] = problems(dated("2026-11-30"))
    assert problem.startswith(f"{ONE.id} passed last on 2026-11-01, which is more than 28 days before")
    assert problem.endswith(f"./run cases run '{ONE.id}'")
    assert problems(dated("2026-11-29")) == []


@pytest.mark.parametrize("longer", ["in seconds", "by its timeout"])
def test_no_case_may_be_longer_than_ten_minutes(longer: str) -> None:
    records, cases = LISTED, (ONE, TWO)
    if longer == "in seconds":
        records = {**LISTED, ONE.id: replace(PASSED, seconds=600.1)}
    else:
        cases = (replace(ONE, timeout=901), TWO)
    [problem] = problems(records, cases)
    assert problem == f"{ONE.id} takes longer than 600 s, or its timeout longer than 900 s: cut it into several"
