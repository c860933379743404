"""The cluster stays alive by itself: the node agent covers for the hosted control plane of the only node.

The tests of this module build on each other, in order. Nothing in here runs `up` again unless it says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import dropwhile
from threading import Event, Thread

import httpx2
import pytest
from ha import nothing_failed
from harness import AGNHOST, TestCluster
from labels import standbys_that_serve
from leaves import end_certificate_of_kubelet, end_served, ends_on_disk, put_short_lived, restarts
from slots import (
    API,
    SYSTEM,
    events_by_name,
    happened,
    parked_agent_is_a_copy,
    run_anywhere,
    run_nowhere,
    settled,
    standbys,
    turns_of_the_parked_agent,
)

from autarky.control.kubelet.manifests.credentials import CURRENT, SERVING
from autarky.model import ports

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.timeout(600)]

AGENT = "ds/node-agent"
LEVEL_3 = ("deploy/kube-controller-manager", "deploy/kube-scheduler")
ANSWERS = 20
"""How often somebody asks after the first answer, at least."""
AFTERWARDS_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    return one_node


@dataclass
class Answers:
    """What somebody met who asked again and again, each time on a new connection, in order: a status, or an error."""

    met: list[int | httpx2.TransportError] = field(default_factory=list)

    def since_the_first(self) -> list[int | httpx2.TransportError]:
        """Answer, that is: before it nobody serves yet, and connections are held, refused or given up."""
        return list(dropwhile(lambda one: isinstance(one, httpx2.TransportError), self.met))


@contextmanager
def answers_to_anybody(cluster: TestCluster) -> Iterator[Answers]:
    """Asks without a name what anybody may ask once the API server knows its roles: during the block, and ANSWERS times
    after it. Nothing is believed of who answers. The load balancer holds a connection for 8 s while nobody serves."""
    server = cluster.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    answers, ended = Answers(), Event()

    def ask() -> None:
        left, deadline = ANSWERS, math.inf
        while left and time.monotonic() < deadline:
            if ended.is_set():
                left, deadline = left - 1, min(deadline, time.monotonic() + AFTERWARDS_SECONDS)
            try:
                answers.met.append(httpx2.get(f"{server}/readyz", verify=False, timeout=10).status_code)
            except httpx2.TransportError as error:
                answers.met.append(error)
            time.sleep(0.05)

    asking = Thread(target=ask)
    asking.start()
    try:
        yield answers
    finally:
        ended.set()
        asking.join()


def test_a_restart_of_the_only_api_server_fails_no_request(cluster: TestCluster) -> None:
    activated, withdrawn = (events_by_name(cluster, reason) for reason in ("StandbyActivated", "StandbyWithdrawn"))
    with cluster.probed() as reports:
        cluster.kubectl(*SYSTEM, "rollout", "restart", API)
        cluster.kubectl(*SYSTEM, "rollout", "status", API, "--timeout=120s")
        cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=90)
    nothing_failed(reports[0], writes=100)
    assert "kube-apiserver: the hosted slot is " in _told_since(cluster, "StandbyActivated", activated)
    cluster.wait(
        "that it went is told", lambda: "kube-apiserver: " in _told_since(cluster, "StandbyWithdrawn", withdrawn)
    )


def _told_since(cluster: TestCluster, reason: str, before: Mapping[str, str]) -> str:
    """What the agents told by events of that reason that were not there before."""
    told = events_by_name(cluster, reason)
    return "\n".join(told[name] for name in told.keys() - before.keys())


def test_a_guess_at_what_the_kubelet_asks_before_a_stop_does_nothing(cluster: TestCluster) -> None:
    """Any pod may have its kubelet ask on loopback, by a probe: earlier releases listened to this very path."""
    cluster.wait("no standby serves", lambda: settled(cluster), seconds=90)
    before = happened(cluster, "StandbyActivated")
    for guess in ("kube-apiserver", "", "0" * 32):
        asked = f"curl -s --max-time 60 http://127.0.0.1:{ports.NODE_AGENT}/before-stop/{guess}"
        answer = cluster.shell("n1", asked).splitlines()
        assert "autarky_agent_decisions_total" in "\n".join(answer), "it is answered like any other path"
        assert answer != ["ok"]
    time.sleep(5)  # what was asked for would be there after one
    assert standbys(cluster) == []
    assert happened(cluster, "StandbyActivated") == before


def test_without_any_agent_process_the_parked_one_takes_over(cluster: TestCluster) -> None:
    cluster.wait("the parked agent is a copy of the hosted one", lambda: parked_agent_is_a_copy(cluster), seconds=120)
    turns = turns_of_the_parked_agent(cluster)
    run_nowhere(cluster, AGENT)
    cluster.wait("the parked agent acts", lambda: turns_of_the_parked_agent(cluster) - turns)
    with cluster.probed() as reports:
        cluster.kubectl(*SYSTEM, "delete", "pod", "-l", "k8s-app=kube-apiserver,autarky.dev/slot=hosted")
        cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=120)
    nothing_failed(reports[0])
    run_anywhere(cluster, AGENT)
    cluster.kubectl(*SYSTEM, "rollout", "status", AGENT, "--timeout=60s")


def test_level_3_scaled_to_nothing_is_led_by_the_standbys(cluster: TestCluster) -> None:
    for deployment in LEVEL_3:
        cluster.kubectl(*SYSTEM, "scale", deployment, "--replicas=0")
    cluster.wait("both standbys are active", lambda: len(standbys(cluster)) == 2, seconds=60)
    cluster.kubectl("create", "deployment", "meanwhile", f"--image={AGNHOST}", "--", "/usr/local/bin/agnhost", "pause")
    cluster.kubectl("wait", "--for=condition=Available", "deploy/meanwhile", "--timeout=60s")
    for deployment in LEVEL_3:
        cluster.kubectl(*SYSTEM, "scale", deployment, "--replicas=1")
    cluster.wait("the standbys are dormant again", lambda: settled(cluster), seconds=90)


def test_an_api_server_that_may_run_nowhere_is_covered(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        run_nowhere(cluster, API)
        cluster.wait("the standby is active", lambda: "standby-kube-apiserver" in standbys(cluster))
        time.sleep(20)  # longer than the hosted server drains
        cluster.kubectl(*SYSTEM, "rollout", "undo", API)
        cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=120)
    nothing_failed(reports[0])


def test_after_a_year_without_power_the_cluster_comes_back_and_pivots_by_itself(cluster: TestCluster) -> None:
    """As far as its kubelet can tell: its certificate has ended, and there is no operator who might approve another."""
    withdrawn, freed = (events_by_name(cluster, reason) for reason in ("StandbyWithdrawn", "LeaseFreed"))
    end_certificate_of_kubelet(cluster, "n1")
    cluster.autarky("lab", "cut", "--lab", cluster.name, "n1")
    with answers_to_anybody(cluster) as answers:
        cluster.autarky("lab", "start", "--lab", cluster.name, "n1", "-o", "plain")
        cluster.wait("the API answers", cluster.api_answers, seconds=90)
        cluster.kubectl("create", "deployment", "after", f"--image={AGNHOST}", "--", "/usr/local/bin/agnhost", "pause")
        cluster.kubectl("wait", "--for=condition=Available", "deploy/after", "--timeout=60s")
        cluster.wait("the standbys are dormant again", lambda: settled(cluster), seconds=120)
    served = answers.since_the_first()
    assert set(served) == {HTTPStatus.OK}, "a server was asked that was not ready yet, or one ended with a request"
    assert len(served) >= ANSWERS

    def has_pivoted() -> bool:
        """Of what the kubelet's start puts in place, only the end is told."""
        told = _told_since(cluster, "StandbyWithdrawn", withdrawn).splitlines()
        return any(line.startswith("kube-apiserver: ") for line in told)

    cluster.wait("that the standby went is told", has_pivoted)
    marks = cluster.shell("n1", "ls -A /var/lib/kubelet/pki")
    assert "given" not in marks, "the kubelet would be started anew for ever"
    died = "it died with the last boot of this node"
    cluster.wait("freed leases are told", lambda: died in _told_since(cluster, "LeaseFreed", freed))


