"""Which member may change to another template, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.membership import Memory, decide, settled
from autarky.control.etcd.node.membership import _desired
from autarky.model.etcd_members import Action, Desired, Member, Seen, Verb, second

NEW = "abc"


def voter(number: int, *, serves: bool | None = True) -> Member:
    return Member(number, f"10.0.0.{number}", serves=serves)


def spec(number: int, *, outdated: bool = True, failed: bool = False, turn: bool = False) -> Desired:
    at = f"10.0.0.{number}"
    return Desired(f"n{number}", at, reachable=True, revision=NEW, outdated=outdated, failed=failed, has_turn=turn)


def done(number: int) -> Desired:
    return spec(number, outdated=False)


def action(members: list[Member], desired: list[Desired], *, leader: int = 1) -> Action | None:
    return decide(Seen(leader, leader, tuple(members), tuple(desired)), Memory(), 0.0).action


THREE = [voter(1), voter(2), voter(3)]


def test_one_that_does_not_lead_is_first_and_the_others_wait_until_it_is_done() -> None:
    assert action(THREE, [spec(1), spec(2), spec(3)]) == Action(Verb.TURN, "n2", "10.0.0.2", revision=NEW)
    assert action(THREE, [spec(1), spec(2, turn=True), spec(3)]) is None
    assert action(THREE, [spec(1), done(2), spec(3)]) == Action(Verb.TURN, "n3", "10.0.0.3", revision=NEW)


def test_the_leader_is_last_and_hands_over_first() -> None:
    assert action(THREE, [spec(1), done(2), done(3)]) == Action(Verb.MOVE_LEADER, "n1", "10.0.0.1", 1, 2)
    assert action(THREE, [spec(1), done(2), done(3)], leader=2) == Action(Verb.TURN, "n1", "10.0.0.1", revision=NEW)


def test_rule_3_none_stops_while_another_one_does_not_serve_and_the_one_that_does_not_is_first() -> None:
    sick = [voter(1), voter(2), voter(3, serves=False)]
    assert action(sick, [spec(1), spec(2), done(3)]) is None
    assert action(sick, [spec(1), spec(2), spec(3)]) == Action(Verb.TURN, "n3", "10.0.0.3", revision=NEW)
    assert action([voter(1), voter(2), voter(3, serves=None)], [spec(1), spec(2), done(3)]) is None


def test_none_follows_one_that_was_not_healthy() -> None:
    assert action(THREE, [spec(1), spec(2, failed=True), spec(3)]) is None
    assert settled(THREE, [done(1), spec(2, failed=True), done(3)])
    assert not settled(THREE, [done(1), spec(2), done(3)])


def test_members_that_join_or_leave_come_first() -> None:
    desired = [spec(1), spec(2), spec(3)]
    joins = Desired("n4", "10.0.0.4", reachable=True, revision=NEW)
    added = action(THREE, [*desired, joins])
    assert added is not None
    assert added.verb is Verb.ADD
    learner = Member(4, "10.0.0.4", learner=True, serves=False)
    assert action([*THREE, learner], [*desired, joins]) is None
    leaves = replace(spec(3), present=False, reported=True, disconnected=3)
    removed = action(THREE, [spec(1), spec(2), leaves])
    assert removed is not None
    assert removed.verb is Verb.REMOVE


def test_one_of_two_is_restarted_and_the_only_one_is_not() -> None:
    assert action([voter(1), voter(2)], [spec(1), spec(2)]) == Action(Verb.TURN, "n2", "10.0.0.2", revision=NEW)
    assert action([voter(1)], [spec(1)]) is None


@pytest.mark.parametrize("leader", [1, 2])
def test_beside_a_second_member_on_the_node_nobody_gets_a_turn(leader: int) -> None:
    """It stands in for the only one, which does not change in place: it leaves, and joins again (`decide.second`)."""
    stands_in = Member(2, second("10.0.0.1"), serves=True)
    assert action([voter(1), stands_in], [spec(1)], leader=leader) is None
    assert action([voter(1), replace(stands_in, address="10.0.0.2")], [spec(1)], leader=leader) is not None


@given(st.data(), st.sampled_from([2, 3, 5]), st.booleans())
def test_however_the_members_answer_one_at_a_time_stops_and_in_the_end_all_have_changed(
    data: st.DataObject, count: int, works: bool
) -> None:
    """Who has the turn does not serve for some looks; others are silent now and then; the leader's agent is killed."""
    specs = {number: spec(number) for number in range(1, count + 1)}
    leader, memory = 1, Memory()
    stops: dict[int, int] = {}
    for step in range(60 * count):
        calm = step > 20 * count
        silent = set() if calm else data.draw(st.sets(st.integers(1, count), max_size=1))
        members = [voter(n, serves=n not in stops and n not in silent) for n in specs]
        if leader in stops:
            leader = next(n for n in specs if n not in stops)
        if data.draw(st.booleans()) and not calm:
            memory = Memory()
        found = decide(Seen(leader, leader, tuple(members), tuple(specs.values())), memory, float(step))
        memory = found.memory
        if (todo := found.action) is not None:
            assert not stops, "two members change at once"
            if todo.verb is Verb.MOVE_LEADER:
                leader = todo.target
            else:
                assert todo.verb is Verb.TURN
                number = int(todo.name[1:])
                assert number != leader
                assert all(member.serves for member in members if member.id != number)
                specs[number], stops[number] = replace(specs[number], has_turn=True), 3
        for number in list(stops):
            stops[number] -= 1
            if not stops[number]:
                del stops[number]
                specs[number] = replace(specs[number], outdated=not works, failed=not works)
    changed = [number for number, one in specs.items() if not one.outdated]
    assert changed == (list(specs) if works else [])
    assert sum(one.failed for one in specs.values()) == (0 if works else 1)


@pytest.mark.parametrize(("said", "outdated"), [({}, False), ({"revision": ""}, True), ({"revision": NEW}, False)])
def test_an_etcdmember_that_was_written_again_gives_no_turn_before_its_agent_says_what_it_is_made_from(
    said: dict[str, str], outdated: bool
) -> None:
    """All were deleted, and come back with what they should be made from and without a status: the leader is not moved,
    and no member is restarted, for a template that all of them have."""
    live = {"metadata": {"name": "n1"}, "spec": {"address": "10.0.0.1", "revision": NEW}, "status": said}
    assert _desired(live).should_change is outdated
