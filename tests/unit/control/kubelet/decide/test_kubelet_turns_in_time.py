"""What becomes of orders and cordons in the course of time, and on the way down a minor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.kubelet.decide.order import MOST_NUMBER, Target, made
from autarky.control.kubelet.decide.pools import Drain
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.decide.standing import HELD_SECONDS, LATE_SECONDS, STEADY_SECONDS, Memory, Node
from autarky.model.versions import Version
from unit.control.kubelet.decide.turns_scene import (
    FAILED,
    V36,
    V37,
    WORKERS,
    down,
    given,
    node,
    order_of,
    ordered,
    request,
    steady,
    target,
    turns,
)

# --- what happens to orders -----------------------------------------------------------------------------------


def test_until_it_is_seen_what_was_written_counts():
    first = turns(node("w1"), node("w2"))
    again = turns(node("w1"), node("w2"), memory=first.memory)
    assert again.writes == first.writes, "the same once more, and nothing for w2"
    patch = replace(node("w1"), pool=replace(WORKERS, drain=Drain.NEVER))
    assert turns(patch, memory=turns(patch).memory).writes == turns(patch).writes
    seen = turns(ordered(node("w1")), node("w2"), memory=again.memory)
    assert seen.writes == ()
    assert seen.memory.written == {}


def test_what_was_written_and_not_seen_is_not_written_again_when_nothing_may_be():
    memory = turns(node("w1")).memory
    assert turns(node("w1"), memory=memory, paused=True).writes == ()
    assert turns(node("w1", wanted=None), memory=memory).writes == ()
    lower = turns(node("w1", wants=V36), memory=memory, lowest=V36)
    assert [write.order.target.version for write in lower.writes] == [V36]


def test_one_that_is_gone_is_forgotten():
    assert turns(node("w2", V37), memory=turns(node("w1")).memory).memory == Memory()


def test_an_order_is_replaced_when_something_else_is_wanted_and_its_node_keeps_its_turn():
    begun = ordered(node("w1"), State.STAGING)
    decision = turns(replace(begun, wanted=target("w1", V36)), node("w2", wants=V36))
    assert given(decision) == ["w1"]
    assert order_of(decision, "w1").number == 2
    assert given(turns(begun, node("w2"))) == []


def test_an_order_that_was_removed_is_not_another_one():
    """A tool that does not know it may remove it."""
    for state in (State.PROVING, State.WENT_BACK):
        found = replace(ordered(node("w1"), state), order=None)
        assert given(turns(found, node("w2"))) == [], state
    done = replace(ordered(node("w1"), State.DONE), order=None)
    assert given(turns(done, node("w2"), memory=steady(done))) == ["w2"]
    assert given(turns(replace(ordered(node("w1"), State.WENT_BACK), order=None, wanted=target("w1", V36)))) == []


def test_a_report_that_was_removed_gives_nobody_a_turn():
    done = replace(ordered(node("w1"), State.DONE), report=None, wanted=target("w1", V36))
    assert given(turns(done, ordered(node("w2"), State.PROVING))) == []


def test_an_order_that_nobody_knows_keeps_a_turn_until_it_ends():
    odd = replace(node("w1"), report=Report("0" * 16, 5, 1, State.PROVING, base="base-w1"))
    decision = turns(odd, node("w2"))
    assert given(decision) == []
    assert decision.under_way == {"w1"}
    ended = replace(node("w1"), report=Report("0" * 16, 5, 1, State.WENT_BACK, base="base-w1"))
    assert order_of(turns(ended), "w1").number == 6


def test_an_old_order_that_was_restored_is_none():
    done = ordered(node("w1"), State.DONE, number=5)
    old = replace(done, order=made(request(node("w1", wants=V36)), 2))
    assert given(turns(old, memory=steady(done))) == []
    other = replace(old, wanted=target("w1", V36))
    assert order_of(turns(other, memory=steady(done)), "w1").number == 6


def test_numbers_do_not_grow_beyond_what_can_be_read():
    odd = replace(node("w1"), report=Report("0" * 16, MOST_NUMBER, 1, State.DONE, base="base-w1"))
    assert order_of(turns(odd), "w1").number == MOST_NUMBER


def test_a_base_that_has_changed_is_no_failure():
    refused = ordered(node("w1"), State.REFUSED)
    refused = replace(refused, wanted=replace(target("w1"), base="other"))
    assert given(turns(refused)) == ["w1"]
    assert given(turns(refused, node("w2"))) == ["w2"], "it stops nobody"


def test_an_order_that_has_not_ended_is_replaced_also_while_the_control_plane_moves():
    """It may wait for that."""
    begun = ordered(node("w1"), State.STAGING)
    assert given(turns(replace(begun, wanted=replace(target("w1"), config={"maxPods": 50})), moves=True)) == ["w1"]


# --- cordons ------------------------------------------------------------------------------------------------


def test_a_node_is_cordoned_with_its_order_where_it_is_drained():
    two = node("w2", V37)
    assert turns(node("w1"), two).writes[0].cordon
    assert not turns(replace(node("w1"), wanted=target("w1", Version(1, 36, 5))), two).writes[0].cordon, "a patch"
    assert not turns(replace(node("w1"), pool=replace(WORKERS, drain=Drain.NEVER)), two).writes[0].cordon


def test_where_no_other_node_takes_pods_nothing_is_drained():
    for others in ([], [node("w2", V37, takes_pods=False)]):
        write = turns(node("w1"), *others).writes[0]
        assert write.order.alone
        assert not write.cordon
    assert not turns(node("w1", takes_pods=False), node("w2", V37)).writes[0].order.alone


def test_a_persons_cordon_is_never_ours():
    two = node("w2", V37)
    assert not turns(node("w1", unschedulable=True, takes_pods=False), two).writes[0].cordon
    assert turns(node("w1", unschedulable=True, cordoned="0" * 16), two).writes[0].cordon, "it gets this order's id"
    assert turns(node("w1", V37, unschedulable=True)).uncordon == ()


def test_an_order_that_turns_out_to_need_a_drain_gets_its_cordon():
    """It was written in the middle of another one, which then went back."""
    cordoned = ordered(node("w1"), State.DRAINING)
    begun = replace(cordoned, unschedulable=False, cordoned="")
    assert [write.cordon for write in turns(begun, node("w2", V37)).writes] == [True]
    assert turns(cordoned, node("w2", V37)).writes == ()
    assert turns(replace(begun, unschedulable=True), node("w2", V37)).writes == (), "a person's"
    assert turns(replace(cordoned, unschedulable=False), node("w2", V37)).writes == (), "a person has taken it away"
    assert turns(replace(begun, runs=V37), node("w2", V37)).writes == ()
    other = replace(begun, report=Report("0" * 16, 5, 1, State.PROVING, base="base-w1"))
    assert turns(other, node("w2", V37)).writes == (), "that order is not the one that it works on"


@pytest.mark.parametrize("state", State)
def test_it_is_uncordoned_when_its_order_has_ended(state):
    one = replace(ordered(node("w1"), state), unschedulable=True, cordoned="0" * 16)
    assert turns(one).uncordon == (("w1",) if state.is_final else ())


def test_not_when_it_gets_another_one_right_away():
    one = replace(ordered(node("w1"), State.DONE), unschedulable=True, cordoned="0" * 16)
    decision = turns(replace(one, wanted=target("w1", V36)), node("w2", V37))
    assert given(decision) == ["w1"]
    assert decision.uncordon == ()


# --- down a minor -------------------------------------------------------------------------------------------


def test_kubelets_go_down_while_the_control_plane_waits_for_them():
    decision = turns(down("w1"), down("c1"), node("w9", V36, V36), lowest=V36, moves=True)
    assert given(decision) == ["w1", "c1"], "all pools side by side"
    assert decision.above == {"w1", "c1"}
    assert given(turns(down("w1"), down("w2"), down("c1"), down("c2"), lowest=V36, moves=True)) == ["w1", "c1"]


@pytest.mark.parametrize("state", FAILED)
def test_a_worker_that_does_not_go_down_stops_nobody(state):
    decision = turns(ordered(down("w1"), state), down("w2"), node("c1", V36, V36), lowest=V36, moves=True)
    assert given(decision) == ["w2"]
    assert "w1" in decision.above
    assert set(decision.failed) == {"w1"}


def test_a_control_node_that_does_not_go_down_stops_the_others():
    decision = turns(ordered(down("c1"), State.WENT_BACK), down("c2"), lowest=V36, moves=True)
    assert given(decision) == []


LATE = 100.0 + LATE_SECONDS + WORKERS.drain_seconds


def test_a_worker_that_does_not_end_loses_its_turn_after_long():
    silent = ordered(down("w1"), State.STAGING)
    memory = turns(silent, down("w2"), lowest=V36, moves=True).memory
    assert given(turns(silent, down("w2"), memory=memory, now=LATE - 1, lowest=V36, moves=True)) == []
    assert given(turns(silent, down("w2"), memory=memory, now=LATE, lowest=V36, moves=True)) == ["w2"]
    up = ordered(node("w1"), State.STAGING)
    memory = turns(up, node("w2")).memory
    assert given(turns(up, node("w2"), memory=memory, now=LATE - 1)) == []
    assert given(turns(up, node("w2"), memory=memory, now=LATE)) == ["w2"]


@pytest.mark.parametrize("later", [600.0, 10 * LATE_SECONDS])
@pytest.mark.parametrize("goes_down", [True, False])
def test_an_order_of_long_ago_makes_nobody_late(goes_down, later):
    """The next one has its own time."""
    now, then = (V37, V36) if goes_down else (V36, V37)
    done = [ordered(node(name, V36 if now == V37 else V37, now), State.DONE) for name in ("w1", "w2", "w3", "c1")]
    under_way = [replace(one, report=replace(one.report, state=State.PROVING)) for one in done if one.report]
    memory = turns(*under_way, lowest=now).memory
    memory = turns(*done, memory=memory, now=130.0, lowest=now).memory
    again = [replace(one, wanted=target(one.name, then)) for one in done]
    decision = turns(*again, memory=memory, now=100.0 + later, lowest=then, moves=goes_down)
    assert given(decision) == (["w1", "c1"] if goes_down else ["w1"])
    assert not order_of(decision, "w1").alone
    assert decision.outstanding == {"w1", "w2", "w3", "c1"}


def test_a_worker_that_reports_an_end_and_then_none_gets_no_more_time_by_the_same_order():
    memory = turns(ordered(down("w1"), State.PROVING), down("w2", ready=False), lowest=V36, moves=True).memory
    for second in range(int(LATE)):
        said = State.WENT_BACK if second % 50 == 49 else State.PROVING
        liar = ordered(down("w1"), said)
        memory = turns(liar, down("w2", ready=False), memory=memory, now=100.0 + second, lowest=V36, moves=True).memory
    liar = ordered(down("w1"), State.PROVING)
    assert given(turns(liar, down("w2"), memory=memory, now=LATE, lowest=V36, moves=True)) == ["w2"]
    other = replace(liar, order=made(request(liar), 2))
    assert given(turns(other, down("w2"), memory=memory, now=LATE, lowest=V36, moves=True)) == [], "the operator's own"


def test_going_up_a_pool_goes_on_without_one_that_is_late_and_not_without_two():
    """A kubelet that takes its machine with it does not take them all; going down nobody waits for them."""
    silent = [ordered(node("w1"), State.STAGING), ordered(node("w2"), State.STAGING)]
    memory = turns(*silent, node("w3")).memory
    assert given(turns(*silent, node("w3"), memory=memory, now=LATE)) == []
    lower = [ordered(down("w1"), State.STAGING), ordered(down("w2"), State.STAGING)]
    memory = turns(*lower, down("w3"), lowest=V36, moves=True).memory
    assert given(turns(*lower, down("w3"), memory=memory, now=LATE, lowest=V36, moves=True)) == ["w3"]


def test_a_control_node_waits_for_no_worker_that_is_late():
    silent = ordered(node("w1"), State.STAGING)
    memory = turns(silent, node("c1")).memory
    assert given(turns(silent, node("c1"), memory=memory, now=LATE - 1)) == []
    assert given(turns(silent, node("c1"), memory=memory, now=LATE)) == ["c1"]


def test_nor_for_workers_that_always_want_something_else():
    """They say that they are done, and that their base is another one."""
    memory, held = Memory(), 0.0
    for number in range(1, 400):
        one = replace(ordered(node("w1"), State.DONE, number), wanted=target("w1", V37))
        one = replace(one, wanted=Target(V37, f"base-{number}"))
        decision = turns(one, node("c1"), memory=memory, now=20.0 * number)
        memory = decision.memory
        if "c1" in given(decision):
            held = 20.0 * number
            break
    assert 0 < held <= HELD_SECONDS + WORKERS.drain_seconds + 40


def test_each_worker_that_ends_gives_the_others_more_time_before_control_nodes_go():
    limit = HELD_SECONDS + WORKERS.drain_seconds
    waits = node("w2", ready=False)
    memory = turns(node("w1", ready=False), waits, node("c1"), now=0.0).memory
    memory = turns(node("w1", V37), waits, node("c1"), memory=memory, now=limit - 1).memory
    assert given(turns(node("w1", V37), waits, node("c1"), memory=memory, now=2 * limit - 2)) == []
    assert given(turns(node("w1", V37), waits, node("c1"), memory=memory, now=2 * limit)) == ["c1"]


def test_a_worker_that_ends_and_then_wants_something_else_holds_up_no_second_control_node():
    """It says so of its base, while the first one changes."""
    limit = HELD_SECONDS + WORKERS.drain_seconds
    waits = [node("c2"), node("c3")]
    memory = turns(node("w1", ready=False), node("c1"), *waits, now=0.0).memory
    decision = turns(node("w1", ready=False), node("c1"), *waits, memory=memory, now=limit)
    assert given(decision) == ["c1"]
    changes = ordered(node("c1"), State.PROVING)
    memory = turns(node("w1", V37), changes, *waits, memory=decision.memory, now=limit + 10).memory
    done = ordered(node("c1"), State.DONE)
    memory = turns(node("w1", ready=False), done, *waits, memory=memory, now=limit + 20).memory
    assert given(turns(node("w1", ready=False), done, *waits, memory=memory, now=2 * limit + 9)) == []
    decision = turns(node("w1", ready=False), done, *waits, memory=memory, now=2 * limit + 10)
    assert given(decision) == ["c2"]
    memory = turns(node("w1", V37), done, ordered(node("c2"), State.PROVING), waits[1], memory=decision.memory).memory
    both = [done, ordered(node("c2"), State.DONE)]
    assert given(turns(node("w1", ready=False), *both, waits[1], memory=memory, now=2 * limit + 20)) == ["c3"]


def other_config(one: Node) -> Node:
    assert one.wanted is not None
    return replace(one, wanted=replace(one.wanted, config={"maxPods": 50}))


def test_control_nodes_let_workers_go_first_again_when_another_change_is_wanted():
    """Also after one of them was off for so long that the others have let workers go first for long enough."""
    off = node("c3", ready=False, away=True)
    done = [ordered(node(name), State.DONE) for name in ("w1", "c1", "c2")]
    memory = turns(node("w1"), node("c1"), node("c2"), off, now=0.0).memory
    now = 100.0 + 2 * HELD_SECONDS
    for second in (50.0, 50.0 + STEADY_SECONDS, now):
        memory = turns(*done, off, memory=memory, now=second).memory
    changed = [other_config(one) for one in (*done, off)]
    decision = turns(*changed, memory=memory, now=now)
    assert given(decision) == ["w1"]
    late = now + HELD_SECONDS + WORKERS.drain_seconds
    stuck = [replace(changed[0], ready=False), *changed[1:]]
    memory = turns(*stuck, memory=memory, now=now).memory
    assert given(turns(*stuck, memory=memory, now=late)) == ["c1"], "not without end"


def test_control_nodes_let_workers_go_first_again_when_what_failed_is_corrected():
    failed = [ordered(node("w1"), State.DONE), ordered(node("c1"), State.WENT_BACK), node("c2"), node("c3")]
    memory, now = turns(node("w1"), *failed[1:], now=0.0).memory, 2 * HELD_SECONDS
    for second in (50.0, 50.0 + STEADY_SECONDS, now):
        memory = turns(*failed, memory=memory, now=second).memory
    assert given(turns(*map(other_config, failed), memory=memory, now=now)) == ["w1"]
    asked = turns(*[replace(failed[0], wanted=target("w1", V36)), *failed[1:]], memory=memory, now=now, asked="again")
    assert given(asked) == ["w1"]


@pytest.mark.parametrize("why", ["paused", "moves"])
def test_no_time_counts_in_which_nobody_gets_a_turn(why):
    nodes = [node("w1", ready=False), node("c1")]
    memory = turns(*nodes, memory=turns(*nodes, now=0.0).memory, now=HELD_SECONDS, **{why: True}).memory
    assert given(turns(*nodes, memory=memory, now=10 * HELD_SECONDS)) == []


def test_a_control_node_that_does_not_end_never_loses_it():
    silent = ordered(down("c1"), State.STAGING)
    memory = turns(silent, down("c2"), lowest=V36, moves=True).memory
    assert given(turns(silent, down("c2"), memory=memory, now=10**6, lowest=V36, moves=True)) == []


def test_who_only_changes_its_orders_does_not_keep_its_turn_by_that():
    silent, memory = ordered(down("w1"), State.STAGING), Memory()
    for number in range(1, 14):
        other = ordered(replace(down("w1"), wanted=Target(V36, f"base-{number}")), State.STAGING, number)
        decision = turns(other, down("w2"), memory=memory, now=100.0 * number, lowest=V36, moves=True)
        assert given(decision) == (["w2"] if number == 13 else []), silent
        memory = decision.memory


def test_an_order_for_a_later_minor_is_replaced_at_once():
    begun = ordered(node("w1"), State.STAGING)
    decision = turns(replace(begun, wanted=target("w1", V36)), lowest=V36, moves=True)
    assert [write.order.target.version for write in decision.writes] == [V36]


@pytest.mark.parametrize(
    ("one", "is_above"),
    [
        (node("w1", V36, V36), False),
        (node("w1", V37, V36), True),
        (ordered(node("w1", V36, V36), State.DONE), False),
        (ordered(node("w1", V36, V36), State.PROVING), True),
        (ordered(node("w1", V36, V36)), True),
        (ordered(node("w1", V36, V36), State.WENT_BACK, version=V37), True),
    ],
)
def test_who_may_come_to_have_a_later_kubelet_is_waited_for(one, is_above):
    """Also by a way back; after one a Node shows for a moment still what was tried."""
    decision = turns(one, lowest=V36)
    assert bool(decision.above | decision.under_way) is is_above


@pytest.mark.parametrize(
    ("one", "claimed"),
    [
        (node("w1", V37, V36), False),
        (ordered(node("w1", V36, V36)), False),
        (ordered(node("w1", V36, V36), State.PROVING), False),
        (ordered(node("w1", V36, V36), State.WENT_BACK, version=V37), True),
        (node("w1", V36, V36, report=Report("0" * 16, 5, 1, State.PROVING, base="base-w1")), True),
        (replace(ordered(node("w1", V36, V36), State.PROVING), order=None), True),
        (node("c1", V36, V36, report=Report("0" * 16, 5, 1, State.PROVING, base="base-c1")), False),
    ],
)
def test_what_is_only_a_workers_word_is_told_apart(one, claimed):
    decision = turns(one, lowest=V36)
    assert decision.above | decision.under_way == {one.name}
    assert decision.claimed == ({one.name} if claimed else set())


def taking_back(state: State | None = None, **more: Any) -> Node:
    """Ordered down after it was ordered up."""
    one = ordered(down("w1"), state, number=2, **more)
    assert one.order is not None
    order = made(one.order.request, 2, lowers=True)
    said = one.report if state is None or one.report is None else replace(one.report, order=order.id)
    return replace(one, order=order, report=said)


@pytest.mark.parametrize(
    ("one", "is_ordered"),
    [
        (ordered(node("w1"), State.DONE), True),
        (ordered(node("w1"), State.WENT_BACK), True),
        (ordered(node("w1"), State.PROVING), True),
        (taking_back(), True),
        *[(taking_back(state), True) for state in (State.PROVING, State.REFUSED, State.WENT_BACK)],
        (taking_back(State.WENT_BACK, interrupted=True), True),
        (taking_back(State.DONE), False),
        (ordered(down("w1"), State.PROVING), False),
        (down("w1"), False),
        (node("w1", V37, V36, report=Report("0" * 16, 5, 1, State.PROVING, base="base-w1")), False),
    ],
)
def test_who_is_above_by_an_order_is_told_from_who_only_says_so(one, is_ordered):
    """An order for a later minor, or one that takes such a one back and is not done."""
    decision = turns(replace(one, wanted=target("w1", V36)), lowest=V36, moves=True, paused=True)
    assert decision.ordered == ({"w1"} if is_ordered else set())


def test_who_is_ordered_down_without_having_been_ordered_up_is_not_ordered():
    """Whatever it shows: it would hold up a way back for as long as it likes."""
    first = turns(down("w1"), lowest=V36, moves=True)
    assert given(first) == ["w1"]
    assert not order_of(first, "w1").lowers
    assert turns(down("w1"), memory=first.memory, lowest=V36, moves=True).ordered == set()


@pytest.mark.parametrize("state", [State.DONE, State.PROVING])
def test_an_order_down_after_one_up_takes_that_back_and_so_do_those_after_it(state):
    decision = turns(replace(ordered(node("w1"), state), wanted=target("w1", V36)), lowest=V36, moves=True)
    assert order_of(decision, "w1").lowers
    again = turns(taking_back(State.WENT_BACK, interrupted=True), lowest=V36, moves=True)
    assert order_of(again, "w1").lowers
    other = replace(target("w1", V36), config={"maxPods": 50})
    done = replace(taking_back(State.DONE), wanted=other)
    assert not order_of(turns(done, memory=steady(done), lowest=V36), "w1").lowers


def test_no_drain_begins_on_the_way_up_and_one_on_the_way_down_does():
    decision = turns(node("w1"), node("w2"), drains_wait=True)
    assert (given(decision), set(decision.waits)) == ([], {"w1", "w2"})
    never = replace(WORKERS, drain=Drain.NEVER)
    assert given(turns(node("w1", pool=never), node("w2", pool=never), drains_wait=True)) == ["w1"]
    assert given(turns(node("w1"), drains_wait=True)) == ["w1"], "where nobody could take its pods it is not drained"
    assert given(turns(down("w1"), down("w2"), lowest=V36, moves=True, drains_wait=True)) == ["w1"]


def test_an_order_that_is_not_seen_on_its_node_yet_counts():
    before = turns(node("w1"))
    assert given(before) == ["w1"]
    given_up = node("w1", V36, V36)
    assert turns(given_up, memory=before.memory, lowest=V36, moves=True).ordered == {"w1"}
    assert turns(given_up, lowest=V36, moves=True).ordered == set()


def test_progress_is_told_by_pool():
    nodes = [ordered(node("w1"), State.DONE), ordered(node("w2"), State.PROVING), replace(node("w3"), wanted=None)]
    found = turns(*nodes, node("c1")).pools
    assert (found["workers"].wanted, found["workers"].done, found["workers"].total) == ((V37,), 1, 2)
    assert (found["control-nodes"].done, found["control-nodes"].total) == (0, 1)
