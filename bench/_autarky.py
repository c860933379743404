"""autarky's side of the benchmarks: a cluster of lab hosts, by the command that users run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autarky.payload import Payload

STATE = Path.home() / ".local/state/autarky-bench"
COMMAND = [sys.executable, "-m", "autarky"]
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

CLOCKED = (
    "start-control-plane", "forget-replaced", "bring-images", "start-joining", "apply-objects", "join-nodes", "pivot",
    "retire-hosted", "start-agents", "make-control-nodes", "await-workloads",
)  # fmt: skip
"""The phases of `up` from the first kubelet on."""


@dataclass(frozen=True)
class AutarkyCluster:
    """Of lab hosts of its own. `name` is also the lab's."""

    name: str
    control: Sequence[str] = ("n1",)
    workers: Sequence[str] = ()

    @property
    def file(self) -> Path:
        return STATE / f"{self.name}.yaml"

    @property
    def kubeconfig(self) -> Path:
        return STATE / f"autarky/clusters/{self.name}/kubeconfig"

    def kubectl(self, payload: Payload) -> list[str]:
        return [str(payload.binaries["kubectl"].path), f"--kubeconfig={self.kubeconfig}"]

    def write(self) -> None:
        """The file, and away with what an interrupted run left."""
        nodes = [{"name": name, "roles": ["control-plane", "worker"]} for name in self.control]
        nodes += [{"name": name, "roles": ["worker"]} for name in self.workers]
        document = {
            "apiVersion": "autarky.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": self.name},
            "spec": {"nodes": [{**node, "host": "lab"} for node in nodes]},
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(document))
        self.down()

    def up(self, *options: str) -> None:
        subprocess.run([*COMMAND, "up", "-f", str(self.file), *options], check=True, **QUIET)

    def prepare(self) -> None:
        """Hosts with everything in place, and nothing of Kubernetes running yet."""
        self.write()
        self.up(*(f"--skip={phase}" for phase in CLOCKED))

    async def timed_up(self, ready: Awaitable[object]) -> tuple[float, float]:
        """Seconds until the cluster is ready, and until `up` returned."""
        begin = time.monotonic()
        process = await asyncio.create_subprocess_exec(*COMMAND, "up", "-f", str(self.file), **QUIET)
        await ready
        seconds = time.monotonic() - begin
        if await process.wait() != 0:
            raise SystemExit("autarky up failed; run it by hand to see why")
        return seconds, time.monotonic() - begin

    def down(self) -> None:
        subprocess.run([*COMMAND, "down", "--yes", "-f", str(self.file)], check=False, **QUIET)
