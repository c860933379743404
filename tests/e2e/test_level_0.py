"""Level 0: the kubelet as a DaemonSet, with the host's as its standby, on one node that hosts everything (0-4)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection

import pytest
from harness import TestCluster
from kubelets import kubelet_of, report_of
from level_0 import (
    DAEMON_SET,
    LOCK,
    Looks,
    a_hosted_kubelet,
    comes_into_force,
    follows,
    host_pid,
    hosted_pid,
    hosted_report,
    in_force,
    is_hosted,
    nodes_stay_ready,
    nothing_is_felt,
    set_kubelet,
    watched,
)
from rollouts import HOSTED, condition, last_good, patch_plane, undisturbed
from slots import SYSTEM, events_by_name, standbys
from survival import processes
from workloads import a_workload_goes_on

from autarky.control.kubelet.manifests.hosted import HUNG_SECONDS, LOOK_SECONDS, STALE_SECONDS
from autarky.model.components import API_SERVER, WITH_STANDBY

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
MOVE_SECONDS = 10.0
"""The most between two looks at the Nodes while servers start beside each other."""
STOPPED_SECONDS = STALE_SECONDS + 25.0
"""Long enough for the agent to take a supervisor for one that has ended."""
LATE_SECONDS = 5.0
"""By which the Node may say it later."""
LATER_SECONDS = 15.0
"""By which a kubelet that does not answer may be ended later than its limit: a look at it takes 5 s then, and there
are pauses between two. 8 s were measured."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    return a_hosted_kubelet(make_cluster, "t-level-0", NEXT)


def test_the_hosted_kubelet_is_in_force_and_the_host_s_waits(cluster: TestCluster) -> None:
    assert in_force(cluster) == "hosted"
    rows = [row for row in cluster.status()["rows"] if row["component"] == "kubelet"]
    assert [row["slot"] for row in rows] == ["hosted"], rows
    assert "up: unchanged" in cluster.up().stderr
    assert is_hosted(cluster, NEXT)
    found = cluster.autarky("doctor", "--cluster", cluster.name, check=False)
    assert found.status == 0, found.stdout


def test_another_version_comes_by_kubectl_set_image_and_nothing_is_felt(cluster: TestCluster) -> None:
    cluster.wait("the first one is good", lambda: last_good(cluster, DAEMON_SET), seconds=150)
    cluster.autarky("payload", "push", FORMER, "--cluster", cluster.name, timeout=300)
    follows(cluster, False)
    for version in (FORMER, NEXT):
        with a_workload_goes_on(cluster, least=20), nothing_is_felt(cluster):
            set_kubelet(cluster, version)
            comes_into_force(cluster, version)
    follows(cluster, True)
    assert report_of(cluster)["version"] == NEXT, "the host's is its own"


@pytest.mark.parametrize(
    ("slot", "signal"),
    [("hosted", "KILL"), ("hosted", "STOP"), ("host", "KILL"), ("host", "STOP"), ("supervisor", "KILL")],
)
def test_a_kubelet_that_is_killed_or_stopped_is_felt_nowhere(cluster: TestCluster, slot: str, signal: str) -> None:
    comes_into_force(cluster, NEXT)
    pids = {"hosted": hosted_pid(cluster), "host": host_pid(cluster), "supervisor": _supervisor(cluster)}
    hung = HUNG_SECONDS if (slot, signal) == ("hosted", "STOP") else LOOK_SECONDS
    with nothing_is_felt(cluster):
        began = time.monotonic()
        cluster.shell("n1", f"kill -{signal} {pids[slot]}")
        cluster.wait("it has ended", lambda: not _lives(cluster, pids[slot]), seconds=60)
        took = time.monotonic() - began
        assert took <= hung + LATER_SECONDS, f"it has ended {took:.0f} s after SIG{signal}"
        time.sleep(8)
        comes_into_force(cluster, NEXT)


