"""Each rule of etcd's membership by itself; test_etcd_members_machine has them all at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.etcd.decide.membership import (
    LONGEST_NOTICE,
    LONGEST_PAUSE,
    PAUSE_SECONDS,
    REPLACE_SECONDS,
    SILENT_SECONDS,
    SYNC_SECONDS,
    Decision,
    Memory,
    decide,
    settled,
)
from autarky.model.etcd_members import Action, Desired, Member, MemberStatus, Phase, Seen, Verb


def voter(number: int, *, serves: bool | None = True) -> Member:
    return Member(number, f"10.0.0.{number}", serves=serves)


def learner(number: int, *, started: bool = True, serves: bool | None = True) -> Member:
    return Member(number, f"10.0.0.{number}", learner=True, started=started, serves=serves)


def spec(number: int, *, present: bool = True, asked: str = "", lost: bool = False, reachable: bool = True) -> Desired:
    return Desired(f"n{number}", f"10.0.0.{number}", present, asked, number if lost else None, reachable)


def leaving(number: int) -> Desired:
    """Its status says so already."""
    return replace(spec(number, present=False), reported=True)


def seen(members: list[Member], desired: list[Desired], *, own: int = 1, leader: int = 1) -> Seen:
    return Seen(own, leader, tuple(members), tuple(desired))


def after_notice(sight: Seen) -> Decision:
    first = decide(sight, Memory(), 0.0)
    return decide(sight, first.memory, LONGEST_NOTICE)


THREE = [voter(1), voter(2), voter(3)]
DESIRED = [spec(1), spec(2), spec(3)]


# --- rule 2: unknown is not down -------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["own", "leader", "members", "desired"])
def test_rule_2_what_is_not_seen_now_changes_nothing(missing: str) -> None:
    sight = seen(THREE, [spec(1), spec(2), leaving(3), spec(4)])
    decision = decide(replace(sight, **{missing: None}), Memory(), 100.0)
    assert decision.action is None
    assert decision.reported == {}


def test_rule_2_a_member_that_was_not_asked_counts_as_one_that_does_not_serve() -> None:
    decision = after_notice(seen([voter(1), voter(2, serves=None), voter(3)], [spec(1), spec(2), leaving(3)]))
    assert decision.action is None
    assert decision.reported["n3"].phase is Phase.BLOCKED


def test_rule_2_a_member_that_is_silent_for_ever_is_not_removed_for_it() -> None:
    sight = seen([voter(1), voter(2), voter(3, serves=False)], DESIRED)
    assert decide(sight, decide(sight, Memory(), 0.0).memory, 1e6).action is None
    assert decide(sight, Memory(), 0.0).reported["n3"] == MemberStatus(Phase.MEMBER, 3, "it does not answer")


# --- a member that is gone, and a spare ---------------------------------------------------------------

GONE = [voter(1), voter(2), voter(3, serves=False)]


def after(sight: Seen, *seconds: float) -> Decision:
    """The decision after the last of these, by an agent that has looked at all of them."""
    memory = Memory()
    for moment in seconds:
        decision = decide(sight, memory, moment)
        memory = decision.memory
    return decision


def test_rule_10_a_member_that_is_silent_for_long_gives_its_place_to_a_node_that_waits() -> None:
    sight = seen(GONE, [*DESIRED, spec(4)])
    early = after(sight, 0.0, REPLACE_SECONDS - 1)
    assert early.action is None
    assert "after 600 s without an answer it is replaced" in early.reported["n4"].message
    assert after(sight, 0.0, REPLACE_SECONDS).action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)
    assert after(replace(sight, replace_after=60.0), 0.0, 60.0).action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)


def test_rule_2_silence_counts_only_while_it_lasts_and_is_seen() -> None:
    sight = seen(GONE, [*DESIRED, spec(4)])
    answered = replace(sight, members=(voter(1), voter(2), voter(3)), desired=tuple(DESIRED))
    memory = decide(sight, Memory(), 0.0).memory
    memory = decide(answered, memory, 590.0).memory
    assert decide(sight, memory, 1000.0).action is None
    unasked = replace(sight, members=(voter(1), voter(2), voter(3, serves=None)))
    memory = decide(unasked, Memory(), 0.0).memory
    assert decide(unasked, memory, 1e6).action is None
    assert decide(sight, Memory(), 1e6).action is None  # another agent's first look


@pytest.mark.parametrize(
    ("members", "desired"),
    [
        (GONE, DESIRED),
        (GONE, [*DESIRED, spec(4, reachable=False)]),
        (GONE, [*DESIRED, spec(4, present=False)]),
        ([voter(1), voter(2, serves=False), voter(3, serves=False)], [*DESIRED, spec(4)]),
    ],
    ids=["no spare", "a spare that is off", "one that should leave", "no quorum"],
)
def test_rule_3_without_a_spare_or_a_quorum_of_the_rest_it_stays(members: list[Member], desired: list[Desired]) -> None:
    assert after(seen(members, desired), 0.0, 1e6).action is None


def test_rule_2_one_that_the_leader_is_connected_to_is_not_gone_though_it_answers_no_client() -> None:
    """Somebody occupies its clients' port, which has no limit."""
    mute = replace(voter(3, serves=False), connected=True)
    sight = seen([voter(1), voter(2), mute], [*DESIRED, spec(4)])
    assert after(sight, 0.0, 1e6).action is None
    cut_off = replace(sight, members=(voter(1), voter(2), replace(mute, connected=False)))
    memory = decide(sight, Memory(), 0.0).memory
    memory = decide(cut_off, memory, 1000.0).memory
    assert decide(cut_off, memory, 1000.0 + REPLACE_SECONDS - 1).action is None
    assert decide(cut_off, memory, 1000.0 + REPLACE_SECONDS).action is not None


