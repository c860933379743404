"""The end of `up`: what it waits for, and that nobody who has a worker keeps it waiting."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import count
from types import MappingProxyType

import pytest

from autarky.control.common.pods import MIRROR
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import ANNOTATION as HOSTED
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.slots.decide.report import ANNOTATION
from autarky.errors import TimedOut
from autarky.model import patience
from autarky.model.cluster import Cni
from autarky.model.versions import Version
from autarky.phases.available import (
    WORKLOADS,
    _absent_for,
    _agents_that_do_not_act,
    _control_nodes_without,
    _current_set,
    _refusing,
    rendered_workloads,
    rolled_out,
    unavailable,
)
from autarky.phases.context import Context
from autarky.phases.finish import AwaitWorkloads
from autarky.ports import Object
from autarky.render.objects import agent_parts, parts
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clock import LoopClock
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

CLUSTER = a_cluster(controls=1, workers=1)
SECONDS = 20.0
"""For the wait, in these tests."""
pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WORKLOADS", SECONDS)
    monkeypatch.setattr(patience, "STEP", 5.0)


class Spoken(FakeKube):
    """Its nodes are Ready, and n2's kubelet says that it runs out of something."""

    message: Callable[[], str] = str
    ready: Callable[[], bool] = staticmethod(lambda: True)

    pods: Sequence[Object] = ()
    fields: Mapping[str | None, Sequence[Object]] = MappingProxyType({})
    sets: Sequence[Object] = ()
    lacking: str = ""

    async def list(self, api_version, kind, **options) -> list[Object]:
        if kind == "Pod":
            return list(self.fields.get(options.get("fields"), self.pods))
        if kind == "ReplicaSet":
            return list(self.sets)
        return [self._node("n1", True), self._node("n2", self.ready())] if kind == "Node" else []

    def _node(self, name: str, ready: bool) -> Object:
        conditions = [{"type": "Ready", "status": str(ready and name != self.lacking)}]
        if name == "n2":
            conditions += [{"type": "DiskPressure", "status": "True", "message": self.message()}]
        return {"metadata": {"name": name}, "status": {"conditions": conditions}}


now = LoopClock().monotonic


async def ends_at(context: Context, notes) -> float:
    with pytest.raises(TimedOut, match="DiskPressure"):
        await AwaitWorkloads().run(context, notes)
    return now()


async def test_a_kubelet_that_says_a_million_digits_holds_up_nothing(make_context, notes):
    kube = Spoken()
    kube.message = lambda: "9" * 10**6
    began = time.monotonic()
    assert await ends_at(make_context(CLUSTER, kube=kube), notes) == pytest.approx(SECONDS, abs=1)
    assert time.monotonic() - began < 20


async def test_a_kubelet_that_says_something_else_at_each_look_moves_no_deadline(make_context, notes):
    kube, numbers = Spoken(), count()
    kube.message = lambda: "x" * next(numbers)
    assert await ends_at(make_context(CLUSTER, kube=kube), notes) == pytest.approx(SECONDS, abs=1)


@pytest.mark.parametrize(("absent", "missing"), [("n4", True), ("n3", False)])
async def test_a_worker_that_is_left_out_is_no_excuse_for_what_runs_on_control_nodes(make_context, absent, missing):
    cluster = a_cluster(controls=3, workers=1)
    context = make_context(cluster)
    context.absent = {absent: "it does not answer"}
    inputs = context.inputs()
    servers = next(
        obj
        for part in parts(inputs)
        for obj in part.objects
        if (obj["kind"], obj["metadata"]["name"]) == ("DaemonSet", "kube-apiserver")
    )
    live = {
        "metadata": {"generation": 1},
        "status": {
            "observedGeneration": 1,
            "desiredNumberScheduled": 3,
            "numberAvailable": 2,
            "updatedNumberScheduled": 3,
        },
    }
    lacking, _ = rolled_out(servers, live, _absent_for(context, servers))
    assert bool(lacking) is missing


def a_pod(daemonset: str, node: str, *, ready: bool = True) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemonset, "uid": daemonset}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{daemonset}-{node}",
            "uid": f"uid of {daemonset}-{node}",
            "namespace": "kube-system",
            "labels": {},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize("lacking", ["absent", "not ready"])
