"""Level 0: a hosted kubelet that does not work, or may not be in force, gives way to the host's by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from harness import TestCluster
from kubelets import ORDER, bring_hosted, is_ready, node, on_disk, report_of
from level_0 import (
    DAEMON_SET,
    EXITS,
    EXITS_IN_FORCE,
    HANGS,
    HANGS_IN_FORCE,
    TWO_SECONDS,
    a_hosted_kubelet,
    comes_into_force,
    follows,
    gives_way_to_the_host_s,
    has_lock,
    host_pid,
    hosted_pid,
    hosted_report,
    in_force,
    nothing_is_felt,
    set_kubelet,
    those_with_the_lock,
)
from rollouts import (
    explanations,
    judged,
    judged_after,
    last_good,
    patch_plane,
    set_rollback,
    undisturbed,
    version_wanted,
)
from slots import SYSTEM

from autarky.control.kubelet.manifests.hosted import HUNG_SECONDS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

FORMER, NEXT, NEWER = "v1.36.4", "v1.37.1", "v1.38.0"
NO_LOCK = "it did not come to wait for the lock"
LAST_WORDS = "this one never works"
"""What each of them writes."""
FOLLOWS_SECONDS = 30.0
"""Sooner than a rollout is judged."""
REFUSED_SECONDS = 15.0
"""An agent asks the API every 5 s whether a pod's kubelet may start."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> Iterator[TestCluster]:
    cluster = a_hosted_kubelet(make_cluster, "t-level-0-bad", NEXT)
    cluster.wait("the first one is good", lambda: last_good(cluster, DAEMON_SET), seconds=150)
    with judged_after(cluster, 45):
        yield cluster


@pytest.mark.parametrize(
    ("version", "does", "why", "has_lock", "two"),
    [
        ("v1.37.90", EXITS, NO_LOCK, False, TWO_SECONDS),
        ("v1.37.91", HANGS, NO_LOCK, False, 90.0),  # it runs beside the host's, and touches nothing
        ("v1.37.92", EXITS_IN_FORCE, "it has exited", True, TWO_SECONDS),
        ("v1.37.93", HANGS_IN_FORCE, f"it has not answered for {HUNG_SECONDS} s", True, TWO_SECONDS),
    ],
    ids=["exits", "hangs", "exits-in-force", "hangs-in-force"],
)
def test_a_kubelet_that_does_not_work_gives_way_to_the_host_s(
    cluster: TestCluster, version: str, does: str, why: str, has_lock: bool, two: float
) -> None:
    follows(cluster, False)
    gives_way_to_the_host_s(cluster, version, does, why, LAST_WORDS, has_lock=has_lock, two=two)
    follows(cluster, True)


def test_an_image_that_is_nowhere_leaves_the_host_s_in_force(cluster: TestCluster) -> None:
    follows(cluster, False)
    with nothing_is_felt(cluster):
        set_kubelet(cluster, "v1.37.99")
        cluster.wait("the host's is in force", lambda: in_force(cluster) == "host", seconds=60)
        cluster.wait("it is as before", lambda: version_wanted(cluster, DAEMON_SET) == NEXT, seconds=180)
        comes_into_force(cluster, NEXT)
    follows(cluster, True)


def test_a_daemonset_of_a_newer_minor_than_the_api_server_s_goes_back_at_once(cluster: TestCluster) -> None:
    bring_hosted(cluster, NEWER, EXITS)
    follows(cluster, False)
    before = explanations(cluster, DAEMON_SET)
    with nothing_is_felt(cluster):
        set_kubelet(cluster, NEWER)
        cluster.wait("it is as before", lambda: version_wanted(cluster, DAEMON_SET) == NEXT, seconds=60)
        comes_into_force(cluster, NEXT)
    follows(cluster, True)
    [*_, why] = explanations(cluster, DAEMON_SET)
    assert len(explanations(cluster, DAEMON_SET)) > len(before)
    assert NEWER in why, why


def test_a_newer_minor_than_the_api_server_s_never_comes_into_force(cluster: TestCluster) -> None:
    """The node itself refuses it, as long as its pod is there: nobody takes that back here."""
    follows(cluster, False)
    set_rollback(cluster, enabled=False)  # before all that takes seconds: the operator has to know of it
    try:
        bring_hosted(cluster, NEWER, EXITS_IN_FORCE)
        judged(cluster)
        before, former = explanations(cluster, DAEMON_SET), hosted_pid(cluster)
        assert former, "the good one runs"
        with nothing_is_felt(cluster):
            with those_with_the_lock(cluster) as found:
                set_kubelet(cluster, NEWER)
                _is_refused(cluster, NEWER)
                end = time.monotonic() + REFUSED_SECONDS
                while time.monotonic() < end:
                    _the_host_s_stays(cluster, NEWER)
                    time.sleep(1)
            assert not found - {former}, f"these of pods had the lock: {found - {former}}"
            assert version_wanted(cluster, DAEMON_SET) == NEWER, "somebody has taken it back"
            set_kubelet(cluster, NEXT)
            comes_into_force(cluster, NEXT)
        assert explanations(cluster, DAEMON_SET) == before
    finally:
        set_kubelet(cluster, NEXT)
        set_rollback(cluster, enabled=True)
    follows(cluster, True)


