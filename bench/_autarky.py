"""autarky's side of the benchmarks: a cluster of lab hosts, by the command that users run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _product import THIS_TREE, Product

from autarky.lab import Lab
from autarky.payload import Payload, default_version

STATE = Path.home() / ".local/state/autarky-bench"


@dataclass(frozen=True)
class AutarkyCluster:
    """Of lab hosts of its own. `name` is also the lab's."""

    name: str
    control: Sequence[str] = ("n1",)
    workers: Sequence[str] = ()
    product: Product = THIS_TREE
    spec: Mapping[str, Any] = field(default_factory=dict)
    """More of the cluster file's."""

    def of(self, product: Product) -> AutarkyCluster:
        """The same, by that one's commands."""
        return replace(self, product=product)

    @property
    def file(self) -> Path:
        return STATE / f"{self.name}.yaml"

    @property
    def kubeconfig(self) -> Path:
        return STATE / f"autarky/clusters/{self.name}/kubeconfig"

    @property
    def log(self) -> Path:
        """The events of the command that was timed last."""
        return self.file.with_suffix(".log")

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
            # kubeadm's version, whatever the product's default is.
            "spec": {
                "kubernetesVersion": str(default_version()),
                "nodes": [{**node, "host": "lab"} for node in nodes],
                **self.spec,
            },
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(document))
        self.down()

    def up(self, *options: str) -> None:
        subprocess.run(self._command("up", *options), check=True, **self._quietly)

    def push(self, version: str) -> None:
        """The images of that version of Kubernetes, to every host."""
        argv = [*self.product.command, "payload", "push", "--cluster", self.name, version]
        subprocess.run(argv, check=True, **self._quietly)

    def prepare(self) -> None:
        """Hosts with everything in place, and nothing of Kubernetes running yet. Certificates are issued, but for those
        of kubelets: a control node's is when its kubelet is to start, a worker's when it asks for one."""
        self.write()
        self.up(*(f"--skip={phase}" for phase in self.product.clocked))

    async def timed_up(self, ready: Awaitable[object]) -> tuple[float, float]:
        """Seconds until the cluster is ready, and until `up` returned."""
        begin = time.monotonic()
        process = await asyncio.create_subprocess_exec(*self._command("up"), **self._quietly)

        async def seconds_until(end: Awaitable[object]) -> float:
            await end
            return time.monotonic() - begin

        is_ready, returned = await asyncio.gather(seconds_until(ready), seconds_until(process.wait()))
        if process.returncode != 0:
            raise SystemExit("autarky up failed; run it by hand to see why")
        return is_ready, returned

    def down(self) -> None:
        """SystemExit when its hosts run on: they would take from what is measured next."""
        self.try_down()
        if running := [name for name, record in Lab.open(self.name).records().items() if record.running]:
            raise SystemExit(f"autarky down has left hosts of {self.name} running: {', '.join(running)}")

    def try_down(self) -> None:
        subprocess.run(self._command("down", "--yes"), check=False, **self._quietly)

    def timed(self, *words: str) -> float:
        """Seconds that the command takes. Its events stay in `log`. SystemExit with the last ones when it fails."""
        argv = [*self.product.command, *words, "-f", str(self.file), "-o", "json"]
        with self.log.open("w") as written:
            begin = time.monotonic()
            done = subprocess.run(argv, check=False, **{**self._quietly, "stdout": written, "stderr": written})
            took = time.monotonic() - begin
        if done.returncode != 0:
            raise SystemExit(f"autarky {' '.join(words)} failed:\n{self.log.read_text()[-2000:]}")
        return took

    def _command(self, verb: str, *options: str) -> list[str]:
        return [*self.product.command, verb, "-f", str(self.file), *options]

    @property
    def _quietly(self) -> dict[str, Any]:
        return {**self.product.where, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
