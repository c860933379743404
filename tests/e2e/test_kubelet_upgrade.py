"""A kubelet that follows the control plane through the API, there and back, and goes back by itself where it does not
work: one that exits, one that hangs, one whose Node is not Ready though it is healthy, one that refuses its arguments
or its configuration, one for which there is no room, or is none any more in the middle of its staging. So does a
container runtime; one that cannot be executed is not even switched to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from harness import TestCluster, one_node
from kubelets import (
    BACK_SECONDS,
    CURRENT,
    REFUSED,
    WENT_BACK,
    a_disk_that_fills_up_while_staging,
    bring_program,
    bring_runtime,
    is_ready,
    kubelet_of,
    kubelet_process,
    node,
    pin,
    report_of,
    says_by_an_event,
    staged,
    trial_began,
    uptime,
)
from level_0 import restarts
from rollouts import condition, patch_plane, undisturbed
from skew import skew_is_kept
from slots import events_by_name, settled
from survival import processes
from upgrades import everything_is_of, unchanged_containers, version_of
from workloads import a_workload_goes_on

from autarky.control.addons.flannel.manifests import CONFIGURATION as NETWORK

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.chain,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
WORKS, EXITS_AT_ONCE = "example.org/runtime:works", "example.org/runtime:exits"
NO_RUNC = "example.org/runtime:no-runc"
LIMIT_SECONDS = 240
"""For all that has an end by itself; who is to be faster is measured."""
EXITS, HANGS = "return 1;", "for (;;) pause();"
"""What a kubelet does that does not work."""
HAS_EXITED, NOT_STARTED, NOT_PROVEN = "the kubelet has exited", "it could not be started", "it was not proven in time: "
"""How the reason begins for which one went back."""
NOT_READY = "its Node is not Ready"
LARGE, LEAVES = 160 << 20, 96 << 20
"""Bytes of a kubelet, and of the room that is left when the disk fills up while it is staged. A new file of etcd's log
has room in that."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-kubelets", **one_node(kubernetesVersion=FORMER.removeprefix("v")))
    cluster.up()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    return cluster


def test_a_first_up_leaves_nothing_to_be_changed(cluster: TestCluster) -> None:
    """What it started the kubelet with is what the operator wants of it."""
    before = kubelet_process(cluster)
    cluster.wait("the node reports its kubelet", lambda: report_of(cluster).get("version") == FORMER, seconds=60)
    said = report_of(cluster)
    assert "order" not in said
    time.sleep(15)
    assert (report_of(cluster), kubelet_process(cluster)) == (said, before)


def test_the_kubelet_follows_the_control_plane_up_and_goes_before_it_down(cluster: TestCluster) -> None:
    before = unchanged_containers(cluster)
    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain", timeout=600)
        assert kubelet_of(cluster) == NEXT
    everything_is_of(cluster, NEXT)
    said = report_of(cluster)
    assert (said["state"], said["version"], said.get("former")) == ("Done", NEXT, FORMER), said
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)

    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        cluster.autarky("upgrade", "rollback", "--yes", "--cluster", cluster.name)
        cluster.wait("it is complete", lambda: version_of(cluster) == FORMER, seconds=420)
        assert kubelet_of(cluster) == FORMER
    everything_is_of(cluster, FORMER)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    assert unchanged_containers(cluster) == before


@contextmanager
def it_goes_back(cluster: TestCluster, *words: str, ends: Callable[[], object] | None = None) -> Iterator[None]:
    """The kubelet of what is asked for in the block, in time from when its trial began on the host; Node, event and
    operator say why, with these words; and no process of the control plane has ended. ends: what makes its Node Ready
    again where the former kubelet alone does not; it is done as soon as that one is in force."""
    before, program = processes(cluster), in_force(cluster)
    number, said_before = report_of(cluster).get("number", 0), events_by_name(cluster, WENT_BACK)
    yield
    began = trial_began(cluster)

    def is_back() -> bool:
        said = report_of(cluster)
        is_over = said.get("number", 0) > number and said.get("state") == "WentBack"
        return is_over and (ends is not None or is_ready(cluster))

    cluster.wait("it went back, and its Node is Ready", is_back, seconds=LIMIT_SECONDS)
    took = uptime() - began
    assert took <= BACK_SECONDS, f"the former kubelet was back and Ready {took:.0f} s after the trial began"
    if ends is not None:
        ends()
        cluster.wait("its Node is Ready", lambda: is_ready(cluster), seconds=60)
    why = reason(cluster, *words)
    assert in_force(cluster) == program
    assert kubelet_of(cluster) == FORMER
    assert processes(cluster) == before
    says_by_an_event(cluster, WENT_BACK, f"the kubelet is {FORMER} again: {why}", said_before)
    the_operator_knows(cluster, why)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)


def in_force(cluster: TestCluster) -> str:
    """The name of the generation."""
    return cluster.shell("n1", "readlink /var/lib/autarky/kubelet/current")


