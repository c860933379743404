"""One agent acts on a node, the others wait: real processes, the kernel's own locks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autarky.agents.node import lock

HANG = 4.0
"""Seconds. A machine that has much to do may not let a holder run for a second or two, and that is no hang."""
ACT = f"""
import os, sys, time
from autarky.agents.node import lock
directory, slot, how, kill = sys.argv[1:5]
lock.DIRECTORY = directory
lock.LOCK, lock.WANTED = directory + "/lock", directory + "/wanted"
lock.HANG_SECONDS, lock.LOOK_SECONDS, lock.BEAT_SECONDS = {HANG}, 0.1, 0.1
lock.END_HUNG = ["/bin/sh", "-c", kill, "end"]
hold = lock.Hold(standby=slot == "standby")
print("acts", flush=True)
if how == "begins":
    time.sleep({HANG + 2})  # imports, on a slow machine
hold.began()
if how == "blocked":
    os.read(os.pipe()[0], 1)
while not hold.must_yield():
    hold.alive()
    time.sleep(0.02)
lock.park_again()
"""
"""An agent of which only the lock is real. `kill` stands for the container runtime."""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(slot: str, how: str = "alive", kill: str = "false", first: bool = False) -> subprocess.Popen[str]:
        """first: as the first process of a PID namespace of its own, as in a container."""
        namespace = ["unshare", "--pid", "--fork", "--kill-child"]
        namespace += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        argv = [sys.executable, "-c", ACT, str(tmp_path / "run"), slot, how, kill]
        pod = {**os.environ, lock.POD: f"pod-{len(running)}"}
        process = subprocess.Popen([*(namespace if first else ()), *argv], stdout=subprocess.PIPE, text=True, env=pod)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def acts(process: subprocess.Popen[str]) -> bool:
    """Waits until it begins to act; False when it ended instead."""
    assert process.stdout is not None
    return process.stdout.readline() == "acts\n"


def child_of(process: subprocess.Popen[str]) -> int:
    """The first process of the namespace, as it is called outside of it."""
    deadline = time.monotonic() + 60
    while not (children := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()):
        assert time.monotonic() < deadline, "it has not started"
        time.sleep(0.02)
    (child,) = children
    return int(child)


def waits(pid: int) -> None:
    """Until this process waits for a lock: the kernel lists it."""
    deadline = time.monotonic() + 60
    while not re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text()):
        assert time.monotonic() < deadline, f"{pid} does not wait"
        time.sleep(0.05)


def test_a_standby_yields_to_a_hosted_agent_and_takes_over_when_that_is_killed(start: Start) -> None:
    standby = start("standby")
    assert acts(standby)
    hosted = start("hosted")
    assert acts(hosted)
    hosted.kill()
    assert acts(standby), "it re-executed itself, and waited until now"


def test_a_hosted_agent_that_waits_behind_another_hosted_one_does_not_make_it_yield(start: Start) -> None:
    first = start("hosted")
    assert acts(first)
    second = start("hosted")
    waits(second.pid)
    time.sleep(0.3)  # it looks every 20 ms
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert acts(second)


@pytest.mark.parametrize("slot", ["hosted", "standby"])
@pytest.mark.parametrize("how", ["blocked", "stopped"])
def test_a_holder_that_hangs_as_the_first_process_of_its_container_is_ended_by_one_that_waits(
    start: Start, how: str, slot: str
) -> None:
    hung = start(slot, how=how, first=True)
    assert acts(hung)
    child = child_of(hung)
    if how == "stopped":
        os.kill(child, signal.SIGSTOP)
    waiting = start("standby" if slot == "hosted" else "hosted", kill=f"kill -KILL {child}")
    began = time.monotonic()
    assert acts(waiting)
    assert time.monotonic() - began < HANG + 60
    assert hung.wait(timeout=60) != 0


def test_a_holder_that_gives_its_beats_is_left_alone_by_those_who_wait(start: Start) -> None:
    acting = start("hosted")
    assert acts(acting)
    start("standby", kill=f"kill -KILL {acting.pid}")
    start("hosted", kill=f"kill -KILL {acting.pid}")
    time.sleep(HANG + 2)
    assert acting.poll() is None


def test_a_holder_that_begins_slowly_is_left_alone_by_those_who_wait(start: Start) -> None:
    acting = start("hosted", how="begins")
    assert acts(acting)
    start("standby", kill=f"kill -KILL {acting.pid}")
    time.sleep(HANG + 1.5)
    assert acting.poll() is None


def test_one_that_waited_leaves_no_beat_behind_by_which_the_next_one_would_seem_hung(
    start: Start, tmp_path: Path
) -> None:
    """That may be of an earlier release, which gives none there."""
    first = start("hosted")
    assert acts(first)
    second = start("hosted")
    waits(second.pid)
    first.kill()
    assert acts(second)
    assert lock.last_beat(str(tmp_path / "run/wanted")) is None


def test_a_standby_does_not_yield_to_a_hosted_agent_that_stands_still(start: Start) -> None:
    """It would give the lock up again and again, and nobody would act."""
    standby = start("standby")
    assert acts(standby)
    busy = start("hosted", how="blocked")
    assert acts(busy)
    waiting = start("hosted", first=True)
    waits(child_of(waiting))
    os.kill(child_of(waiting), signal.SIGSTOP)
    time.sleep(HANG + 1)
    busy.kill()
    assert acts(standby)
    assert standby.poll() is None


@pytest.mark.parametrize("content", [b"", b"banana", b"\xff\x00", b"99999999999999 pod", b"nan pod", b"1.0 \xff"])
def test_a_beat_that_is_none_makes_nobody_hung(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    assert lock.hung(str(path)) is None
    assert lock.hung(str(tmp_path / "absent")) is None


def test_the_limit_is_an_administrators_to_set_and_never_so_short_that_all_count_as_hung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, seconds in {"600": 600.0, "": 60.0, "banana": 60.0, "3": 60.0, "15": 15.0}.items():
        monkeypatch.setenv(lock.LIMIT, given)
        assert lock.hang_seconds() == seconds


def test_a_waiting_agent_has_imported_nothing_big() -> None:
    big = ("asyncio", "ssl", "json", "pathlib", "httpx2", "structlog", "google")
    code = f"import sys, autarky.agents.node.__main__; print([m for m in {big} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
