"""Machines that somebody else made: lab hosts, of which `up` is told only by ssh. The lab's own ssh_config stands for
the user's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from harness import STATE, TestCluster


@dataclass(frozen=True)
class Machines:
    """`lab`: a name of its own. Called n1, n2, …"""

    lab: str
    count: int

    @property
    def driver(self) -> TestCluster:
        return TestCluster(self.lab, {})

    @property
    def directory(self) -> Path:
        return STATE / "autarky/labs" / self.lab

    def make(self) -> None:
        self.remove()
        self.driver.autarky("lab", "up", self.lab, "--hosts", str(self.count))

    def remove(self) -> None:
        if (self.directory / "lab.json").exists():
            self.driver.autarky("lab", "down", self.lab, timeout=120)

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    def address(self, host: str) -> str:
        state = json.loads((self.directory / "lab.json").read_text())
        address: str = state["hosts"][host]["address"]
        return address

    def shell(self, host: str, command: str) -> str:
        return self.driver.shell(host, command)

    def config(self, name: str, text: str) -> str:
        """An ssh_config of a user's own, ahead of the lab's."""
        path = STATE / f"{name}.ssh_config"
        path.write_text(f"{text}\n{self.ssh_config.read_text()}")
        path.chmod(0o600)
        return str(path)
