"""A workload that watches what is done to the control plane, as somebody's own would: pods that ask the API every
second through the Service `kubernetes`, and say when that fails.

Its client tries again by itself what a server has not answered. So each attempt counts, and how long nothing was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from harness import AGNHOST, TestCluster

NAME = "asks-the-api"
TURNED_AWAY = 6
"""Attempts of one pod that may be made again: a server that stops sends each client away once, and says so."""
SLOW_ETCD = 2
"""Answers of one pod in which a server says of its etcd that it was slow."""
LONGEST_GAP = timedelta(seconds=6)
"""Between two questions. It asks each second, and the next one waits for the answer."""
_CALL, _ATTEMPT = "calling /healthz", "authz_header="
_AT = re.compile(r"^I\d{4} (\d\d:\d\d:\d\d\.\d{6}) .*calling /healthz", re.MULTILINE)


@contextmanager
def a_workload_goes_on(cluster: TestCluster, *, least: int = 30) -> Iterator[None]:
    """During the block each of its two pods has asked at least so often, was always answered, and was left alone: the
    same pods, with no restart."""
    cluster.kubectl("create", "deployment", NAME, f"--image={AGNHOST}", "--replicas=2", *_ASK)
    try:
        cluster.kubectl("rollout", "status", f"deploy/{NAME}", "--timeout=90s")
        before = _pods(cluster)
        yield
        assert _pods(cluster) == before, "the workload was disturbed"
        for pod in before:
            _was_answered_always(cluster.kubectl("logs", f"pod/{pod}", "--tail=-1"), least)
    finally:
        cluster.kubectl("delete", "deployment", NAME, "--ignore-not-found")


_ERROR = "error checking /healthz: "


def _was_answered_always(log: str, least: int) -> None:
    asked = log.count(_CALL)
    assert asked >= least, log[-2000:]
    failed = [line for line in log.splitlines() if _ERROR in line]
    unanswered = [line for line in failed if not _was_answered(line)]
    assert unanswered == [], unanswered[:5]
    assert len(failed) <= SLOW_ETCD, failed
    again = log.count(_ATTEMPT) - asked
    assert log.count(_ATTEMPT) > 0
    assert again <= TURNED_AWAY, f"{again} of {asked} questions were asked again"
    gap = _longest_gap([datetime.strptime(at, "%H:%M:%S.%f") for at in _AT.findall(log)])  # noqa: DTZ007 # of one clock
    assert gap <= LONGEST_GAP, f"nothing was asked for {gap}"


def _longest_gap(times: list[datetime]) -> timedelta:
    """Midnight may lie between two of them."""
    assert len(times) > 1, times
    return max((after - before) % timedelta(days=1) for before, after in pairwise(times))


def _was_answered(line: str) -> bool:
    """Whether an API server has answered, and has nothing to say against itself: its etcd was slow for a moment, on a
    busy machine."""
    return line.count("[-]") == 1 and "[-]etcd failed" in line


_ASK = ("--", "/usr/local/bin/agnhost", "inclusterclient", "--poll-interval=1")


def _pods(cluster: TestCluster) -> dict[str, tuple[str, int]]:
    """Name → uid and restarts."""
    found = json.loads(cluster.kubectl("get", "pods", "-l", f"app={NAME}", "-o", "json"))["items"]
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], _restarts(pod)) for pod in found}


def _restarts(pod: dict[str, Any]) -> int:
    return sum(int(one["restartCount"]) for one in pod["status"]["containerStatuses"])
