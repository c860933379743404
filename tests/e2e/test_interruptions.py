"""`up` killed at any moment, and run again: it converges each time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from harness import TestCluster, kill_at

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(1800)]

ROUNDS = 10
LONGEST = 22.0
"""Seconds: about as long as a whole `up` takes, so that every phase is hit."""


@pytest.mark.parametrize("number", range(ROUNDS))
def test_up_killed_at_a_random_moment_converges_when_run_again(
    make_cluster: Callable[..., TestCluster], number: int
) -> None:
    seconds = random.Random(f"interruption {number}").uniform(0.5, LONGEST)  # noqa: S311 # a moment, not a secret
    cluster = make_cluster(f"t-kill-{number}", nodes=[{"name": "n1"}])
    status = kill_at(["up", "-f", str(cluster.file), "-o", "plain"], seconds)
    cluster.up()
    found = cluster.status()
    assert found["healthy"], (seconds, status, found)
    assert "up: unchanged" in cluster.up().stderr, (seconds, status)
    assert {n.rsplit("-", 1)[0] for n in cluster.static_pods("n1")} == {
        "etcd",
        "node-agent-standby",
        "node-load-balancer",
    }
    cluster.down()