def reason(cluster: TestCluster, *words: str) -> str:
    """Why the last order did not succeed, as the node reports it."""
    said = report_of(cluster)
    assert all(word in said["why"] for word in words), f"not all of {words} are in {said}"
    return str(said["why"])


def the_operator_knows(cluster: TestCluster, why: str) -> None:
    def is_known() -> bool:
        found = condition(cluster, CURRENT)
        return found.get("status") == "False" and f"n1 failed: {why}" in found.get("message", "")

    cluster.wait(f"{CURRENT} is False, since n1 failed: {why}", is_known, seconds=30)


def it_has_what_is_wanted(cluster: TestCluster) -> None:
    """After it has failed, and what failed is not asked for any more."""
    is_current = "it has what is wanted"
    cluster.wait(is_current, lambda: condition(cluster, CURRENT).get("status") == "True", seconds=90)


def test_arguments_that_a_kubelet_refuses_go_back_and_say_why(cluster: TestCluster) -> None:
    with undisturbed(cluster), it_goes_back(cluster, HAS_EXITED):
        patch_plane(cluster, componentArguments={"kubelet": {"no-such-flag": "1"}})
    assert "no-such-flag" in cluster.shell("n1", "cat /var/lib/autarky/kubelet/last-words")
    patch_plane(cluster, componentArguments={"kubelet": None})
    it_has_what_is_wanted(cluster)


def settings(cluster: TestCluster, **wanted: object) -> None:
    """Asks for these in the kubelet's configuration."""
    patch_plane(
        cluster,
        pools=[{"name": "control-nodes", "nodes": {"controlPlane": True}, "kubelet": {"configuration": wanted}}],
    )


def room(cluster: TestCluster) -> str:
    """For so many pods, as its Node says."""
    return str(node(cluster)["status"]["capacity"]["pods"])


def own_settings(cluster: TestCluster) -> None:
    """Nobody asks for others any more."""
    patch_plane(cluster, pools=None)
    cluster.wait("it has 110 again", lambda: room(cluster) == "110", seconds=120)
    it_has_what_is_wanted(cluster)


def test_a_configuration_that_a_kubelet_refuses_goes_back_and_another_one_is_taken(cluster: TestCluster) -> None:
    with undisturbed(cluster), it_goes_back(cluster, HAS_EXITED):
        settings(cluster, maxPods="none")
    with undisturbed(cluster):
        settings(cluster, maxPods=77)
        cluster.wait("it has them", lambda: report_of(cluster).get("state") == "Done", seconds=120)
    assert room(cluster) == "77"
    own_settings(cluster)


def test_a_healthy_kubelet_whose_node_is_not_ready_goes_back_and_is_taken_when_it_is_asked_for_again(
    cluster: TestCluster,
) -> None:
    """During its trial pods get no network any more: it runs, beats, and says itself that its Node is not Ready."""
    put_back = f"[ ! -e {NETWORK}.away ] || mv {NETWORK}.away {NETWORK}"
    try:
        with (
            undisturbed(cluster),
            it_goes_back(cluster, NOT_PROVEN + NOT_READY, ends=lambda: cluster.shell("n1", put_back)),
        ):
            settings(cluster, maxPods=78)
            trial_began(cluster)
            cluster.shell("n1", f"mv {NETWORK} {NETWORK}.away")
    finally:
        cluster.shell("n1", put_back)
    assert report_of(cluster)["why"] == NOT_PROVEN + NOT_READY, "it was well but for that"
    assert room(cluster) == "110"
    number = report_of(cluster)["number"]

    def is_taken() -> bool:
        said = report_of(cluster)
        return said.get("number", 0) > number and said.get("state") == "Done"

    with undisturbed(cluster):
        patch_plane(cluster, kubelets={"asked": "there-is-a-network-again"})
        cluster.wait("the same is proven", is_taken, seconds=120)
    assert room(cluster) == "78"
    own_settings(cluster)


def test_another_container_runtime_is_taken_and_one_that_does_not_work_goes_back(cluster: TestCluster) -> None:
    """Of the release, and the same with bytes behind them: the node's own ones are not in an image."""
    before = processes(cluster)
    bring_runtime(cluster, WORKS, {})
    with undisturbed(cluster):
        patch_plane(cluster, kubelets={"runtime": WORKS})
        cluster.wait("it has them", lambda: report_of(cluster).get("runtime") == WORKS, seconds=90)
        cluster.wait("it is proven", lambda: report_of(cluster).get("state") == "Done", seconds=90)
    assert processes(cluster) == before
    program = containerd_program(cluster)
    assert program == cluster.shell("n1", "readlink -f /var/lib/autarky/kubelet/current/containerd")

    bring_runtime(cluster, EXITS_AT_ONCE, {"containerd": EXITS})
    with it_goes_back(cluster, NOT_STARTED):
        patch_plane(cluster, kubelets={"runtime": EXITS_AT_ONCE})
    assert containerd_program(cluster) == program
    patch_plane(cluster, kubelets={"runtime": None})
    it_has_what_is_wanted(cluster)
    assert processes(cluster) == before


