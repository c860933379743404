"""The phases that start and update the agents: the standby agent is written once, and is updated by the hosted one
then; the agents of a cluster that has some are changed only after the pivot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.engine.phase import Change
from autarky.errors import CommandFailed
from autarky.model.cluster import Level
from autarky.model.components import NODE_AGENT, OPERATOR, WITH_STANDBY
from autarky.phases.agents import ApplyAgents, StartAgents
from autarky.render.objects import agent_parts
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

PHASE = StartAgents()
RIGHTS = [
    ("rbac.authorization.k8s.io/v1", kind, f"autarky:{NODE_AGENT}") for kind in ("ClusterRole", "ClusterRoleBinding")
]
DAEMON_SET = ("apps/v1", "DaemonSet", NODE_AGENT, "kube-system")
DEPLOYMENT = ("apps/v1", "Deployment", OPERATOR, "kube-system")


def standby_agent(host):
    return [path for path in host.files if path.startswith(f"{places.MANIFESTS}/{STANDBY_POD}-")]


@pytest.fixture
def context(make_context):
    """The moment before the pivot: on the first of three initial members the standbys are in place."""
    made = make_context(a_cluster(controls=3), kube=FakeKube())
    for host in made.machines.hosts.values():
        host.put_standbys()
    made.machines.hosts["n1"].activations |= {component: ["aaaaaaaa"] for component in WITH_STANDBY}
    return made


def with_agent(context):
    return [name for name, host in context.machines.hosts.items() if standby_agent(host)]


async def pods_planned(context, phase=PHASE):
    found = [change.sentence for change in await phase.plan(context) if isinstance(change, Change)]
    return [sentence for sentence in found if "the static pod" in sentence]


async def test_an_agent_starts_where_a_standby_has_to_go_and_a_second_run_changes_nothing(context, notes):
    assert len(await pods_planned(context)) == 1
    await PHASE.run(context, notes)
    assert with_agent(context) == ["n1"]
    before = list(context.machines.hosts["n1"].log)
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert context.machines.hosts["n1"].log == before


async def test_an_agent_starts_where_a_standby_has_to_come(context, notes):
    """The levels below what is hosted run as static pods on each of them."""
    context.cluster = replace(context.cluster, self_hosted=Level.CONTROLLERS)
    await PHASE.run(context, notes)
    assert with_agent(context) == ["n1", "n2", "n3"]


async def test_where_nothing_has_to_move_an_agent_starts_after_the_pivot(context, notes):
    context.machines.hosts["n1"].activations.clear()
    assert await PHASE.plan(context) == []
    assert len(await pods_planned(context, ApplyAgents())) == 3
    await ApplyAgents().run(context, notes)
    assert with_agent(context) == ["n1", "n2", "n3"]


def another_agent(context):
    host = context.machines.hosts["n1"]
    host.files[f"{places.MANIFESTS}/{STANDBY_POD}-1234abcd.json"] = (b"{}", 0o600)
    return [f"{places.MANIFESTS}/{STANDBY_POD}-1234abcd.json"]


def has_operator(context):
    meta = {"name": OPERATOR, "namespace": "kube-system"}
    context.kube().put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {}})


@pytest.mark.parametrize("phase", [StartAgents(), ApplyAgents()])
async def test_a_standby_agent_of_other_content_is_left_to_the_hosted_one(context, notes, phase):
    """It follows once the hosted one has been healthy for a while: an agent that does not work never replaces both."""
    other = another_agent(context)
    has_operator(context)
    await phase.run(context, notes)
    assert standby_agent(context.machines.hosts["n1"]) == other


async def test_before_the_pivot_an_agent_of_another_release_is_replaced(context, notes):
    """Nobody else would: the hosted one comes after the pivot, for which that one was waited for in vain."""
    [other] = another_agent(context)
    assert f"remove the static pod {other} on n1" in await pods_planned(context)
    await PHASE.run(context, notes)
    assert len(standby_agent(context.machines.hosts["n1"])) == 1
    assert other not in standby_agent(context.machines.hosts["n1"])
    assert await PHASE.plan(context) == []


async def test_rights_that_an_interrupted_up_has_not_given_are_given_by_the_next_one(context, notes):
    """The agent's static pod is there."""
    await PHASE.run(context, notes)
    for kind in RIGHTS:
        await context.kube().delete(*kind)
    assert await PHASE.plan(context)
    await PHASE.run(context, notes)
    assert None not in [await context.kube().get(*one) for one in RIGHTS]


async def test_the_first_standby_agents_find_their_rights_and_nothing_else_starts(context, notes):
    await PHASE.run(context, notes)
    kube = context.kube()
    assert None not in [await kube.get(*one) for one in RIGHTS]
    assert [await kube.get(*one) for one in (DAEMON_SET, DEPLOYMENT)] == [None, None]


async def test_the_rights_of_agents_that_run_are_not_changed_before_the_pivot(context, notes):
    kube = context.kube()
    has_operator(context)
    await PHASE.run(context, notes)
    assert [await kube.get(*one) for one in RIGHTS] == [None, None]


async def test_all_of_the_agents_is_applied_after_the_pivot(context, notes):
    await PHASE.run(context, notes)
    planned = [change.sentence for change in await ApplyAgents().plan(context) if isinstance(change, Change)]
    assert any("DaemonSet" in sentence and NODE_AGENT in sentence for sentence in planned)
    assert any("Deployment" in sentence and OPERATOR in sentence for sentence in planned)
    await ApplyAgents().run(context, notes)
    for obj in (obj for part in agent_parts(context.inputs()) for obj in part.objects):
        meta = obj["metadata"]
        assert await context.kube().get(obj["apiVersion"], obj["kind"], meta["name"], meta.get("namespace")) is not None
    assert await ApplyAgents().plan(context) == []


async def test_before_a_host_is_prepared_a_plan_says_what_will_come(context, monkeypatch):
    async def no_script(host):
        raise CommandFailed(host.name, ["standby", "list"], 127, "not found")

    monkeypatch.setattr("autarky.phases.agents.active", no_script)
    assert len(await pods_planned(context)) == 3
