"""etcd hangs for a minute, and its disk fills up: nothing is torn down for it, and all comes back by itself.

How long the API took to serve after the end of each trouble is printed (`pytest --log-cli-level=INFO`) and bounded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from harness import AGNHOST, TestCluster, one_node
from slots import settled, standbys
from survival import decisions, processes, schedules

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
TROUBLE_SECONDS = 60
BACK_SECONDS = 45
"""The API server's etcd client has waited ever longer between its attempts, up to some 17 s after a minute; a
restarted etcd waits up to 20 s for its kubelet."""
ACTS = ("takes over", "withdrawn", "done")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-trouble", **one_node())
    cluster.up()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    return cluster


def _endure(cluster: TestCluster, begin: str, end: str, what: str) -> None:
    """A trouble from its begin to its end: what must not happen meanwhile, and what must afterwards."""
    servers = processes(cluster, "kube-apiserver", "haproxy")
    decided = len(decisions(cluster, "kube-apiserver"))
    template = cluster.kubectl("-n", "kube-system", "get", "ds/kube-apiserver", "-o", "jsonpath={.spec.template}")
    with cluster.probed() as reports:
        cluster.shell("n1", begin)
        time.sleep(TROUBLE_SECONDS)  # the trouble itself, not a wait for anything
        assert standbys(cluster) == []
        cluster.shell("n1", end)
        over = time.monotonic()
        cluster.wait("the API answers again", cluster.api_answers, seconds=BACK_SECONDS)
        LOG.info(f"{what}: the API serves {time.monotonic() - over:.1f} s after its end")
        schedules(cluster, what.replace(" ", "-"), AGNHOST)
        LOG.info(f"{what}: a new pod runs {time.monotonic() - over:.1f} s after its end")
        cluster.wait("everything is healthy", lambda: settled(cluster), seconds=180)
    assert reports[0]["writes_lost"] == 0, reports[0]
    assert processes(cluster, "kube-apiserver", "haproxy") == servers
    since = decisions(cluster, "kube-apiserver")[decided:]
    assert not [event for event in since if any(act in event for act in ACTS)], since
    after = cluster.kubectl("-n", "kube-system", "get", "ds/kube-apiserver", "-o", "jsonpath={.spec.template}")
    assert after == template
    rolled_back = ("get", "events", "-A", "--field-selector=reason=RolledBack", "-o", "name")
    assert cluster.kubectl(*rolled_back) == ""


def test_an_etcd_that_hangs_for_a_minute_is_waited_for(cluster: TestCluster) -> None:
    _endure(cluster, "pkill -STOP -x etcd", "pkill -CONT -x etcd", "etcd hung")


def test_a_full_disk_is_outlived(cluster: TestCluster) -> None:
    """The file system holds etcd's data, the agents' state and the manifests. fallocate takes all that is left;
    dd what fallocate could not take; a write makes etcd notice."""
    fill = (
        "cd /var/lib/autarky; fallocate -l $(df --output=avail -B1 . | tail -1) full || true; "
        "dd if=/dev/zero of=rest bs=4k status=none 2>/dev/null || true; df . | tail -1"
    )
    _endure(cluster, fill, "rm -f /var/lib/autarky/full /var/lib/autarky/rest", "full disk")