async def test_a_worker_that_is_left_out_is_no_excuse_for_a_daemonset_of_all_nodes_on_a_control_node(
    make_context, lacking
):
    """Its own pod may run all the same, so that the numbers are as if it were the one without."""
    context = make_context(CLUSTER)
    workloads = rendered_workloads(context)
    for name in [obj["metadata"]["name"] for obj in workloads if obj["kind"] == "DaemonSet"]:
        context.kube().put(a_pod(name, "n1"))
        context.kube().put(a_pod(name, "n2"))
    assert await _control_nodes_without(context, workloads) == []
    context.absent = {"n2": "it fails on purpose"}
    assert await _control_nodes_without(context, workloads) == []
    await context.kube().delete("v1", "Pod", "node-agent-n1", "kube-system")
    if lacking == "not ready":
        context.kube().put(a_pod("node-agent", "n1", ready=False))
    assert await _control_nodes_without(context, workloads) == ["DaemonSet node-agent has no pod that is Ready on n1"]
    context.absent = {}
    assert await _control_nodes_without(context, workloads) == [], "then the numbers say it"


async def test_a_node_that_is_ready_now_and_then_moves_the_deadline_hardly_at_all(make_context, notes):
    kube = Spoken()
    kube.ready = lambda: int(now()) % 2 == 0
    assert await ends_at(make_context(CLUSTER, kube=kube), notes) == pytest.approx(SECONDS, abs=1)


def with_pods(obj: Object, pods: int) -> Object:
    """As its controller leaves it with so many pods of two."""
    status = {"observedGeneration": 1, "desiredNumberScheduled": 2}
    for number in ("numberAvailable", "updatedNumberScheduled", "readyReplicas", "updatedReplicas", "replicas"):
        status[number] = pods
    return {**obj, "spec": {**obj["spec"], "replicas": 2}, "status": status}


async def test_pods_that_come_one_after_the_other_are_waited_for_beyond_the_time(make_context, notes):
    kube = Spoken()
    context = make_context(CLUSTER, kube=kube)
    inputs = context.inputs()
    workloads = [obj for part in (*parts(inputs), *agent_parts(inputs)) for obj in part.objects]
    workloads = [obj for obj in workloads if obj["kind"] in WORKLOADS]

    async def come() -> None:
        for pods in (1, 2):
            for obj in workloads:
                await asyncio.sleep(3)
                kube.put(with_pods(obj, pods))

    coming = asyncio.create_task(come())
    await AwaitWorkloads().run(context, notes)
    await coming
    assert SECONDS + 5 < now() < SECONDS * patience.CEILING


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"replicas": 3, "updatedReplicas": 2, "readyReplicas": 3, "availableReplicas": 2},
            "1 pods of a former revision",
        ),
        ({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 0}, ""),
        ({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1}, "1 of 2 pods available"),
    ],
)
def test_an_operator_is_rolled_out_when_no_former_one_is_left_that_may_be_needed_again(make_context, status, said):
    """The former one stays until the new one has been Ready for a while; the first one is waited for no longer."""
    [operator] = [
        obj for obj in rendered_workloads(make_context(CLUSTER)) if obj["metadata"]["name"] == "autarky-operator"
    ]
    live = {**operator, "spec": {**operator["spec"], "replicas": 2}, "status": {"observedGeneration": 1, **status}}
    live["metadata"] = {**live["metadata"], "generation": 1}
    lacking, _ = rolled_out(operator, live, 0)
    assert [one for one in lacking if said in one] == lacking
    assert bool(lacking) is bool(said)


@pytest.mark.parametrize(("available", "missing"), [(1, True), (2, False)])
async def test_with_a_control_node_off_former_pods_are_not_taken_for_new_ones(make_context, available, missing):
    """Two former operators that are available, and a new one that never is: the rollout will go back."""
    context = make_context(a_cluster(controls=3))
    context.absent = {"n3": "it does not answer"}
    [operator] = [obj for obj in rendered_workloads(context) if obj["metadata"]["name"] == "autarky-operator"]
    status = {"observedGeneration": 0, "replicas": 4, "updatedReplicas": 2, "readyReplicas": 3, "availableReplicas": 3}
    live = {**operator, "spec": {**operator["spec"], "replicas": 3}, "status": status}
    live["metadata"] = {**live["metadata"], "generation": 0, "uid": "u"}
    labels = operator["spec"]["selector"]["matchLabels"]
    for number, ready in ((1, 3 - available), (2, available)):
        meta = {
            "name": f"autarky-operator-{number}",
            "namespace": "kube-system",
            "labels": labels,
            "ownerReferences": [{"uid": "u"}],
            "annotations": {"deployment.kubernetes.io/revision": str(number)},
        }
        one = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta}
        context.kube().put({**one, "status": {"availableReplicas": ready}})
    lacking, _ = rolled_out(operator, live, 1, await _current_set(context, live))
    assert bool(lacking) is missing


