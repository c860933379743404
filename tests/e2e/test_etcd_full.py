"""etcd's database grows on one node: the agent gives back what is free in it. At its quota the agent makes space where
there is some, says what to do where there is none, and clears the alarm by itself when objects have been deleted."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from ha import ETCDCTL
from harness import TestCluster, one_node
from power import Client
from slots import settled
from survival import decisions

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
QUOTA = 48 * 1024 * 1024
"""A new cluster has some 10 MiB."""
BYTES, MOST_WRITES = 900_000, 120
LABEL = "filling=yes"
PATH = "/api/v1/namespaces/default/configmaps"
FRAGMENTED = 0.85
"""Of the quota: more than what makes a database big (`decide.maintenance.NEARLY_FULL`), and not yet all of it."""
DEFRAGMENTED_SECONDS = 180
"""Nothing has changed for a minute then, and the agent looks twice in a minute."""
TOLD_SECONDS = 120
CLEARED_SECONDS = 420
"""Where there was no space, the agent looks again after a minute, then after two, and at most after five."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-full", **one_node(extraArgs={"etcd": {"quota-backend-bytes": str(QUOTA)}}))
    cluster.up()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    return cluster


def member(cluster: TestCluster) -> dict[str, Any]:
    """As `autarky etcd status` shows it, which needs no API."""
    shown = cluster.autarky("etcd", "status", "-o", "json", "--cluster", cluster.name, check=False).stdout
    found: dict[str, Any] = json.loads(shown)["members"][0]
    return found


def said(cluster: TestCluster) -> str:
    """What the agent has logged about etcd's upkeep."""
    return "\n".join(decisions(cluster, "etcd upkeep"))


def times_cleared(cluster: TestCluster) -> int:
    """How often the agent has cleared an alarm."""
    return said(cluster).count("clear the alarm: done")


def database_bytes(cluster: TestCluster) -> int:
    """As etcd says, which takes less time than the command."""
    [found] = json.loads(cluster.shell("n1", f"{ETCDCTL} endpoint status -w json"))
    return int(found["Status"]["dbSize"])


def events(cluster: TestCluster) -> dict[str, str]:
    """Reason → all messages, of the events on the EtcdMember."""
    fields = "involvedObject.kind=EtcdMember,involvedObject.name=n1"
    found = json.loads(cluster.kubectl("get", "events", "-n", "default", f"--field-selector={fields}", "-o", "json"))
    messages: dict[str, list[str]] = {}
    for one in found["items"]:
        messages.setdefault(one["reason"], []).append(one["message"])
    return {reason: "\n".join(of_it) for reason, of_it in messages.items()}


def writes(cluster: TestCluster, name: str, size: int = BYTES) -> bool:
    label, _, value = LABEL.partition("=")
    big = {"metadata": {"name": name, "labels": {label: value}}, "data": {"big": "x" * size}}
    return Client(cluster).send("POST", PATH, big) is not None


def fill(cluster: TestCluster) -> None:
    for number in range(MOST_WRITES):
        if not writes(cluster, f"filling-{number}") and "NOSPACE" in member(cluster)["alarms"]:
            return
    raise AssertionError(f"etcd has taken {MOST_WRITES} times {BYTES} bytes: {member(cluster)}")


def rewrite(cluster: TestCluster, name: str, until: Callable[[bool], bool]) -> None:
    """One object again and again, until this is met (of whether the last write was taken): all but that is history. Its
    content is another one each time: the API server writes no object that is equal to what is there."""
    assert writes(cluster, name)
    client = Client(cluster)
    for number in range(MOST_WRITES):
        big = {"metadata": {"name": name}, "data": {"big": f"{number:04}" + "y" * BYTES}}
        if until(client.send("PUT", f"{PATH}/{name}", big) is not None):
            return
    raise AssertionError(f"etcd has taken {MOST_WRITES} times {BYTES} bytes: {member(cluster)}")


def is_told_or_cleared(cluster: TestCluster) -> bool:
    """Whether the agent says that nothing is left to give up; if not, it has cleared the alarm."""

    def told() -> bool:
        return "There is nothing left to give up" in said(cluster)

    cluster.wait(
        "the agent says so, or clears the alarm",
        lambda: told() or member(cluster)["alarms"] == [],
        seconds=TOLD_SECONDS,
    )
    return told()


def sample(cluster: TestCluster, name: str) -> float | None:
    """A metric of the node agent."""
    lines = cluster.shell("n1", "curl -s http://127.0.0.1:10301/metrics").splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"autarky_agent_etcd_{name}{{")), None)


