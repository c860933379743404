"""The pivot's eyes and hands: what it makes of pods, scripts and silence. What follows is
control/slots/decide/pivot.py's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.control.common.pods import pod_health
from autarky.control.leadership import manifests as controllers
from autarky.control.leadership.decide import leader as leadership
from autarky.control.slots.decide import pivot as slots
from autarky.control.slots.decide.pivot import Health
from autarky.errors import TimedOut
from autarky.model import patience
from autarky.model.cluster import Level
from autarky.model.components import WITH_STANDBY
from autarky.phases.pivot import Pivot, look_everywhere, withdrawn_pods
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

NODE_2 = {"name": "n2", "labels": {CONTROL_PLANE_ACTIVE: ""}}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def pod(component: str, *, ready: bool = True, slot: str = "hosted", node: str = "n1", **metadata: object) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{component}-{slot}-{node}",
            "namespace": "kube-system",
            "labels": {"k8s-app": component, "autarky.dev/slot": slot},
            **metadata,
        },
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class Led(FakeKube):
    """Somebody on `leader` renews the leases of level 3, unless nobody does."""

    leader: str | None = "n1"
    renewals = 0

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Any:
        if kind != "Lease" or self.outage:
            return await super().get(api_version, kind, name, namespace)
        self.renewals += self.leader is not None
        spec = {"holderIdentity": f"{self.leader}_x", "renewTime": str(self.renewals), "leaseDurationSeconds": 15}
        return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def kube() -> Led:
    api = Led()
    for component in WITH_STANDBY:
        api.put(pod(component))
    return api


@pytest.fixture
def context(make_context, kube):
    """All standbys are active, all hosted pods ready: the moment before the pivot."""
    made = make_context(kube=kube)
    host(made).put_standbys()
    for component in WITH_STANDBY:
        host(made).activations[component] = ["aaaaaaaa"]
    return made


def host(context):
    return context.machines.hosts["n1"]


async def seen(context) -> dict[str, Health]:
    return {component: view.hosted for component, view in (await look_everywhere(context))["n1"].items()}


@pytest.mark.looptime
async def test_hosted_slots_that_answer_take_over_after_the_settling_time(context, notes, looptime):
    await Pivot().run(context, notes)
    assert host(context).log == [f"withdraw {component}" for component in WITH_STANDBY]
    assert slots.SETTLE_SECONDS <= looptime < leadership.SETTLE_SECONDS
    assert await Pivot().plan(context) == []


@pytest.mark.looptime
async def test_components_that_come_one_after_the_other_are_waited_for_beyond_the_time(
    context, kube, notes, monkeypatch, looptime
):
    monkeypatch.setattr("autarky.phases.pivot.PIVOT_TIMEOUT", 20.0)
    monkeypatch.setattr(patience, "STEP", 15.0)
    for component in WITH_STANDBY:
        kube.put(pod(component, ready=False))

    async def come() -> None:
        for component in WITH_STANDBY:
            await asyncio.sleep(12)
            kube.put(pod(component))

    coming = asyncio.create_task(come())
    await Pivot().run(context, notes)
    await coming
    assert looptime > 20 + 15


@pytest.mark.looptime
async def test_nodes_that_roll_one_after_the_other_are_waited_for_beyond_the_time(
    make_context, notes, monkeypatch, looptime
):
    """Each is as far back as the one before was, and comes as far: together they come on all the same."""
    monkeypatch.setattr("autarky.phases.pivot.PIVOT_TIMEOUT", 30.0)
    monkeypatch.setattr(patience, "STEP", 15.0)
    names = ("n1", "n2", "n3", "n4")

    def at(seconds: float) -> slots.Seen:
        """A hosted server that is told to end at 0."""
        steps = (Health.READY, Health.TERMINATING, Health.ABSENT, Health.NOT_READY, Health.READY)
        health = steps[max(0, min(4, 1 + int(seconds // 10)))]
        return slots.Seen(health, standby_active=health is not Health.READY, balanced=True)

    async def look_everywhere(_context):
        now = asyncio.get_running_loop().time()
        return {name: {WITH_STANDBY[0]: at(now - 30 * number)} for number, name in enumerate(names)}

    monkeypatch.setattr("autarky.phases.pivot.look_everywhere", look_everywhere)
    await Pivot().run(make_context(a_cluster(controls=4)), notes)
    assert looptime >= 30 * len(names)


@pytest.mark.looptime
async def test_the_api_servers_standby_stays_while_the_balancer_does_not_see_the_hosted_one(context, notes):
    host(context).balanced = False
    with pytest.raises(TimedOut, match="n1: the hosted slot answers, but not through the load balancer"):
        await Pivot().run(context, notes)
    assert "withdraw kube-apiserver" not in host(context).log


@pytest.mark.looptime
async def test_while_the_api_is_unreachable_nothing_is_done(context, kube, notes):
    kube.set_outage("connection refused")
    with pytest.raises(TimedOut, match="unknown"):
        await Pivot().run(context, notes)
    assert host(context).log == []


@pytest.mark.looptime
async def test_a_level_that_is_not_hosted_keeps_its_standby_for_good(context, notes):
    context.cluster = replace(context.cluster, self_hosted=Level.CONTROLLERS)
    await Pivot().run(context, notes)
    assert host(context).activations["kube-apiserver"] == ["aaaaaaaa"]
    assert host(context).activations["kube-scheduler"] == []


@pytest.mark.looptime
async def test_a_standby_that_is_missing_is_activated(context, notes):
    context.cluster = replace(context.cluster, self_hosted=Level.ADD_ONS)
    host(context).activations.clear()
    await Pivot().run(context, notes)
    assert host(context).log == [f"activate {component}" for component in WITH_STANDBY]


async def test_what_has_not_ended_of_a_withdrawn_standby_is_known(context, kube):
    kube.put(pod("kube-apiserver", slot="standby"))
    kube.put(pod("node-agent", slot="standby"))
    kube.put(pod("kube-scheduler", slot="standby"))
    host(context).activations["kube-apiserver"] = []
    assert await withdrawn_pods(context) == ["kube-apiserver-standby-n1"]


async def test_a_static_pod_that_passes_for_a_hosted_one_is_none(make_context):
    context = make_context(a_cluster(controls=2), kube=Led())
    for component in WITH_STANDBY:
        context.kube().put(pod(component, annotations={"kubernetes.io/config.mirror": "0f3a"}))
    assert set((await seen(context)).values()) == {Health.ABSENT}


async def test_a_strangers_pod_with_the_label_of_a_standby_ends_no_command(context, kube):
    kube.put(pod("kube-apiserver", slot="standby", node="w1", labels={"autarky.dev/slot": "standby"}))
    assert await withdrawn_pods(context) == []


@pytest.mark.looptime
async def test_a_node_without_a_standby_waits_for_its_hosted_slot_while_another_nodes_standby_serves(
    make_context, kube, notes
):
    """The first `up`: one temporary control plane is enough, and no second one is started for half a minute."""
    context = make_context(a_cluster(controls=2), kube=kube)
    for component in WITH_STANDBY:
        context.machines.hosts["n1"].activations[component] = ["aaaaaaaa"]
    with pytest.raises(TimedOut, match="kube-apiserver on n2: the hosted slot is absent, another node serves"):
        await Pivot().run(context, notes)
    assert context.machines.hosts["n2"].log == []
    kube.put(pod("kube-apiserver", node="n2"))
    await Pivot().run(context, notes)
    assert context.machines.hosts["n2"].log == []


async def test_each_slot_is_judged_by_its_own_nodes_pod(make_context, kube):
    context = make_context(a_cluster(controls=2), kube=Led())
    for component in WITH_STANDBY:
        context.kube().put(pod(component, node="n2"))
    assert set((await seen(context)).values()) == {Health.ABSENT}
    assert {view.hosted for view in (await look_everywhere(context))["n2"].values()} == {Health.READY}


@pytest.mark.looptime
async def test_level_3_is_judged_by_its_lease_as_by_the_agent_and_not_by_readiness(context, kube, notes):
    """A scheduler newer than its API servers stays Ready and never leads."""
    kube.leader = None
    with pytest.raises(TimedOut, match="nobody has renewed the lease"):
        await Pivot().run(context, notes)
    assert host(context).log[-2:] == ["activate kube-controller-manager", "activate kube-scheduler"]
    assert host(context).activations["kube-apiserver"] == []


@pytest.mark.looptime
async def test_the_standby_of_level_3_is_activated_where_nobody_leads_although_a_pod_is_ready(context, kube, notes):
    host(context).activations.clear()
    kube.leader = None
    with pytest.raises(TimedOut):
        await Pivot().run(context, notes)
    assert host(context).log == ["activate kube-controller-manager", "activate kube-scheduler"]


@pytest.mark.looptime
async def test_where_no_hosted_pod_of_level_3_is_the_standby_gives_way_to_that_of_another_node(make_context, notes):
    kube = Led()
    context = make_context(a_cluster(controls=2), kube=kube)
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": NODE_2, "status": READY})
    for component in WITH_STANDBY:
        context.machines.hosts["n1"].activations[component] = ["aaaaaaaa"]
        kube.put(pod(component, node="n2"))
    kube.put(pod("kube-apiserver"))
    await Pivot().run(context, notes)
    assert sorted(host(context).log) == sorted(f"withdraw {component}" for component in WITH_STANDBY)


async def test_an_outage_is_unknown_and_not_absent(context, kube):
    kube.set_outage("connection refused")
    assert set((await seen(context)).values()) == {Health.UNKNOWN}


async def test_a_plan_only_looks(context):
    assert [change.sentence for change in await Pivot().plan(context)] == [
        f"pivot {component} on n1 to its hosted slot" for component in WITH_STANDBY
    ]
    assert host(context).log == []


def test_the_health_of_a_pod_is_what_its_kubelet_said_last():
    assert pod_health(pod("x")) is Health.READY
    assert pod_health(pod("x", ready=False)) is Health.NOT_READY
    assert pod_health({"metadata": {}}) is Health.NOT_READY
    assert pod_health(pod("x", deletionTimestamp="2026-11-21T13:00:00Z")) is Health.TERMINATING


@pytest.mark.looptime
async def test_a_lock_of_the_standbys_that_is_held_is_waited_for(context, notes):
    host(context).refusals = 2
    await Pivot().run(context, notes)
    assert sorted(host(context).log) == sorted(f"withdraw {component}" for component in WITH_STANDBY)
    assert host(context).refusals == 0
    assert any("tried again, since nothing was done" in note for note in notes.notes)


def running(found: dict, container: str) -> dict:
    """As it shows a container that runs."""
    status = {"containerID": f"containerd://{container}", "state": {"running": {"startedAt": "2026-11-21T13:00:00Z"}}}
    return {**found, "status": {**found["status"], "containerStatuses": [status]}}


async def test_what_runs_is_unknown_while_the_container_runtime_says_nothing(context, kube):
    host(context).tasks = None
    kube.put(running(pod("kube-scheduler"), "0123"))
    assert (await seen(context))["kube-scheduler"] is Health.UNKNOWN


async def test_a_pod_that_was_ready_before_the_power_cut_is_not_hosted_yet(context, kube):
    """By what the container runtime runs: what the clock says of starts and boots is not asked."""
    host(context).tasks = {"0123": "RUNNING", "4567": "STOPPED"}
    for component, container in {"kube-scheduler": "4567", "kube-controller-manager": "0123"}.items():
        kube.put(running(pod(component), container))
    assert await seen(context) == {
        "kube-apiserver": Health.READY,
        "kube-controller-manager": Health.READY,
        "kube-scheduler": Health.NOT_READY,
    }


# --- where the nodes' own agents care for the slots -------------------------------------------------------------


@pytest.fixture
def with_agents(context):
    """As a finished `up` leaves it; the API server has its wanted slot."""
    host(context).files[f"{places.MANIFESTS}/{STANDBY_POD}-0123456789.json"] = (b"{}", 0o600)
    host(context).activations["kube-apiserver"] = []
    return context


@pytest.mark.looptime
async def test_a_standby_of_level_3_that_its_nodes_agent_keeps_is_not_withdrawn(with_agents, notes, looptime):
    """The scheduler's pod is Ready, and never led when it could: the agent knows, `up` cannot."""
    for _ in range(2):
        await Pivot().run(with_agents, notes)
    assert host(with_agents).log == []
    assert [note for note in notes.notes if "kube-scheduler on n1" in note and "stays" in note]


