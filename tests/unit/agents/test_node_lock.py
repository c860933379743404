"""One agent acts on a node, the others are parked: real processes, the kernel's own locks."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ACT = """
import sys, time
from pathlib import Path
from autarky.agents.node import lock
lock.DIRECTORY = sys.argv[1]
lock.LOCK, lock.WANTED = f"{sys.argv[1]}/lock", f"{sys.argv[1]}/wanted"
lock.WATCHDOG_SECONDS = int(sys.argv[3])
hold = lock.Hold(standby=sys.argv[2] == "standby")
print("acts", flush=True)
while not hold.must_yield():
    if sys.argv[4] == "alive":
        hold.alive()
    time.sleep(0.02)
lock.park_again()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(slot: str, watchdog: int = 60, how: str = "alive") -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", ACT, str(tmp_path / "run"), slot, str(watchdog), how]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def acts(process: subprocess.Popen[str]) -> bool:
    """Waits until it begins to act; False when it ended instead."""
    assert process.stdout is not None
    return process.stdout.readline() == "acts\n"


def test_a_standby_yields_to_a_hosted_agent_and_takes_over_when_that_is_killed(start: Start) -> None:
    standby = start("standby")
    assert acts(standby)
    hosted = start("hosted")
    assert acts(hosted)
    hosted.kill()
    assert acts(standby), "it was executed anew, and parked until now"


def test_a_hosted_agent_that_waits_behind_another_hosted_one_does_not_make_it_yield(start: Start) -> None:
    first = start("hosted")
    assert acts(first)
    second = start("hosted")
    time.sleep(0.3)
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert acts(second)


def test_an_agent_that_hangs_is_ended_and_frees_the_lock(start: Start) -> None:
    hung = start("standby", watchdog=1, how="hung")
    assert acts(hung)
    waiting = start("standby")
    assert hung.wait(timeout=60) == -signal.SIGALRM
    assert acts(waiting)


def test_a_parked_agent_has_imported_nothing_big() -> None:
    big = ("asyncio", "ssl", "json", "pathlib", "httpx2", "structlog", "google")
    code = f"import sys, autarky.agents.node.__main__; print([m for m in {big} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