def test_as_long_as_it_is_in_force_nobody_says_that_it_gave_way_though_its_supervisor_is_stopped(
    cluster: TestCluster,
) -> None:
    """A stopped supervisor writes no sign of life. Its kubelet runs on, or is ended; the Node says what it is."""
    comes_into_force(cluster, NEXT)
    kubelet, supervisor = hosted_pid(cluster), _supervisor(cluster)
    gave_way, says, seen = events_by_name(cluster, "KubeletGaveWay"), Looks(), list[tuple[str, object]]()

    def look() -> None:
        whose, said = in_force(cluster), hosted_report(cluster)
        if in_force(cluster) == whose:
            seen.append((whose, said.get("state", "nothing")))
            says.saw(whose != "hosted" or said.get("state") in ("InForce", "Proving"))

    with nothing_is_felt(cluster):
        cluster.shell("n1", f"kill -STOP {supervisor}")
        try:
            with watched("what the Node says", look, pause=0.5, most=5.0):
                time.sleep(STOPPED_SECONDS)
            others = {
                name: one for name, one in events_by_name(cluster, "KubeletGaveWay").items() if name not in gave_way
            }
            is_same = hosted_pid(cluster) == kubelet
        finally:
            cluster.shell("n1", f"kill -CONT {supervisor} 2>/dev/null || true")
        comes_into_force(cluster, NEXT)
    assert says.longest <= LATE_SECONDS, f"for {says.longest:.0f} s the Node did not say what is in force: {seen}"
    assert not (is_same and others), f"{others}, but it was in force all the time: {seen}"


def _supervisor(cluster: TestCluster) -> str:
    """The process id of that of the pod's kubelet."""
    return cluster.shell("n1", f"ps -o ppid= -p {hosted_pid(cluster)}").strip()


def _lives(cluster: TestCluster, pid: str) -> bool:
    return cluster.shell("n1", f"[ -e /proc/{pid} ] && echo yes || echo no").strip() == "yes"


def test_the_lock_can_be_neither_removed_nor_replaced(cluster: TestCluster) -> None:
    before = _inode(cluster)
    with nothing_is_felt(cluster):
        for harm in (f"rm -f {LOCK}", f"echo >/run/other; mv -f /run/other {LOCK}", f"cat {LOCK}"):
            cluster.shell("n1", f"{{ {harm}; }} 2>/dev/null || true")
        assert _inode(cluster) == before
        time.sleep(5)
        assert is_hosted(cluster, NEXT)
    with nothing_is_felt(cluster):
        cluster.shell("n1", f"umount -l {LOCK} && rm -f {LOCK}")
        cluster.wait("there is another one", lambda: _inode(cluster) not in ("", before), seconds=30)
        comes_into_force(cluster, NEXT)


def _inode(cluster: TestCluster) -> str:
    return cluster.shell("n1", f"stat -c %i {LOCK} 2>/dev/null || true").strip()


def test_a_stranger_that_has_the_lock_keeps_no_kubelet_from_it(cluster: TestCluster) -> None:
    """It waits behind the kubelet in force, and before the other one: its turn comes when the first one ends."""
    cluster.kubectl(*SYSTEM, "delete", "pod", "-l", "k8s-app=kubelet")  # of which nobody has ended the kubelet yet
    comes_into_force(cluster, NEXT)
    before = _inode(cluster)
    with nothing_is_felt(cluster, nobody=45):
        cluster.shell("n1", f"(setsid flock {LOCK} sleep 600 >/dev/null 2>&1 </dev/null &)")
        cluster.wait("it waits", lambda: len(_waiting(cluster)) == 2)
        stranger = _waiting(cluster)[1]
        cluster.shell("n1", f"kill -KILL {host_pid(cluster)}")
        cluster.wait(
            "the host's waits behind it", lambda: _waiting(cluster) == [stranger, host_pid(cluster)], seconds=30
        )
        cluster.shell("n1", f"kill -KILL {hosted_pid(cluster)}")
        cluster.wait("it has the lock", lambda: _holder(cluster) == stranger, seconds=10)
        comes_into_force(cluster, NEXT, seconds=120)
    assert _inode(cluster) != before
    cluster.shell("n1", "pkill -f 'slee[p] 600' || true")


def _holder(cluster: TestCluster) -> str:
    """The process that has the lock; empty where none has it."""
    found = re.search(rf"[0-9]: FLOCK +ADVISORY +WRITE +([0-9]+) [^ ]+:{_inode(cluster)} ", _locks(cluster))
    return "" if found is None else found[1]


def _locks(cluster: TestCluster) -> str:
    return cluster.shell("n1", "cat /proc/locks")