def test_a_database_of_which_most_is_free_is_defragmented_with_nobody_there(cluster: TestCluster) -> None:
    """The first of these: without an alarm no member is defragmented within an hour after another time. The API server
    gives up what is older than five minutes, as the command does here."""
    cluster.announce()
    rewrite(cluster, "fragmented", lambda _: database_bytes(cluster) > FRAGMENTED * QUOTA)
    cluster.autarky("etcd", "compact", "--keep", "0", "--cluster", cluster.name)
    free = time.monotonic()
    cluster.wait("its database shrinks", lambda: database_bytes(cluster) < QUOTA / 2, seconds=DEFRAGMENTED_SECONDS)
    LOG.info(f"the database was defragmented {time.monotonic() - free:.0f} s after the compaction")
    cluster.announcements_end()
    cluster.wait("there is an event", lambda: "EtcdDefragmented" in events(cluster), seconds=60)
    assert "of the database of n1" in events(cluster)["EtcdDefragmented"]
    assert "NOSPACE" not in said(cluster)


def test_a_full_etcd_says_what_to_do_and_takes_writes_again_once_objects_are_deleted(cluster: TestCluster) -> None:
    cluster.announce()
    for _ in range(5):  # what history and free pages take is had back first
        fill(cluster)
        if is_told_or_cleared(cluster):
            break
    else:
        raise AssertionError("the alarm is cleared, however full it is")
    assert "is given up" in said(cluster), "the history was compacted before that was said"
    assert member(cluster)["alarms"] == ["NOSPACE"], "it is not cleared without space"
    assert not writes(cluster, "refused", 10)

    cluster.kubectl("delete", "configmap", "-l", LABEL, "--wait=false")
    deleted = time.monotonic()
    cluster.wait("the alarm is cleared", lambda: member(cluster)["alarms"] == [], seconds=CLEARED_SECONDS)
    LOG.info(f"the alarm was cleared {time.monotonic() - deleted:.0f} s after the objects were deleted")
    cluster.wait("writes are taken", lambda: writes(cluster, f"taken-{time.time_ns()}", 10), seconds=30)
    assert member(cluster)["size"] < 0.9 * QUOTA
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=240)
    cluster.announcements_end()

    cluster.wait("the events are there", lambda: "EtcdAlarmCleared" in events(cluster), seconds=60)
    found = events(cluster)
    assert {"EtcdHistoryCompacted", "EtcdOutOfSpace", "EtcdDefragmented"} <= set(found)
    assert "alarm NOSPACE" in found["EtcdDefragmented"]
    assert "delete objects" in found["EtcdOutOfSpace"]
    assert "etcd takes writes" in found["EtcdAlarmCleared"]
    shape = '{.status.conditions[?(@.type=="EtcdInShape")].status}'
    cluster.wait(
        "nothing needs attention",
        lambda: cluster.kubectl("get", "controlplane", "cluster", "-o", f"jsonpath={shape}") == "True",
        seconds=120,
    )


def test_space_that_only_history_takes_is_had_back_with_nobody_there(cluster: TestCluster) -> None:
    """What is live is small."""
    cluster.announce()
    before = times_cleared(cluster)
    rewrite(cluster, "rewritten", lambda taken: not taken and "NOSPACE" in member(cluster)["alarms"])
    full = time.monotonic()
    cluster.wait("the agent clears the alarm", lambda: times_cleared(cluster) > before, seconds=CLEARED_SECONDS)
    assert member(cluster)["alarms"] == []
    LOG.info(f"the alarm was cleared {time.monotonic() - full:.0f} s after the last write")
    cluster.wait("writes are taken", lambda: writes(cluster, f"taken-{time.time_ns()}", 10), seconds=30)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=240)
    cluster.announcements_end()


def test_the_agent_shows_how_the_member_is(cluster: TestCluster) -> None:
    cluster.wait("the figures are those of now", lambda: sample(cluster, "alarm") == 0, seconds=90)
    assert (sample(cluster, "up"), sample(cluster, "leads"), sample(cluster, "learner")) == (1, 1, 0)
    assert sample(cluster, "quota_bytes") == QUOTA
    size, in_use = sample(cluster, "database_bytes"), sample(cluster, "database_in_use_bytes")
    assert size is not None
    assert in_use is not None
    assert 0 < in_use <= size < QUOTA
    cluster.wait("there are latencies", lambda: sample(cluster, "fsync_p99_seconds") is not None, seconds=120)
    assert (sample(cluster, "commit_p99_seconds") or 0) > 0
