"""A test host, entered through the namespaces of its init process.

Danger: process ids are reused. The start time of the init process, as the lab recorded it, tells
whether it is still the same process; everything else is Unreachable, never another process.
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.clock import start_time
from autarky.errors import Unreachable
from autarky.hosts.shell import ENVIRONMENT, ShellHost


class LabHost(ShellHost):
    def __init__(self, name: str, pid: int, start_time: int, *, address: str) -> None:
        super().__init__(name)
        self._pid = pid
        self._start_time = start_time
        self.address = address

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line of this machine that runs `argv` on the host, for an interactive shell."""
        return self._command(argv)

    def _command(self, argv: Sequence[str]) -> list[str]:
        self._refuse_absent()
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
        return ["nsenter", f"--target={self._pid}", *namespaces, "--", "env", "-i", *ENVIRONMENT, *argv]

    def _refuse_absent(self) -> None:
        if start_time(self._pid) != self._start_time:
            raise Unreachable(f"lab host {self.name} is not running")
