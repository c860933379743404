"""`down` of a host ends the container shims of that host, and of no other that is a container on the same machine."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from autarky.phases.teardown import end_shims


def alive(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def words_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture
def shim(tmp_path):
    """A program that is called as a shim is."""
    path = tmp_path / "bin/containerd-shim-runc-v2"
    path.parent.mkdir()
    shutil.copy("/usr/bin/sleep", path)
    return path


@pytest.fixture
def started(shim):
    processes = []

    def start(*around: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*around, str(shim), "600"])
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_those_of_another_pid_namespace_live_on(started, shim, tmp_path):
    ours = started()
    others = started("unshare", "--fork", "--pid", "--kill-child")
    [inner] = inner_of(others.pid)
    subprocess.run(["sh", "-c", end_shims(str(tmp_path))], check=True, timeout=30)
    ours.wait(timeout=10)
    time.sleep(0.2)
    assert alive(others)
    assert str(shim).encode() in words_of(inner)


def inner_of(pid: int) -> list[int]:
    """The child that has become the shim."""
    for _ in range(100):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and b"containerd-shim" in words_of(int(children[0])).split(b"\0")[0]:
            return [int(children[0])]
        time.sleep(0.05)
    return []
