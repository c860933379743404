"""What it takes to decide whose kubelet is next, of many nodes, grows with their number, not faster: while kubelets
wait for their turns somebody looks each second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.kubelet.decide import hosted_report, takeovers
from autarky.control.kubelet.decide.pools import Drain, Pool
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.decide.turns import Memory, Node, decide
from unit.control.growth import MOST, growth
from unit.control.kubelet.decide.test_kubelet_takeovers import hosted, seen
from unit.control.kubelet.decide.turns_scene import V36, V37, WORKERS, down, node, ordered, situation

EARLY, LATE = Pool("early", order=0), Pool("late", order=1)
DRAINED = replace(WORKERS, drain=Drain.ALWAYS, at_once=100)


def waits(name: str, number: int) -> Node:
    return node(name)


def fails_or_waits(name: str, number: int) -> Node:
    return ordered(node(name), State.WENT_BACK, why="it fell over") if number % 2 else node(name)


def of_two_pools(name: str, number: int) -> Node:
    return node(name, pool=(EARLY, LATE)[number % 2])


def takes_no_pods(name: str, number: int) -> Node:
    return node(name, V36, V37, pool=DRAINED, takes_pods=False, ready=bool(number % 8))


def has_a_turn_for_long(name: str, number: int) -> Node:
    return ordered(node(name, wants=V36)) if number % 2 else node(name)


def goes_down(name: str, number: int) -> Node:
    return down(name)


def is_settled(name: str, number: int) -> Node:
    return node(name, V37)


@pytest.mark.parametrize(
    "one",
    [waits, fails_or_waits, of_two_pools, takes_no_pods, has_a_turn_for_long, goes_down, is_settled],
)
def test_whose_turn_it_is_among_many_is_decided_in_steps_that_grow_with_their_number(one):
    def look(number: int):
        nodes = [node("c1"), node("c2"), node("c3"), ordered(node("first"))]
        many = situation(*nodes, *(one(f"w{index}", index) for index in range(number)))
        memory = decide(many, Memory(), 0.0).memory
        return lambda: decide(many, memory, 100.0)

    assert growth(look) < MOST


def asks(name: str, number: int) -> Node:
    return hosted(name)


def has_failed(name: str, number: int) -> Node:
    return hosted(name, hosted_report.State.FAILED) if number % 2 else hosted(name)


@pytest.mark.parametrize("one", [asks, has_failed])
def test_who_takes_over_among_many_is_decided_in_steps_that_grow_with_their_number(one):
    def look(number: int):
        others = [hosted("c1"), hosted("c2"), hosted("c3"), hosted("first", turn=True)]
        many = seen(*others, *(one(f"w{index}", index) for index in range(number)))
        memory = takeovers.decide(many, takeovers.Memory(), 0.0).memory
        return lambda: takeovers.decide(many, memory, 100.0)

    assert growth(look) < MOST
