from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import click
import pytest

from autarky.cli.lazy import LazyCommand
from autarky.cli.main import cli, main


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    """The user's directories are the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def autarky(monkeypatch) -> Callable[..., int]:
    """Runs the command line with one more command, `try`, that calls a function. Returns the exit code."""

    def run(callback: Callable[[], object], *arguments: str) -> int:
        module = ModuleType("try_command")
        module.__dict__["command"] = click.Command("try", callback=lambda: callback() and None)
        monkeypatch.setitem(sys.modules, "try_command", module)
        monkeypatch.setitem(cli.lazy, "try", LazyCommand("try_command:command", "For tests."))
        return main([*arguments, "try"])

    return run
