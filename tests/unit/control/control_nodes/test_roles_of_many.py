"""What it takes to decide on the roles of many nodes grows with their number, not faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.control_nodes.decide.observed import Node, Record
from autarky.control.control_nodes.decide.roles import decide
from unit.control.control_nodes.test_control_nodes import control, worker
from unit.control.growth import MOST, growth


def leaving(name: str) -> Node:
    return replace(control(name), requested=False, recorded=Record(f"uid-{name}"))


@pytest.mark.parametrize("one", [worker, leaving])
def test_the_roles_of_many_nodes_are_decided_in_steps_that_grow_with_their_number(one):
    def look(number: int):
        nodes = [*map(control, ("c1", "c2", "c3")), *(one(f"n{index}") for index in range(number))]
        return lambda: decide(nodes)

    assert growth(look) < MOST
