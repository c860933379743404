"""Upgrades that are given up after kubelets have begun, and before they are complete, on a control node and two
workers, none of which is drained: what was ordered up goes down before the control plane does, by an order that says
so, and who had no order is left alone. While the last step has stopped, and while it is paused, no further node gets
one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from harness import TestCluster
from kubelets import ORDER, REPORT, kubelet_process, orders_given
from rollouts import PROXY, component, judged_after, patch_plane, quiet, ready, set_image, undisturbed
from skew import skew_is_kept
from upgrades import everything_is_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
NO_VERSION = "nonsense"
"""The tag of an image that is nowhere."""
CONTROL, SECOND, FIRST = EVERYBODY = ("n1", "w1", "w2")
"""The pool of w2 goes first, against the order of their names."""
OTHERS = (CONTROL, SECOND)
TURN = "example.org/turn"
NODES = [
    {"name": CONTROL, "host": "lab", "roles": ["control-plane", "worker"]},
    {"name": SECOND, "host": "lab", "roles": ["worker"], "labels": {TURN: "then"}},
    {"name": FIRST, "host": "lab", "roles": ["worker"], "labels": {TURN: "first"}},
]
POOLS = [
    {"name": "first", "nodes": {"matchLabels": {TURN: "first"}}, "order": 0, "drain": "Never"},
    {"name": "then", "nodes": {"matchLabels": {TURN: "then"}}, "order": 1, "drain": "Never"},
    {"name": "control-nodes", "nodes": {"controlPlane": True}, "order": 2, "drain": "Never"},
]
"""A node that is drained would wait until the control plane is complete."""
BEGIN_SECONDS = 300.0
"""From the edit: nodes report images that were pushed a moment ago up to a minute late, and the API server is watched
for 40 s."""
STOPS_SECONDS = 30.0
CHANGE_SECONDS = 120.0
"""Within which a node has another kubelet, proven."""
BACK_SECONDS = 300.0
STOPPED_SECONDS = 25.0
"""The next node would get its turn 10 s after the one before has ended."""
PAUSED_SECONDS = 15.0
"""It would get it at once. The control plane is complete 40 s after kube-proxy was Ready everywhere, paused or not."""
JUDGED_SECONDS = 600
"""kube-proxy goes back later than the test ends: by itself it would do so in the middle of it."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-upgrade-given-up", nodes=NODES, kubernetesVersion=FORMER.removeprefix("v"))
    cluster.up()
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=300)
    patch_plane(cluster, pools=POOLS)
    return cluster


# --- what is seen ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kubelet:
    """version: that its Node shows. order, report: what matters of the two annotations; empty where there is none."""

    version: str
    order: Mapping[str, Any]
    report: Mapping[str, Any]

    @property
    def number(self) -> int:
        """Of its last order, as `orders_given` has it."""
        return max(int(said.get("number", 0)) for said in (self.order, self.report))

    @property
    def is_under_way(self) -> bool:
        """Whether it has an order that has not ended."""
        ended = self.report.get("state", "") in ("", "Done", "WentBack", "Refused")
        return not ended or self.order.get("id", "") != self.report.get("order", "")

    def has(self, version: str) -> bool:
        """By its last order, proven."""
        said = (self.version, self.report.get("state"), self.report.get("version"))
        return said == (version, "Done", version) and not self.is_under_way


@dataclass(frozen=True)
class Look:
    """version: that the control plane has had completely last. upgrade: that part of its status, empty while there is
    none. waits: node → why its kubelet gets no order now."""

    version: str
    upgrade: Mapping[str, Any]
    waits: Mapping[str, str]
    kubelets: Mapping[str, Kubelet]

    @property
    def at(self) -> tuple[str, str]:
        """The state of the upgrade, and the component that it is at."""
        return str(self.upgrade.get("state", "")), str(self.upgrade.get("component", ""))

    @property
    def numbers(self) -> dict[str, int]:
        return {name: one.number for name, one in self.kubelets.items()}

    @property
    def under_way(self) -> set[str]:
        return {name for name, one in self.kubelets.items() if one.is_under_way}


