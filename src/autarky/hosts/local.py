"""This machine, as a host."""

from __future__ import annotations

from collections.abc import Sequence

from autarky.hosts.shell import ENVIRONMENT, ShellHost


class LocalHost(ShellHost):
    """Runs programs here, with a clean environment. Needs root for most of what a cluster does."""

    def _command(self, argv: Sequence[str]) -> list[str]:
        return ["env", "-i", *ENVIRONMENT, *argv]
