"""The machines that the drivers are tried on: this one, and one test host that is entered, and reached by ssh.

The lab lies below a state directory of its own, at a fixed place, so that what a killed run left is found.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky.hosts import LabHost, LocalHost, SshHost
from autarky.hosts.shell import ShellHost
from autarky.lab import Lab
from autarky.payload import default_version, find_binary, load_release
from fakes.heard_progress import HeardProgress

STATE = Path.home() / ".local/state/autarky-tests"
USER = "captain"


@dataclass(frozen=True)
class Machine:
    """A test host of the tests' own."""

    lab: Lab
    name: str = "n1"

    @property
    def entered(self) -> LabHost:
        record = self.lab.records()[self.name]
        return LabHost(self.name, record.pid, record.start_time, address=record.address)

    def reached(self, url: str, sockets: Path, *, config: Path | None = None) -> SshHost:
        return SshHost(self.name, url, sockets=sockets, config=str(config or self.lab.ssh_config))

    @property
    def root(self) -> Path:
        """Its files, as this machine sees them."""
        return Path(f"/proc/{self.lab.records()[self.name].pid}/root")

    def shell(self, script: str) -> str:
        return asyncio.run(self.entered.run(["sh", "-c", script])).text

    def cable(self, state: str) -> None:
        """Plug the network cable in ("up") or out ("down")."""
        network = self.lab.network
        link = ["ip", "-n", network.switch, "link", "set", network.outer_interface(self.name), state]
        subprocess.run(link, check=True)


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(STATE)
    lab = Lab.open("t-contract-hosts")
    try:
        asyncio.run(lab.down())
        runc = find_binary(load_release(default_version()), "runc")
        assert runc is not None, "no runc in the store: run `autarky payload get`"
        asyncio.run(lab.ensure(["n1"], runc=runc.path, progress=HeardProgress()))
        made = Machine(lab)
        _add_user(made)
        yield made
    finally:
        asyncio.run(lab.down())
        os.environ.pop("XDG_STATE_HOME")
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def _add_user(machine: Machine) -> None:
    """An administrator who enters by the lab's key and may become root without a password."""
    machine.shell(
        f"useradd --create-home --shell /bin/bash {USER} && cp -r /root/.ssh /home/{USER}/ && "
        f"chown -R {USER}: /home/{USER}/.ssh && echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{USER}"
    )


@pytest.fixture(params=["local", "lab", "ssh", "ssh with sudo"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ShellHost]:
    """Makes hosts by each driver; each call is another operator's, with connections of its own."""
    if request.param == "local":
        return lambda: LocalHost("here")
    machine: Machine = request.getfixturevalue("machine")
    if request.param == "lab":
        return lambda: machine.entered
    url = "ssh://n1" if request.param == "ssh" else f"ssh://{USER}@n1"
    numbers = iter(range(100))
    return lambda: machine.reached(url, tmp_path / f"s{next(numbers)}")