def agent_of(node: str, *, acts: str = "", active: bool = True) -> Object:
    said = json.dumps({"agent": acts, "level": 4, "slots": {}})
    labels = {CONTROL_PLANE_ACTIVE: ""} if active else {}
    return {"metadata": {"name": node, "labels": labels, "annotations": {ANNOTATION: said}}}


DOES_NOT_ACT = ["the node agent of n1 does not act yet"]


@pytest.mark.parametrize(
    ("nodes", "pinned", "missing"),
    [
        ([agent_of("n1", acts="node-agent-n1")], False, []),
        ([agent_of("n1", acts="its standby")], False, DOES_NOT_ACT),
        ([agent_of("n1")], False, DOES_NOT_ACT),
        ([agent_of("n1", active=False), agent_of("n3")], False, []),
        ([agent_of("n1")], True, []),
        ([agent_of("n2"), agent_of("n1", acts="its standby")], True, DOES_NOT_ACT),
    ],
    ids=[
        "it acts",
        "its standby",
        "not replaced yet",
        "not a control node",
        "of a release that is kept",
        "nor does it",
    ],
)
async def test_agents_have_to_act_and_not_only_to_be_answered_for(make_context, nodes, pinned, missing):
    """Those of an earlier release do not say so: they are replaced, unless somebody has set their image."""
    context = make_context(a_cluster(controls=2, workers=1))
    workloads = rendered_workloads(context)
    live = deepcopy(next(obj for obj in workloads if obj["metadata"]["name"] == "node-agent"))
    if pinned:
        [container] = live["spec"]["template"]["spec"]["containers"]
        container["image"] = "registry.example/autarky-agent:former"
    context.kube().put(live)
    pod = a_pod("node-agent", "n1")
    own = {"uid": "node-agent-n1", "labels": {"k8s-app": "node-agent"}}
    context.kube().put({**pod, "metadata": {**pod["metadata"], **own}})
    assert await _agents_that_do_not_act(context, nodes, workloads) == missing


# --- workers that hold it up ----------------------------------------------------------------------------------------


def all_rolled_out(context: Context, kube: FakeKube, **lacking: int) -> None:
    """As with two nodes; lacking: workload → how many of its two pods do not come."""
    inputs = context.inputs()
    for part in (*parts(inputs), *agent_parts(inputs)):
        for obj in part.objects:
            if obj["kind"] in WORKLOADS:
                kube.put(with_pods(obj, 2 - lacking.get(obj["metadata"]["name"].replace("-", "_"), 0)))


@pytest.mark.parametrize("ready", [lambda: False, lambda: int(now()) % 7 == 0], ids=["never", "now and then"])
async def test_a_worker_that_joined_before_and_is_not_ready_is_left_out(make_context, notes, monkeypatch, ready):
    """Else it would keep everything that comes after from all others."""
    monkeypatch.setattr(patience, "ON_WORKERS", 8.0)
    kube = Spoken()
    kube.ready = ready
    context = make_context(CLUSTER, kube=kube)
    context.joined = {"n1", "n2"}
    all_rolled_out(context, kube)
    kube.pods = [a_pod(obj["metadata"]["name"], "n1") for obj in rendered_workloads(context)]
    await AwaitWorkloads().run(context, notes)
    assert "n2" in context.absent or ready()
    assert now() < SECONDS


@pytest.mark.parametrize(("joined", "lacks"), [({"n1"}, "n2"), ({"n1", "n2"}, "n1")], ids=["new", "control node"])
async def test_one_that_joins_now_is_waited_for_and_so_is_a_control_node(
    make_context, notes, monkeypatch, joined, lacks
):
    monkeypatch.setattr(patience, "ON_WORKERS", 8.0)
    kube = Spoken()
    context = make_context(CLUSTER, kube=kube)
    context.joined = joined
    all_rolled_out(context, kube)
    kube.lacking = lacks
    with pytest.raises(TimedOut, match=f"node {lacks} is not Ready"):
        await AwaitWorkloads().run(context, notes)
    assert context.absent == {}


