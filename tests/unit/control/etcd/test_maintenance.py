"""Looking after etcd: the order, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.maintenance import (
    MOST_BEHIND,
    EtcdSeen,
    MemberSeen,
    compaction,
    defragmentation,
    findings,
    obstacle,
    unknown_names,
)

WELL = EtcdSeen(
    tuple(
        MemberSeen(
            f"n{number}", f"10.0.0.{number}", number, leads=number == 2, version="3.6.16", applied=900, quota=100
        )
        for number in (1, 2, 3)
    ),
    cluster=7,
    quorum=True,
)
MEMBERS = st.builds(
    MemberSeen,
    name=st.sampled_from(["n1", "n2", "n3", "n4", "n5"]),
    address=st.just("10.0.0.1"),
    id=st.integers(1, 9),
    learner=st.booleans(),
    leads=st.booleans(),
    error=st.sampled_from([None, "it does not answer"]),
)


def with_second(**changes: Any) -> EtcdSeen:
    first, second, third = WELL.members
    return replace(WELL, members=(first, replace(second, **changes), third))


def test_the_leader_is_defragmented_last():
    assert [one.name for one in defragmentation(WELL)] == ["n1", "n3", "n2"]
    assert [one.name for one in defragmentation(WELL, ["n3", "n2"])] == ["n3", "n2"]


@given(st.lists(MEMBERS, max_size=6), st.lists(st.sampled_from(["n1", "n2", "n9"]), max_size=3))
def test_all_that_were_chosen_come_once_and_after_a_leader_only_leaders(members, names):
    order = defragmentation(EtcdSeen(tuple(members), quorum=True), names)
    assert sorted(order, key=repr) == sorted((one for one in members if not names or one.name in names), key=repr)
    leads = [one.leads for one in order]
    assert leads == sorted(leads)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (WELL, None),
        (replace(WELL, quorum=False), "no quorum"),
        (with_second(leads=False), "no leader"),
        (with_second(error="it does not answer"), "n2: it does not answer"),
        (with_second(alarms=("NOSPACE",)), None),  # the way out of it is a defragmentation
    ],
)
def test_no_member_may_stop_answering_while_another_one_does_not(seen, why):
    said = obstacle(seen)
    assert said is None if why is None else said is not None and why in said


def test_what_is_well_has_no_findings():
    assert findings(WELL) == []
    assert WELL.healthy


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (EtcdSeen(()), "no etcd member is known"),
        (replace(WELL, quorum=False), "etcd has no quorum"),
        (with_second(error="it does not answer"), "n2: it does not answer"),
        (with_second(alarms=("CORRUPT",)), "n2: alarm CORRUPT"),
        (with_second(applied=900 + MOST_BEHIND + 1), f"n1 is {MOST_BEHIND + 1:,} entries behind"),
        (with_second(size=81), "n2: its database has 81% of its quota"),
        (with_second(learner=True), "2 voters tolerate no more failures than 1 would"),
        (with_second(version="3.7.1"), "different versions"),
    ],
)
def test_what_deserves_attention_is_said(seen, said):
    assert any(said in one for one in findings(seen)), findings(seen)


def test_a_member_is_behind_only_if_it_answers():
    assert not any("behind" in one for one in findings(with_second(applied=0, error="it does not answer")))
    assert not any("behind" in one for one in findings(with_second(applied=900 + MOST_BEHIND)))


@pytest.mark.parametrize(
    ("newest", "keep", "target"), [(5000, 1000, 4000), (1000, 1000, None), (10, 1000, None), (10, 0, 10)]
)
def test_of_history_the_newest_is_kept(newest, keep, target):
    assert compaction(newest, keep) == target


def test_names_that_are_no_members_are_named():
    assert unknown_names(WELL, ["n2", "n9", "n8"]) == ["n8", "n9"]
