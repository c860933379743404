"""Three tainted control nodes and a worker on machines that are reached by ssh: one run, one more, and the end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ha import CONTROL, etcd_members, wait_until_healthy
from harness import COMMAND, TestCluster, environment
from machines import Machines

from autarky.render.values import CONTROL_PLANE_REQUESTED

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(900)]

HOSTS = (*CONTROL, "n4")
PAUSE = "registry.k8s.io/pause:3.10.2"
"""Every node has it."""


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines("t-ssh-ha-lab", len(HOSTS))
    made.make()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def cluster(machines: Machines, make_cluster: Callable[..., TestCluster]) -> TestCluster:
    tainted = {"roles": ["control-plane"], "taints": [{"key": CONTROL_PLANE_REQUESTED, "effect": "NoSchedule"}]}
    of_role = {name: tainted if name in CONTROL else {"roles": ["worker"]} for name in HOSTS}
    nodes = [{"name": name, "host": f"ssh://{name}", **of_role[name]} for name in HOSTS]
    return make_cluster("t-ssh-ha", nodes=nodes, sshConfig=str(machines.ssh_config))


def test_up_by_ssh_brings_up_three_control_nodes_and_a_worker(machines: Machines, cluster: TestCluster) -> None:
    cluster.up()
    wait_until_healthy(cluster)
    assert etcd_members(machines.driver, "n1") == set(CONTROL)
    again = cluster.up().stderr
    assert "up: unchanged" in again, again


def test_pods_of_users_run_on_the_worker_only(cluster: TestCluster) -> None:
    """While everything of ours runs on the tainted nodes: all was healthy."""
    cluster.kubectl("create", "deployment", "theirs", "--replicas=4", f"--image={PAUSE}")
    cluster.kubectl("wait", "--for=condition=Available", "deploy/theirs", "--timeout=90s")
    nodes = cluster.kubectl("get", "pods", "-l", "app=theirs", "-o", "jsonpath={.items[*].spec.nodeName}")
    assert set(nodes.split()) == {"n4"}
    cluster.kubectl("delete", "deployment", "theirs")


def test_with_the_quorum_and_the_state_directory_lost_login_and_one_command_bring_it_back(
    machines: Machines, cluster: TestCluster, tmp_path: Path
) -> None:
    """Of the administrator's machine nothing is left but the way to the hosts."""

    def elsewhere(*argv: str) -> None:
        env = {**environment(), "XDG_STATE_HOME": str(tmp_path)}
        done = subprocess.run([*COMMAND, *argv], env=env, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr

    machines.driver.autarky("lab", "cut", "--lab", machines.lab, "n2", "n3")
    cluster.wait("the API is gone", lambda: not cluster.api_answers(), seconds=60)
    elsewhere("login", "n1", "--ssh-config", str(machines.ssh_config), "-o", "plain")
    elsewhere("etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain")
    cluster.wait("the API answers", cluster.api_answers, seconds=60)
    machines.driver.autarky("lab", "start", "--lab", machines.lab, "n2", "n3", "-o", "plain")
    wait_until_healthy(cluster)
    assert etcd_members(machines.driver, "n1") == set(CONTROL)


def test_a_worker_leaves_by_ssh_and_its_machine_is_clean(machines: Machines, cluster: TestCluster) -> None:
    cluster.autarky("node", "remove", "--cluster", cluster.name, "n4", "--yes", "-o", "plain", timeout=300)
    assert machines.shell("n4", "ls -A /var/lib/autarky /etc/kubernetes 2>/dev/null | grep -v : || true").split() == []
    wait_until_healthy(cluster)


def test_down_leaves_every_machine_clean(machines: Machines, cluster: TestCluster) -> None:
    cluster.down()
    for host in CONTROL:
        assert machines.shell(host, "ls -A /var/lib/autarky; ls /run | grep autarky || true").strip() == ""
        assert machines.shell(host, "systemctl is-active kubelet containerd || true").split() == ["inactive"] * 2
