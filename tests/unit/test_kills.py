"""Who is killed in a scenario has run before, and is gone afterwards. With processes of this machine, not of a host."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from e2e import kills
from e2e.kills import kill, killed

NOBODY = "pgrep -x no-such-program"


class Cluster:
    """Its only host is this machine."""

    def shell(self, _host: str, command: str) -> str:
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout

    def wait(self, what: str, condition: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.01)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    found = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    yield found
    for process in found:
        process.kill()
        process.wait()


def look_for(sleepers: list[subprocess.Popen[bytes]]) -> str:
    return "; ".join(f"echo {process.pid}" for process in sleepers)


def test_where_nobody_runs_nothing_was_killed() -> None:
    assert killed(Cluster(), "n1", NOBODY) == frozenset()
    with pytest.raises(AssertionError, match="on n1 there was nothing to kill: pgrep -x no-such-program"):
        kill(Cluster(), "n1", NOBODY)


def test_everybody_who_was_found_is_gone(sleepers: list[subprocess.Popen[bytes]]) -> None:
    class Reaping(Cluster):
        """Whoever started them takes note late."""

        def wait(self, what: str, condition: Callable[[], object], seconds: float) -> None:
            assert not condition()
            for process in sleepers:
                process.wait()
            super().wait(what, condition, seconds)

    assert kill(Reaping(), "n1", look_for(sleepers)) == {str(process.pid) for process in sleepers}
    assert [process.returncode for process in sleepers] == [-9, -9]


def test_who_is_not_gone_in_time_fails_the_scenario(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has taken note of their end."""
    monkeypatch.setattr(kills, "GONE_SECONDS", 0.1)
    with pytest.raises(AssertionError, match="of n1 are gone"):
        kill(Cluster(), "n1", look_for(sleepers))
