"""Another minor of Kubernetes with a soak, on one node: the new binaries emulate the minor from before, and serve none
of the new one's APIs, until they are raised; or all goes back while they soak. No request fails in any of it.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from direct import hosted_version
from harness import TestCluster
from rollouts import HOSTED, live, patch_plane, quiet, template, undisturbed, version_wanted
from skew import skew_is_kept
from slots import SYSTEM

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.shares("one_node"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "v1.37.1"
WORKLOADS = (*HOSTED, "ds/kube-proxy")
ONLY_IN_NEXT = "/apis/storagemigration.k8s.io/v1"
"""Served by default in 1.37; 1.36 does not know that version."""
SOAK_SECONDS = 90
LOOKS_SECONDS = 15.0
"""An operator that leads has looked at the soak by then."""


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


def status_of(cluster: TestCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]
    return found


def state(cluster: TestCluster) -> str:
    found: str = status_of(cluster).get("upgrade", {}).get("state", "")
    return found


def leading_operator(cluster: TestCluster) -> str:
    """Who holds its lease."""
    return cluster.kubectl(*SYSTEM, "get", "lease", "autarky-operator", "-o", "jsonpath={.spec.holderIdentity}")


def versions(cluster: TestCluster) -> set[str]:
    return {version_wanted(cluster, workload) for workload in WORKLOADS}


def emulate(cluster: TestCluster) -> dict[str, str]:
    """Workload → the value of the flag in its template, of those that have it."""
    found = {}
    for workload in WORKLOADS:
        for word in template(cluster, workload)["spec"]["containers"][0].get("command") or []:
            if word.startswith("--emulated-version="):
                found[workload] = word.partition("=")[2]
    return found


def minor(version: str) -> str:
    return version.removeprefix("v").rpartition(".")[0]


def served(cluster: TestCluster) -> tuple[str, str]:
    """The version of the API server that answers, and the minor that it behaves like."""
    said = json.loads(cluster.kubectl("get", "--raw", "/version"))
    return said["gitVersion"], f"{said['emulationMajor']}.{said['emulationMinor']}"


def serves_the_new_api(cluster: TestCluster) -> bool:
    return "storageversionmigrations" in cluster.kubectl("get", "--raw", ONLY_IN_NEXT, check=False)


def drifted(cluster: TestCluster) -> str:
    return next(str(one["message"]) for one in status_of(cluster)["conditions"] if one["type"] == "Drifted")


def standbys(cluster: TestCluster) -> dict[str, tuple[str, str]]:
    """Component → (version, emulated minor) of the node's standby, as its agent reports it."""
    node = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"][0]
    slots = json.loads(node["metadata"]["annotations"]["autarky.dev/slots"])["slots"]
    return {name: (one.get("version", ""), one.get("emulates", "")) for name, one in slots.items()}


def soaks(cluster: TestCluster, former: str) -> None:
    """Everything is new, and behaves like the version from before; nothing else is said of it."""
    assert state(cluster) == "Soaking"
    assert versions(cluster) == {NEXT}
    assert emulate(cluster) == dict.fromkeys(HOSTED, minor(former))
    assert served(cluster) == (NEXT, minor(former))
    assert not serves_the_new_api(cluster)
    assert set(standbys(cluster).values()) == {(NEXT, minor(former))}
    assert status_of(cluster)["version"] == former
    assert "every field has the value" in drifted(cluster)


def back(cluster: TestCluster, former: str) -> None:
    def complete() -> bool:
        found = status_of(cluster)
        return "upgrade" not in found and found["version"] == former and versions(cluster) == {former}

    cluster.wait("the former version is complete", complete, seconds=500)
    assert emulate(cluster) == {}
    assert served(cluster) == (former, minor(former))


def begin(cluster: TestCluster, soak: str) -> str:
    """What the command says at its end."""
    command = ("upgrade", NEXT, "--soak", soak, "--cluster", cluster.name, "-o", "plain")
    done = cluster.autarky(*command, timeout=900)
    return done.stdout + done.stderr


def test_all_goes_back_while_it_soaks_and_up_leaves_it_alone_meanwhile(cluster: TestCluster) -> None:
    former = str(status_of(cluster)["version"])
    with skew_is_kept(cluster), undisturbed(cluster):
        said = begin(cluster, "24h")
        assert f"is of version {NEXT} and emulates {minor(former)} until about" in said
        assert "--soak 0" in said
        assert "autarky upgrade rollback" in said
    soaks(cluster, former)
    before = {workload: live(cluster, workload)["metadata"]["generation"] for workload in WORKLOADS}
    again = cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain")
    assert "emulates" in again.stdout + again.stderr
    cluster.up()
    assert {workload: live(cluster, workload)["metadata"]["generation"] for workload in WORKLOADS} == before
    kubelets = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
    assert set(kubelets.split()) == {former}
    by, since = leading_operator(cluster), status_of(cluster)["upgrade"]["soaking"]["since"]
    cluster.kubectl(*SYSTEM, "delete", "pod", "-l", "k8s-app=autarky-operator", "--wait=true")
    cluster.wait("another operator leads", lambda: leading_operator(cluster) not in {"", by}, seconds=120)
    time.sleep(LOOKS_SECONDS)
    assert status_of(cluster)["upgrade"]["soaking"]["since"] == since
    soaks(cluster, former)
    with skew_is_kept(cluster), undisturbed(cluster):
        cluster.autarky("upgrade", "rollback", "--yes", "--cluster", cluster.name)
        back(cluster, former)
    quiet(cluster)


def test_it_is_raised_by_itself_and_then_serves_the_new_minor(cluster: TestCluster) -> None:
    former = str(status_of(cluster)["version"])
    with skew_is_kept(cluster), undisturbed(cluster):
        begin(cluster, f"{SOAK_SECONDS}s")
        soaks(cluster, former)
        cluster.wait("it is raised", lambda: "upgrade" not in status_of(cluster), seconds=SOAK_SECONDS + 600)
    assert (versions(cluster), emulate(cluster)) == ({NEXT}, {})
    assert served(cluster) == (NEXT, minor(NEXT))
    assert serves_the_new_api(cluster)
    assert hosted_version(cluster, "kube-apiserver", "n1") == NEXT
    assert "every field has the value" in drifted(cluster)
    cluster.wait("no standby emulates", lambda: set(standbys(cluster).values()) == {(NEXT, "")}, seconds=120)
    quiet(cluster)
    with undisturbed(cluster):
        patch_plane(cluster, version=former, upgrade=None)
        back(cluster, former)
    quiet(cluster)


def test_a_soak_of_nothing_raises_at_once(cluster: TestCluster) -> None:
    former = str(status_of(cluster)["version"])
    begin(cluster, "24h")
    soaks(cluster, former)
    with undisturbed(cluster):
        cluster.autarky("upgrade", NEXT, "--soak", "0", "--cluster", cluster.name, "-o", "plain", timeout=900)
    assert (served(cluster), emulate(cluster)) == ((NEXT, minor(NEXT)), {})
    quiet(cluster)
    patch_plane(cluster, version=former, upgrade=None)
    back(cluster, former)
    quiet(cluster)