@pytest.mark.parametrize(("node", "joined"), [("n2", {"n1", "n2"}), ("n2", {"n1"}), ("n1", {"n1", "n2"})])
async def test_so_is_one_that_calls_its_own_static_pods_not_ready(make_context, notes, monkeypatch, node, joined):
    """But not one that joins now, and no control node."""
    monkeypatch.setattr(patience, "ON_WORKERS", 8.0)
    kube = Spoken()
    context = make_context(CLUSTER, kube=kube)
    context.joined = joined
    all_rolled_out(context, kube)
    balancer = a_pod("x", node, ready=False)
    labels = {"k8s-app": "node-load-balancer"}
    balancer["metadata"] |= {"labels": labels, "annotations": {MIRROR: "x"}, "ownerReferences": []}
    everywhere = [a_pod(obj["metadata"]["name"], "n1") for obj in rendered_workloads(context)]
    on_n1 = [*everywhere, *([balancer] if node == "n1" else [])]
    kube.fields = {"spec.nodeName=n2": [balancer] if node == "n2" else [], "spec.nodeName=n1": on_n1, None: everywhere}
    if node in joined - {"n1"}:
        await AwaitWorkloads().run(context, notes)
        assert context.absent.keys() == {"n2"}
        assert 8.0 <= now() < SECONDS
    else:
        with pytest.raises(TimedOut, match=f"static pod node-load-balancer of {node} is not Ready"):
            await AwaitWorkloads().run(context, notes)


@pytest.mark.parametrize(("ready_on", "left_out"), [({"n1"}, True), (set(), False)])
async def test_so_is_one_that_takes_no_pod_of_dns_where_another_node_has_one(
    make_context, notes, monkeypatch, ready_on, left_out
):
    monkeypatch.setattr(patience, "ON_WORKERS", 8.0)
    kube = Spoken()
    context = make_context(CLUSTER, kube=kube)
    context.joined = {"n1", "n2"}
    all_rolled_out(context, kube)
    dns = await kube.get("apps/v1", "Deployment", "coredns", "kube-system")
    kube.put({**dns, "status": {**dns["status"], "readyReplicas": len(ready_on), "availableReplicas": len(ready_on)}})
    kube.sets = [{"metadata": {"uid": "s", "ownerReferences": [{"uid": dns["metadata"]["uid"]}]}}]
    own = [a_pod("coredns", node, ready=node in ready_on) for node in ("n1", "n2")]
    for pod in own:
        pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "s"}]
    kube.pods = own + [a_pod(obj["metadata"]["name"], "n1") for obj in rendered_workloads(context)]
    if left_out:
        await AwaitWorkloads().run(context, notes)
        assert notes.notes == ["n2 is left out: no pod of coredns became available there within 8 s"]
        assert 8.0 <= now() < SECONDS
    else:
        with pytest.raises(TimedOut, match="Deployment coredns has 0 of 2 pods available"):
            await AwaitWorkloads().run(context, notes)
        assert context.absent == {}


# --- a pod network that the user brings -----------------------------------------------------------------------------

NETWORKLESS = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message: cni plugin"


class Networkless(FakeKube):
    """Nodes that are not Ready, with that word of their kubelets; workloads are all as they should be, but CoreDNS."""

    said: str = NETWORKLESS

    async def list(self, api_version, kind, **options) -> list[Object]:
        condition = {"type": "Ready", "status": "False", "message": self.said}
        nodes = [{"metadata": {"name": name}, "status": {"conditions": [condition]}} for name in ("n1", "n2")]
        return nodes if kind == "Node" else []


def without_network(make_context, kube: FakeKube, cni: Cni) -> Context:
    cluster = replace(CLUSTER, network=replace(CLUSTER.network, cni=cni))
    context: Context = make_context(cluster, kube=kube)
    for obj in rendered_workloads(context):
        kube.put(with_pods(obj, 0 if obj["metadata"]["name"] == "coredns" else 2))
    return context


async def test_nodes_that_wait_for_the_users_pod_network_are_not_waited_for(make_context):
    context = without_network(make_context, Networkless(), Cni.NONE)
    assert await unavailable(context) is None


class OneIsReady(Networkless):
    async def list(self, api_version, kind, **options) -> list[Object]:
        found = await super().list(api_version, kind, **options)
        for node in found[:1]:
            node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        return found


async def test_one_node_that_says_it_waits_for_a_network_excuses_no_pods_but_its_own(make_context):
    context = without_network(make_context, OneIsReady(), Cni.NONE)
    waiting = await unavailable(context)
    assert waiting is not None
    assert "coredns" in waiting.sentence
    assert "n2" not in waiting.sentence


async def test_that_they_wait_for_it_is_told_in_a_plan_and_at_the_end(make_context, notes):
    context = without_network(make_context, Networkless(), Cni.NONE)
    [warning] = await AwaitWorkloads().plan(context)
    assert warning.sentence.startswith("not Ready: n1, n2. network.cni is none")
    await AwaitWorkloads().run(context, notes)
    assert warning.sentence in notes.notes


