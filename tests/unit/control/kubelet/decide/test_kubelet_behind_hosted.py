"""The orders of nodes whose host's kubelet waits behind a hosted one: the Node shows that one's version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.kubelet.decide import hosted_report, report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.nodes import Around, found
from autarky.control.kubelet.decide.pools import IMPLICIT
from autarky.control.kubelet.decide.report import State as OfOrder
from autarky.control.kubelet.decide.standing import has
from autarky.control.kubelet.decide.turns import Node
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE
from unit.control.kubelet.decide.turns_scene import V36, V37, given, node, ordered, steady, turns

IN_FORCE = [State.PROVING, State.IN_FORCE]
NOT_IN_FORCE = [state for state in State if state not in IN_FORCE]


def behind(one: Node, shows: Version, state: State = State.IN_FORCE) -> Node:
    return replace(one, runs=shows, hosted=Report("pod", shows, state))


@pytest.mark.parametrize("state", State)
def test_what_the_host_has_is_its_own_word_only_behind_a_hosted_kubelet(state):
    done = ordered(node("w1"), OfOrder.DONE)
    assert done.wanted is not None
    assert has(done, done.wanted)
    assert has(behind(done, V36, state), done.wanted) is (state in IN_FORCE)


@pytest.mark.parametrize("state", IN_FORCE)
def test_a_hosted_kubelet_of_the_wanted_version_is_none_of_the_hosts(state):
    lacks = behind(node("w1"), V37, state)
    assert lacks.wanted is not None
    assert not has(lacks, lacks.wanted)
    assert given(turns(lacks)) == ["w1"]


def test_no_order_is_written_again_since_the_hosted_one_is_of_another_version():
    nodes = [behind(ordered(node(name), OfOrder.DONE), V36) for name in ("w1", "c1")]
    decision = turns(*nodes, memory=steady(*nodes))
    assert (given(decision), decision.failed, decision.outstanding) == ([], {}, frozenset())


@pytest.mark.parametrize("state", IN_FORCE)
@pytest.mark.parametrize(("host", "hosted"), [(V36, V37), (V37, V36), (V37, V37)])
def test_rule_4_the_control_plane_waits_for_either_of_both(host, hosted, state):
    one = behind(node("c1", host, V36), hosted, state)
    assert turns(one, lowest=V36, moves=True).above == {"c1"}


def test_a_worker_that_says_it_runs_a_hosted_one_is_still_waited_for_by_what_it_shows():
    one = behind(node("w1", V36, V36), V37)
    decision = turns(one, lowest=V36, moves=True)
    assert (set(decision.above), set(decision.claimed)) == ({"w1"}, set())


def obj(name: str, host: Version, shows: Version, state: State, **labels: str) -> dict[str, Any]:
    said = {
        report.ANNOTATION: report.text(report.Report(base="base", version=host)),
        hosted_report.ANNOTATION: hosted_report.text(Report("0a-1", shows, state)),
        hosted_report.TURN: "0a-1",
    }
    status = {"nodeInfo": {"kubeletVersion": str(shows)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels, "annotations": said}, "spec": {}, "status": status}


PLANE = {"spec": {"version": str(V36)}, "status": {"version": str(V37), "upgrade": {"versions": [str(V36)]}}}


@pytest.mark.parametrize(("host", "shows"), [(V36, V37), (V37, V36), (V37, V37)])
def test_one_that_follows_nobody_goes_down_by_either_of_both(host, shows):
    (one,) = found([obj("n1", host, shows, State.IN_FORCE)], Around(PLANE, IMPLICIT)).nodes
    assert one.wanted is not None
    assert one.wanted.version == V36


def test_the_host_alone_is_no_second_reason_to_go_down():
    (one,) = found([obj("n1", V37, V36, State.WAITING)], Around(PLANE, IMPLICIT)).nodes
    assert one.wanted is None


def test_report_and_turn_are_read():
    (one,) = found([obj("n1", V36, V36, State.PROVING, **{CONTROL_PLANE_ACTIVE: ""})], Around(PLANE, IMPLICIT)).nodes
    assert (one.hosted, one.turn, one.control) == (Report("0a-1", V36, State.PROVING), "0a-1", True)


def test_who_has_yet_to_change_is_known_but_for_those_that_are_kept_from_it():
    failed = ordered(node("w1"), OfOrder.WENT_BACK, why="no")
    off = node("c2", ready=False, away=True)
    assert turns(node("c1"), off).outstanding == {"c1"}
    assert turns(failed, node("w2"), node("c1")).outstanding == {"c1"}, "w2 is stopped by w1"
    assert turns(ordered(node("w1"), OfOrder.STAGING), node("w2", V37)).outstanding == {"w1"}