def test_rule_10_without_a_control_plane_that_says_how_long_nobody_is_replaced() -> None:
    sight = replace(seen(GONE, [*DESIRED, spec(4)]), replace_after=float("inf"))
    decision = after(sight, 0.0, 1e9)
    assert decision.action is None
    assert "repair it, or remove it" in decision.reported["n4"].message
    assert "inf" not in decision.reported["n4"].message


def test_rule_3_an_alarm_keeps_it() -> None:
    sight = replace(seen(GONE, [*DESIRED, spec(4)]), alarms=("alarm:NOSPACE",))
    assert after(sight, 0.0, 1e6).action is None


# --- rule 3: one change at a time, quorum, learner first, leader moved -----------------------------


def test_rule_3_a_new_member_joins_without_a_vote() -> None:
    decision = decide(seen([voter(1)], [spec(1), spec(2)]), Memory(), 0.0)
    assert decision.action == Action(Verb.ADD, "n2", "10.0.0.2")


def test_rule_3_a_learner_gets_its_vote_when_it_runs() -> None:
    decision = decide(seen([voter(1), learner(2)], [spec(1), spec(2)]), Memory(), 0.0)
    assert decision.action == Action(Verb.PROMOTE, "n2", "10.0.0.2", 2)
    assert decision.reported["n2"].phase is Phase.LEARNER


def test_rule_3_joins_queue_in_the_order_in_which_they_were_asked_for() -> None:
    late, early = spec(2, asked="2026-02"), spec(3, asked="2026-01")
    decision = decide(seen([voter(1)], [spec(1), late, early]), Memory(), 0.0)
    assert decision.action == Action(Verb.ADD, "n3", "10.0.0.3")
    assert decision.reported["n2"] == MemberStatus(Phase.PENDING, None, "waiting: one member joins at a time")


def test_rule_3_nobody_joins_while_another_is_a_learner() -> None:
    decision = decide(
        seen(
            [voter(1), learner(2, started=False, serves=False)],
            [spec(1), spec(2), spec(3)],
        ),
        Memory(),
        0.0,
    )
    assert decision.action is None
    assert decision.reported["n2"].phase is Phase.JOINING
    assert decision.reported["n3"].phase is Phase.PENDING


def test_rule_3_nobody_joins_while_a_member_does_not_serve_and_the_refusal_says_what_to_do() -> None:
    decision = decide(seen([voter(1), voter(2), voter(3, serves=False)], [*DESIRED, spec(4)]), Memory(), 0.0)
    assert decision.action is None
    assert decision.reported["n4"].phase is Phase.BLOCKED
    assert "n3" in decision.reported["n4"].message
    assert "kubectl patch etcdmember" in decision.reported["n4"].message


def test_rule_3_nobody_joins_while_etcd_has_an_alarm() -> None:
    sight = replace(seen([voter(1)], [spec(1), spec(2)]), alarms=("memberID:1 alarm:NOSPACE",))
    decision = decide(sight, Memory(), 0.0)
    assert decision.action is None
    assert "NOSPACE" in decision.reported["n2"].message


def test_rule_3_a_member_that_serves_leaves_only_if_the_rest_has_a_quorum() -> None:
    decision = after_notice(seen([voter(1), voter(2, serves=False), voter(3)], [spec(1), spec(2), leaving(3)]))
    assert decision.action is None
    assert decision.reported["n3"].phase is Phase.BLOCKED
    assert "1 of 2 members would serve" in decision.reported["n3"].message


def test_rule_3_the_last_member_is_never_removed() -> None:
    decision = after_notice(seen([voter(1)], [leaving(1)]))
    assert decision.action is None
    assert decision.reported["n1"].phase is Phase.BLOCKED


