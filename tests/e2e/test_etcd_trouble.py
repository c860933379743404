"""etcd hangs for a minute, and its disk fills up: nothing is torn down for it, and all comes back by itself.

How long the API took to serve after the end of each trouble is printed (`pytest --log-cli-level=INFO`) and bounded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pytest
from ha import nothing_lost
from harness import AGNHOST, TestCluster, one_node
from power import Client
from slots import settled, standbys
from survival import decisions, processes, schedules

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
TROUBLE_SECONDS = 60
BACK_SECONDS = 45
"""The API server's etcd client has waited ever longer between its attempts, up to some 17 s after a minute; a
restarted etcd waits up to 20 s for its kubelet."""
ACTS = ("takes over", "withdrawn", "done")
BYTES, MOST_WRITES = 900_000, 150
"""Of one big write: the API takes one MiB. So many are more than etcd keeps for its log beforehand (64 MB, twice)."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-trouble", **one_node())
    cluster.up()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    return cluster


@dataclass(frozen=True)
class Trouble:
    """lasts: fails where it is not there, or not any more."""

    what: str
    begin: Callable[[], None]
    lasts: Callable[[], None]
    end: Callable[[], None]


def _endure(cluster: TestCluster, trouble: Trouble) -> None:
    """A trouble from its begin to its end: what must not happen meanwhile, and what must afterwards."""
    servers = processes(cluster, "kube-apiserver", "haproxy")
    decided = len(decisions(cluster, "kube-apiserver"))
    template = cluster.kubectl("-n", "kube-system", "get", "ds/kube-apiserver", "-o", "jsonpath={.spec.template}")
    with cluster.probed() as reports:
        try:
            trouble.begin()
            trouble.lasts()
            time.sleep(TROUBLE_SECONDS)  # the trouble itself, not a wait for anything
            assert standbys(cluster) == []
            trouble.lasts()
        finally:
            trouble.end()
        _comes_back(cluster, trouble.what)
    nothing_lost(reports[0])
    assert processes(cluster, "kube-apiserver", "haproxy") == servers
    since = decisions(cluster, "kube-apiserver")[decided:]
    assert not [event for event in since if any(act in event for act in ACTS)], since
    after = cluster.kubectl("-n", "kube-system", "get", "ds/kube-apiserver", "-o", "jsonpath={.spec.template}")
    assert after == template
    rolled_back = ("get", "events", "-A", "--field-selector=reason=RolledBack", "-o", "name")
    assert cluster.kubectl(*rolled_back) == ""


def _comes_back(cluster: TestCluster, what: str) -> None:
    over = time.monotonic()
    cluster.wait("the API answers again", cluster.api_answers, seconds=BACK_SECONDS)
    LOG.info(f"{what}: the API serves {time.monotonic() - over:.1f} s after its end")
    schedules(cluster, what.replace(" ", "-"), AGNHOST)
    LOG.info(f"{what}: a new pod runs {time.monotonic() - over:.1f} s after its end")
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=180)


def test_an_etcd_that_hangs_for_a_minute_is_waited_for(cluster: TestCluster) -> None:
    [member] = processes(cluster, "etcd")

    def hangs() -> None:
        assert cluster.shell("n1", "sed 's/.*) //' /proc/$(pgrep -x etcd)/stat | cut -c 1").strip() == "T"

    def signal(name: str) -> None:
        cluster.shell("n1", f"pkill -{name} -x etcd")

    _endure(cluster, Trouble("etcd hung", partial(signal, "STOP"), hangs, partial(signal, "CONT")))
    assert processes(cluster, "etcd") == {member}, "it was ended for it"


def test_a_full_disk_is_outlived(cluster: TestCluster) -> None:
    """The file system holds etcd's data, the agents' state and the manifests. While it is full, etcd is asked for space
    that it does not have."""
    filling = Filling(cluster)
    _endure(cluster, Trouble("full disk", filling.begin, filling.lasts, filling.end))
    assert filling.lost() == set()
    cluster.kubectl("delete", "configmap", "-l", filling.LABEL)


@dataclass
class Filling:
    """A file that takes all there is and goes on to take what becomes free; then big writes, until etcd refuses one."""

    cluster: TestCluster
    acknowledged: set[str] = field(default_factory=set)
    LABEL: ClassVar[str] = "filling=yes"
    _UNIT: ClassVar[str] = "fill-the-disk"
    _PATH: ClassVar[str] = "/api/v1/namespaces/default/configmaps"

    def begin(self) -> None:
        self.cluster.shell("n1", "cd /var/lib/autarky; fallocate -l $(df --output=avail -B1 . | tail -1) full || true")
        dd = "dd if=/dev/zero of=/var/lib/autarky/rest bs=4k oflag=append conv=notrunc status=none"
        loop = f"while :; do {dd} 2>/dev/null; sleep 0.2; done"
        self.cluster.shell("n1", f"systemd-run --quiet --collect --unit={self._UNIT} sh -c '{loop}'")
        self.cluster.wait("the disk is full", self._is_full, seconds=30)
        members, refusals = processes(self.cluster, "etcd"), self._refusals()
        self._write_until_refused()
        self.cluster.wait(
            "etcd has met the full disk",
            lambda: self._refusals() > refusals or processes(self.cluster, "etcd") != members,
            seconds=30,
        )

    def lasts(self) -> None:
        self.cluster.wait("the disk is full", self._is_full, seconds=10)

    def end(self) -> None:
        self.cluster.shell("n1", f"systemctl stop {self._UNIT}; rm -f /var/lib/autarky/full /var/lib/autarky/rest")

    def lost(self) -> set[str]:
        """Of the big writes, what was acknowledged and is not there."""
        found = self.cluster.kubectl("get", "configmap", "-l", self.LABEL, "-o", "name").split()
        return self.acknowledged - {name.removeprefix("configmap/") for name in found}

    def _is_full(self) -> bool:
        """Nothing is left, and root writes not so much as a block into any directory that it is for."""
        available, *said = self.cluster.shell("n1", _WRITE_A_BLOCK).splitlines()
        refused = [line for line in said if line.endswith("No space left on device")]
        return int(available) == 0 and len(refused) == 3 and not any("took a block" in line for line in said)

    def _refusals(self) -> int:
        """How often etcd has said that it cannot write."""
        logs = "cat /var/log/pods/kube-system_etcd-*/etcd/*.log"
        return int(self.cluster.shell("n1", f"{logs} | grep -c 'no space left on device' || true"))

    def _write_until_refused(self) -> None:
        """etcd has kept some space for its log, and has pages that it has freed."""
        client, (label, _, value) = Client(self.cluster), self.LABEL.partition("=")
        for number in range(MOST_WRITES):
            name = f"{label}-{number}"
            big = {"metadata": {"name": name, "labels": {label: value}}, "data": {"big": "x" * BYTES}}
            if client.send("POST", self._PATH, big) is None:
                return
            self.acknowledged.add(name)
        raise AssertionError(f"etcd has taken {MOST_WRITES} times {BYTES} bytes on a full disk")


_WRITE_A_BLOCK = """\
df --output=avail -B1 /var/lib/etcd | tail -1
for directory in /var/lib/etcd /var/lib/autarky /etc/kubernetes; do
  dd if=/dev/zero of=$directory/.block bs=4096 count=1 conv=fsync status=none 2>&1 && echo "$directory took a block"
  rm -f $directory/.block
done
"""
