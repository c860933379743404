"""What the wait for the pivot makes of pods, standbys, leases and silence. It never acts: the nodes' agents do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.pods import pod_health
from autarky.control.leadership.decide.leader import Lease
from autarky.control.slots.decide import report
from autarky.control.slots.decide.pivot import Health, Slot
from autarky.errors import TimedOut
from autarky.model import patience
from autarky.model.cluster import Level
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, LED_BY_LEASE, SCHEDULER, WITH_STANDBY
from autarky.phases.pivot import KEPT_SECONDS, Pivot, View, Watched, look_everywhere, missing, withdrawn_pods
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


def node_object(name: str, *, reports: bool = True) -> dict:
    annotations = {report.ANNOTATION: "{}"} if reports else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}


class Led(FakeKube):
    """Somebody on `leader` renews the leases of level 3, unless nobody does."""

    leader: str | None = "n1"
    held_by = "n0"
    renewals = 0

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Any:
        if kind != "Lease" or self.outage:
            return await super().get(api_version, kind, name, namespace)
        self.renewals += self.leader is not None
        self.held_by = self.leader or self.held_by
        spec = {"holderIdentity": f"{self.held_by}_x", "renewTime": str(self.renewals), "leaseDurationSeconds": 15}
        return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def kube() -> Led:
    api = Led()
    api.put(node_object("n1"))
    for component in WITH_STANDBY:
        api.put(pod(component))
    return api


@pytest.fixture
def context(make_context, kube):
    """All standbys are active, all hosted pods ready, the node's agent runs: the moment before the pivot."""
    made = make_context(kube=kube)
    host(made).put_standbys()
    for component in WITH_STANDBY:
        host(made).activations[component] = ["aaaaaaaa"]
    return made


def host(context, name: str = "n1"):
    return context.machines.hosts[name]


async def seen(context) -> dict[str, Health]:
    return {component: view.hosted for component, view in (await look_everywhere(context))["n1"].items()}


@asynccontextmanager
async def an_agent(*acts: Callable[[], object], every: float = 2.0) -> AsyncIterator[None]:
    """Does one thing after the other, meanwhile."""

    async def work() -> None:
        for act in acts:
            await asyncio.sleep(every)
            act()

    working = asyncio.create_task(work())
    yield
    assert working.done(), "it was not waited for the agent"
    await working


def withdraws(context, component: str, node: str = "n1") -> Callable[[], object]:
    return lambda: host(context, node).activations.update({component: []})


# --- waiting ---------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_it_waits_for_the_agent_and_tells_what_that_does(context, notes):
    async with an_agent(*(withdraws(context, component) for component in WITH_STANDBY)):
        await Pivot().run(context, notes)
    assert notes.notes == [
        f"{component} on n1: the hosted pod is ready, its standby was withdrawn" for component in WITH_STANDBY
    ]
    assert await Pivot().plan(context) == []


@pytest.mark.looptime
@pytest.mark.parametrize("wanted", [Level.API_SERVER, Level.ADD_ONS])
async def test_it_never_acts_itself(context, kube, notes, wanted):
    """Neither where a standby should go, nor where one should come."""
    context.cluster = replace(context.cluster, self_hosted=wanted)
    host(context).activations.clear()
    if wanted is Level.API_SERVER:
        host(context).activations[API_SERVER] = ["aaaaaaaa"]
    kube.leader = None
    with pytest.raises(TimedOut):
        await Pivot().run(context, notes)
    assert host(context).log == []


@pytest.mark.looptime
async def test_components_that_come_one_after_the_other_are_waited_for_beyond_the_time(
    context, kube, notes, monkeypatch, looptime
):
    monkeypatch.setattr("autarky.phases.pivot.PIVOT_TIMEOUT", 20.0)
    monkeypatch.setattr(patience, "STEP", 15.0)
    for component in WITH_STANDBY:
        kube.put(pod(component, ready=False))

    def comes(component: str) -> None:
        kube.put(pod(component))
        withdraws(context, component)()

    async with an_agent(*((lambda one=one: comes(one)) for one in WITH_STANDBY), every=12):
        await Pivot().run(context, notes)
    assert looptime > 20 + 15