def test_rule_3_the_leadership_is_moved_before_the_leader_leaves_and_to_one_that_stays() -> None:
    decision = after_notice(seen([voter(1), voter(2), voter(3)], [leaving(1), leaving(2), spec(3)]))
    assert decision.action == Action(Verb.MOVE_LEADER, "n1", "10.0.0.1", 1, target=3)


def test_rule_3_those_who_use_a_member_are_moved_before_it_leaves() -> None:
    sight = seen(THREE, [spec(1), spec(2), spec(3, present=False)])
    first = decide(sight, Memory(), 0.0)
    assert first.action is None
    assert first.reported["n3"].phase is Phase.LEAVING
    reported = seen(THREE, [spec(1), spec(2), leaving(3)])
    assert decide(reported, first.memory, 1.0).action is None
    disconnected = seen(THREE, [spec(1), spec(2), replace(leaving(3), disconnected=3)])
    assert decide(disconnected, first.memory, 2.0).action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)
    of_another = seen(THREE, [spec(1), spec(2), replace(leaving(3), disconnected=33)])
    assert decide(of_another, first.memory, 2.0).action is None


def test_it_waits_for_the_api_servers_of_other_nodes_that_are_connected_to_it() -> None:
    first = decide(seen(THREE, [spec(1), spec(2), leaving(3)]), Memory(), 0.0)
    left = replace(leaving(3), disconnected=3)
    used = seen(THREE, [spec(1), replace(spec(2), uses=(3,)), left])
    assert decide(used, first.memory, 2.0).action is None
    assert decide(used, first.memory, LONGEST_NOTICE).action is not None
    of_another = seen(THREE, [spec(1), replace(spec(2), uses=(33,)), left])
    assert decide(of_another, first.memory, 2.0).action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)


def test_a_node_that_never_reports_that_it_is_disconnected_does_not_hold_its_member() -> None:
    reported = seen(THREE, [spec(1), spec(2), leaving(3)])
    first = decide(reported, Memory(), 0.0)
    assert first.action is None
    assert decide(reported, first.memory, LONGEST_NOTICE).action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)


def test_a_dead_member_that_is_to_go_leaves_at_once_and_before_anybody_joins() -> None:
    sight = seen(
        [voter(1), voter(2), voter(3, serves=False)],
        [spec(1), spec(2), spec(3, present=False), spec(4)],
    )
    assert decide(sight, Memory(), 0.0).action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)


def test_who_replaces_a_member_joins_before_it_leaves() -> None:
    sight = seen(THREE, [spec(1), spec(2), leaving(3), spec(4)])
    assert after_notice(sight).action == Action(Verb.ADD, "n4", "10.0.0.4")


def test_promotion_waits_while_one_vote_more_would_cost_the_quorum() -> None:
    silent = [voter(1), voter(2, serves=False), voter(3, serves=False), voter(5)]
    decision = decide(seen([*silent, learner(4)], [*DESIRED, spec(4)]), Memory(), 0.0)
    assert decision.action == Action(Verb.PROMOTE, "n4", "10.0.0.4", 4)  # three of five serve
    decision = decide(seen([*silent[:3], learner(4)], [*DESIRED, spec(4)]), Memory(), 0.0)
    assert decision.action is None
    assert decision.reported["n4"].phase is Phase.BLOCKED


# --- rule 5: killed anywhere, it goes on -----------------------------------------------------------


def test_rule_5_the_agent_beside_a_new_leader_goes_on_where_the_old_one_was() -> None:
    sight = seen([voter(1), voter(2), learner(3)], DESIRED, own=2, leader=2)
    assert decide(sight, Memory(), 0.0).action == Action(Verb.PROMOTE, "n3", "10.0.0.3", 3)


def test_rule_5_only_the_agent_beside_the_leader_acts() -> None:
    decision = decide(seen([voter(1), voter(2)], [spec(1), spec(2), spec(3)], own=2), Memory(), 0.0)
    assert decision.action is None
    assert decision.reported == {}


def test_a_learner_that_never_starts_gives_up_its_place_to_the_next_and_tries_again_later() -> None:
    absent = learner(2, started=False, serves=False)
    sight = seen([voter(1), absent], [spec(1), spec(2), spec(3)])
    decision = decide(sight, decide(sight, Memory(), 0.0).memory, SILENT_SECONDS + 1)
    assert decision.action == Action(Verb.REMOVE, "n2", "10.0.0.2", 2)
    without = seen([voter(1)], [spec(1), spec(2), spec(3)])
    following = decide(without, decision.memory, SILENT_SECONDS + 2)
    assert following.action == Action(Verb.ADD, "n3", "10.0.0.3")
    alone = seen([voter(1)], [spec(1), spec(2)])
    assert decide(alone, decision.memory, SILENT_SECONDS + 2).action is None
    again = decide(alone, decision.memory, SILENT_SECONDS + PAUSE_SECONDS + 2)
    assert again.action == Action(Verb.ADD, "n2", "10.0.0.2")


