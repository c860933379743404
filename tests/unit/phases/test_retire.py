"""The wait until the operator has removed what is no longer hosted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from autarky.control.levels.act import APPS
from autarky.errors import TimedOut
from autarky.model.cluster import Level
from autarky.model.components import COMPONENTS, KUBELET, SCHEDULER
from autarky.phases.retire import RETIRED_SECONDS, RetireHosted, unlisted
from autarky.render.crds import API_VERSION, control_plane_crd
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

PHASE = RetireHosted()
WORKLOAD = (APPS, COMPONENTS[SCHEDULER].kind, SCHEDULER, "kube-system")
POD = ("v1", "Pod", "scheduler-of-a-replica-set", "kube-system")


def hosted_scheduler(kube: FakeKube) -> None:
    kube.put({"apiVersion": APPS, "kind": WORKLOAD[1], "metadata": {"name": SCHEDULER, "namespace": WORKLOAD[3]}})
    labels = {"k8s-app": SCHEDULER, "autarky.dev/slot": "hosted"}
    meta = {"name": POD[2], "namespace": POD[3], "labels": labels}
    kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "n1"}})


def the_operator_says(kube: FakeKube, why: str) -> None:
    conditions = [{"type": "Ready", "message": "another one"}, {"type": "SpecApplied", "message": why}]
    plane = {"metadata": {"name": "cluster"}, "spec": {}, "status": {"conditions": conditions}}
    kube.put(control_plane_crd())
    kube.put({"apiVersion": API_VERSION, "kind": "ControlPlane", **plane})


@pytest.fixture
def kube() -> FakeKube:
    api = FakeKube()
    hosted_scheduler(api)
    return api


@pytest.fixture
def context(make_context, kube):
    made = make_context(kube=kube)
    made.cluster = replace(made.cluster, self_hosted=Level.ADD_ONS)
    return made


async def test_it_waits_for_the_operator_and_for_the_pods_and_deletes_nothing_itself(context, kube, notes, looptime):
    async def operator() -> None:
        await asyncio.sleep(20)
        assert await kube.get(*WORKLOAD) is not None
        await kube.delete(*WORKLOAD)
        await asyncio.sleep(5)
        assert await kube.get(*POD) is not None
        await kube.delete(*POD)

    working = asyncio.create_task(operator())
    await PHASE.run(context, notes)
    await working
    assert looptime >= 25
    assert notes.notes == ["kube-scheduler runs as static pods only"]
    assert await PHASE.plan(context) == []


async def test_what_keeps_the_operator_from_it_is_said_in_its_own_words(context, kube, notes):
    the_operator_says(kube, "kube-scheduler: the standby on n1 is not ready")
    with pytest.raises(TimedOut, match="kube-scheduler: the standby on n1 is not ready"):
        await PHASE.run(context, notes)
    assert await kube.get(*WORKLOAD) is not None


async def test_what_the_operator_says_differently_each_time_moves_no_deadline(context, kube, looptime):
    """It may quote kubelets."""

    class Silent:
        def note(self, sentence: str) -> None: ...
        def progress(self, what: str, done: float, total: float) -> None: ...
        def waiting(self, what: str, deadline: float, last: str) -> None:
            the_operator_says(kube, f"reason {asyncio.get_running_loop().time()}")

    with pytest.raises(TimedOut):
        await PHASE.run(context, Silent())
    assert looptime <= RETIRED_SECONDS + 5


async def test_a_control_node_that_is_off_is_told_of_and_not_waited_for(make_context, kube, notes, looptime):
    context = make_context(a_cluster(controls=3), kube=kube)
    context.cluster = replace(context.cluster, self_hosted=Level.ADD_ONS)
    context.absent["n3"] = "its machine does not run"
    await PHASE.run(context, notes)
    assert looptime < 5
    assert notes.notes == [
        "kube-scheduler stays hosted until n3 is back, or no longer a control node; then the operator goes on"
    ]
    assert await kube.get(*WORKLOAD) is not None


async def test_an_operator_that_has_said_nothing_is_named(context, notes):
    with pytest.raises(TimedOut, match="the operator has not said anything about it yet"):
        await PHASE.run(context, notes)


async def test_what_is_hosted_is_not_waited_for(make_context, kube):
    context = make_context(kube=kube)
    assert await unlisted(context) == []
    assert await PHASE.plan(context) == []


async def test_a_plan_only_looks(context, kube):
    assert [change.sentence for change in await PHASE.plan(context)] == [
        "wait until Deployment kube-system/kube-scheduler is deleted, once its standby serves"
    ]
    assert await kube.get(*WORKLOAD) is not None


# --- level 0 ------------------------------------------------------------------------------------------------


KUBELETS = (APPS, "DaemonSet", KUBELET, "kube-system")


def hosted_kubelets(kube: FakeKube, *nodes: str) -> None:
    kube.put({"apiVersion": APPS, "kind": "DaemonSet", "metadata": {"name": KUBELET, "namespace": "kube-system"}})
    labels = {"k8s-app": KUBELET, "autarky.dev/slot": "hosted"}
    for node in nodes:
        meta = {"name": f"kubelet-{node}", "namespace": "kube-system", "labels": labels}
        kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": node}})


async def test_kubelets_go_first_and_need_no_standby(context, kube):
    hosted_kubelets(kube)
    assert await unlisted(context) == [KUBELET, SCHEDULER]
    assert next(change.sentence for change in await PHASE.plan(context)) == (
        "wait until DaemonSet kube-system/kubelet is deleted"
    )
    context.cluster = replace(context.cluster, hosts_kubelet=True)
    assert await unlisted(context) == [SCHEDULER]


async def test_a_node_that_is_off_keeps_no_kubelets_of_the_others(make_context, notes, looptime):
    """Nor the wait for them: its pod cannot end."""
    kube = FakeKube()
    hosted_kubelets(kube, "n1", "n3")
    context = make_context(a_cluster(controls=3), kube=kube)
    context.absent["n3"] = "its machine does not run"

    async def operator() -> None:
        await asyncio.sleep(2)
        await kube.delete(*KUBELETS)
        await asyncio.sleep(5)
        await kube.delete("v1", "Pod", "kubelet-n1", "kube-system")

    working = asyncio.create_task(operator())
    await PHASE.run(context, notes)
    await working
    assert 7 <= looptime < 15
    assert notes.notes == ["kubelet runs as a unit of the hosts only"]
