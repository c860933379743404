"""`down` of a host ends the container shims of that host with what they started, and those of no other that is a
container on the same machine."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autarky.phases.teardown import end_shims


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """A shell that is called as a shim is."""
    path = tmp_path / "bin/containerd-shim-runc-v2"
    path.parent.mkdir()
    shutil.copy(Path("/bin/sh").resolve(), path)
    return path


@pytest.fixture
def started(shim: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts one that has started something, behind other words."""
    processes = []

    def start(*around: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*around, str(shim), "-c", "sleep 600 & wait"])
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def child_of(pid: int, program: str) -> int:
    """Its child that has become that program."""
    for _ in range(200):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if program in program_of(int(child)):
                return int(child)
        time.sleep(0.05)
    raise AssertionError(f"{pid} has started no {program}")


def program_of(pid: int) -> str:
    """Nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_those_of_another_pid_namespace_live_on_and_the_hosts_own_end_with_what_they_started(
    started, shim, tmp_path
) -> None:
    ours, others = started(), started("unshare", "--fork", "--pid", "--kill-child")
    ours_child = child_of(ours.pid, "sleep")
    others_shim = child_of(others.pid, "containerd-shim")
    others_child = child_of(others_shim, "sleep")
    subprocess.run(["sh", "-c", end_shims(str(tmp_path))], check=True, timeout=30)
    ours.wait(timeout=10)
    for _ in range(100):
        if not program_of(ours_child):
            break
        time.sleep(0.05)
    assert [program_of(pid) for pid in (ours_child, others_shim, others_child)] == ["", str(shim), "sleep"]
