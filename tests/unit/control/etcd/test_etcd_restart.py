"""etcd's members are restarted one at a time: none that the quorum needs, the leader last, judged by their reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.restart import STARTS, Member, Seen, against, following, judge

MEMBERS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=7).map(
    lambda kinds: [Member(f"n{n}", voter, healthy) for n, (voter, healthy) in enumerate(kinds, 1)]
)


@given(MEMBERS, st.data())
def test_rule_3_no_member_is_stopped_that_the_quorum_needs_while_another_is_missing(members, data):
    name = data.draw(st.sampled_from([member.name for member in members]))
    voters = [member for member in members if member.voter]
    missing = [member for member in voters if not member.healthy and member.name != name]
    left = [member for member in voters if member.healthy and member.name != name]
    had = sum(member.healthy for member in voters) > len(voters) // 2
    if against(name, members) is None and had and missing:
        assert len(left) > len(voters) // 2


@given(MEMBERS, st.data())
def test_what_stands_against_it_names_who_is_missing(members, data):
    name = data.draw(st.sampled_from([member.name for member in members]))
    why_not = against(name, members)
    if why_not is not None:
        assert [m.name for m in members if m.voter and not m.healthy and m.name in why_not]


@given(MEMBERS)
def test_whoever_has_nothing_to_lose_comes_first_and_nothing_stands_against_it(members):
    names = [member.name for member in members]
    first = next(member for member in members if member.name == following(names, members))
    if not all(member.voter and member.healthy for member in members):
        assert not (first.voter and first.healthy)
        assert against(first.name, members) is None


def test_the_leader_is_the_last():
    members = [Member("n1", True, True, leader=True), Member("n2", True, True), Member("n3", True, True)]
    assert following(["n1", "n2", "n3"], members) == "n2"
    assert following(["n1"], members) == "n1"
    assert following(["n1", "n9"], members) == "n9"


@pytest.mark.parametrize("count", [1, 2])
def test_where_no_order_spares_etcd_the_moment_it_is_taken(count):
    members = [Member(f"n{n}", True, True) for n in range(1, count + 1)]
    assert against("n1", members) is None
    assert count == 1 or against("n1", [members[0], replace(members[1], healthy=False)]) is not None


def test_an_answer_counts_only_when_the_former_process_has_ended():
    well = Seen(former=False, new=True, starts=1, answers="200")
    assert judge(well).well
    assert not judge(replace(well, former=True)).well
    assert not judge(replace(well, answers="503")).well
    assert not judge(replace(well, new=False)).well


def test_what_ends_again_and_again_is_given_up():
    ended = Seen(former=False, new=False, starts=STARTS, answers="")
    assert judge(ended).failed
    assert not judge(replace(ended, starts=STARTS - 1)).failed
    assert not judge(replace(ended, new=True)).failed
    assert not judge(replace(ended, former=True)).failed
