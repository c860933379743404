"""At no time two clusters: the member on each host is asked, again and again, for something that needs its quorum."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ha import ETCDCTL
from harness import TestCluster
from two_clusters import Read, two_at_once

from autarky.errors import AutarkyError

_PAUSE = 0.5


@contextmanager
def one_etcd_at_a_time(cluster: TestCluster, *hosts: str) -> Iterator[None]:
    """Fails where, during the block, an etcd was read after another one that had begun later."""
    ended, reads = threading.Event(), list[Read]()
    threads = [threading.Thread(target=_ask, args=(cluster, host, ended, reads)) for host in hosts]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        ended.set()
        for one in threads:
            one.join()
    assert reads, "no member of etcd has answered"
    assert two_at_once(reads) == set()


def _ask(cluster: TestCluster, host: str, ended: threading.Event, reads: list[Read]) -> None:
    while not ended.wait(_PAUSE):
        begun = time.monotonic()
        try:
            said = cluster.shell(host, f"{ETCDCTL} --command-timeout=2s get none -w json")
            reads.append(Read(json.loads(said)["header"]["cluster_id"], begun, time.monotonic()))
        except (AssertionError, AutarkyError, ValueError, OSError, subprocess.SubprocessError):
            continue  # it is off, is not there yet, or has no quorum
