"""Which upkeep etcd gets by itself, and what is left to a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from autarky.control.etcd.decide import upkeep
from autarky.control.etcd.decide.corruption import Content
from autarky.control.etcd.decide.maintenance import KEPT_REVISIONS
from autarky.control.etcd.decide.upkeep import (
    AGAIN_SECONDS,
    CORRUPT,
    DEFRAG_SECONDS,
    MIB,
    NOSPACE,
    STEADY_SECONDS,
    Action,
    Alarm,
    Decision,
    Member,
    Memory,
    Seen,
    Verb,
    decide,
)

QUOTA = 2048 * MIB
MEMBERS = tuple(
    Member(number, f"n{number}", leads=number == 1, size=20 * MIB, in_use=15 * MIB, quota=QUOTA, rejoins=True)
    for number in (1, 2, 3)
)
WELL = Seen(own=1, leader=1, members=MEMBERS, alarms=(), revision=5000)
FRAGMENTED: dict[str, Any] = {"size": 400 * MIB, "in_use": 100 * MIB}
SAME, OTHER = Content(7, 900), Content(8, 900)


def with_members(seen: Seen = WELL, *, only: Iterable[int] = (1, 2, 3), **changes: Any) -> Seen:
    assert seen.members is not None
    chosen = set(only)
    return replace(seen, members=tuple(replace(m, **changes) if m.id in chosen else m for m in seen.members))


def alone(**changes: Any) -> Seen:
    return replace(WELL, members=(replace(MEMBERS[0], **changes),))


def full(seen: Seen = WELL, *, only: Iterable[int] = (1, 2, 3), size: float = 1.0, in_use: float = 0.3) -> Seen:
    """With the alarm; size and in_use: of the quota."""
    seen = replace(seen, alarms=(Alarm(2, NOSPACE),))
    return with_members(seen, only=only, size=int(size * QUOTA), in_use=int(in_use * QUOTA))


def corrupt(contents: dict[int, Content] | None, *accused: int, **changes: Any) -> Seen:
    return replace(WELL, alarms=tuple(Alarm(one, CORRUPT) for one in accused), contents=contents, **changes)


def after_a_while(seen: Seen, memory: Memory | None = None, now: float = 0.0) -> Decision:
    """The first look, and the one after everything has been quiet for long enough."""
    first = decide(seen, memory or Memory(), now)
    return decide(seen, first.memory, now + STEADY_SECONDS)


# --- defragmentation ---------------------------------------------------------------------------------


def test_what_is_small_or_in_use_is_left_alone() -> None:
    for size, in_use in ((90 * MIB, MIB), (400 * MIB, 300 * MIB)):
        decision = after_a_while(with_members(size=size, in_use=in_use))
        assert (decision.action, decision.trouble) == (None, "")


def test_one_member_after_the_other_is_defragmented_and_the_leader_last() -> None:
    seen, memory, now, order = with_members(**FRAGMENTED), Memory(), 0.0, list[int]()
    while len(order) < 3:
        decision = decide(seen, memory, now)
        memory, now = decision.memory, now + 10
        if decision.action is not None:
            assert decision.action.verb is Verb.DEFRAGMENT
            order.append(decision.action.member)
            seen = with_members(seen, only=[decision.action.member], size=110 * MIB)
        assert now < 3 * DEFRAG_SECONDS
    assert order == [2, 3, 1]
    assert now > 2 * DEFRAG_SECONDS


def test_a_database_near_its_quota_is_defragmented_though_it_is_small() -> None:
    seen = with_members(quota=30 * MIB, size=28 * MIB, in_use=10 * MIB)
    assert after_a_while(seen).action == Action(Verb.DEFRAGMENT, 2)


@pytest.mark.parametrize(
    "unready",
    [
        with_members(only=[3], answers=False),
        with_members(only=[3], learner=True),
        replace(WELL, busy=True),
        replace(WELL, fenced=True),
        replace(WELL, own=2),
        replace(WELL, own=None),
        replace(WELL, leader=None),
        replace(WELL, members=None),
        replace(WELL, alarms=None),
        replace(WELL, alarms=(Alarm(1, "NEW"),)),
    ],
    ids=["silent", "learner", "busy", "fenced", "follower", "no own", "no leader", "no list", "no alarms", "unknown"],
)
def test_rule_3_while_not_all_is_well_no_member_is_stopped_for_it(unready: Seen) -> None:
    seen = unready if unready.members is None else with_members(unready, **FRAGMENTED)
    assert after_a_while(seen).action is None


def test_rule_2_what_changed_lately_is_waited_for() -> None:
    seen = with_members(**FRAGMENTED)
    memory = decide(with_members(seen, only=[3], answers=False), Memory(), 0).memory
    memory = decide(seen, memory, 50).memory
    assert decide(seen, memory, 50 + STEADY_SECONDS - 1).action is None
    assert decide(seen, memory, 50 + STEADY_SECONDS).action is not None


def test_what_did_not_help_is_not_repeated_for_an_hour() -> None:
    seen = with_members(only=[2], **FRAGMENTED)
    memory = after_a_while(seen).memory
    assert decide(seen, memory, STEADY_SECONDS + AGAIN_SECONDS - 1).action is None
    assert decide(seen, memory, STEADY_SECONDS + AGAIN_SECONDS).action == Action(Verb.DEFRAGMENT, 2)


def test_a_single_member_is_defragmented_if_its_pause_is_short_and_else_left_to_a_person() -> None:
    assert after_a_while(alone(**FRAGMENTED)).action == Action(Verb.DEFRAGMENT, 1)
    decision = after_a_while(alone(size=2000 * MIB, in_use=600 * MIB))
    assert decision.action is None
    assert decision.reason == "EtcdDefragmentByHand"
    assert "`autarky etcd defrag`" in decision.trouble


# --- NOSPACE -----------------------------------------------------------------------------------------


def test_nospace_history_is_given_up_then_members_are_defragmented_then_the_alarm_is_cleared() -> None:
    seen, memory = full(), Memory()
    decision = decide(seen, memory, 0)
    assert decision.action == Action(Verb.COMPACT, revision=5000 - KEPT_REVISIONS)
    order = []
    for now in (6.0, 12.0, 18.0):
        decision = decide(seen, decision.memory, now)
        assert decision.action is not None
        assert decision.action.verb is Verb.DEFRAGMENT
        order.append(decision.action.member)
        seen = with_members(seen, only=[decision.action.member], size=int(0.3 * QUOTA))
    assert order == [2, 3, 1]
    decision = decide(seen, decision.memory, 24)
    assert decision.action == Action(Verb.DISARM, alarms=(Alarm(2, NOSPACE),))
    assert "takes writes" in decision.sentence
    assert decision.reason == "EtcdAlarmCleared"


def test_if_the_newest_revisions_have_the_space_all_history_is_given_up() -> None:
    seen = full(in_use=0.95)
    first = decide(seen, Memory(), 0)
    assert decide(seen, first.memory, 1).action is None, "the other members have not made theirs yet"
    second = decide(seen, first.memory, 10)
    assert second.action == Action(Verb.COMPACT, revision=5000)


def test_where_no_space_is_left_the_alarm_stays_and_it_is_said_what_to_do() -> None:
    seen, memory, verbs = full(in_use=0.95), Memory(), list[Verb]()
    for now in range(0, 7200, 3):
        decision = decide(seen, memory, now)
        memory = decision.memory
        verbs += [decision.action.verb] if decision.action is not None else []
    assert verbs == [Verb.COMPACT, Verb.COMPACT], "nothing was written since: there is nothing to give up"
    assert decision.reason == "EtcdOutOfSpace"
    assert "delete objects" in decision.trouble
    assert "quotaBytes" in decision.trouble
    later = decide(replace(seen, revision=5100), memory, 7203)
    assert later.action == Action(Verb.COMPACT, revision=5100), "objects were deleted"


def test_it_is_looked_for_space_ever_more_rarely() -> None:
    memory, times = Memory(), list[int]()
    for now in range(7200):
        decision = decide(replace(full(in_use=0.95), revision=5000 + now), memory, now)
        memory = decision.memory
        times += [now] if decision.action is not None else []
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:4] == [5, 60, 120, 240]
    assert set(gaps[4:]) == {300}


def test_an_alarm_that_comes_back_at_once_is_cleared_ever_more_rarely() -> None:
    memory, times = Memory(), list[int]()
    seen = full(size=0.5, in_use=0.4)
    for now in range(7200):
        decision = decide(seen, memory, now)
        memory = decision.memory
        times += [now] if decision.action is not None else []
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:5] == [60, 120, 240, 480, 960]
    assert set(gaps[5:]) <= {960}
    calm = decide(replace(seen, alarms=()), memory, 20000)
    assert calm.memory.times == 0


SILENT: dict[str, Any] = {"answers": False, "size": 0, "in_use": 0, "quota": 0}


def test_rule_2_a_member_that_does_not_answer_may_be_full_and_is_waited_for() -> None:
    seen = with_members(full(size=0.5), only=[3], **SILENT)
    memory = decide(seen, Memory(), 0).memory
    waits = decide(seen, memory, upkeep.PATIENCE_SECONDS - 1)
    assert (waits.action, waits.trouble) == (None, "")
    assert decide(seen, memory, upkeep.PATIENCE_SECONDS).action is not None, "it raises the alarm itself if it is full"


def test_rule_3_while_a_member_is_away_the_others_are_not_defragmented_for_space() -> None:
    seen = with_members(full(), only=[3], **SILENT)
    memory = decide(seen, Memory(), 0).memory
    memory = decide(seen, memory, upkeep.PATIENCE_SECONDS).memory
    decision = decide(seen, memory, upkeep.PATIENCE_SECONDS + 60)
    assert decision.action is None
    assert "no member is defragmented while n3 does not answer" in decision.trouble


def test_rule_2_where_a_quota_is_not_known_no_space_is_proven() -> None:
    decision = after_a_while(with_members(full(size=0.5), only=[3], quota=0))
    assert decision.action is None
    assert "n3 does not say what its quota is" in decision.trouble


def test_with_nospace_for_long_what_is_being_changed_is_not_waited_for() -> None:
    """It may be waiting for space itself."""
    seen = replace(full(), busy=True)
    memory = decide(seen, Memory(), 0).memory
    assert decide(seen, memory, 20).action is None
    assert decide(seen, memory, upkeep.PATIENCE_SECONDS).action == Action(Verb.DEFRAGMENT, 2)


def test_a_single_member_without_space_is_defragmented_whatever_its_size() -> None:
    """Writes are refused anyway."""
    seen = replace(alone(size=QUOTA, in_use=1000 * MIB), alarms=(Alarm(1, NOSPACE),))
    memory = decide(seen, Memory(), 0).memory
    assert decide(seen, memory, 10).action == Action(Verb.DEFRAGMENT, 1)


# --- CORRUPT -----------------------------------------------------------------------------------------


def test_the_accused_is_removed_if_it_differs_from_others_that_agree_and_then_its_alarm_is_cleared() -> None:
    seen = corrupt(None, 3)
    asks = decide(seen, Memory(), 0)
    assert asks.action == Action(Verb.COMPARE)
    found = decide(replace(seen, contents={1: SAME, 2: SAME, 3: OTHER}), asks.memory, 1)
    assert found.action == Action(Verb.REMOVE, 3)
    assert found.reason == "EtcdMemberReplaced"
    rest = replace(seen, members=MEMBERS[:2])
    asks = decide(rest, found.memory, 4)
    assert asks.action == Action(Verb.COMPARE)
    done = decide(replace(rest, contents={1: SAME, 2: SAME}), asks.memory, 5)
    assert done.action == Action(Verb.DISARM, alarms=(Alarm(3, CORRUPT),))


def test_rule_3_a_leader_that_is_guilty_hands_over_first() -> None:
    decision = decide(corrupt({1: OTHER, 2: SAME, 3: SAME}, 1), Memory(), 0)
    assert decision.action == Action(Verb.MOVE_LEADER, 1, target=2)


@pytest.mark.parametrize(
    ("contents", "accused", "why"),
    [
        ({1: SAME, 2: SAME}, 3, "n3 gives no hash of its keys, and unknown is not corrupt"),
        ({1: SAME, 3: OTHER}, 3, "n2 gives no hash"),
        ({1: SAME, 2: OTHER, 3: OTHER}, 3, "the members other than n3 differ among themselves"),
        ({1: SAME, 2: SAME, 3: SAME}, 3, "n3 has the same keys as the others"),
        ({1: SAME, 2: SAME, 3: Content(8, 800)}, 3, "compacted to different revisions"),
        ({1: SAME, 2: SAME, 3: OTHER}, 0, "accuses no member"),
    ],
)
def test_rule_2_without_proof_nobody_is_removed_and_nothing_cleared(
    contents: dict[int, Content], accused: int, why: str
) -> None:
    decision = decide(corrupt(contents, accused), Memory(), 0)
    assert decision.action is None
    assert why in decision.trouble
    assert "etcdctl member remove ID" in decision.trouble
    assert decision.reason == "EtcdCorrupt"


def test_of_two_members_neither_is_removed() -> None:
    seen = replace(corrupt({1: SAME, 2: OTHER}, 2), members=MEMBERS[:2])
    assert "of 2 members nobody can tell which one is right" in decide(seen, Memory(), 0).trouble


def test_of_five_a_quorum_that_agrees_is_enough() -> None:
    members = (*MEMBERS, Member(4, "n4", rejoins=True), Member(5, "n5", answers=False))
    seen = replace(corrupt({1: SAME, 2: SAME, 3: OTHER, 4: SAME}, 3), members=members)
    assert decide(seen, Memory(), 0).action == Action(Verb.REMOVE, 3)
    assert decide(replace(seen, contents={1: SAME, 2: SAME, 3: OTHER}), Memory(), 0).action is None


@pytest.mark.parametrize("contents", [{1: SAME, 2: OTHER}, {1: SAME}])
def test_the_alarm_of_one_that_was_removed_stays_while_the_others_do_not_agree(contents: dict[int, Content]) -> None:
    seen = replace(corrupt(contents, 3), members=MEMBERS[:2])
    assert decide(seen, Memory(), 0).action is None
    single = replace(corrupt({1: SAME}, 3), members=MEMBERS[:1])
    assert decide(single, Memory(), 0).action is None


def test_one_that_would_not_join_again_stays() -> None:
    seen = with_members(corrupt({1: SAME, 2: SAME, 3: OTHER}, 3), only=[3], rejoins=False)
    decision = decide(seen, Memory(), 0)
    assert decision.action is None
    assert "no EtcdMember wants it to join again" in decision.trouble


def test_keys_are_not_compared_again_and_again() -> None:
    seen, memory, times = corrupt(None, 3), Memory(), list[int]()
    for now in range(600):
        decision = decide(seen, memory, now)
        memory = decision.memory
        if decision.action is not None:
            times.append(now)
            decision = decide(replace(seen, contents={1: SAME, 2: SAME}), memory, now)
            memory = decision.memory
        assert "n3 gives no hash" in decision.trouble
    assert times == [0, 120, 240, 360, 480]


def test_a_learner_is_waited_for() -> None:
    seen = with_members(corrupt({1: SAME, 2: SAME, 3: OTHER}, 3), only=[2], learner=True)
    assert decide(seen, Memory(), 0).action is None
