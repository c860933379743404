"""Whose kubelet changes next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.kubelet.decide.order import made
from autarky.control.kubelet.decide.pools import Drain, Pool
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.decide.standing import MOST_ATTEMPTS
from autarky.control.kubelet.decide.turns import STEADY_SECONDS
from autarky.model.versions import Version
from unit.control.kubelet.decide.turns_scene import (
    CONTROL,
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

# --- the plain way ------------------------------------------------------------------------------------------


def test_one_of_a_pool_goes_first_and_the_control_nodes_last():
    decision = turns(node("c1"), node("w2"), node("w1"))
    assert given(decision) == ["w1"]
    assert decision.writes[0].order == made(request(node("w1")), 1)
    assert decision.waits == {"w2": "w1 has its turn", "c1": "w1, w2 comes first"}


def test_the_next_one_goes_when_the_one_before_has_been_ready_for_a_while():
    nodes = [ordered(node("w1"), State.PROVING), node("w2")]
    first = turns(*nodes)
    assert given(first) == []
    nodes[0] = ordered(node("w1"), State.DONE)
    second = turns(*nodes, memory=first.memory, now=200.0)
    assert given(second) == []
    assert given(turns(*nodes, memory=second.memory, now=200.0 + STEADY_SECONDS - 1)) == []
    assert given(turns(*nodes, memory=second.memory, now=200.0 + STEADY_SECONDS)) == ["w2"]


def test_one_that_is_not_ready_after_it_has_changed_keeps_its_turn():
    nodes = [ordered(node("w1"), State.PROVING), node("w2")]
    memory = turns(*nodes).memory
    nodes[0] = ordered(node("w1"), State.DONE)
    memory = turns(*nodes, memory=memory, now=200.0).memory
    nodes[0] = replace(nodes[0], ready=False)
    memory = turns(*nodes, memory=memory, now=205.0).memory
    nodes[0] = replace(nodes[0], away=True)
    decision = turns(*nodes, memory=memory, now=1000.0)
    assert given(decision) == []
    nodes[0] = replace(nodes[0], away=False, ready=True)
    memory = turns(*nodes, memory=decision.memory, now=1001.0).memory
    assert given(turns(*nodes, memory=memory, now=1002.0)) == []


def test_another_operator_passes_over_one_that_may_have_been_away_for_long():
    done = ordered(node("w1"), State.DONE, number=1)
    assert given(turns(replace(done, ready=False), node("w2"))) == []
    assert given(turns(replace(done, ready=False, away=True), node("w2"))) == ["w2"]


def test_who_was_steady_once_holds_up_nobody_later():
    nodes = [ordered(node("w1"), State.DONE), node("w2")]
    memory = steady(*nodes)
    assert given(turns(replace(nodes[0], ready=False), nodes[1], memory=memory)) == ["w2"]


def test_as_many_as_the_pool_says_go_at_once():
    pool = replace(WORKERS, at_once=2)
    nodes = [replace(node(f"w{number}"), pool=pool) for number in (1, 2, 3)]
    assert given(turns(*nodes)) == ["w1", "w2"]
    assert given(turns(ordered(nodes[0], State.STAGING), *nodes[1:])) == ["w2"]


def test_pools_of_the_same_order_go_side_by_side():
    edge = Pool("edge", labels={"site": "edge"})
    assert given(turns(node("w1"), node("w2", pool=edge), node("w3", V37))) == ["w1", "w2"]


def test_of_the_last_two_that_take_pods_one_waits_for_the_other():
    """Their pools would let both go; whoever is drained last has somewhere to send its pods."""
    edge = Pool("edge", labels={"site": "edge"})
    nodes = [node("w1"), node("w2", pool=edge)]
    first = turns(*nodes)
    assert (given(first), order_of(first, "w1").alone) == (["w1"], False)
    assert "w1 cannot take its pods now" in first.waits["w2"]
    assert given(turns(node("w1"), node("w2", ready=False, runs=V37, pool=edge))) == []
    never = replace(edge, drain=Drain.NEVER)
    assert given(turns(node("w1"), node("w2", pool=never))) == ["w1", "w2"]


def test_a_control_node_is_not_drained_where_no_worker_can_take_its_pods_and_waits_for_none():
    for worker in (ordered(down("w1"), State.STAGING), node("w1", V36, V36, ready=False)):
        decision = turns(worker, down("c1"), lowest=V36, moves=True)
        assert (given(decision), order_of(decision, "c1").alone) == (["c1"], True)


def test_a_node_that_is_off_or_takes_no_pods_is_no_reason_to_drain():
    for other in (node("w2", V37, away=True, ready=False), node("w2", V37, takes_pods=False)):
        decision = turns(node("w1"), other)
        assert (given(decision), order_of(decision, "w1").alone) == (["w1"], True)


def test_what_has_what_it_wants_gets_no_order():
    assert given(turns(node("w1", V37), node("c1", V37))) == []
    assert given(turns(replace(node("w1"), wanted=None))) == []


def test_all_else_than_the_version_counts_too():
    other = replace(node("w1", V37), wanted=replace(target("w1"), config={"maxPods": 50}))
    assert given(turns(other)) == ["w1"]


def test_who_had_more_orders_goes_later():
    often = ordered(replace(node("w1"), wanted=target("w1", V36)), State.DONE, number=7)
    nodes = [replace(often, wanted=target("w1")), node("w2")]
    assert given(turns(*nodes, memory=steady(often, node("w2", V37)))) == ["w2"]


@pytest.mark.parametrize(
    ("more", "why"),
    [({"paused": True}, "spec.paused is true"), ({"moves": True}, "the control plane comes first")],
)
def test_no_order_is_written_while_it_is_paused_or_the_control_plane_moves(more, why):
    decision = turns(node("w1"), **more)
    assert given(decision) == []
    assert decision.waits == {"w1": why}


def test_only_a_ready_node_gets_an_order():
    decision = turns(node("w1", ready=False), node("w2"), node("w3", V37))
    assert given(decision) == ["w2"]
    assert decision.waits == {"w1": "it is not Ready"}


def test_later_pools_wait_for_one_that_is_not_ready_but_not_for_one_that_is_away():
    assert given(turns(node("w1", ready=False), node("c1"))) == []
    assert given(turns(node("w1", ready=False, away=True), node("c1"))) == ["c1"]
    assert given(turns(node("w1"), node("c1", V37))) == ["w1"], "and it gets its turn when it is back"


def test_who_is_away_in_the_middle_keeps_its_turn():
    away = ordered(node("w1", ready=False, away=True), State.SWITCHING)
    assert given(turns(away, node("w2"), now=10_000.0)) == []
    assert given(turns(replace(away, report=None), node("w2"))) == []


# --- control nodes ------------------------------------------------------------------------------------------


def test_control_nodes_go_one_at_a_time_in_the_cluster():
    other = replace(CONTROL, name="other", labels={"a": "b"})
    nodes = [node("c1"), replace(node("c2"), pool=other)]
    assert given(turns(*nodes)) == ["c1"] or given(turns(*nodes)) == ["c2"]
    assert given(turns(ordered(nodes[0], State.PROVING), nodes[1])) == []


@pytest.mark.parametrize(
    ("others", "goes"),
    [
        (["off"], False),
        (["serves", "off"], True),
        (["serves", "silent"], False),
        (["off", "off"], False),
        (["serves", "serves", "off"], True),
        (["serves", "off", "off"], False),
        (["serves", "serves", "off", "off"], True),
        (["serves", "serves", "serves", "silent"], False),
    ],
)
def test_a_control_node_that_is_off_holds_up_nobody_while_more_than_half_serve(others, goes):
    """With the one that changes: its kubelet's restart touches no pod."""
    off = {"away": True, "ready": False, "serves": False}
    kinds: dict[str, dict[str, Any]] = {"serves": {}, "off": off, "silent": {"serves": None}}
    nodes = [node(f"c{number}", V37, **kinds[kind]) for number, kind in enumerate(others, 2)]
    assert given(turns(node("c1"), *nodes)) == (["c1"] if goes else [])