def _is_refused(cluster: TestCluster, version: str) -> None:
    """By its node, which says why, and the host's is in force."""
    said: list[object] = []

    def is_refused() -> bool:
        report, whose = hosted_report(cluster), in_force(cluster)
        said.append((report, whose))
        return (report.get("state"), report.get("version"), whose) == ("Refused", version, "host")

    try:
        cluster.wait(f"the kubelet {version} is refused", is_refused, seconds=60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said[-5:]}") from error


def _the_host_s_stays(cluster: TestCluster, refused: str) -> None:
    report = hosted_report(cluster)
    assert (report.get("state"), report.get("version")) == ("Refused", refused), report
    assert "rule 4" in report["why"], report
    assert in_force(cluster) == "host"
    assert has_lock(cluster, host_pid(cluster)), "the host's has no lock"


def test_where_kubelets_follow_another_version_is_taken_back(cluster: TestCluster) -> None:
    """At once, for what is wanted: its image is there, and nobody has judged it."""
    cluster.autarky("payload", "push", FORMER, "--cluster", cluster.name, timeout=300)
    follows(cluster, True)
    judged(cluster)
    told, followed = explanations(cluster, DAEMON_SET), _events_of_following(cluster)
    with nothing_is_felt(cluster):
        began = time.monotonic()
        set_kubelet(cluster, FORMER)
        cluster.wait("it is set back", lambda: version_wanted(cluster, DAEMON_SET) == NEXT, seconds=FOLLOWS_SECONDS)
        took = time.monotonic() - began
        cluster.wait("that is said", lambda: _events_of_following(cluster).keys() - followed.keys(), seconds=30)
        comes_into_force(cluster, NEXT)
    found = _events_of_following(cluster)
    assert [found[name] for name in found.keys() - followed.keys() if NEXT not in found[name]] == [], found
    assert explanations(cluster, DAEMON_SET) == told, f"it was rolled back after {took:.0f} s"


def _events_of_following(cluster: TestCluster) -> dict[str, str]:
    """On the DaemonSet; name → message."""
    only = "--field-selector=involvedObject.kind=DaemonSet,involvedObject.name=kubelet,reason=KubeletFollows"
    found = json.loads(cluster.kubectl(*SYSTEM, "get", "events", only, "-o", "json"))["items"]
    return {event["metadata"]["name"]: event["message"] for event in found}


BROKEN = "/etc/systemd/system/kubelet.service.d/zz-somebodys.conf"


def test_where_the_host_s_does_not_start_an_order_waits(cluster: TestCluster) -> None:
    """Its trial would end the hosted one, which is all there is."""
    comes_into_force(cluster, NEXT)
    follows(cluster, True)
    with undisturbed(cluster):
        with the_host_s_does_not_start(cluster):
            pid = hosted_pid(cluster)
            settings = {"configuration": {"maxPods": 77}}
            patch_plane(cluster, pools=[{"name": "all", "nodes": {"controlPlane": True}, "kubelet": settings}])
            why = "does not wait behind the hosted one"
            cluster.wait("its node says why it waits", lambda: why in report_of(cluster).get("why", ""), seconds=60)
            end = time.monotonic() + REFUSED_SECONDS
            while time.monotonic() < end:
                assert has_lock(cluster, pid), "it has been ended"
                assert is_ready(cluster)
                time.sleep(1)
            assert (
                "its kubelet has no standby" in cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout
            )
        cluster.wait("the order is carried out", lambda: report_of(cluster).get("state") == "Done", seconds=180)
        comes_into_force(cluster, NEXT)
    patch_plane(cluster, pools=None)
    cluster.wait("the settings are as before", lambda: _is_carried_out(cluster), seconds=180)
    comes_into_force(cluster, NEXT)


def _is_carried_out(cluster: TestCluster) -> bool:
    order = json.loads(node(cluster)["metadata"]["annotations"][ORDER])
    said = report_of(cluster)
    return "maxPods" not in order["config"] and (said.get("order"), said.get("state")) == (order["id"], "Done")


def test_where_the_host_s_does_not_start_a_killed_one_comes_back_without_it(cluster: TestCluster) -> None:
    """It would be for nothing that the node has none."""
    with undisturbed(cluster):
        with the_host_s_does_not_start(cluster):
            before = hosted_pid(cluster)
            cluster.shell("n1", f"kill -KILL {before}")

            def is_back() -> bool:
                pid = hosted_pid(cluster)
                in_place = pid not in ("", before) and has_lock(cluster, pid)
                return in_place and hosted_report(cluster).get("state") == "InForce"

            cluster.wait("it is in force again", is_back, seconds=120)
            cluster.wait("the node is Ready", lambda: is_ready(cluster), seconds=60)
        comes_into_force(cluster, NEXT)


@contextmanager
def the_host_s_does_not_start(cluster: TestCluster) -> Iterator[None]:
    """A drop-in of somebody's is in the way; afterwards it waits again."""
    said = on_disk(cluster) / "kubelet/hosted"
    text = "[Service]\\nExecStart=\\nExecStart=/bin/false\\n"
    try:
        cluster.shell("n1", f"mkdir -p {BROKEN.rpartition('/')[0]} && printf '{text}' >{BROKEN}")
        cluster.shell("n1", "systemctl daemon-reload && systemctl kill --signal=KILL kubelet")
        cluster.wait("its supervisor sees that", lambda: b"behind no" in said.read_bytes(), seconds=30)
        yield
    finally:
        cluster.shell("n1", f"rm -f {BROKEN}; systemctl daemon-reload; systemctl restart --no-block kubelet")
    cluster.wait("it waits again", lambda: b"behind yes" in said.read_bytes(), seconds=30)
