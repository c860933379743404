"""Kubelets that follow an upgrade pool by pool, on a control node and two workers, drained as by default for a minor:
each worker is emptied before its kubelet changes, one at a time; a budget keeps its node as it is, and nobody else; and
what a pause, an abort and a rollback do in the middle.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness import AGNHOST, Ended, TestCluster
from kubelets import CURRENT, ORDER, REPORT, kubelet_process
from rollouts import API, condition, generation, patch_plane, quiet, undisturbed
from skew import LONGEST_GAP, LOOK_SECONDS, skew_is_kept
from slots import happened
from upgrades import everything_is_of, state_of, version_of
from watching import silences, too_long

from autarky.errors import AutarkyError
from autarky.kube import KubeClient

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
CONTROL, WORKERS = "n1", ("w1", "w2")
TURN = "example.org/turn"
NODES = [
    {"name": CONTROL, "host": "lab", "roles": ["control-plane", "worker"]},
    {"name": "w1", "host": "lab", "roles": ["worker"], "labels": {TURN: "then"}},
    {"name": "w2", "host": "lab", "roles": ["worker"], "labels": {TURN: "first"}},
]
"""The pool of w2 goes first, against the order of their names."""
POOLS = [
    {"name": "first", "nodes": {"matchLabels": {TURN: "first"}}, "order": 0},
    {"name": "then", "nodes": {"matchLabels": {TURN: "then"}}, "order": 1},
    {"name": "control-nodes", "nodes": {"controlPlane": True}, "order": 2, "drainSeconds": 10},
]
CORDONED = "autarky.dev/kubelet-cordoned"
REPLICAS = 4
SHORT_DRAIN = 20
"""Seconds."""
PAUSE_SECONDS = 20
"""The next worker gets its turn when the one before has been Ready for 10 s."""
CHANGE_SECONDS = 150.0
"""Within which a node is drained and has another kubelet, proven."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-kubelet-pools", nodes=NODES, kubernetesVersion=FORMER.removeprefix("v"))
    cluster.up()
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=300)
    return cluster


def upgrade(cluster: TestCluster, *argv: str, check: bool = True) -> Ended:
    return cluster.autarky("upgrade", *argv, "--cluster", cluster.name, check=check, timeout=450)


def told_of_kubelets(cluster: TestCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(upgrade(cluster, "status", "-o", "json").stdout)["kubelets"]
    return found


# --- what is seen of the nodes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sight:
    """A node at one moment. order: the id of the one that it has; cordoned: of the one that it is cordoned for. report:
    of its kubelet. pods: names of those of the tests that are on it, also of those that are about to end."""

    kubelet: str
    unschedulable: bool
    cordoned: str
    order: str
    report: Mapping[str, Any]
    pods: frozenset[str]

    @property
    def state(self) -> str:
        return str(self.report.get("state", ""))

    @property
    def is_under_way(self) -> bool:
        """Whether it has its turn, by an order that has not ended."""
        return self.order != self.report.get("order", "") or self.state not in ("", "Done", "WentBack", "Refused")

    @property
    def takes_pods(self) -> bool:
        return not self.unschedulable and not self.cordoned

    def has(self, version: str) -> bool:
        """Proven, and its node takes pods again."""
        said = (self.state, self.report.get("version"), self.kubelet)
        return said == ("Done", version, version) and not self.is_under_way and self.takes_pods


@dataclass
class Watch:
    """All nodes, once in each second in which the API answers, with the time, in Unix seconds."""

    began: float
    looks: list[tuple[float, dict[str, Sight]]] = field(default_factory=list)

    def now(self, name: str) -> Sight:
        return self.looks[-1][1][name]

    def under_way(self) -> set[str]:
        """The workers that have their turn now."""
        return {name for name in WORKERS if self.now(name).is_under_way}

    def shown(self, name: str, version: str) -> float:
        """When its Node was first seen with that kubelet."""
        found = next((at for at, sights in self.looks if sights[name].kubelet == version), None)
        assert found is not None, f"{name} never had {version}: {self.story(name)}"
        return found

    def story(self, name: str) -> list[str]:
        """What has become of it, each change with the second of the watch."""
        said: list[str] = []
        for at, sights in self.looks:
            one = sights[name]
            cordon = "takes pods" if one.takes_pods else f"cordoned {one.unschedulable} for {one.cordoned!r}"
            line = f"{one.kubelet} {one.state} of {one.order}, {cordon}, {len(one.pods)} pods, {one.report.get('why')}"
            if not said or not said[-1].endswith(f": {line}"):
                said.append(f"{at - self.began:.0f} s: {line}")
        return said

    def stories(self) -> str:
        return "\n".join(f"{name}: {line}" for name in (CONTROL, *WORKERS) for line in self.story(name))

    def one_worker_was_cordoned_at_a_time(self) -> None:
        """And each was, at some time."""
        cordoned = [{name for name in WORKERS if sights[name].unschedulable} for _, sights in self.looks]
        assert set(WORKERS) not in cordoned, f"both workers were cordoned at once:\n{self.stories()}"
        assert all({name} in cordoned for name in WORKERS), f"not each was cordoned:\n{self.stories()}"

    def was_emptied_first(self, name: str) -> None:
        """While its kubelet was switched and proven nothing was left of what a drain moves, all of which was on the
        other worker."""
        [other] = set(WORKERS) - {name}
        during = [sights for _, sights in self.looks if sights[name].state in ("Switching", "Proving")]
        assert len(during) >= 3, f"{name} was hardly seen to change: {self.story(name)}"
        wrong = [sights[name] for sights in during if sights[name].pods or sights[name].takes_pods]
        assert not wrong, f"{name} changed with pods, or with room for them: {wrong[:2]}; {self.story(name)}"
        assert any(len(sights[other].pods) == REPLICAS for sights in during), self.stories()


@contextmanager
def watched(cluster: TestCluster) -> Iterator[Watch]:
    """In each second of the block, by one client that stays connected: a kubectl for each look would take a processor
    from what is watched."""
    watch, over = Watch(began=time.time()), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_look(cluster, watch, over)), name="nodes")
    thread.start()
    try:
        cluster.wait("the nodes are seen", lambda: watch.looks)
        yield watch
    except AssertionError as error:
        raise AssertionError(f"{error}\n{watch.stories()}") from error
    finally:
        over.set()
        thread.join()
    gaps = too_long(silences([watch.began, *(at for at, _ in watch.looks)], time.time()), LONGEST_GAP)
    assert gaps == [], f"nobody looked for so many seconds: {gaps}"


