"""The pivot's eyes and hands: what it makes of pods, scripts and silence. What follows is decide/slots.py's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autarky.decide.pods import pod_health
from autarky.decide.slots import SETTLE_SECONDS, Health
from autarky.errors import TimedOut
from autarky.model.cluster import Level
from autarky.phases.pivot import Pivot, look_everywhere, withdrawn_pods
from autarky.render import standby
from fakes.clusters import a_cluster
from fakes.kube import FakeKube


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


@pytest.fixture
def kube() -> FakeKube:
    api = FakeKube()
    for component in standby.COMPONENTS:
        api.put(pod(component))
    return api


@pytest.fixture
def context(make_context, kube):
    """All standbys are active, all hosted pods ready: the moment before the pivot."""
    made = make_context(kube=kube)
    for component in standby.COMPONENTS:
        host(made).links[f"/var/lib/autarky/standby/{component}/current"] = "0123456789"
        host(made).activations[component] = ["aaaaaaaa"]
    return made


def host(context):
    return context.machines.hosts["n1"]


async def seen(context) -> dict[str, Health]:
    return {component: view.hosted for component, view in (await look_everywhere(context))["n1"].items()}


@pytest.mark.looptime
async def test_hosted_slots_that_answer_take_over_after_the_settling_time(context, notes, looptime):
    await Pivot().run(context, notes)
    assert host(context).log == [f"withdraw {component}" for component in standby.COMPONENTS]
    assert looptime >= SETTLE_SECONDS
    assert await Pivot().plan(context) == []


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
    assert host(context).log == [f"activate {component}" for component in standby.COMPONENTS]


async def test_what_has_not_ended_of_a_withdrawn_standby_is_known(context, kube):
    kube.put(pod("kube-apiserver", slot="standby"))
    kube.put(pod("node-agent", slot="standby"))
    kube.put(pod("kube-scheduler", slot="standby"))
    host(context).activations["kube-apiserver"] = []
    assert await withdrawn_pods(context) == ["kube-apiserver-standby-n1"]


@pytest.mark.looptime
async def test_a_node_without_a_standby_waits_for_its_hosted_slot_while_another_nodes_standby_serves(
    make_context, kube, notes
):
    """The first `up`: one temporary control plane is enough, and no second one is started for half a minute."""
    context = make_context(a_cluster(controls=2), kube=kube)
    for component in standby.COMPONENTS:
        context.machines.hosts["n1"].activations[component] = ["aaaaaaaa"]
    with pytest.raises(TimedOut, match="kube-apiserver on n2: the hosted slot is absent, another node serves"):
        await Pivot().run(context, notes)
    assert context.machines.hosts["n2"].log == []
    kube.put(pod("kube-apiserver", node="n2"))
    await Pivot().run(context, notes)
    assert context.machines.hosts["n2"].log == []


async def test_the_api_server_is_judged_by_its_own_nodes_pod_and_level_three_by_any(make_context, kube):
    context = make_context(a_cluster(controls=2), kube=FakeKube())
    for component in standby.COMPONENTS:
        context.kube().put(pod(component, node="n2"))
    assert await seen(context) == {
        "kube-apiserver": Health.ABSENT,
        "kube-controller-manager": Health.READY,
        "kube-scheduler": Health.READY,
    }


async def test_an_outage_is_unknown_and_not_absent(context, kube):
    kube.set_outage("connection refused")
    assert set((await seen(context)).values()) == {Health.UNKNOWN}


async def test_a_plan_only_looks(context):
    assert [change.sentence for change in await Pivot().plan(context)] == [
        f"pivot {component} on n1 to its hosted slot" for component in standby.COMPONENTS
    ]
    assert host(context).log == []


def test_the_health_of_a_pod_is_what_its_kubelet_said_last():
    assert pod_health(pod("x")) is Health.READY
    assert pod_health(pod("x", ready=False)) is Health.NOT_READY
    assert pod_health({"metadata": {}}) is Health.NOT_READY
    assert pod_health(pod("x", deletionTimestamp="2026-11-21T13:00:00Z")) is Health.TERMINATING


async def test_a_pod_that_was_ready_before_the_power_cut_is_not_hosted_yet(context, kube):
    host(context).files[standby.BOOT_FILE] = (b"1c1b7a36-0d0f-4f37-8a3c-5f1f7f0a9d11 1795261771.820\n", 0o644)
    stale = pod("kube-scheduler")
    run = {"running": {"startedAt": datetime.fromtimestamp(1795261000, UTC).isoformat()}}
    kube.put({**stale, "status": {**stale["status"], "containerStatuses": [{"state": run}]}})
    assert await seen(context) == {
        "kube-apiserver": Health.READY,
        "kube-controller-manager": Health.READY,
        "kube-scheduler": Health.NOT_READY,
    }
