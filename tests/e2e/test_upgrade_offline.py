"""`autarky upgrade rollback` with the API down, on one node: after an upgrade the program of the new API server is
damaged in the runtime's store (a disk that lies; the name of an image alone is put back by the node's agent), and both
slots run it. The former version serves again from the node's disk, the operator takes back the rest, the kubelet first,
and a command that is killed in the middle goes on.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness import TestCluster, kill_when, one_node
from rollouts import quiet
from slots import standbys
from upgrades import everything_is_of, kubelets

from autarky.errors import Refused, UserError

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
STANDBY = "/var/lib/autarky/standby/kube-apiserver"
KEPT = "/root/kube-apiserver.kept"
_DAMAGE = f"""\
set -eu
server=$(pgrep -xo kube-apiserver)
wanted=$(sha256sum </proc/$server/exe)
cp /proc/$server/exe {KEPT}
: >{KEPT}.paths
for file in $(find /var/lib/containerd -type f -name kube-apiserver); do
    [ "$(sha256sum <$file)" = "$wanted" ] || continue
    echo $file >>{KEPT}.paths
    echo damaged >$file.next
    chmod 755 $file.next
    mv $file.next $file
done
pkill -KILL -x kube-apiserver
cat {KEPT}.paths
"""
"""Of the version that runs, in every copy of it. In another inode: what a test host is made of may be shared."""
_REPAIR = f"""\
set -eu
for file in $(cat {KEPT}.paths); do
    cp {KEPT} $file.next
    chmod 755 $file.next
    mv $file.next $file
done
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-upgrade-offline", **one_node())
    cluster.up()
    return cluster


def status_of(cluster: TestCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    return found


def former_of(cluster: TestCluster) -> str:
    return str(status_of(cluster)["status"]["formerVersion"])


def serves(cluster: TestCluster) -> str:
    """The version of the API server that answers; empty where none does."""
    said = cluster.kubectl("get", "--raw", "/version", "--request-timeout=5s", check=False)
    return str(json.loads(said)["gitVersion"]) if said else ""


def on_disk(cluster: TestCluster, link: str) -> str:
    """The version of the revision that the link leads to."""
    image = cluster.shell("n1", f"grep -o 'kube-apiserver:v[0-9.]*' {STANDBY}/{link}/pod.json | head -n 1").strip()
    return image.rpartition(":")[2]


def upgraded(cluster: TestCluster) -> None:
    quiet(cluster)
    cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain", timeout=500)
    quiet(cluster)
    former = former_of(cluster)
    assert kubelets(cluster) == {"n1": NEXT}
    assert (serves(cluster), on_disk(cluster, "current"), on_disk(cluster, "previous")) == (NEXT, NEXT, former)


def damage(cluster: TestCluster) -> None:
    """No container of the version that runs starts any more, and those that run end: neither slot serves."""
    assert serves(cluster) == NEXT
    damaged = cluster.shell("n1", _DAMAGE).split()
    assert damaged, "its program is nowhere in the runtime's store"
    cluster.wait("the standby is active", lambda: "standby-kube-apiserver" in standbys(cluster), seconds=60)
    time.sleep(20)
    assert serves(cluster) == "", "an API server of the new version has started"


def goes_back(cluster: TestCluster, former: str) -> None:
    """The operator does the rest, and nothing of the new version is left to run."""
    assert status_of(cluster)["spec"]["version"] == former
    cluster.wait("it is complete", lambda: status_of(cluster)["status"]["version"] == former, seconds=420, pause=2)
    quiet(cluster)
    assert (serves(cluster), on_disk(cluster, "current")) == (former, former)
    everything_is_of(cluster, former)


def rollback(cluster: TestCluster) -> tuple[str, ...]:
    """The kubelet has followed, and is newer than the API server for a while."""
    return ("upgrade", "rollback", "--cluster", cluster.name, "-o", "plain", "--accept-newer-kubelets")


def test_with_a_damaged_program_no_api_server_of_the_new_version_comes_up(cluster: TestCluster) -> None:
    """What would be done is shown, and nothing is done without being asked for."""
    upgraded(cluster)
    former = former_of(cluster)
    damage(cluster)
    before = cluster.shell("n1", f"readlink {STANDBY}/current")
    refused = cluster.autarky(*rollback(cluster)[:-1], "--dry-run", check=False)
    assert refused.status == Refused.exit_code, refused
    assert f"the kubelet of n1 ({NEXT}) would be newer than its API server {former}" in refused.stderr, refused
    shown = cluster.autarky(*rollback(cluster), "--dry-run")
    assert f"make {former} (revision " in shown.stdout, shown
    assert "activate the standby of kube-controller-manager" in shown.stdout, shown
    assert f"{NEXT} (" in shown.stderr, shown
    assert "does not run" in shown.stderr, shown
    asked = cluster.autarky(*rollback(cluster), check=False)
    assert asked.status == UserError.exit_code, asked
    assert "say --yes" in asked.stderr, asked
    assert cluster.shell("n1", f"readlink {STANDBY}/current") == before
    assert serves(cluster) == ""


def test_the_former_version_serves_from_the_disk_and_the_operator_takes_back_the_rest(cluster: TestCluster) -> None:
    former = on_disk(cluster, "previous")
    cluster.autarky(*rollback(cluster), "--yes", timeout=300)
    assert serves(cluster) == former
    goes_back(cluster, former)
    again = cluster.autarky(*rollback(cluster), "--yes", check=False)
    assert again.status == UserError.exit_code, again
    assert "there is no version to go back to" in again.stderr, again


def test_a_rollback_that_is_killed_after_its_first_write_goes_on(cluster: TestCluster) -> None:
    """The program is whole again, and the same upgrade works; then it is damaged again."""
    cluster.shell("n1", _REPAIR)
    upgraded(cluster)
    former = former_of(cluster)
    damage(cluster)
    controllers = "/var/lib/autarky/standby/kube-controller-manager"
    before = cluster.shell("n1", f"readlink {controllers}/current")

    def has_written() -> None:
        changed = f"readlink {controllers}/current"
        cluster.wait("it has begun", lambda: cluster.shell("n1", changed) != before, seconds=90, pause=0.05)

    assert kill_when([*rollback(cluster), "--yes"], has_written) == -signal.SIGKILL, "it had ended"
    cluster.autarky(*rollback(cluster), "--yes", timeout=300)
    cluster.wait("the former version serves", lambda: serves(cluster) == former, seconds=60)
    assert status_of(cluster)["spec"]["version"] == former


def test_after_that_it_ends_as_if_it_had_not_been_killed(cluster: TestCluster) -> None:
    goes_back(cluster, FORMER)
