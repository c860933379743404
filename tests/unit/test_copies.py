"""What the scenarios of a copy of etcd read of its pause, in the words of the command and in what was written."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autarky.phases.migration import pausing
from e2e import harness

SIZE = 30 * pausing.MIB


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the scenarios have it, which find each other beside themselves."""
    monkeypatch.syspath_prepend(str(Path(harness.__file__).parent))
    return importlib.import_module("copies")


def said(away: float) -> str:
    began = f"the pause begins: {pausing.announced(SIZE)}; if this command is killed, run it again at once"
    return f"{began}\nthe API serves again, with the copy of etcd on n1; it was away for {away:.1f} s\n"


def test_a_pause_has_the_bound_that_was_announced(copies: ModuleType) -> None:
    bound = pausing.bound(SIZE)
    pause = copies.announced_pause(said(bound))
    assert (pause.away, pause.bound) == (bound, bound)
    with pytest.raises(AssertionError, match="longer than announced"):
        copies.announced_pause(said(bound + 0.1))


@pytest.mark.parametrize("left_out", ["it was away for", "is not complete after"])
def test_a_command_that_says_no_pause_or_no_bound_has_made_none(copies: ModuleType, left_out: str) -> None:
    with pytest.raises(AssertionError):
        copies.announced_pause(said(10.0).replace(left_out, ""))


# --- as clients see it ------------------------------------------------------------------------------------------------


def writer(copies: ModuleType, *seconds: float) -> Any:
    """Whose writes were acknowledged, by when they began."""
    return copies.Writer(None, {f"written-{int(at * 1e9)}" for at in (1e9 + one for one in seconds)})


def test_the_longest_time_without_a_write_is_the_gap(copies: ModuleType) -> None:
    assert copies.gap_of(writer(copies, 0, 9.5, 10, 30.5, 31)) == pytest.approx(20.5)


@pytest.mark.parametrize("away", [12.0, 29.0])
def test_clients_notice_what_the_command_says(copies: ModuleType, away: float) -> None:
    copies.clients_noticed(copies.Pause(away, 130), writer(copies, 0, 1, 21, 22))


@pytest.mark.parametrize("away", [9.5, 30.5])
def test_a_command_that_says_something_else_than_they_noticed_fails(copies: ModuleType, away: float) -> None:
    with pytest.raises(AssertionError, match=r"nothing was acknowledged for 20\.0 s"):
        copies.clients_noticed(copies.Pause(away, 130), writer(copies, 0, 1, 21, 22))


def test_so_does_one_that_takes_longer_than_is_documented_whatever_it_had_announced(copies: ModuleType) -> None:
    copies.clients_noticed(copies.Pause(115, 130), writer(copies, 0, 119, 120))
    with pytest.raises(AssertionError, match=r"nothing was acknowledged for 121\.0 s"):
        copies.clients_noticed(copies.Pause(119, 130), writer(copies, 0, 121, 122))
