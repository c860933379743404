"""The world in which the operator is tested."""

from __future__ import annotations

import pytest

from unit.control.world import World


@pytest.fixture
def world() -> World:
    """One control node whose scheduler runs and leads."""
    world = World()
    world.node("n1")
    return world
