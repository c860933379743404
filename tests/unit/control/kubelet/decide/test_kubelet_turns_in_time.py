"""What becomes of orders and cordons in the course of time, and on the way down a minor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.kubelet.decide.order import MOST_NUMBER, Target, made
from autarky.control.kubelet.decide.pools import Drain
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.decide.turns import (
    LATE_SECONDS,
    Memory,
)
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
    decision = turns(down("w1"), down("c1"), lowest=V36, moves=True)
    assert given(decision) == ["w1", "c1"], "all pools side by side"
    assert decision.above == {"w1", "c1"}
    assert given(turns(down("w1"), down("w2"), down("c1"), down("c2"), lowest=V36, moves=True)) == ["w1", "c1"]


@pytest.mark.parametrize("state", FAILED)
def test_a_worker_that_does_not_go_down_stops_nobody(state):
    decision = turns(ordered(down("w1"), state), down("w2"), node("c1", V36, V36), lowest=V36, moves=True)
    assert given(decision) == ["w2"]
    assert "w1" in decision.above
    assert decision.failed == {"w1"}


def test_a_control_node_that_does_not_go_down_stops_the_others():
    decision = turns(ordered(down("c1"), State.WENT_BACK), down("c2"), lowest=V36, moves=True)
    assert given(decision) == []


def test_a_worker_that_does_not_end_loses_its_turn_after_long_and_only_on_the_way_down():
    late = 100.0 + LATE_SECONDS + WORKERS.drain_seconds
    silent = ordered(down("w1"), State.STAGING)
    memory = turns(silent, down("w2"), lowest=V36, moves=True).memory
    assert given(turns(silent, down("w2"), memory=memory, now=late - 1, lowest=V36, moves=True)) == []
    assert given(turns(silent, down("w2"), memory=memory, now=late, lowest=V36, moves=True)) == ["w2"]
    up = ordered(node("w1"), State.STAGING)
    memory = turns(up, node("w2")).memory
    assert given(turns(up, node("w2"), memory=memory, now=late)) == []


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


def test_progress_is_told_by_pool():
    nodes = [ordered(node("w1"), State.DONE), ordered(node("w2"), State.PROVING), replace(node("w3"), wanted=None)]
    found = turns(*nodes, node("c1")).pools
    assert (found["workers"].wanted, found["workers"].done, found["workers"].total) == ((V37,), 1, 2)
    assert (found["control-nodes"].done, found["control-nodes"].total) == (0, 1)