def look(cluster: TestCluster) -> Look:
    """By one command, nodes first: what a kubelet has there it had before the rest was seen."""
    asked = [*(f"node/{name}" for name in EVERYBODY), "controlplane/cluster"]
    found = json.loads(cluster.kubectl("get", *asked, "-o", "json"))["items"]
    [status] = [one["status"] for one in found if one["kind"] == "ControlPlane"]
    waits = {one["node"]: one["why"] for one in status.get("kubelets", {}).get("waits", [])}
    kubelets = {one["metadata"]["name"]: _kubelet(one) for one in found if one["kind"] == "Node"}
    return Look(status["version"], status.get("upgrade", {}), waits, kubelets)


def _kubelet(node: dict[str, Any]) -> Kubelet:
    said = node["metadata"].get("annotations", {})
    order, report = (_in_short(json.loads(said.get(key, "{}"))) for key in (ORDER, REPORT))
    return Kubelet(node["status"]["nodeInfo"]["kubeletVersion"], order, report)


def _in_short(said: dict[str, Any]) -> dict[str, Any]:
    """Without what it is to run with, which is long."""
    return {key: said[key] for key in ("id", "order", "number", "version", "lowers", "state", "why") if key in said}


def until(cluster: TestCluster, what: str, holds: Callable[[Look], bool], *, seconds: float) -> Look:
    """The look in which that holds. Fails with the last one."""
    seen: list[Look] = []

    def holds_now() -> bool:
        seen[:] = [look(cluster)]
        return holds(seen[0])

    try:
        cluster.wait(what, holds_now, seconds=seconds, pause=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}; {seen}") from error
    return seen[0]


def left_alone(cluster: TestCluster, names: Collection[str]) -> dict[str, tuple[str, int]]:
    """Node → its kubelet's process, and how many orders it has had."""
    return {name: (kubelet_process(cluster, name), orders_given(cluster, name)) for name in names}


# --- up, and back ----------------------------------------------------------------------------------------


def goes_up(cluster: TestCluster, what: str, holds: Callable[[Look], bool]) -> Look:
    """The look in which that holds, while the control plane is not complete, and says that kubelets may follow. Until
    then one node at a time has its turn."""
    patch_plane(cluster, version=NEXT)

    def holds_early(seen: Look) -> bool:
        assert seen.version == FORMER, "the control plane is complete already"
        assert len(seen.under_way) <= 1, f"{seen.under_way} have their turn at once"
        return holds(seen)

    found = until(cluster, what, holds_early, seconds=BEGIN_SECONDS)
    assert found.upgrade.get("kubelets") == NEXT, found
    return found


def abort(cluster: TestCluster) -> None:
    """It fails where the upgrade is complete."""
    ended = cluster.autarky("upgrade", "abort", "--yes", "--cluster", cluster.name)
    assert f"the control plane goes back to {FORMER}" in ended.stdout, ended


def goes_back(cluster: TestCluster) -> list[str]:
    """Until nothing of the upgrade is left. The nodes whose kubelets went first."""
    first = until(
        cluster,
        "the control plane waits for kubelets",
        lambda seen: seen.at == ("Upgrading", "kubelet") and bool(seen.upgrade.get("nodes")),
        seconds=STOPS_SECONDS,
    )
    until(cluster, "it is given up", lambda seen: not seen.upgrade, seconds=BACK_SECONDS)
    return list(first.upgrade["nodes"])


def was_taken_back(cluster: TestCluster, name: str) -> None:
    """Its last order was for that, and is done."""
    one = look(cluster).kubelets[name]
    assert (one.order.get("version"), one.order.get("lowers")) == (FORMER, True), (name, one)
    assert one.has(FORMER), (name, one)


