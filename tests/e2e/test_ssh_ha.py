"""Three control nodes and a worker on machines that are reached by ssh, one run, one more, and the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ha import CONTROL, etcd_members, wait_until_healthy
from harness import TestCluster
from machines import Machines

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

HOSTS = (*CONTROL, "n4")


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines("t-ssh-ha-lab", len(HOSTS))
    made.make()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def cluster(machines: Machines, make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = {name: ["control-plane", "worker"] if name in CONTROL else ["worker"] for name in HOSTS}
    nodes = [{"name": name, "host": f"ssh://{name}", "roles": roles[name]} for name in HOSTS]
    return make_cluster("t-ssh-ha", nodes=nodes, sshConfig=str(machines.ssh_config))


def test_up_by_ssh_brings_up_three_control_nodes_and_a_worker(machines: Machines, cluster: TestCluster) -> None:
    cluster.up()
    wait_until_healthy(cluster)
    assert etcd_members(machines.driver, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


def test_a_worker_leaves_by_ssh_and_its_machine_is_clean(machines: Machines, cluster: TestCluster) -> None:
    cluster.autarky("node", "remove", "--cluster", cluster.name, "n4", "--yes", "-o", "plain", timeout=300)
    assert machines.shell("n4", "ls -A /var/lib/autarky /etc/kubernetes 2>/dev/null | grep -v : || true").split() == []
    wait_until_healthy(cluster)


def test_down_leaves_every_machine_clean(machines: Machines, cluster: TestCluster) -> None:
    cluster.down()
    for host in CONTROL:
        assert machines.shell(host, "ls -A /var/lib/autarky; ls /run | grep autarky || true").strip() == ""
        assert machines.shell(host, "systemctl is-active kubelet containerd || true").split() == ["inactive"] * 2
