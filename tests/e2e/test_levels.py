"""The other levels of self-hosting: nothing but add-ons, controllers only, and etcd outside of the cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import TestCluster, one_node

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(600)]


def _slots(cluster: TestCluster) -> dict[str, str]:
    """Component → the slot that is ready."""
    rows = cluster.status()["rows"]
    return {row["component"]: row["slot"] for row in rows if row["health"] == "ready"}


@pytest.mark.parametrize(
    ("name", "level", "api_server", "controllers"),
    [("t-level-4", "4", "standby", "standby"), ("t-level-3", "3-4", "standby", "hosted")],
)
def test_levels_below_the_first_hosted_one_stay_static(
    make_cluster: Callable[..., TestCluster], name: str, level: str, api_server: str, controllers: str
) -> None:
    cluster = make_cluster(name, **one_node(selfHosted=level))
    cluster.up()
    assert cluster.status()["healthy"], cluster.status()
    wanted = {"kube-apiserver": api_server, "kube-controller-manager": controllers, "kube-scheduler": controllers}
    assert wanted.items() <= _slots(cluster).items()
    assert "up: unchanged" in cluster.up().stderr
    cluster.autarky("lab", "cut", "--lab", name, "n1")
    cluster.autarky("lab", "start", "--lab", name, "n1", "-o", "plain")
    cluster.wait("the API answers again", cluster.api_answers, seconds=120)
    cluster.wait("all is healthy again", lambda: cluster.status()["healthy"], seconds=180)
    cluster.wait("each is where it was", lambda: wanted.items() <= _slots(cluster).items(), seconds=120)


def test_etcd_on_a_host_of_its_own_serves_a_hosted_control_plane(make_cluster: Callable[..., TestCluster]) -> None:
    cluster = make_cluster("t-etcd-out", **one_node(selfHosted="2-4", etcd={"external": {"lab": "etcd1"}}))
    cluster.up()
    assert cluster.status()["healthy"], cluster.status()
    assert _slots(cluster)["kube-apiserver"] == "hosted"
    assert {name.rsplit("-", 1)[0] for name in cluster.static_pods("n1")} == {
        "node-agent-standby",
        "node-load-balancer",
    }
    assert cluster.shell("etcd1", "systemctl is-active etcd").strip() == "active"
    assert "up: unchanged" in cluster.up().stderr
    assert _external_etcd(cluster) == "ready"
    cluster.shell("etcd1", "systemctl stop etcd")
    assert _external_etcd(cluster) == "not ready", "it was looked at"
    cluster.shell("etcd1", "systemctl start etcd")
    cluster.wait("it is well again", lambda: _external_etcd(cluster) == "ready")


def _external_etcd(cluster: TestCluster) -> str:
    [health] = [row["health"] for row in cluster.status()["rows"] if row["slot"] == "external"]
    return str(health)
