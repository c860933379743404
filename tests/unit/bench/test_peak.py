"""The most memory that a process had, of what /proc shows."""

from __future__ import annotations

from pathlib import Path

from _peak import Peaks

PATTERNS = {"worker": b"\0autarky.agents.backup\0", "etcd": b"\0--unsafe-no-fsync\0"}


def process(proc: Path, pid: int, command: bytes, peak: int, anonymous: int) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cmdline").write_bytes(command)
    (proc / str(pid) / "status").write_text(f"Name:\tx\nVmHWM:\t  {peak} kB\nRssAnon:\t  {anonymous} kB\n")


def test_of_each_the_highest_that_was_ever_seen_counts_and_of_several_the_largest(tmp_path):
    peaks = Peaks(tmp_path, PATTERNS)
    process(tmp_path, 1, b"python3\0-m\0autarky.agents.node\0", 900, 900)
    process(tmp_path, 7, b"python3\0-m\0autarky.agents.backup\0", 80, 50)
    process(tmp_path, 8, b"python3\0-m\0autarky.agents.backup\0", 60, 55)
    peaks.look()
    process(tmp_path, 7, b"python3\0-m\0autarky.agents.backup\0", 85, 20)
    peaks.look()
    assert peaks.resident == {"worker": 85 * 1024, "etcd": 0}
    assert peaks.anonymous == {"worker": 55 * 1024, "etcd": 0}


def test_one_that_ends_while_it_is_looked_at_is_passed_over(tmp_path):
    (tmp_path / "9").mkdir()
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "cmdline").write_bytes(b"etcd\0--unsafe-no-fsync\0")
    (tmp_path / "10" / "status").write_text("Name:\tetcd\nState:\tZ (zombie)\n")
    peaks = Peaks(tmp_path, PATTERNS)
    peaks.look()
    assert peaks.resident["etcd"] == 0


def test_it_looks_for_as_long_as_the_block_runs(tmp_path):
    process(tmp_path, 7, b"etcd\0--unsafe-no-fsync\0", 10, 5)
    with Peaks(tmp_path, PATTERNS) as peaks:
        while not peaks.resident["etcd"]:
            pass
    assert peaks.anonymous["etcd"] == 5 * 1024