async def _look(cluster: TestCluster, watch: Watch, over: threading.Event) -> None:
    kube = KubeClient.from_kubeconfig(cluster.directory / "kubeconfig")
    try:
        while not over.is_set():
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    # In this order: what a node had before its kubelet was switched is gone in all that is seen later.
                    nodes = await kube.list("v1", "Node")
                    pods = await kube.list("v1", "Pod", namespace="default", labels="app")
                sights = {node["metadata"]["name"]: _sight(node, pods) for node in nodes}
                watch.looks.append((time.time(), sights))
            except (AutarkyError, TimeoutError):
                pass  # no answer
            await asyncio.sleep(1)
    finally:
        await kube.close()


def _sight(node: dict[str, Any], pods: list[dict[str, Any]]) -> Sight:
    name, said = node["metadata"]["name"], node["metadata"].get("annotations", {})
    return Sight(
        node["status"]["nodeInfo"]["kubeletVersion"],
        node["spec"].get("unschedulable", False),
        said.get(CORDONED, ""),
        json.loads(said.get(ORDER, "{}")).get("id", ""),
        json.loads(said.get(REPORT, "{}")),
        frozenset(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == name),
    )


# --- what runs there -------------------------------------------------------------------------------------


@contextmanager
def a_workload(cluster: TestCluster, name: str, *, node: str | None = None, budget: bool = False) -> Iterator[None]:
    """On the workers, with pods on each; with a node, one pod there. budget: one that allows nothing."""
    documents = [_deployment(name, node), *([_budget(name)] if budget else [])]
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    try:
        cluster.kubectl("rollout", "status", f"deploy/{name}", "--timeout=90s")
        if budget:
            wanted = f"0 {REPLICAS if node is None else 1}"
            seen = ("get", "pdb", name, "-o", "jsonpath={.status.disruptionsAllowed} {.status.expectedPods}")
            cluster.wait("the budget counts its pods", lambda: cluster.kubectl(*seen) == wanted)
        on = {at for at, _ in pods_of(cluster, name).values()}
        assert on == (set(WORKERS) if node is None else {node}), on
        yield
    finally:
        delete_budget(cluster, name)
        cluster.kubectl("delete", "deployment", name, "--ignore-not-found", "--cascade=foreground")


def delete_budget(cluster: TestCluster, name: str) -> None:
    cluster.kubectl("delete", "pdb", name, "--ignore-not-found")