def test_a_learner_that_lives_has_more_time_but_not_for_ever() -> None:
    sight = seen([voter(1), learner(2)], [spec(1), spec(2)])
    memory = Memory()
    for now in range(0, int(SYNC_SECONDS), 60):
        decision = decide(sight, memory, float(now))
        memory = decision.memory
        assert decision.action is not None
        assert decision.action.verb is Verb.PROMOTE  # etcd itself refuses until it is in sync
    decision = decide(sight, memory, SYNC_SECONDS + 1)
    assert decision.action is not None
    assert decision.action.verb is Verb.REMOVE


def test_pauses_grow_and_end_somewhere() -> None:
    memory, now, waits = Memory(), 0.0, []
    for _ in range(8):
        sight = seen([voter(1), learner(2, started=False, serves=False)], [spec(1), spec(2)])
        memory = decide(sight, memory, now).memory
        now += SILENT_SECONDS + 1
        memory = decide(sight, memory, now).memory
        waits.append(memory.pauses["n2"].until - now)
        memory = decide(seen([voter(1)], [spec(1), spec(2)]), memory, now).memory
    assert waits[:3] == [PAUSE_SECONDS, 2 * PAUSE_SECONDS, 4 * PAUSE_SECONDS]
    assert waits[-1] == LONGEST_PAUSE


def test_nobody_is_admitted_whose_node_is_away() -> None:
    decision = decide(seen([voter(1)], [spec(1), spec(2, reachable=False), spec(3)]), Memory(), 0.0)
    assert decision.action == Action(Verb.ADD, "n3", "10.0.0.3")


# --- rule 10: absence stops nothing ----------------------------------------------------------------


def test_rule_10_members_without_etcdmembers_stay() -> None:
    for members in (THREE, [voter(1), voter(2, serves=False), voter(3)], [voter(1), learner(2)]):
        assert decide(seen(members, []), Memory(), 1e6).action is None


def test_rule_10_a_learner_that_is_to_go_leaves_though_members_are_silent() -> None:
    sight = seen([voter(1), voter(2), voter(3, serves=False), learner(4)], [*DESIRED, spec(4, present=False)])
    assert decide(sight, Memory(), 0.0).action == Action(Verb.REMOVE, "n4", "10.0.0.4", 4)


# --- data that is gone -----------------------------------------------------------------------------


def test_a_member_whose_data_is_gone_is_removed_and_joins_again() -> None:
    gone = [voter(1), voter(2), voter(3, serves=False)]
    decision = decide(seen(gone, [spec(1), spec(2), spec(3, lost=True)]), Memory(), 0.0)
    assert decision.action == Action(Verb.REMOVE, "n3", "10.0.0.3", 3)
    again = decide(seen(gone[:2], [spec(1), spec(2), spec(3, lost=True)]), decision.memory, 1.0)
    assert again.action == Action(Verb.ADD, "n3", "10.0.0.3")


def test_rule_2_a_member_that_serves_has_its_data_whatever_was_claimed() -> None:
    sight = seen(THREE, [spec(1), spec(2), spec(3, lost=True)])
    decision = decide(sight, Memory(), 0.0)
    assert decision.action is None
    assert decision.reported["n3"].phase is Phase.MEMBER


def test_a_claim_about_an_earlier_member_means_nothing_for_a_new_one() -> None:
    new = Member(33, "10.0.0.3", serves=False)
    decision = decide(
        seen([voter(1), voter(2), new], [spec(1), spec(2), spec(3, lost=True)]),
        Memory(),
        0.0,
    )
    assert decision.action is None
    assert decision.reported["n3"].phase is Phase.MEMBER


# --- whether anything is left to do ----------------------------------------------------------------


def test_it_is_settled_when_members_are_as_requested() -> None:
    assert settled(THREE, DESIRED)
    assert settled(THREE, [])
    assert not settled(THREE, [*DESIRED, spec(4)])
    assert not settled(THREE, [spec(1), spec(2), spec(3, present=False)])
    assert not settled([voter(1), learner(2)], [spec(1), spec(2)])
    assert not settled(
        [voter(1), voter(2), voter(3, serves=False)],
        [spec(1), spec(2), spec(3, lost=True)],
    )
    assert settled([voter(1)], [spec(1), spec(2, present=False)])


def test_what_is_told_holds_no_counting_seconds() -> None:
    sight = seen([voter(1), learner(2, started=False, serves=False)], [spec(1), spec(2), spec(3)])
    first = decide(sight, Memory(), 0.0)
    assert decide(sight, first.memory, 50.0).reported == first.reported
