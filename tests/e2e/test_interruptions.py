"""`up` killed at any moment, and run again: it converges each time.

The moments are fresh ones in each run, one in each slice of the time that a whole `up` takes on this machine, which is
measured first. AUTARKY_SEED makes the same ones again, as far as the machine is as fast.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random

import pytest
from harness import Show, TestCluster, kill_at, one_node

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

ROUNDS = 10
LATEST = 0.95
"""Of a whole `up`: a later moment may come when it has ended."""


@pytest.fixture(scope="module")
def length(make_cluster: Callable[..., TestCluster]) -> float:
    """Seconds that a whole `up` takes which finds what later ones find: components, and the test hosts' files."""
    cluster = make_cluster("t-kill-whole", **one_node())
    cluster.autarky("payload", "get", timeout=1500)
    cluster.autarky("lab", "up", cluster.name)
    cluster.autarky("lab", "down", cluster.name)
    began = time.monotonic()
    cluster.up()
    took = time.monotonic() - began
    cluster.down()
    return took


@pytest.mark.parametrize("number", range(ROUNDS))
def test_up_killed_at_a_random_moment_converges_when_run_again(
    make_cluster: Callable[..., TestCluster], show: Show, length: float, seed: str, number: int
) -> None:
    cluster = make_cluster(f"t-kill-{number}", **one_node())
    moment = _killed_in_slice(cluster, number, length, Random(f"{seed} interruption {number}"))  # noqa: S311 # no secret
    killed = f"killed after {moment:.2f} s of {length:.1f} s (AUTARKY_SEED={seed})"
    show(killed)
    cluster.up()
    found = cluster.status()
    assert found["healthy"], (killed, found)
    assert "up: unchanged" in cluster.up().stderr, killed
    assert {n.rsplit("-", 1)[0] for n in cluster.static_pods("n1")} == {
        "etcd",
        "node-agent-standby",
        "node-load-balancer",
    }, killed
    cluster.down()


def _killed_in_slice(cluster: TestCluster, number: int, length: float, random: Random) -> float:
    """Seconds after which it was killed. One `up` may be faster than the one that was measured: then it is tried once
    more, at an earlier moment of the slice."""
    begin, end = (LATEST * length * part / ROUNDS for part in (number, number + 1))
    moment = random.uniform(begin, end)
    status = _up_killed_at(cluster, moment)
    if status == 0:
        cluster.down()
        moment = random.uniform(begin, moment)
        status = _up_killed_at(cluster, moment)
    assert status == -signal.SIGKILL, f"`up` ended with {status} before it was killed after {moment:.2f} s"
    return moment


def _up_killed_at(cluster: TestCluster, seconds: float) -> int:
    return kill_at(["up", "-f", str(cluster.file), "-o", "plain"], seconds)