KUBELET_PKI = "/var/lib/kubelet/pki"
KUBELET_FILES = ("/etc/kubernetes/kubelet.conf", f"{KUBELET_PKI}/{CURRENT}", f"{KUBELET_PKI}/{SERVING}")
LOST = {
    "all": "".join(f": > {path}; sync -f {path}; " for path in KUBELET_FILES),
    "certificate": f": > {KUBELET_PKI}/{CURRENT}; sync -f {KUBELET_PKI}/{CURRENT}",
    "half-renewed": f"cd {KUBELET_PKI}; mv {CURRENT} kubelet-client-updated.pem; sync -f .",
}
"""What a power cut takes: what was written last is empty then, or still under the name that it has first."""


@pytest.mark.parametrize("lost", ["all", "certificate", pytest.param("half-renewed", marks=pytest.mark.rotation)])
def test_a_kubelet_whose_files_were_lost_with_the_power_is_heard_again(cluster: TestCluster, lost: str) -> None:
    """With an empty certificate it does not start, and without its kubeconfig neither; with a kubeconfig that names a
    certificate which is not there it starts only if it may ask for one."""
    cluster.shell("n1", f"set -e; systemctl stop kubelet; {LOST[lost]}")
    cluster.autarky("lab", "cut", "--lab", cluster.name, "n1")
    began = datetime.now(UTC)
    cluster.autarky("lab", "start", "--lab", cluster.name, "n1", "-o", "plain")
    cluster.wait("the kubelet is heard", lambda: _heard_last(cluster) > began, seconds=120)
    cluster.wait("the standbys are dormant again", lambda: settled(cluster), seconds=120)
    cluster.wait("all is healthy", lambda: cluster.status()["healthy"], seconds=60)
    empty = f"for one in {' '.join(KUBELET_FILES)}; do [ -s $one ] || echo $one; done"
    cluster.wait("all of them are there", lambda: cluster.shell("n1", empty) == "", seconds=120)


