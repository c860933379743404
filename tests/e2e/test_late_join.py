"""A node whose first join was held up for longer than its token lives joins with the next `up`.

A kubelet writes its kubeconfig at its first start, before it has a certificate, and reads its token then only.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import TestCluster
from rollouts import SYSTEM

from autarky.control.kubelet.manifests.credentials import CURRENT, KUBELET_KUBECONFIG
from autarky.workflows.up import PHASES

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(600)]

_NAMES = [phase.name for phase in PHASES]


def _without(first: str) -> list[str]:
    """Not that phase, nor any after it."""
    return [f"--skip={name}" for name in _NAMES[_NAMES.index(first) :]]


def test_a_worker_that_reached_the_api_only_after_its_token_had_gone_joins_with_the_next_up(
    make_cluster: Callable[..., TestCluster],
) -> None:
    nodes = [{"name": "n1", "roles": ["control-plane", "worker"]}, {"name": "w1", "roles": ["worker"]}]
    cluster = make_cluster("t-late-join", nodes=nodes)
    cluster.up(*_without("start-control-plane"))
    control_node = cluster.shell("n1", "hostname -I").split()[0]
    cluster.shell("w1", f"ip route add blackhole {control_node}")
    cluster.up(*_without("apply-objects"))
    written = f"[ ! -e {KUBELET_KUBECONFIG} ] || echo yes"
    cluster.wait("the kubelet has begun to ask", lambda: cluster.shell("w1", written) == "yes\n")
    assert CURRENT not in cluster.shell("w1", "ls -R /var/lib/kubelet")
    [token] = _tokens(cluster)
    cluster.kubectl(*SYSTEM, "delete", token)  # as its end does
    cluster.shell("w1", f"ip route del blackhole {control_node}")
    cluster.up()
    assert _tokens(cluster) == []
    assert cluster.kubectl("get", "nodes", "-o", "name").split() == ["node/n1", "node/w1"]
    assert "up: unchanged" in cluster.up().stderr


def _tokens(cluster: TestCluster) -> list[str]:
    secrets = cluster.kubectl(*SYSTEM, "get", "secrets", "-o", "name").split()
    return [name for name in secrets if name.startswith("secret/bootstrap-token-")]