@pytest.mark.parametrize("serves", [False, None])
def test_a_control_node_goes_only_while_every_other_one_serves(serves):
    decision = turns(node("c1"), node("c2", V37, serves=serves))
    assert given(decision) == []
    assert decision.waits == {"c1": "control node c2 is not seen to serve"}
    assert given(turns(node("c1", serves=serves), node("c2", V37))) == ["c1"], "of itself nobody asks that"


@pytest.mark.parametrize("serves", [False, None])
def test_on_the_way_down_one_that_does_not_serve_keeps_no_other_one_while_most_do(serves):
    """What it runs may be what is to be taken back."""
    silent = node("c3", V37, V36, serves=serves)
    decision = turns(down("c1"), down("c2"), silent, lowest=V36, moves=True)
    assert given(decision) == ["c1"]
    assert given(turns(down("c1"), silent, lowest=V36, moves=True)) == ["c3"], "of itself nobody asks that"
    alone = turns(down("c1"), replace(silent, ready=False), lowest=V36, moves=True)
    assert (given(alone), alone.waits["c1"]) == ([], "control node c3 is not seen to serve"), "it is half of them"
    two = turns(down("c1"), down("c2", serves=serves), silent, lowest=V36, moves=True)
    assert "c1" not in given(two)
    patch = replace(node("c1", V36), wanted=target("c1", Version(1, 36, 5)))
    c3 = node("c3", V36, V36, serves=serves)
    assert given(turns(patch, node("c2", V36, V36), c3, lowest=V36)) == [], "nor is it so else"


