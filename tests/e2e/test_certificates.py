"""Certificates of a few minutes' life: renewed with nobody at the keyboard, and after the cluster was off for longer.

On two clusters: one of one node, and one of all three kinds: a node that founded it, one that a label made a control
node, and a worker. Most of this is waiting: where a life is too long for that, one that is nearly over is put in place.

AUTARKY_RENEWALS=3 makes the first scenario wait until each certificate was renewed three times by itself, with no help
at all, and the last one leave the machines off until the last certificate has ended by itself. They take 40 and 20
minutes on each cluster, so they are run by hand, for a change of how certificates are renewed:

    AUTARKY_RENEWALS=3 ./run cases run --no-record \\
        tests/e2e/test_certificates.py::test_each_is_renewed_at_its_own_time_with_no_restart_and_no_failed_request \\
        tests/e2e/test_certificates.py::test_a_cluster_that_was_off_for_longer_than_its_certificates_live_comes_back_by_itself
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from ha import nothing_failed
from harness import TestCluster, one_node
from labels import is_control_node, label, names_served
from leaves import KUBELET_CERTIFICATES, OnDisk, ends_of, leaves_on, reissued, restarts, told_ends
from rollouts import CONTROLLER_MANAGER, SCHEDULER, SYSTEM, component, condition, rolled_out
from slots import events_by_name

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]
ONE, THREE = "t-certificates-1", "t-certificates-3"
CONTROL = {ONE: ("n1",), THREE: ("n1", "n2")}
NODES = {ONE: ("n1",), THREE: ("n1", "n2", "w1")}
CLUSTERS = [pytest.param(name, marks=pytest.mark.apart(name)) for name in (ONE, THREE)]
SETTINGS = {"leafLifetime": "6m", "kubeletLifetime": "10m"}
SHORT = ("apiserver", "front-proxy-client", "apiserver-etcd-client", "etcd/server", "etcd/peer", "etcd/client")
OF_CLIENT_GO = ("apiserver-kubelet-client", "controller-manager", "scheduler")
LIVES = {**dict.fromkeys(SHORT, timedelta(minutes=6)), **dict.fromkeys(OF_CLIENT_GO, timedelta(minutes=18))}
"""Of what agents keep, which renew at two thirds of it. Kubelets do so at between 70 and 90 %, drawn anew each time."""
RENEWALS = int(os.environ.get("AUTARKY_RENEWALS", "0"))
"""By themselves, of each certificate, where it is run by hand."""
OF_SHORT, OF_KUBELETS = 3, 1
"""Otherwise: so many take nine minutes at most, the first of each short one included, which begins near its end."""
LATE = timedelta(seconds=40)
"""An agent looks every ten seconds at certificates that live for minutes."""
START = timedelta(seconds=135)
"""Longer than a controller takes to be replaced."""
HEARD_WITHIN = timedelta(seconds=180)
"""From when the machines start until the kubelets of control nodes are heard. The API may take a minute of it; one
that nobody starts anew with its new certificate is heard after 5 minutes, or after 15."""
AGENTS = "[a]utarky.agents.node$"
LOG = logging.getLogger(__name__)
Certificates = Mapping[str, Mapping[str, OnDisk]]
"""Node → name → where it is."""


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(make_cluster: Callable[..., TestCluster], request: pytest.FixtureRequest) -> Iterator[TestCluster]:
    made = _one(make_cluster) if request.param == ONE else _three(make_cluster)
    yield made
    made.down()


def _one(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster(ONE, **one_node(certificates=SETTINGS))
    cluster.up()
    return cluster


def _three(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    joined = [{"name": name, "roles": ["worker"]} for name in ("n2", "w1")]
    cluster = make_cluster(THREE, nodes=[{"name": "n1", "roles": ["control-plane"]}, *joined], certificates=SETTINGS)
    cluster.up()
    label(cluster, "n2")
    cluster.wait("n2 is a control node", lambda: is_control_node(cluster, "n2"), seconds=240)
    cluster.wait("its certificates are told", lambda: "apiserver" in told_ends(cluster)["n2"], seconds=60)
    cluster.wait("n1's certificate names it", lambda: "n2" in names_served(cluster, "n1"), seconds=60)
    return cluster


@pytest.fixture(autouse=True)
def begins_healthy(cluster: TestCluster) -> None:
    cluster.wait("all is healthy", lambda: _is_healthy(cluster), seconds=300)


# --- renewed -----------------------------------------------------------------------------------------------


@pytest.mark.timeout(6000 if RENEWALS else 900, func_only=True)
def test_each_is_renewed_at_its_own_time_with_no_restart_and_no_failed_request(cluster: TestCluster) -> None:
    """The administrator's lives as always, so the probe's does."""
    cluster.wait("no standby serves any more", lambda: not _standbys(cluster), seconds=120)
    seen = Watched(cluster, _all(cluster))
    wanted = {**dict.fromkeys(SHORT, RENEWALS or OF_SHORT), **dict.fromkeys(OF_CLIENT_GO, RENEWALS)}
    wanted |= dict.fromkeys(KUBELET_CERTIFICATES, RENEWALS or OF_KUBELETS)
    with _nothing_fails_and_nothing_restarts(cluster):
        if not RENEWALS:
            seen.put(
                _only(SHORT, seen.certificates), datetime.now(UTC) + LIVES["apiserver"] / 3 + timedelta(seconds=10)
            )
        seen.wait_for(wanted, seconds=3600 if RENEWALS else 570)
    _were_renewed_at_two_thirds(seen)


def test_who_began_with_a_certificate_that_ends_soon_goes_on_with_the_next_one(cluster: TestCluster) -> None:
    """client-go looks every five minutes only: a controller must have read the next one before its first one ends."""
    end = _in_seconds(datetime.now(UTC) + LIVES["controller-manager"] / 3 + START)
    seen = Watched(cluster, _only(OF_CLIENT_GO, _all(cluster)))
    seen.put(seen.certificates, end)
    for workload in (CONTROLLER_MANAGER, SCHEDULER):
        cluster.kubectl(*SYSTEM, "rollout", "restart", workload)
    for workload in (CONTROLLER_MANAGER, SCHEDULER):
        rolled_out(cluster, workload)
    cluster.wait("all is healthy", lambda: _is_healthy(cluster), seconds=240)
    with _nothing_fails_and_nothing_restarts(cluster):
        seen.wait_for(dict.fromkeys(OF_CLIENT_GO, 1), seconds=START.total_seconds() + 60)
        _were_renewed_at_two_thirds(seen)
        renewed = min(ends[1] - LIVES[name] for (_, name), ends in seen.ends.items())
        began = _begin_of_controllers(cluster) + timedelta(seconds=5)  # until it has read its certificate
        assert began < renewed, "they began with the next one, so that nothing was shown"
        _sleep_until(end + timedelta(seconds=15))
        for node in NODES[cluster.name]:
            assert _proxy_says(cluster, node), "the API server's own client reaches the kubelet"


def test_kubelets_renew_by_their_own_timers_three_times_with_no_pod_touched(cluster: TestCluster) -> None:
    """Each time they begin with such as end in two and a half minutes, of seven and a half."""
    kubelets = dict.fromkeys(NODES[cluster.name], KUBELET_CERTIFICATES)
    with _nothing_fails_though_kubelets_start(cluster):
        for _ in range(3):
            now, seen = datetime.now(UTC), Watched(cluster, kubelets)
            around = ("systemctl stop kubelet; ", "; systemctl start kubelet")
            seen.put(kubelets, now + timedelta(seconds=150), begin=now - timedelta(seconds=300), around=around)
            before = _kubelet_processes(cluster)
            seen.wait_for(dict.fromkeys(KUBELET_CERTIFICATES, 1), seconds=150)
            assert _kubelet_processes(cluster) == before
        cluster.wait("their ends are told", lambda: _are_told(cluster, kubelets), seconds=120)


@contextmanager
def _nothing_fails_and_nothing_restarts(cluster: TestCluster) -> Iterator[None]:
    before, moves = restarts(cluster), _moves_of_standbys(cluster)
    with cluster.probed(seconds=5400) as reports:
        yield
        assert cluster.status()["overdue"] == []
    LOG.info("%s: %s", cluster.name, json.dumps(reports[0]))
    nothing_failed(reports[0])
    assert {name: count for name, count in restarts(cluster).items() if name in before} == before
    since = {name: said for name, said in _moves_of_standbys(cluster).items() if name not in moves}
    assert since == {}, "a standby that came and went is a restart, too, of a pod with a name of its own"
    cluster.wait("the control plane says that all is current", lambda: _says_that_all_is_current(cluster))


@contextmanager
def _nothing_fails_though_kubelets_start(cluster: TestCluster) -> Iterator[None]:
    """A minute after each start its script has the standbys of level 3 come where no hosted one answers on the node, as
    where the only one is on another: they go again."""
    before, moves = restarts(cluster), _moves_of_standbys(cluster)
    with cluster.probed() as reports:
        yield
    nothing_failed(reports[0])
    assert {name: count for name, count in restarts(cluster).items() if name in before} == before
    since = {said for name, said in _moves_of_standbys(cluster).items() if name not in moves}
    assert not [said for said in since if said.startswith("kube-apiserver: ")], since
    assert cluster.status()["overdue"] == []


def _moves_of_standbys(cluster: TestCluster) -> dict[str, str]:
    """Event → what it says."""
    return {
        event: said
        for reason in ("StandbyActivated", "StandbyWithdrawn")
        for event, said in events_by_name(cluster, reason).items()
    }


def _standbys(cluster: TestCluster) -> list[str]:
    """Of a node that was made a control node a moment ago it is one for a while."""
    return [name for node in CONTROL[cluster.name] for name in cluster.static_pods(node) if name.startswith("standby-")]


def _says_that_all_is_current(cluster: TestCluster) -> bool:
    return bool(condition(cluster, "CertificatesCurrent").get("status") == "True")


@dataclass
class Watched:
    """Certificates on the nodes' disks, and their ends one after the other, from the one that was put in place, or was
    seen first."""

    cluster: TestCluster
    certificates: Certificates
    ends: dict[tuple[str, str], list[datetime]] = field(default_factory=dict)

    def put(
        self,
        certificates: Certificates,
        end: datetime,
        *,
        begin: datetime | None = None,
        around: tuple[str, str] = ("", ""),
    ) -> None:
        """Such with that end. `around`: what the script says before it and after."""
        end = _in_seconds(end)
        for node, there in certificates.items():
            script = reissued(self.cluster, node, there, dict.fromkeys(there, end), begin=begin)
            self.cluster.shell(node, script.join(around))
            self.ends.update({(node, name): [end] for name in there})

    def wait_for(self, renewals: Mapping[str, int], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while missing := self._missing(renewals):
            assert time.monotonic() < deadline, f"not renewed so often: {missing}"
            time.sleep(3)

    def _missing(self, renewals: Mapping[str, int]) -> list[tuple[str, str]]:
        """One look, and who has not been renewed so often yet."""
        for node, there in self.certificates.items():
            for name, end in ends_of(self.cluster, node, there).items():
                known = self.ends.setdefault((node, name), [end])
                if known[-1] != end:
                    known.append(end)
        return sorted(one for one, ends in self.ends.items() if len(ends) <= renewals[one[1]])


def _were_renewed_at_two_thirds(seen: Watched) -> None:
    """When one was issued follows from its end."""
    for (node, name), ends in seen.ends.items():
        for before, after in pairwise(ends) if name in LIVES else ():
            late = (after - LIVES[name]) - (before - LIVES[name] / 3)
            assert timedelta(seconds=-2) < late < LATE, f"{name} on {node}: {ends}"


def _all(cluster: TestCluster) -> Certificates:
    kept = {node: leaves_on(cluster, node) for node in CONTROL[cluster.name]}
    assert all(there.keys() == LIVES.keys() for there in kept.values()), kept
    return {node: {**kept.get(node, {}), **KUBELET_CERTIFICATES} for node in NODES[cluster.name]}


def _only(names: Iterable[str], certificates: Certificates) -> Certificates:
    found = {node: {name: there[name] for name in names if name in there} for node, there in certificates.items()}
    return {node: there for node, there in found.items() if there}


def _begin_of_controllers(cluster: TestCluster) -> datetime:
    """When the last of them was started."""
    names = ",".join(component(workload) for workload in (CONTROLLER_MANAGER, SCHEDULER))
    selector = f"k8s-app in ({names}),autarky.dev/slot=hosted"
    pods = json.loads(cluster.kubectl(*SYSTEM, "get", "pods", "-l", selector, "-o", "json"))["items"]
    states = [status["state"] for pod in pods for status in pod["status"]["containerStatuses"]]
    return max(datetime.fromisoformat(state["running"]["startedAt"]) for state in states if "running" in state)


def _proxy_says(cluster: TestCluster, node: str) -> str:
    on_node = ("-l", "k8s-app=kube-proxy", f"--field-selector=spec.nodeName={node}", "-o", "name")
    return cluster.kubectl(*SYSTEM, "logs", cluster.kubectl(*SYSTEM, "get", "pods", *on_node).strip(), "--tail=1")


def _kubelet_processes(cluster: TestCluster) -> dict[str, str]:
    return {node: cluster.shell(node, "systemctl show -p MainPID --value kubelet") for node in NODES[cluster.name]}


def _are_told(cluster: TestCluster, certificates: Certificates) -> bool:
    told = told_ends(cluster)
    return all(
        told[node].get(name) == f"{end:%Y-%m-%dT%H:%M:%SZ}"
        for node, there in certificates.items()
        for name, end in ends_of(cluster, node, there).items()
    )


def _in_seconds(moment: datetime) -> datetime:
    """Certificates have no parts of seconds."""
    return moment.replace(microsecond=0)


def _sleep_until(moment: datetime) -> None:
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))


# --- off for longer ----------------------------------------------------------------------------------------


@pytest.mark.timeout(3600 if RENEWALS else 900, func_only=True)
def test_a_cluster_that_was_off_for_longer_than_its_certificates_live_comes_back_by_itself(
    cluster: TestCluster,
) -> None:
    """As far as any of it can tell: all but the administrator's have ended, of etcd, API servers, controllers and every
    kubelet. By hand, the time has passed as well: of leases, of back-offs, of what the API has heard of Nodes."""
    nodes, certificates = set(NODES[cluster.name]), _all(cluster)
    if not RENEWALS:
        _end(cluster, certificates)
    last = max(end for node, there in certificates.items() for end in ends_of(cluster, node, there).values())
    cluster.autarky("lab", "cut", "--lab", cluster.name, *NODES[cluster.name])
    _sleep_until(last + timedelta(seconds=5))
    began = datetime.now(UTC)
    cluster.autarky("lab", "start", "--lab", cluster.name, *NODES[cluster.name])
    _control_nodes_are_heard(cluster, began)
    # Until they are, the API shows them as they were.
    cluster.wait("all kubelets are heard", lambda: _heard_since(cluster, began) == nodes, seconds=300)
    cluster.wait("all nodes are Ready", lambda: _ready_nodes(cluster) == nodes, seconds=120)
    cluster.wait("all is healthy", lambda: _is_healthy(cluster), seconds=300)
    LOG.info("%s is healthy after %.0f s", cluster.name, (datetime.now(UTC) - began).total_seconds())
    cluster.wait("all are good again", lambda: not _ended(cluster, certificates), seconds=120)


def _end(cluster: TestCluster, certificates: Certificates) -> None:
    """With nobody left there who would renew them. First all is read: the first that ends may be etcd's."""
    end = datetime.now(UTC) - timedelta(minutes=1)
    scripts = {
        node: reissued(cluster, node, there, dict.fromkeys(there, _in_seconds(end)))
        for node, there in certificates.items()
    }
    for node, script in scripts.items():
        cluster.shell(node, f"systemctl stop kubelet; pkill -STOP -f '{AGENTS}' || true; {script}")
    ended = {(node, name) for node, there in certificates.items() for name in there}
    assert _ended(cluster, certificates) == ended