@pytest.mark.looptime
async def test_it_is_waited_for_the_agent_that_withdraws_it(with_agents, notes, looptime):
    async def agent() -> None:
        await asyncio.sleep(leadership.SETTLE_SECONDS + 2)
        for component in controllers.CONTROLLERS:
            host(with_agents).activations[component] = []

    acting = asyncio.create_task(agent())
    await Pivot().run(with_agents, notes)
    assert acting.done()
    assert notes.notes == []
    assert host(with_agents).log == []
    assert await Pivot().plan(with_agents) == []


@pytest.mark.looptime
async def test_a_healthy_cluster_is_not_waited_for(with_agents, notes, looptime):
    host(with_agents).activations.clear()
    await Pivot().run(with_agents, notes)
    assert looptime <= 2
    assert await Pivot().plan(with_agents) == []


@pytest.mark.looptime
async def test_a_standby_that_no_ready_pod_could_relieve_is_waited_for(with_agents, kube, notes):
    kube.put(pod("kube-scheduler", ready=False))
    with pytest.raises(TimedOut, match="kube-scheduler on n1: the hosted pod is not ready, the standby stays"):
        await Pivot().run(with_agents, notes)
    assert host(with_agents).log == []


@pytest.mark.looptime
async def test_where_nobody_leads_a_standby_is_activated_though_there_are_agents(with_agents, kube, notes):
    host(with_agents).activations.clear()
    kube.leader = None
    with pytest.raises(TimedOut, match="nobody has renewed the lease"):
        await Pivot().run(with_agents, notes)
    assert host(with_agents).log == ["activate kube-controller-manager", "activate kube-scheduler"]


@pytest.mark.looptime
async def test_the_api_servers_standby_goes_all_the_same(with_agents, notes):
    host(with_agents).activations["kube-apiserver"] = ["aaaaaaaa"]
    await Pivot().run(with_agents, notes)
    assert host(with_agents).log == ["withdraw kube-apiserver"]