def containerd_program(cluster: TestCluster) -> str:
    """That runs."""
    return cluster.shell("n1", "readlink /proc/$(systemctl show containerd --property=MainPID --value)/exe")


@pytest.mark.parametrize(
    ("version", "does", "words"),
    [
        ("v1.36.90", EXITS, (HAS_EXITED,)),
        (
            "v1.36.91",
            HANGS,
            (NOT_PROVEN, "it does not report that it is healthy", f"its Node shows {FORMER}, not v1.36.91"),
        ),
    ],
    ids=["exits", "hangs"],
)
def test_a_kubelet_that_does_not_work_goes_back(
    cluster: TestCluster, version: str, does: str, words: tuple[str, ...]
) -> None:
    bring_program(cluster, version, does)
    with undisturbed(cluster), it_goes_back(cluster, *words):
        pin(cluster, version)
    pin(cluster, None)
    it_has_what_is_wanted(cluster)


@contextmanager
def it_is_refused(cluster: TestCluster, *words: str) -> Iterator[None]:
    """What is asked for in the block, before its end; Node, event and operator say why, with these words. Nothing that
    runs has changed, and nothing of what was asked for is on the disk."""
    before, program = (processes(cluster), kubelet_process(cluster)), in_force(cluster)
    number, said_before, there = report_of(cluster).get("number", 0), events_by_name(cluster, REFUSED), staged(cluster)
    yield
    assert report_of(cluster).get("number", 0) > number, report_of(cluster)
    why = reason(cluster, *words)
    assert (processes(cluster), kubelet_process(cluster)) == before
    assert in_force(cluster) == program
    left = staged(cluster) - there
    assert not left, f"of what was refused is left: {sorted(left)}"
    assert is_ready(cluster)
    assert kubelet_of(cluster) == FORMER
    says_by_an_event(cluster, REFUSED, f"the kubelet stays {FORMER}: {why}", said_before)
    the_operator_knows(cluster, why)


def ends_refused(cluster: TestCluster, ask: Callable[[], None]) -> None:
    """The order for what is asked for."""
    number = report_of(cluster).get("number", 0)

    def is_over() -> bool:
        said = report_of(cluster)
        return said.get("number", 0) > number and said.get("state") in ("Refused", "WentBack", "Done")

    ask()
    cluster.wait("the order has ended", is_over, seconds=90)
    assert report_of(cluster)["state"] == "Refused", report_of(cluster)


def test_a_container_runtime_that_cannot_be_executed_is_refused_before_anything_is_switched(
    cluster: TestCluster,
) -> None:
    """Where containerd were restarted with it, no container could be started any more. The host itself tries it: the
    agent cannot, whose libraries are others."""
    bring_runtime(cluster, NO_RUNC, {"runc": None})
    service = "systemctl show containerd --property=MainPID,ExecMainStartTimestampMonotonic"
    before, there = (cluster.shell("n1", service), restarts(cluster)), staged(cluster)
    try:
        with undisturbed(cluster), it_is_refused(cluster, "its runc cannot say its version"):
            ends_refused(cluster, lambda: patch_plane(cluster, kubelets={"runtime": NO_RUNC}))
            assert (cluster.shell("n1", service), restarts(cluster)) == before
            cluster.wait("nothing of it stays on the disk", lambda: staged(cluster) <= there, seconds=60)
    finally:
        patch_plane(cluster, kubelets={"runtime": None})
    it_has_what_is_wanted(cluster)
    assert (cluster.shell("n1", service), restarts(cluster)) == before


def test_without_room_on_the_disk_nothing_is_changed(cluster: TestCluster) -> None:
    """It is seen before anything is written."""
    bring_program(cluster, "v1.36.92", EXITS)
    try:
        with it_is_refused(cluster, "the disk is full: ", "256 MiB are to stay free"):
            cluster.shell(
                "n1",
                "fallocate -l $(($(df --output=avail -B1 /var/lib/autarky | tail -1) - (200 << 20)))"
                " /var/lib/autarky/full",
            )
            ends_refused(cluster, lambda: pin(cluster, "v1.36.92"))
    finally:
        cluster.shell("n1", "rm -f /var/lib/autarky/full")
        pin(cluster, None)
    it_has_what_is_wanted(cluster)


def test_of_a_kubelet_for_which_the_disk_becomes_full_nothing_is_left(cluster: TestCluster) -> None:
    """There was room for it, and a write of it fails."""
    bring_program(cluster, "v1.36.93", EXITS, more=LARGE)
    try:
        with it_is_refused(cluster, "the disk is full: "):
            with a_disk_that_fills_up_while_staging(cluster, LEAVES) as seen:
                ends_refused(cluster, lambda: pin(cluster, "v1.36.93"))
            assert seen, "the disk was not filled"
            assert seen[0] < LARGE - LEAVES, f"{seen[0]} bytes were there already"
    finally:
        pin(cluster, None)
    it_has_what_is_wanted(cluster)