@pytest.mark.looptime
async def test_nodes_that_roll_one_after_the_other_are_waited_for_beyond_the_time(
    make_context, notes, monkeypatch, looptime
):
    """Each is as far back as the one before was, and comes as far: together they come on all the same."""
    monkeypatch.setattr("autarky.phases.pivot.PIVOT_TIMEOUT", 30.0)
    monkeypatch.setattr(patience, "STEP", 15.0)
    names = ("n1", "n2", "n3", "n4")

    def at(seconds: float) -> View:
        """A hosted server that is told to end at 0."""
        steps = (Health.READY, Health.TERMINATING, Health.ABSENT, Health.NOT_READY, Health.READY)
        health = steps[max(0, min(4, 1 + int(seconds // 10)))]
        return View(health, standby_active=health is not Health.READY)

    async def look_everywhere(_context):
        now = asyncio.get_running_loop().time()
        return {name: {API_SERVER: at(now - 30 * number)} for number, name in enumerate(names)}

    monkeypatch.setattr("autarky.phases.pivot.look_everywhere", look_everywhere)
    await Pivot().run(make_context(a_cluster(controls=4)), notes)
    assert looptime >= 30 * len(names)


@pytest.mark.looptime
async def test_a_node_whose_agent_has_not_reported_is_named(make_context, kube, notes):
    kube.put(node_object("n2", reports=False))
    context = make_context(a_cluster(controls=2), kube=kube)
    with pytest.raises(TimedOut, match=r"on n2: the hosted pod is absent; the agents of n2 have not reported yet"):
        await Pivot().run(context, notes)


@pytest.mark.looptime
async def test_what_is_missing_is_said_once_for_all_components_of_a_node(context, kube, notes):
    for component in LED_BY_LEASE:
        kube.put(pod(component, ready=False))
    withdraws(context, API_SERVER)()
    both = "kube-controller-manager and kube-scheduler on n1: the hosted pod is not ready"
    with pytest.raises(TimedOut, match=both):
        await Pivot().run(context, notes)


@pytest.mark.looptime
async def test_while_the_api_is_unreachable_nothing_has_settled(context, kube, notes):
    host(context).activations.clear()
    kube.set_outage("connection refused")
    with pytest.raises(TimedOut, match="what runs there could not be observed"):
        await Pivot().run(context, notes)


@pytest.mark.looptime
async def test_a_level_that_is_not_hosted_has_settled_once_its_standby_is_in_place(context, notes):
    context.cluster = replace(context.cluster, self_hosted=Level.ADD_ONS)
    host(context).activations.clear()
    plan = [change.sentence for change in await Pivot().plan(context)]
    assert plan == [f"wait until {component} on n1 runs in its standby slot" for component in WITH_STANDBY]
    in_place = [lambda one=one: host(context).activations.update({one: ["bbbbbbbb"]}) for one in WITH_STANDBY]
    async with an_agent(*in_place):
        await Pivot().run(context, notes)
    assert await Pivot().plan(context) == []
    assert len([note for note in notes.notes if note.endswith("its standby was activated")]) == len(WITH_STANDBY)


@pytest.mark.looptime
async def test_a_lease_that_nobody_renews_has_settled_nothing(context, kube, notes):
    """A scheduler newer than its API servers stays Ready and never leads."""
    host(context).activations.clear()
    kube.leader = None
    with pytest.raises(TimedOut, match="nobody has been seen to renew its lease"):
        await Pivot().run(context, notes)


@pytest.mark.looptime
async def test_a_healthy_cluster_is_not_waited_for(context, notes, looptime):
    host(context).activations.clear()
    assert await Pivot().plan(context) == []
    await Pivot().run(context, notes)
    assert looptime <= 2


@pytest.mark.looptime
@pytest.mark.parametrize("nodes", [3, 5])
async def test_level_3_may_have_fewer_pods_than_there_are_control_nodes(make_context, kube, notes, nodes):
    """Of five it has three; and somebody may have scaled it."""
    context = make_context(a_cluster(controls=nodes), kube=kube)
    for number in range(1, nodes + 1):
        kube.put(node_object(f"n{number}"))
        kube.put(pod(API_SERVER, node=f"n{number}"))
        context.machines.hosts[f"n{number}"].put_standbys()
    assert await Pivot().plan(context) == []
    for component in WITH_STANDBY:
        host(context, "n3").activations[component] = ["aaaaaaaa"]
    async with an_agent(*(withdraws(context, component, "n3") for component in WITH_STANDBY)):
        await Pivot().run(context, notes)


@pytest.mark.looptime
async def test_what_the_standby_itself_renewed_says_nothing_of_who_leads_after_it(context, kube, notes):
    """It was withdrawn, and nobody takes the lease."""
    both = [withdraws(context, component) for component in WITH_STANDBY]

    def goes() -> None:
        for act in both:
            act()
        kube.leader = None

    async with an_agent(goes):
        with pytest.raises(TimedOut, match="nobody has been seen to renew its lease"):
            await Pivot().run(context, notes)


# --- a standby that its node's agent keeps -----------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_standby_of_level_3_that_its_agent_keeps_beside_a_ready_pod_is_not_waited_for_long(
    context, notes, looptime
):
    """The scheduler's pod is Ready, and never led when it could: the agent knows, `up` cannot."""
    withdraws(context, API_SERVER)()
    await Pivot().run(context, notes)
    assert KEPT_SECONDS <= looptime <= 2 * KEPT_SECONDS
    kept = [note for note in notes.notes if "stays" in note]
    assert sorted(note.split(":")[0] for note in kept) == sorted(f"{component} on n1" for component in LED_BY_LEASE)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("reports", "component", "ready"),
    [(False, SCHEDULER, True), (True, API_SERVER, True), (True, SCHEDULER, False)],
    ids=["its agent does not run", "the API server's", "its pod is not ready"],
)
async def test_any_other_standby_that_stays_is_waited_for(context, kube, notes, reports, component, ready):
    for other in set(WITH_STANDBY) - {component}:
        withdraws(context, other)()
    kube.put(node_object("n1", reports=reports))
    kube.put(pod(component, ready=ready))
    with pytest.raises(TimedOut, match=f"{component} on n1: the hosted pod is"):
        await Pivot().run(context, notes)


HEALTHS = st.sampled_from(Health)
LEASES = st.none() | st.builds(Lease, st.sampled_from(["", "a", "b"]), st.sampled_from(["1", "2"]), st.just(15.0))
VIEWS = st.builds(View, HEALTHS, st.none() | st.booleans(), LEASES, st.booleans())


@given(st.sampled_from(WITH_STANDBY), st.sampled_from(Slot), st.lists(st.tuples(VIEWS, st.floats(0, 60))))
def test_nothing_has_settled_with_the_wrong_slot_alone(component, wanted, looks):
    """Whatever is seen: what counts as settled serves, by the last look, in its wanted slot; level 3 hosted is led."""
    watched, now = Watched(component), 0.0
    for view, passes in looks:
        now += passes
        if watched.open(wanted, view, now) is not None:
            continue
        if wanted is Slot.STANDBY:
            assert view.standby_active
            continue
        led_elsewhere = component in LED_BY_LEASE and view.hosted is Health.ABSENT and not view.standby_active
        assert view.hosted is Health.READY or led_elsewhere
        if view.standby_active is False and component in LED_BY_LEASE:
            assert view.lease is not None
            assert view.lease.holder
        if view.standby_active:
            assert component in LED_BY_LEASE
            assert view.reports
        assert view.standby_active is not None


@given(st.sampled_from(WITH_STANDBY), st.sampled_from(Slot), VIEWS)
def test_what_could_not_be_seen_is_missing(component, wanted, view):
    if view.standby_active is None or view.hosted is Health.UNKNOWN:
        assert missing(component, wanted, view) == "what runs there could not be observed"


# --- looking ---------------------------------------------------------------------------------------------------


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


async def test_each_slot_is_judged_by_its_own_nodes_pod(make_context, kube):
    context = make_context(a_cluster(controls=2), kube=Led())
    for component in WITH_STANDBY:
        context.kube().put(pod(component, node="n2"))
    assert set((await seen(context)).values()) == {Health.ABSENT}
    assert {view.hosted for view in (await look_everywhere(context))["n2"].values()} == {Health.READY}


async def test_an_outage_is_unknown_and_not_absent(context, kube):
    kube.set_outage("connection refused")
    assert set((await seen(context)).values()) == {Health.UNKNOWN}


async def test_a_plan_only_looks(context):
    assert [change.sentence for change in await Pivot().plan(context)] == [
        f"wait until {component} on n1 runs in its hosted slot" for component in WITH_STANDBY
    ]
    assert host(context).log == []


def test_the_health_of_a_pod_is_what_its_kubelet_said_last():
    assert pod_health(pod("x")) is Health.READY
    assert pod_health(pod("x", ready=False)) is Health.NOT_READY
    assert pod_health({"metadata": {}}) is Health.NOT_READY
    assert pod_health(pod("x", deletionTimestamp="2026-11-21T13:00:00Z")) is Health.TERMINATING


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
    for component, container in {SCHEDULER: "4567", CONTROLLER_MANAGER: "0123"}.items():
        kube.put(running(pod(component), container))
    assert await seen(context) == {
        API_SERVER: Health.READY,
        CONTROLLER_MANAGER: Health.READY,
        SCHEDULER: Health.NOT_READY,
    }
