"""One SIGKILL of `up` at a random moment, in every run of CI; the rotation has one in each slice of a whole `up`
(test_interruptions).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from random import Random

import pytest
from harness import COMMAND, Show, TestCluster, environment
from power import settled

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node", up=False), pytest.mark.timeout(600)]

PHASE = re.compile(r"\[(\d+)/(\d+)\] (.*)")
LONGEST_INTO = 5.0
AT_THE_END = 0.1
"""Seconds for which `up` runs on at least for each phase that is not over, so that it is killed and has not ended."""
NOTHING_TO_DO = 2
"""The last phases, of a cluster without add-ons of its own and with nothing to delete."""
STATIC = {"etcd", "node-agent-standby", "node-load-balancer"}


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    """Nothing of it is there. Those that share it go on with what comes of this."""
    return one_node


def test_up_killed_in_a_random_phase_converges_when_run_again(cluster: TestCluster, show: Show, seed: str) -> None:
    status, killed = _up_killed(cluster, Random(f"{seed} killed up"))  # noqa: S311 # no secret
    killed = f"killed {killed} (AUTARKY_SEED={seed})"
    show(killed)
    assert status == -signal.SIGKILL, f"`up` ended with {status} before it was {killed}"
    cluster.up()
    cluster.wait(f"everything is settled, {killed}", lambda: settled(cluster), seconds=120)
    assert "up: unchanged" in cluster.up().stderr, killed
    assert {name.rsplit("-", 1)[0] for name in cluster.static_pods("n1")} == STATIC, killed


def _up_killed(cluster: TestCluster, random: Random) -> tuple[int, str]:
    """Its status, and when it was killed: some seconds after the begin of a phase, each of which is as likely."""
    argv = [*COMMAND, "up", "-f", str(cluster.file), "-o", "plain"]
    drawn, seconds, title = 0, 0.0, ""
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as up:
        try:
            assert up.stderr is not None
            for line in up.stderr:
                phase = PHASE.match(line)
                if phase is None:
                    continue
                number, of, title = int(phase[1]), int(phase[2]), phase[3]
                if not drawn:
                    drawn = random.randint(1, of - NOTHING_TO_DO)
                    seconds = random.uniform(0, min(LONGEST_INTO, AT_THE_END * (of - drawn + 1)))
                if number >= drawn:
                    break
            time.sleep(seconds)
        finally:
            if up.poll() is None:
                os.killpg(up.pid, signal.SIGKILL)
        return up.wait(), f"{seconds:.2f} s after phase {drawn} began, «{title}»"