@pytest.mark.parametrize("serves", [False, None])
def test_of_two_on_the_way_down_one_that_serves_itself_goes_beside_one_that_does_not(serves):
    """The quorum of etcd wants both either way."""
    silent = node("c2", V36, V36, serves=serves)
    assert given(turns(down("c1"), silent, lowest=V36, moves=True)) == ["c1"]
    assert given(turns(down("c1", serves=serves), silent, lowest=V36, moves=True)) == []
    assert given(turns(down("c1"), silent, lowest=V36, moves=True, busy="etcd changes")) == []
    for unknown in (replace(silent, ready=False), replace(silent, ready=False, away=True)):
        assert given(turns(down("c1"), unknown, lowest=V36, moves=True)) == [], "its machine may be off"
    two = [silent, node("c3", V36, V36, serves=serves)]
    assert given(turns(down("c1"), *two, lowest=V36, moves=True)) == []


def test_nor_while_something_else_is_at_work_on_the_control_plane():
    decision = turns(node("w1"), busy="a member of etcd changes")
    assert given(decision) == ["w1"]
    decision = turns(node("c1"), busy="a member of etcd changes")
    assert decision.waits == {"c1": "a member of etcd changes"}


# --- failures -----------------------------------------------------------------------------------------------


def test_a_worker_that_went_back_stops_its_pool_and_later_ones_of_workers_but_no_control_node():
    edge = Pool("edge", labels={"site": "edge"}, order=2)
    failed = ordered(node("w1"), State.WENT_BACK, why="no pods")
    decision = turns(failed, node("w2"), replace(node("w3"), pool=edge), node("c1"))
    assert given(decision) == ["c1"]
    assert decision.waits == {"w2": "w1 failed before", "w3": "w1 failed before"}
    assert decision.failed == {"w1": "no pods"}
    assert decision.pools["workers"].stopped == decision.pools["edge"].stopped == "w1: no pods"
    assert decision.pools["control-nodes"].stopped == ""


def test_a_worker_that_was_refused_stops_nobody():
    """Nothing was changed there, and why may be a tenant's budget."""
    decision = turns(ordered(node("w1"), State.REFUSED, why="a budget"), node("w2"), node("c1"))
    assert given(decision) == ["w2"]
    assert decision.waits == {"c1": "w2 comes first"}
    assert decision.failed == {"w1": "a budget"}
    assert decision.pools["workers"].stopped == ""
    assert given(turns(ordered(node("w1"), State.REFUSED), node("w2", V37), node("c1"))) == ["c1"]


@pytest.mark.parametrize("state", FAILED)
def test_a_control_node_that_fails_stops_all_that_do_not_come_before_it(state):
    first = replace(CONTROL, order=1)
    nodes = [ordered(node("c1", pool=first), state, why="no space"), node("c2", pool=first), node("w1")]
    decision = turns(*nodes)
    assert given(decision) == []
    assert decision.waits == {"c2": "c1 failed before", "w1": "c1 failed before"}
    assert decision.pools["workers"].stopped == "c1: no space"


@pytest.mark.parametrize("state", FAILED)
def test_but_no_earlier_one(state):
    decision = turns(ordered(node("c1"), state), node("w1"))
    assert given(decision) == ["w1"]
    assert decision.pools["workers"].stopped == ""


@pytest.mark.parametrize("state", FAILED)
def test_what_failed_is_tried_again_when_something_else_is_wanted_or_somebody_asks(state):
    failed = ordered(node("w1"), state)
    other = replace(target("w1"), config={"maxPods": 50})
    for decision in (
        turns(replace(failed, wanted=other)),
        turns(replace(failed, pool=replace(WORKERS, drain=Drain.NEVER))),
        turns(failed, asked="1"),
    ):
        assert given(decision) == ["w1"]
        assert (order_of(decision, "w1").number, order_of(decision, "w1").attempt) == (2, 1)
    assert given(turns(failed)) == []


def test_what_a_restart_interrupted_is_tried_again_a_few_times():
    one = node("w1")
    for attempt in range(1, MOST_ATTEMPTS):
        decision = turns(ordered(one, State.WENT_BACK, attempt, attempt, interrupted=True))
        assert (order_of(decision, "w1").number, order_of(decision, "w1").attempt) == (attempt + 1, attempt + 1)
    assert given(turns(ordered(one, State.WENT_BACK, 7, MOST_ATTEMPTS, interrupted=True))) == []


def test_so_is_one_that_does_not_have_what_it_reports():
    done = ordered(node("w1"), State.DONE)
    assert given(turns(replace(done, runs=V36), memory=steady(done))) == ["w1"]
    assert given(turns(replace(done, report=replace(done.report, target="x")), memory=steady(done))) == ["w1"]
    last = ordered(node("w1"), State.DONE, 3, MOST_ATTEMPTS)
    decision = turns(replace(last, runs=V36), node("w2"), memory=steady(last))
    assert given(decision) == []
    assert decision.pools["workers"].stopped == "w1: it does not have what it reports"