def _deployment(name: str, node: str | None) -> dict[str, Any]:
    labels = {"app": name}
    selector = {"matchLabels": labels}
    where: dict[str, Any] = {"key": TURN, "operator": "Exists"}
    if node is not None:
        where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
    }
    container = {"name": "idle", "image": AGNHOST, "command": ["/usr/local/bin/agnhost", "pause"]}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "topologySpreadConstraints": [spread],
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": REPLICAS if node is None else 1,
            "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _budget(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}},
    }


def pods_of(cluster: TestCluster, name: str) -> dict[str, tuple[str, int]]:
    """Pod → its node, restarts."""
    found = json.loads(cluster.kubectl("get", "pods", "-l", f"app={name}", "-o", "json"))["items"]
    return {pod["metadata"]["name"]: (pod["spec"].get("nodeName", ""), _restarts(pod)) for pod in found}


def _restarts(pod: dict[str, Any]) -> int:
    return sum(int(one["restartCount"]) for one in pod["status"].get("containerStatuses", []))


# --- what is shown ---------------------------------------------------------------------------------------


def test_an_upgrade_empties_one_worker_after_the_other_in_the_order_of_their_pools(cluster: TestCluster) -> None:
    """A budget that allows nothing is named before anything starts, and refuses nothing. Its pod is on the control
    node, which goes on without it."""
    quiet(cluster)
    patch_plane(cluster, pools=POOLS)
    with a_workload(cluster, "kept", node=CONTROL, budget=True), a_workload(cluster, "moves"):
        checked = upgrade(cluster, "check", NEXT, "-o", "plain")
        named = "allow no disruption now: default/kept"
        pools = "kubelets of pools control-nodes, first, then, workers are drained for it"
        assert all(words in checked.stdout + checked.stderr for words in (named, pools)), checked
        assert state_of(cluster) == "", "the check has begun something"

        kept, before = pods_of(cluster, "kept"), pods_of(cluster, "moves")
        with skew_is_kept(cluster), undisturbed(cluster), watched(cluster) as watch:
            began = upgrade(cluster, NEXT, "-o", "plain")
            assert named in began.stdout + began.stderr, began
            takes_pods_again(cluster, watch)
        cluster.kubectl("rollout", "status", "deploy/moves", "--timeout=60s")
        after = pods_of(cluster, "moves")
        assert pods_of(cluster, "kept") == kept, "its budget allowed nothing"
    assert len(after) == REPLICAS
    assert not before.keys() & after.keys(), f"these were not evicted: {before.keys() & after.keys()}"
    everything_is_of(cluster, NEXT, (CONTROL,), (CONTROL, *WORKERS))
    watch.one_worker_was_cordoned_at_a_time()
    for name in WORKERS:
        watch.was_emptied_first(name)
    times = {name: watch.shown(name, NEXT) - watch.began for name in (CONTROL, *WORKERS)}
    assert times["w2"] < times["w1"] < times[CONTROL], f"{times}\n{watch.stories()}"


def takes_pods_again(cluster: TestCluster, watch: Watch) -> None:
    everybody = (CONTROL, *WORKERS)
    cluster.wait("all nodes take pods", lambda: all(watch.now(name).takes_pods for name in everybody), seconds=30)


def test_a_budget_keeps_the_kubelet_of_its_node_and_no_other_until_it_is_gone(cluster: TestCluster) -> None:
    """Another version for all workers, by their pool."""
    with a_workload(cluster, "kept", node="w1", budget=True), undisturbed(cluster), watched(cluster) as watch:
        before = pods_of(cluster, "kept")
        patch_plane(cluster, pools=[{"name": "workers", "version": FORMER, "drainSeconds": SHORT_DRAIN}])
        cluster.wait("it is refused", lambda: watch.now("w1").state == "Refused", seconds=SHORT_DRAIN + 90)
        why = str(watch.now("w1").report["why"])
        words = (f"was not drained within {SHORT_DRAIN} s", f"default/{next(iter(before))}", "disruption budget")
        assert all(word in why for word in words), why
        cluster.wait("the other worker has it", lambda: watch.now("w2").has(FORMER), seconds=CHANGE_SECONDS)
        takes_pods_again(cluster, watch)
        assert {name: watch.now(name).kubelet for name in ("w1", CONTROL)} == {"w1": NEXT, CONTROL: NEXT}
        assert pods_of(cluster, "kept") == before
        failed = told_of_kubelets(cluster).get("failed", [])
        assert failed == [{"node": "w1", "why": why}], failed
        assert condition(cluster, CURRENT).get("status") == "False", condition(cluster, CURRENT)
        event = f"the kubelet stays {NEXT}: the node was not drained within {SHORT_DRAIN} s"
        cluster.wait("an event says so", lambda: event in happened(cluster, "KubeletRefused"), seconds=30)

        delete_budget(cluster, "kept")
        patch_plane(cluster, kubelets={"asked": "again"})
        cluster.wait("it has it as well", lambda: watch.now("w1").has(FORMER), seconds=CHANGE_SECONDS)
        cluster.kubectl("rollout", "status", "deploy/kept", "--timeout=60s")
        assert not before.keys() & pods_of(cluster, "kept").keys(), "it was not evicted"
    cluster.wait("all is as wanted", lambda: condition(cluster, CURRENT).get("status") == "True", seconds=30)