def has_stopped(seen: Look) -> None:
    """At the last step; what kubelets may have has been said already, and stays."""
    assert seen.at == ("Stopped", component(PROXY)), seen
    assert "which somebody has set" in seen.upgrade.get("message", ""), seen
    assert (seen.version, seen.upgrade.get("kubelets")) == (FORMER, NEXT), seen


# --- what is shown ---------------------------------------------------------------------------------------


def test_given_up_while_a_kubelet_changes_that_one_goes_back_before_the_control_plane(cluster: TestCluster) -> None:
    """No request fails. The second node would get its order 20 s and more after the first one was seen with its new
    kubelet: on a machine that is so slow that it has had it, it has to go back as well. The third one never has."""
    quiet(cluster)
    before = left_alone(cluster, EVERYBODY)
    with skew_is_kept(cluster), undisturbed(cluster):
        found = goes_up(cluster, f"{FIRST} shows {NEXT}", lambda seen: seen.kubelets[FIRST].version == NEXT)
        assert {found.kubelets[name].version for name in OTHERS} == {FORMER}, found
        abort(cluster)
        given = look(cluster)
        ordered = [name for name in (FIRST, SECOND, CONTROL) if given.numbers[name] > before[name][1]]
        assert ordered in ([FIRST], [FIRST, SECOND]), given
        waited_for = goes_back(cluster)
        assert FIRST in waited_for, (waited_for, given)
        assert set(waited_for) <= set(ordered), (waited_for, given)
    everything_is_of(cluster, FORMER, (CONTROL,), EVERYBODY)
    for name in ordered:
        was_taken_back(cluster, name)
    rest = [name for name in EVERYBODY if name not in ordered]
    assert left_alone(cluster, rest) == {name: before[name] for name in rest}


def test_no_kubelet_is_ordered_while_the_last_step_has_stopped_or_is_paused(cluster: TestCluster) -> None:
    """The order that had been given by then ends. Then the upgrade is given up."""
    quiet(cluster)
    before, others = look(cluster).numbers, left_alone(cluster, OTHERS)
    with skew_is_kept(cluster), judged_after(cluster, JUDGED_SECONDS):
        goes_up(cluster, f"{FIRST} is ordered", lambda seen: seen.kubelets[FIRST].order.get("version") == NEXT)
        set_image(cluster, PROXY, NO_VERSION)
        has_stopped(until(cluster, "it has stopped", lambda seen: seen.at[0] == "Stopped", seconds=STOPS_SECONDS))
        ended = until(cluster, f"{FIRST} ends", lambda seen: FIRST not in seen.under_way, seconds=CHANGE_SECONDS)
        assert ended.kubelets[FIRST].has(NEXT), ended
        time.sleep(STOPPED_SECONDS)
        stopped = look(cluster)
        has_stopped(stopped)
        given = {**before, FIRST: before[FIRST] + 1}
        assert stopped.numbers == given, (given, stopped)
        assert stopped.waits == dict.fromkeys(OTHERS, "the control plane comes first"), stopped

        paused = cluster.autarky("upgrade", "pause", "--cluster", cluster.name)
        assert "no further step is taken" in paused.stdout, paused
        set_image(cluster, PROXY, NEXT)
        until(
            cluster,
            "kube-proxy is Ready everywhere, and watched",
            lambda seen: seen.at == ("Upgrading", component(PROXY)) and ready(cluster, PROXY),
            seconds=CHANGE_SECONDS,
        )
        time.sleep(PAUSED_SECONDS)
        held = look(cluster)
        assert (held.at[0], held.version, held.upgrade.get("kubelets")) == ("Upgrading", FORMER, NEXT), held
        assert held.numbers == given, (given, held)
        assert held.waits == dict.fromkeys(OTHERS, "spec.paused is true"), held

        abort(cluster)
        assert goes_back(cluster) == [FIRST]
    everything_is_of(cluster, FORMER, (CONTROL,), EVERYBODY)
    was_taken_back(cluster, FIRST)
    assert left_alone(cluster, OTHERS) == others