def _ended(cluster: TestCluster, certificates: Certificates) -> set[tuple[str, str]]:
    now = datetime.now(UTC)
    ends = {node: ends_of(cluster, node, there) for node, there in certificates.items()}
    return {(node, name) for node, there in ends.items() for name, end in there.items() if end <= now}


def _control_nodes_are_heard(cluster: TestCluster, began: datetime) -> None:
    heard: set[str] = set()

    def all_are() -> bool:
        heard.update(_heard_since(cluster, began))
        return heard >= set(CONTROL[cluster.name])

    left = began + HEARD_WITHIN - datetime.now(UTC)
    cluster.wait("the kubelets of control nodes are heard", all_are, seconds=left.total_seconds())
    LOG.info("all control nodes are heard after %.0f s", (datetime.now(UTC) - began).total_seconds())


def _is_healthy(cluster: TestCluster) -> bool:
    status = cluster.status()
    if not status["healthy"]:
        LOG.info("not healthy yet: %s", cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout)
    return bool(status["healthy"])


def _heard_since(cluster: TestCluster, moment: datetime) -> set[str]:
    """Whose kubelets have renewed their leases since then; nobody's while the API does not answer."""
    leases = cluster.kubectl(
        "get", "leases", "-n", "kube-node-lease", "-o", "json", "--request-timeout=5s", check=False
    )
    renewed = {
        one["metadata"]["name"]: one["spec"].get("renewTime") for one in json.loads(leases or '{"items": []}')["items"]
    }
    return {name for name, when in renewed.items() if when and datetime.fromisoformat(when) > moment}


def _ready_nodes(cluster: TestCluster) -> set[str]:
    said = cluster.kubectl("get", "nodes", "-o", "json", "--request-timeout=5s", check=False)
    return {
        node["metadata"]["name"]
        for node in json.loads(said or '{"items": []}')["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    }
