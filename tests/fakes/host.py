"""A host in memory, for tests of what uses ports.Host: files, links, units, images and standbys.

It knows the programs that phases run and refuses every other. `log` is what was done to it, in order, looks
left out; `fail_at` makes the n-th such act fail (from 0), as if the connection broke just before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from autarky import places
from autarky.errors import CommandFailed, Unreachable
from autarky.model import ports
from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.phases.prepare import CTR
from autarky.ports import Completed
from autarky.render import standby
from fakes.clusters import FACTS


@dataclass(slots=True)
class FakeHost:
    name: str
    host_facts: HostFacts = FACTS
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    active_units: set[str] = field(default_factory=set)
    images: dict[str, str] = field(default_factory=dict)
    """Reference → manifest digest. An archive's content is "REFERENCE DIGEST"."""
    activations: dict[str, list[str]] = field(default_factory=dict)
    balanced: bool = True
    """Whether the load balancer says that it sends new connections to the hosted API server."""
    tasks: dict[str, str] | None = field(default_factory=dict)
    """Container → its state, as the container runtime says; None: it says nothing."""
    balanced_paths: frozenset[str] | None = None
    """Those of the API servers that the load balancer holds for ready, where they are asked for by name; None: as
    `balanced` says."""
    kubelet_version: str | None = None
    """Of the binary on the disk; None: there is none."""
    log: list[str] = field(default_factory=list)
    timers: dict[str, list[str]] = field(default_factory=dict)
    """What the host does by itself later."""
    refusals: int = 0
    """How often the standby's script will not get its lock."""
    fail_at: int | None = None

    # --- ports.Host ---

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        text = ""
        match list(argv):
            case ["systemctl", "is-active", unit]:
                return _said("active" if unit in self.active_units else "inactive")
            case ["systemctl" | "systemd-run", *words]:
                self._systemd(words)
            case ["install", "-d", "-m", _, *directories]:
                self._act(f"make {' '.join(directories)}")
            case ["sysctl", *_]:
                self._act("set sysctls")
            case [_, "--version"]:
                text = f"Kubernetes {self.kubelet_version}" if self.kubelet_version else ""
            case ["ls", directory]:
                text = "\n".join(sorted(Path(path).name for path in self.files if str(Path(path).parent) == directory))
            case [standby.SCRIPT_PATH, *arguments]:
                return self._standby(arguments)
            case ["sh", "-c", script, "sh", *paths]:
                return self._script(script, paths, stdin or b"")
            case ["sh", "-c", script] if "kill -USR2" in script:
                self._act("reload the load balancer")
            case ["bash", "-c", script]:
                return _said("HTTP/1.0 200 OK" if self._says_ok(script) else "HTTP/1.0 503 Service Unavailable")
            case _:
                assert tuple(argv[: len(CTR)]) == CTR, f"the fake host does not know {argv}"
                return self._ctr(list(argv[len(CTR) :]))
        return _said(text)

    def _systemd(self, words: Sequence[str]) -> None:
        match words:
            case ["stop", unit] if unit.endswith(".timer"):
                self.timers.pop(unit.removesuffix(".timer"), None)
            case ["--quiet", "--collect", unit, _, *command]:
                assert unit.removeprefix("--unit=") not in self.timers, "systemd refuses a second unit of the same name"
                self.timers[unit.removeprefix("--unit=")] = list(command)
            case [verb, *units]:
                self._act(f"{verb} {' '.join(units)}".strip())
                if verb == "restart":
                    self.active_units.update(units)

    async def read(self, path: str) -> bytes | None:
        return self.files[path][0] if path in self.files else None

    async def digests(self, paths: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        there = {path: self.files[path] for path in paths if path in self.files}
        return {path: (sha256(content).hexdigest(), mode) for path, (content, mode) in there.items()}

    async def write_files(self, files: Sequence[File]) -> None:
        for file in files:
            self._act(f"write {file.path}")
            self.files[file.path] = (file.content, file.mode)

    async def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._act(f"remove {path}")
            self.files.pop(path, None)

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        self._act(f"push {path}")
        self.files[path] = (source.read_bytes(), mode)

    async def facts(self) -> HostFacts:
        return self.host_facts

    async def close(self) -> None: ...

    # --- its programs ---

    def _says_ok(self, script: str) -> bool:
        if self.balanced_paths is None or f"/{ports.NLLB_HEALTH} " not in script:
            return self.balanced
        return any(f"GET {path} " in script for path in self.balanced_paths)

    def _act(self, what: str) -> None:
        if self.fail_at is not None and len(self.log) == self.fail_at:
            raise Unreachable(f"{self.name} did not answer")
        self.log.append(what)

    def _standby(self, arguments: list[str]) -> Completed:
        if arguments == ["list"]:
            lines = []
            for component in standby.COMPONENTS:
                current = self.links.get(f"{places.STANDBY}/{component}/current", "-")
                lines.append(" ".join([component, current, *self.activations.get(component, [])]))
            return _said("\n".join(lines))
        verb, component, *rest = arguments
        if self.refusals:
            self.refusals -= 1
            raise CommandFailed(self.name, [standby.SCRIPT_PATH, *arguments], standby.NO_LOCK, "nothing was done")
        self._act(" ".join(arguments))
        if verb == "switch":
            [revision] = rest
            assert f"{places.STANDBY}/{component}/{revision}/pod.json" in self.files, "switched to half a revision"
            self.links[f"{places.STANDBY}/{component}/current"] = revision
        elif verb == "withdraw":
            self.activations[component] = []
        else:
            assert verb == "activate"
            self.activations.setdefault(component, []).append(f"{len(self.log):08x}")
        return _said("")

    def _script(self, script: str, paths: list[str], stdin: bytes) -> Completed:
        if "ln -sfn" in script:
            self._act("link")
            for line in stdin.decode().splitlines():
                target, link = line.split()
                assert target in self.files, "a link to what is not there"
                self.links[link] = target
            return _said("")
        if "modprobe" in script:
            self._act(f"load {' '.join(paths)}")
            return _said("")
        if places.LEAVES in script:
            self._act(script.split(maxsplit=1)[0] + " leaves")
            return _said("")
        assert "readlink" in script, f"the fake host does not know {script}"
        with_path = 'printf "%s %s' in script
        return _said("\n".join(f"{path} " * with_path + self.links.get(path, "-") for path in paths))

    def _ctr(self, arguments: list[str]) -> Completed:
        match arguments:
            case ["images", "ls"]:
                lines = [f"{name} application/x {digest} 1" for name, digest in self.images.items()]
                return _said("\n".join(["REF TYPE DIGEST SIZE", *lines]))
            case ["images", "import", archive]:
                assert "containerd" in self.active_units, "no runtime to import into"
                reference, digest = self.files[archive][0].decode().split()
                self._act(f"import {reference}")
                self.images[reference] = digest
            case ["images", "label", reference, _]:
                assert reference in self.images
            case ["tasks", "ls"] if self.tasks is None:
                return Completed(1, b"", "ctr: connection refused")
            case ["tasks", "ls"]:
                return _said(
                    "\n".join(["TASK PID STATUS", *(f"{name} 1 {state}" for name, state in (self.tasks or {}).items())])
                )
        return _said("")


class CleanableHost(FakeHost):
    """Lets itself be cleaned."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        if list(argv[:2]) == ["sh", "-c"]:
            self._act("clean")
            return _said("")
        return await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)


def _said(text: str) -> Completed:
    return Completed(0, text.encode(), "")


@dataclass(slots=True)
class FakeMachines:
    """Machines that are all there."""

    hosts: dict[str, FakeHost]

    async def missing(self) -> Sequence[str]:
        return []

    async def ensure(self, progress: object) -> None: ...

    def host(self, name: str) -> FakeHost | None:
        return self.hosts.get(name)

    @asynccontextmanager
    async def locked(self, command: str, tell: object) -> AsyncIterator[None]:
        yield

    async def discard(self, name: str, progress: object) -> bool:
        return self.hosts.pop(name, None) is not None

    async def removable(self) -> Sequence[str]:
        return []

    async def remove(self, progress: object) -> None: ...

    async def close(self) -> None: ...