def test_a_pause_holds_up_the_next_worker_until_it_is_over(cluster: TestCluster) -> None:
    """The one that has begun ends. The upgrade itself is complete by then, so that there is none to be aborted."""
    with undisturbed(cluster), watched(cluster) as watch:
        assert {watch.now(name).kubelet for name in WORKERS} == {FORMER}
        patch_plane(cluster, pools=None)
        cluster.wait("one has its turn", watch.under_way, seconds=60)
        [first] = watch.under_way()
        [other] = set(WORKERS) - {first}
        assert "no further step is taken" in upgrade(cluster, "pause").stdout
        before = watch.now(other)
        assert (before.kubelet, before.is_under_way) == (FORMER, False), "its turn had come before the pause"
        cluster.wait(f"{first} ends", lambda: watch.now(first).has(NEXT), seconds=CHANGE_SECONDS)
        time.sleep(PAUSE_SECONDS)
        assert watch.now(other) == before, f"{other} was not held up"
        waits = told_of_kubelets(cluster).get("waits", [])
        assert waits == [{"node": other, "why": "spec.paused is true"}], waits
        refused = upgrade(cluster, "abort", "--yes", check=False)
        assert refused.status == 2, refused
        assert all(words in refused.stderr for words in ("no upgrade is under way", "upgrade rollback")), refused

        assert "upgrades go on" in upgrade(cluster, "resume").stdout
        cluster.wait(f"{other} has it", lambda: watch.now(other).has(NEXT), seconds=CHANGE_SECONDS)
        watch.one_worker_was_cordoned_at_a_time()
    cluster.wait("all is as wanted", lambda: condition(cluster, CURRENT).get("status") == "True", seconds=30)


def test_a_rollback_that_is_aborted_while_kubelets_go_down_has_them_all_come_back(cluster: TestCluster) -> None:
    """One has gone down, a worker is being drained, and a budget does not let its pods go; the other one waits. The
    control plane, for which they go first, has not taken a step."""
    everybody = (CONTROL, *WORKERS)
    with a_workload(cluster, "kept", budget=True):
        kept, api = pods_of(cluster, "kept"), generation(cluster, API)
        processes = {name: kubelet_process(cluster, name) for name in WORKERS}
        with undisturbed(cluster), watched(cluster) as watch:
            said = upgrade(cluster, "rollback", "--yes").stdout
            assert "kubelets go back first" in said, said
            cluster.wait("kubelets go first", lambda: state_of(cluster) == "Upgrading kubelet", seconds=90)
            cluster.wait("the control node is down", lambda: watch.now(CONTROL).has(FORMER), seconds=CHANGE_SECONDS)
            assert sorted(watch.now(name).state for name in WORKERS) == ["Done", "Draining"], watch.stories()
            [held] = watch.under_way()
            assert "disruption budget" in str(watch.now(held).report.get("why")), watch.now(held)
            said = upgrade(cluster, "abort", "--yes").stdout
            assert f"the control plane goes back to {NEXT}" in said, said
            cluster.wait("nothing is under way", lambda: state_of(cluster) == "", seconds=90)
            cluster.wait(
                "all have the kubelet from before",
                lambda: all(watch.now(name).has(NEXT) for name in everybody),
                seconds=2 * CHANGE_SECONDS,
            )
            assert all({sights[name].kubelet for _, sights in watch.looks} == {NEXT} for name in WORKERS)
        assert (version_of(cluster), generation(cluster, API)) == (NEXT, api)
        assert pods_of(cluster, "kept") == kept
        assert {name: kubelet_process(cluster, name) for name in WORKERS} == processes
    everything_is_of(cluster, NEXT, (CONTROL,), everybody)
    cluster.wait("all is as wanted", lambda: condition(cluster, CURRENT).get("status") == "True", seconds=30)
