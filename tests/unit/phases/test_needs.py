"""What phases of `up` need of one another."""

from __future__ import annotations

import pytest

from autarky.engine.phase import needs_of
from autarky.workflows.up import PHASES

NAMES = [phase.name for phase in PHASES]


@pytest.mark.parametrize("phase", PHASES, ids=NAMES)
def test_a_phase_needs_only_phases_before_it(phase):
    assert set(needs_of(phase)) <= set(NAMES[: NAMES.index(phase.name)])


def test_what_waits_for_the_agents_needs_them():
    """They would be waited for in vain."""
    waits = {phase.name: set(needs_of(phase)) for phase in PHASES}
    assert "start-agents" in waits["pivot"]
    assert "pivot" in waits["apply-agents"], "has_pivoted takes its objects for the sign"
    assert "apply-agents" in waits["retire-hosted"] & waits["make-control-nodes"]
