"""The phase that starts the node agents: the standby agent is written once, and is updated by the hosted one then."""

from __future__ import annotations

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.phases.agents import StartAgents

PHASE = StartAgents()


def standby_agent(host):
    return [path for path in host.files if path.startswith(f"{places.MANIFESTS}/{STANDBY_POD}-")]


async def test_a_control_node_gets_a_parked_agent_and_a_second_run_changes_nothing(make_context, notes):
    context = make_context()
    await PHASE.run(context, notes)
    host = context.machines.hosts["n1"]
    assert len(standby_agent(host)) == 1
    before = list(host.log)
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert host.log == before


async def test_a_parked_agent_of_other_content_is_left_to_the_hosted_one(make_context, notes):
    """It follows once the hosted one has been healthy for a while: an agent that does not work never replaces both."""
    context = make_context()
    host = context.machines.hosts["n1"]
    host.files[f"{places.MANIFESTS}/{STANDBY_POD}-1234abcd.json"] = (b"{}", 0o600)
    await PHASE.run(context, notes)
    assert standby_agent(host) == [f"{places.MANIFESTS}/{STANDBY_POD}-1234abcd.json"]
