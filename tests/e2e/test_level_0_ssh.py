"""Level 0 on a machine that is reached by ssh: `down` ends both kubelets and leaves nothing, and `up` begins again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness import TestCluster
from level_0 import hosted_report
from machines import Machines

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines("t-level-0-ssh-lab", 1)
    made.make()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def cluster(machines: Machines, make_cluster: Callable[..., TestCluster]) -> TestCluster:
    nodes = [{"name": "n1", "host": "ssh://n1"}]
    return make_cluster("t-level-0-ssh", nodes=nodes, sshConfig=str(machines.ssh_config), selfHosted="0-4")


def test_down_ends_both_kubelets_and_up_begins_again(machines: Machines, cluster: TestCluster) -> None:
    for _ in range(2):
        cluster.up()
        cluster.wait("it is in force", lambda: hosted_report(cluster).get("state") == "InForce", seconds=60)
        assert len(machines.shell("n1", "pgrep -x kubelet").split()) == 2
        cluster.down()
        assert machines.shell("n1", "pgrep -a 'kubelet|busybox|containerd|kube-' || true").strip() == ""
        assert (
            machines.shell(
                "n1", "grep -E ' /run/autarky| /var/lib/(autarky|kubelet)/' /proc/self/mounts || true"
            ).strip()
            == ""
        )
        assert machines.shell("n1", "ls -A /var/lib/autarky; ls /run | grep autarky || true").strip() == ""