def _waiting(cluster: TestCluster) -> list[str]:
    """The processes that wait for the lock, in their order."""
    return re.findall(rf"-> FLOCK +ADVISORY +WRITE +([0-9]+) [^ ]+:{_inode(cluster)} ", _locks(cluster))


def test_a_host_s_kubelet_that_somebody_has_stopped_is_started(cluster: TestCluster) -> None:
    with nothing_is_felt(cluster):
        cluster.shell("n1", "systemctl stop kubelet")
        cluster.wait("it waits again", lambda: host_pid(cluster) != "0", seconds=30)
        cluster.shell("n1", "systemctl stop kubelet")
        cluster.kubectl(*SYSTEM, "delete", "pod", "-l", "k8s-app=kubelet", "--wait=false")
        comes_into_force(cluster, NEXT, seconds=60)


def test_without_the_daemonset_the_host_s_runs_on_and_up_brings_it_back(cluster: TestCluster) -> None:
    with nothing_is_felt(cluster):
        cluster.kubectl(*SYSTEM, "delete", DAEMON_SET)
        cluster.wait("the host's is in force", lambda: in_force(cluster) == "host", seconds=60)
        time.sleep(10)
        assert in_force(cluster) == "host"
        cluster.up()
        comes_into_force(cluster, NEXT)


def test_levels_move_at_run_time(cluster: TestCluster) -> None:
    with nodes_stay_ready(cluster), undisturbed(cluster):
        patch_plane(cluster, selfHosted="1-4")
        cluster.wait("the host's is in force", lambda: in_force(cluster) == "host", seconds=90)
        cluster.wait("there is no pod", lambda: not _pods(cluster), seconds=60)
        patch_plane(cluster, selfHosted="0-4")
        comes_into_force(cluster, NEXT, seconds=120)


def test_all_levels_move_in_one_step_and_back(cluster: TestCluster) -> None:
    """The kubelet goes first, and the API server and level 3 step aside behind it; it comes back after them."""
    comes_into_force(cluster, NEXT)
    before = processes(cluster, "etcd", "haproxy")
    with nodes_stay_ready(cluster, unseen=MOVE_SECONDS, moves=WITH_STANDBY), undisturbed(cluster):
        patch_plane(cluster, selfHosted="4")
        _are_hosted(cluster, ())
        cluster.wait("it is carried out", lambda: condition(cluster, "SpecApplied").get("status") == "True", seconds=60)
        assert (in_force(cluster), _pods(cluster)) == ("host", [])
        assert f"standby-{API_SERVER}" in standbys(cluster), standbys(cluster)
        patch_plane(cluster, selfHosted="0-4")
        _are_hosted(cluster, (*HOSTED, DAEMON_SET))
        comes_into_force(cluster, NEXT, seconds=120)
    left = processes(cluster, "etcd", "haproxy")
    assert left <= before, f"not there before: {sorted(left - before)}"
    assert {one.split()[0] for one in left} == {"etcd", "haproxy"}, left  # an earlier haproxy may have ended


def _are_hosted(cluster: TestCluster, workloads: Collection[str]) -> None:
    """These of the levels that move, and no others."""
    names = {workload.partition("/")[2] for workload in workloads}
    seen: list[set[str]] = []

    def is_so() -> bool:
        found = cluster.kubectl(*SYSTEM, "get", *HOSTED, DAEMON_SET, "--ignore-not-found", "-o", "name").split()
        seen.append({name.partition("/")[2] for name in found})
        return seen[-1] == names

    try:
        cluster.wait(f"so many are hosted: {len(names)}", is_so, seconds=200)
    except AssertionError as error:
        raise AssertionError(f"{error}: {sorted(seen[-1])}, {condition(cluster, 'SpecApplied')}") from error


def _pods(cluster: TestCluster) -> list[str]:
    found = cluster.kubectl(*SYSTEM, "get", "pods", "-l", "k8s-app=kubelet", "-o", "json")
    return [pod["metadata"]["name"] for pod in json.loads(found)["items"]]


def test_after_a_power_cut_it_comes_back(cluster: TestCluster) -> None:
    cluster.autarky("lab", "cut", "--lab", cluster.name, "n1")
    cluster.autarky("lab", "start", "--lab", cluster.name, "n1", "-o", "plain")
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    comes_into_force(cluster, NEXT, seconds=180)
    assert kubelet_of(cluster) == NEXT