@pytest.mark.parametrize(
    ("cni", "said"), [(Cni.FLANNEL, NETWORKLESS), (Cni.NONE, "PLEG is not healthy"), (Cni.NONE, None)]
)
async def test_a_node_that_is_not_ready_otherwise_is_waited_for(make_context, cni, said):
    kube = Networkless()
    kube.said = said
    found = await unavailable(without_network(make_context, kube, cni))
    assert found is not None
    assert "node n1 is not Ready" in found.sentence
    assert "coredns" in found.sentence


# --- level 0 ------------------------------------------------------------------------------------------------


def hosted_uid(node: str) -> str:
    return f"0f3a-{node.removeprefix('n')}"


def with_reports(kube: FakeKube, cluster, about: Mapping[str, str], states: Mapping[str, State]) -> None:
    """about: of which node's pod, where it is not its own."""
    for node in cluster.nodes:
        said = Report(
            hosted_uid(about.get(node.name, node.name)),
            Version(1, 36, 4),
            states.get(node.name, State.IN_FORCE),
            "it has a pin",
        )
        meta = {"name": node.name, "annotations": {HOSTED: hosted_report.text(said)}}
        conditions = {"conditions": [{"type": "Ready", "status": "True"}]}
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": conditions})


REFUSED = State.REFUSED
ALL = dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), REFUSED)


@pytest.mark.parametrize(
    ("states", "without", "old", "about", "waited_for"),
    [
        ({}, "", 0, {}, False),
        ({}, "n2", 0, {}, True),
        ({"n2": REFUSED}, "n2", 0, {}, False),
        ({"n2": REFUSED}, "n2 n3", 0, {}, True),
        ({"n2": State.WAITING}, "n2", 0, {}, True),
        ({"n2": State.FAILED}, "n2", 0, {}, True),
        ({"n4": REFUSED}, "", 0, {}, False),
        ({"n4": REFUSED}, "n4", 0, {}, False),
        ({"n4": REFUSED}, "n4 n5", 0, {}, True),
        ({"n4": REFUSED}, "n2", 0, {}, True),
        ({"n4": REFUSED}, "n5", 0, {}, True),
        ({"n4": REFUSED}, "n5", 0, {"n4": "n5"}, True),
        ({"n2": REFUSED}, "n2", 0, {"n2": "n9"}, True),
        ({"n4": REFUSED}, "n4", 1, {}, True),
        (ALL, "n1 n2 n3 n4 n5", 0, {}, False),
    ],
)
async def test_hosted_kubelets_are_waited_for_but_where_they_may_not_be(
    make_context, states, without, old, about, waited_for
):
    """What one node says of its own pod excuses that pod where it is not Ready, and no other. old: how many pods are of
    another revision."""
    cluster = a_cluster(controls=3, workers=2, hosts_kubelet=True)
    context = make_context(cluster)
    kube = context.kube()
    with_reports(kube, cluster, about, states)
    for obj in rendered_workloads(context):
        is_kubelet, count = obj["metadata"]["name"] == "kubelet", len(cluster.nodes)
        lacking, former = (without.split(), old) if is_kubelet else ([], 0)
        status = {"observedGeneration": 1, "desiredNumberScheduled": count, "numberAvailable": count - len(lacking)}
        status |= {"updatedNumberScheduled": count - former, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 2}
        kube.put({**obj, "metadata": {**obj["metadata"], "generation": 1}, "status": status})
        if obj["kind"] == "DaemonSet":
            for node in cluster.nodes:
                pod = a_pod(obj["metadata"]["name"], node.name, ready=node.name not in lacking)
                pod["metadata"]["labels"] = {"k8s-app": obj["metadata"]["name"]}
                pod["metadata"]["uid"] = hosted_uid(node.name) if is_kubelet else pod["metadata"]["uid"]
                kube.put(pod)
    found = await unavailable(context)
    assert ("kubelet" in str(found)) == waited_for, found


async def test_what_a_worker_calls_a_pod_of_the_daemon_set_excuses_nothing(make_context):
    cluster = a_cluster(controls=1, workers=1, hosts_kubelet=True)
    context = make_context(cluster)
    with_reports(context.kube(), cluster, {"n2": "n9"}, {"n2": REFUSED})
    pod = a_pod("kubelet", "n2", ready=False)
    own = {**pod["metadata"], "uid": hosted_uid("n9"), "labels": {"k8s-app": "kubelet"}, "ownerReferences": []}
    context.kube().put({**pod, "metadata": own})
    nodes = await context.kube().list("v1", "Node")
    assert await _refusing(context, nodes) == set()
    context.kube().put({**pod, "metadata": {**own, "ownerReferences": pod["metadata"]["ownerReferences"]}})
    assert await _refusing(context, nodes) == {"n2"}