def _heard_last(cluster: TestCluster) -> datetime:
    said = cluster.kubectl(
        *("get", "lease", "n1", "-n", "kube-node-lease", "--request-timeout=5s", "-o", "jsonpath={.spec.renewTime}"),
        check=False,
    )
    return datetime.fromisoformat(said) if said else datetime.fromtimestamp(0, UTC)


def test_a_deleted_api_server_is_covered_until_up_brings_it_back(cluster: TestCluster) -> None:
    """Rule 10: no object's absence takes the last API server."""
    with cluster.probed() as reports:
        cluster.kubectl(*SYSTEM, "delete", API)
        cluster.wait("the standby is active", lambda: "standby-kube-apiserver" in standbys(cluster))
        time.sleep(20)
        cluster.up()
        cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=120)
    nothing_failed(reports[0])


@pytest.mark.rotation
def test_the_control_plane_moves_to_static_pods_and_back_under_load(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        cluster.autarky("unpivot", "--cluster", cluster.name, "-o", "plain")
        names = {"standby-kube-apiserver", "standby-kube-controller-manager", "standby-kube-scheduler"}
        assert set(standbys(cluster)) == names
        assert cluster.kubectl(*SYSTEM, "get", API, *LEVEL_3, "--ignore-not-found") == ""
        assert cluster.status()["healthy"]
        cluster.autarky("pivot", "--to", "1-4", "--cluster", cluster.name, "-o", "plain")
        cluster.wait("everything is hosted", lambda: settled(cluster), seconds=90)
    nothing_failed(reports[0])


def test_a_certificate_near_its_end_is_renewed_with_no_restart_and_no_failed_request(cluster: TestCluster) -> None:
    """As it would be after eight months: one of a few minutes' life is put in the place of the API server's own."""
    cluster.wait("no standby serves", lambda: not standbys_that_serve(cluster), seconds=120)
    before = restarts(cluster)
    put_short_lived(cluster, "n1", "apiserver", life=timedelta(minutes=5))
    assert ends_on_disk(cluster, "n1") < datetime.now(UTC) + timedelta(minutes=6)
    with cluster.probed() as reports:
        cluster.kubectl(*SYSTEM, "annotate", "configmap", "autarky-leaves", "touched=now", "--overwrite")
        later = datetime.now(UTC) + timedelta(days=300)
        cluster.wait("it is renewed", lambda: ends_on_disk(cluster, "n1") > later, seconds=90)
        cluster.wait("it is served", lambda: end_served(cluster, "n1") > later, seconds=90)
    nothing_failed(reports[0])
    assert restarts(cluster) == before
