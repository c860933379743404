"""A host in memory, for tests of what uses ports.Host: files, links, units, images and standbys.

Contract: what it promises is held to real hosts by tests/contract/hosts/test_host_fake.py. It knows the programs that
phases run and refuses every other. `log` is what was asked of it, in order, looks left out; `fail_at` makes the n-th
such act fail (from 0), as if the connection broke just before it.

Where it differs from a host, and its users must know: nothing takes time, so that no timeout ever passes; every unit
exists; an active standby is an entry in `activations`, and no file among the manifests; a container runtime takes
archives that say "REFERENCE DIGEST"; a program of etcd has what it says of its version in its text; what loads modules,
sets sysctls, shares leaves and reloads the load balancer is put down in `log` and nothing else. It is stricter where
that shows a mistake: links to what is not there, and imports without a runtime, fail the test.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from autarky import places
from autarky.control.kubelet.manifests import files as kubelet_files
from autarky.control.slots import manifests as standby
from autarky.errors import CommandFailed, Held, Unreachable
from autarky.model import ports
from autarky.model.components import WITH_STANDBY
from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.phases import generations
from autarky.phases.prepare import CTR, PINNED
from autarky.ports import Completed
from fakes.clusters import FACTS
from fakes.disk import CannotBe, Disk

UNITS = "/etc/systemd/system"
_POD = b'{\n  "kind": "Pod"\n}\n'


@dataclass(slots=True)
class FakeHold:
    """Implements ports.Hold; a test may say that it is lost."""

    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def lost(self) -> None:
        await self.gone.wait()


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
    in_place: dict[str, str] = field(default_factory=dict)
    """Component → the revision of its activations; of those that a test has put there itself, the current one."""
    balanced: bool = True
    """Whether the load balancer says that it sends new connections to the hosted API server."""
    tasks: dict[str, str] | None = field(default_factory=dict)
    """Container → its state, as the container runtime says; None: it says nothing."""
    balanced_paths: frozenset[str] | None = None
    """Those of the API servers that the load balancer holds for ready, where they are asked for by name; None: as
    `balanced` says."""
    kubelet_version: str | None = None
    """Of the binary on the disk; None: there is none."""
    kubelet_program: str = ""
    runs_hosted_kubelet: bool = False
    """Where the program of the kubelet is that was started last; empty: none was."""
    kubelet_arguments: list[str] = field(default_factory=list)
    """Those with which it was started."""
    log: list[str] = field(default_factory=list)
    timers: dict[str, list[str]] = field(default_factory=dict)
    """What the host does by itself later."""
    refusals: int = 0
    """How often the standby's script will not get its lock."""
    fail_at: int | None = None
    holds: dict[str, FakeHold] = field(default_factory=dict)
    """The locks that are held, by their files."""
    directories: set[str] = field(default_factory=set)
    """Those that were made, and may be empty."""
    restarting: set[str] = field(default_factory=set)
    """Services that have ended and that systemd is about to start again."""
    units_read: dict[str, bytes] = field(default_factory=dict)
    """Unit files as systemd has read them last, all at once: a host reads those that it needs."""

    @property
    def disk(self) -> Disk:
        return Disk(self.files, self.links, self.directories)

    def put_standbys(self, revision: str = "0123456789") -> None:
        """Complete, and dormant: as the first `up` leaves them."""
        for component in WITH_STANDBY:
            self.disk.write(self._standby_path(component, f"{revision}/pod.json"), _POD, 0o600)
            self.disk.link(self._standby_path(component, "current"), revision)

    # --- ports.Host ---

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        try:
            completed = self._completed(list(argv), stdin or b"")
        except CannotBe as error:
            completed = _failed(1, f"{argv[0]}: {error}")
        if check and completed.status != 0:
            raise CommandFailed(self.name, argv, completed.status, completed.stderr)
        return completed

    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        found = self.disk.file(path)
        if found is None and self.disk.leads_to_directory(path):
            raise CommandFailed(self.name, ["cat", path], 1, f"cat: {path}: Is a directory")
        if found is not None and most is not None and len(found[0]) > most:
            raise CommandFailed(self.name, ["cat", path], 0, f"the file has more than {most} bytes")
        return None if found is None else found[0]

    async def digests(self, paths: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        found = {path: self.disk.file(path) for path in paths}
        return {path: (sha256(one[0]).hexdigest(), one[1]) for path, one in found.items() if one is not None}

    async def write_files(self, files: Sequence[File]) -> None:
        for file in files:
            self._act(f"write {file.path}")
            with self._as_a_failure("sh", file.path):
                self.disk.write(file.path, file.content, file.mode)

    async def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._act(f"remove {path}")
            with self._as_a_failure("rm", path):
                self.disk.remove(path)

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        content = source.read_bytes()
        if self.disk.file(path) == (content, mode):
            return
        self._act(f"push {path}")
        with self._as_a_failure("push", path):
            self.disk.write(path, content, mode)

    async def pull(self, path: str, target: Path, progress: Callable[[float], None] | None = None) -> None:
        found = self.disk.file(path)
        if found is None:
            raise CommandFailed(self.name, ["pull", path], 1, "there is no such file")
        target.touch(0o600)
        target.chmod(0o600)
        target.write_bytes(found[0])
        if progress is not None and found[0]:
            progress(len(found[0]))

    @asynccontextmanager
    async def hold(self, path: str, holder: str) -> AsyncIterator[FakeHold]:
        if path in self.holds:
            raise Held(self.name, self.files[path][0].decode().strip())
        if not self.disk.leads_to_directory(str(Path(path).parent)):
            raise CommandFailed(self.name, ["flock", path], 2, f"cannot create {path}: Directory nonexistent")
        self.holds[path] = held = FakeHold()
        self.disk.write(path, f"{holder}\n".encode(), 0o600)
        try:
            yield held
        finally:
            del self.holds[path]
            self.disk.remove(path)

    async def facts(self) -> HostFacts:
        return self.host_facts

    async def close(self) -> None: ...

    @contextmanager
    def _as_a_failure(self, *argv: str) -> Iterator[None]:
        try:
            yield
        except CannotBe as error:
            raise CommandFailed(self.name, argv, 1, f"{argv[0]}: {error}") from error

    def _act(self, what: str) -> None:
        if self.fail_at is not None and len(self.log) == self.fail_at:
            raise Unreachable(f"{self.name} did not answer")
        self.log.append(what)

    # --- its programs ---

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        said = _said("")
        match argv:
            case ["systemctl" | "systemd-run", *words]:
                said = self._systemd(words)
            case ["install", "-d", "-m", _, *directories]:
                self._act(f"make {' '.join(directories)}")
                for directory in directories:
                    self.disk.make_directory(directory)
            case ["sysctl", *_]:
                self._act("set sysctls")
            case [program, "--version"]:
                said = _failed(127, f"env: '{program}': No such file or directory")
                if self.kubelet_version is not None:
                    said = _said(f"Kubernetes {self.kubelet_version}")
            case ["ls", path]:
                said = self._ls(path)
            case [kubelet_files.SCRIPT_PATH, *words]:
                said = self._kubelet_slots(words)
            case [standby.SCRIPT_PATH, *arguments]:
                said = self._standby(arguments)
            case ["sh", "-c", script, *words]:
                said = self._script(script, words[1:], stdin) if words else self._one_script(script)
            case ["bash", "-c", script]:
                said = _said("HTTP/1.0 200 OK" if self._says_ok(script) else "HTTP/1.0 503 Service Unavailable")
            case _:
                assert tuple(argv[: len(CTR)]) == CTR, f"the fake host does not know {argv}"
                said = self._ctr(argv[len(CTR) :])
        return said

    def _kubelet_slots(self, words: list[str]) -> Completed:
        if words == ["aside"]:
            self._act("kubelet-slots aside")
            return _said("")
        [verb, generation] = words
        assert verb == "switch"
        return self._switch_kubelet(generation)

    def _one_script(self, script: str) -> Completed:
        if script == generations.RUNS:
            if "kubelet" not in self.active_units or not self.kubelet_program:
                return _failed(1, "")
            words = [self.kubelet_program, *self.kubelet_arguments]
            return _said(f"{self.kubelet_program}\n" + "".join(f"{word}\0" for word in words))
        assert "kill -USR2" in script, f"the fake host does not know {script}"
        self._act("reload the load balancer")
        return _said("")

    def _ls(self, path: str) -> Completed:
        if self.disk.leads_to_directory(path):
            return _said("\n".join(self.disk.names(self.disk.followed(path))))
        if self.disk.file(path) is not None:
            return _said(path)
        return _failed(2, f"ls: cannot access '{path}': No such file or directory")

    def _systemd(self, words: Sequence[str]) -> Completed:
        match words:
            case ["is-active", unit]:
                is_active = unit in self.active_units
                return _said("active") if is_active else _failed(3, "", "inactive")
            case ["show", "--property=ActiveState", "--property=NeedDaemonReload", *units]:
                return _said("\n\n".join(map(self._shown, units)))
            case ["stop", unit] if unit.endswith(".timer"):
                if self.timers.pop(unit.removesuffix(".timer"), None) is None:
                    return _failed(5, f"Failed to stop {unit}: Unit {unit} not loaded.")
            case ["--quiet", "--collect", unit, _, *command]:
                timer = unit.removeprefix("--unit=")
                if timer in self.timers:
                    return _failed(1, f"Failed to start transient timer unit: Unit {timer}.timer was already loaded")
                self.timers[timer] = list(command)
            case [verb, *units]:
                self._act(f"{verb} {' '.join(units)}".strip())
                self._change_units(verb, units)
        return _said("")

    def _shown(self, unit: str) -> str:
        name, path = unit.removesuffix(".service"), f"{UNITS}/{unit}"
        state = (
            "active" if {unit, name} & self.active_units else "activating" if name in self.restarting else "inactive"
        )
        now = self.disk.file(path)
        is_old = now is not None and self.units_read.get(path, now[0]) != now[0]
        return f"ActiveState={state}\nNeedDaemonReload={'yes' if is_old else 'no'}"

    def _wants(self, name: str) -> list[str]:
        unit = self.disk.file(f"{UNITS}/{name}.service")
        lines = [] if unit is None else unit[0].decode().splitlines()
        words = [word for line in lines if line.startswith("Wants=") for word in line.removeprefix("Wants=").split()]
        return [word.removesuffix(".service") for word in words]

    def _change_units(self, verb: str, units: Sequence[str]) -> None:
        if verb == "daemon-reload":
            self.units_read = {path: file[0] for path, file in self.files.items() if path.startswith(f"{UNITS}/")}
        names = {unit for unit in units if not unit.startswith("-")}
        if verb in ("start", "restart") or (verb == "enable" and "--now" in units):
            if "kubelet" in names and (verb == "restart" or "kubelet" not in self.active_units):
                self._start_kubelet()
            self.active_units |= names | {wanted for name in names for wanted in self._wants(name)}
        elif verb == "stop" or (verb == "disable" and "--now" in units):
            self.active_units -= names

    def _start_kubelet(self) -> None:
        """With the current generation; what there is instead on a host of an earlier release is for a test to say."""
        current = self.links.get(kubelet_files.CURRENT)
        if current is not None:
            directory = f"{kubelet_files.KUBELETS}/{current}"
            self.kubelet_program = self.links[f"{directory}/kubelet"]
            given = self.files[f"{directory}/{kubelet_files.ARGUMENTS}"][0].decode().splitlines()
            self.kubelet_arguments = [f"--config={directory}/{kubelet_files.CONFIG}", *given]

    def _switch_kubelet(self, generation: str) -> Completed:
        directory = f"{kubelet_files.KUBELETS}/{generation}"
        named = self.disk.file(f"{directory}/{kubelet_files.COMPLETE}")
        links = [self.links.get(f"{directory}/{name}") for name in kubelet_files.PROGRAMS]
        if named != (f"generation {generation}\n".encode(), 0o644) or None in links:
            return _failed(1, f"the generation {generation} is not complete")
        self._act(f"switch to generation {generation}")
        if (before := self.links.get(kubelet_files.CURRENT)) not in (None, generation):
            self.disk.link(kubelet_files.PREVIOUS, str(before))
        self.disk.link(kubelet_files.CURRENT, generation)
        return _said("")

    def _says_ok(self, script: str) -> bool:
        if self.balanced_paths is None or f"/{ports.NLLB_HEALTH} " not in script:
            return self.balanced
        return any(f"GET {path} " in script for path in self.balanced_paths)

    def _script(self, script: str, paths: list[str], stdin: bytes) -> Completed:
        if script == generations.HOSTED:
            return _said("") if self.runs_hosted_kubelet else _failed(1, "")
        if "ln -sfn" in script:
            self._act("link")
            for line in stdin.decode().splitlines():
                target, link = line.split()
                there = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
                assert self.disk.file(there) is not None or target in generations.LINKS.values(), "a link to nothing"
                self.disk.link(link, target)
            return _said("")
        if "modprobe" in script:
            self._act(f"load {' '.join(paths)}")
            return _said("")
        if places.LEAVES in script:
            self._act(script.split(maxsplit=1)[0] + " leaves")
            return _said("")
        assert "readlink" in script, f"the fake host does not know {script}"
        return _said("\n".join(self._of_links(script, paths)))

    def _of_links(self, script: str, paths: list[str]) -> list[str]:
        if "sha256sum" in script:
            return [f"{path} {version}" for path in paths if (version := self._etcds_version(path))]
        if "readlink -f" in script:
            return list(map(self._canonical, paths))
        if "[ -L" in script:
            return [self.links.get(path, "-" if self.disk.file(path) is None else "+") for path in paths]
        with_path = 'printf "%s %s' in script
        targets = [self.links.get(self.disk.place(path), "-") for path in paths]
        return [f"{path} " * with_path + target for path, target in zip(paths, targets, strict=True)]

    def _canonical(self, path: str) -> str:
        try:
            return self.disk.followed(path)
        except CannotBe:
            return "-"

    def _etcds_version(self, path: str) -> str:
        """What an intact program says in its first line."""
        target, program = self._canonical(path), self.disk.file(path)
        if program is None or target.rpartition("-")[2] != sha256(program[0]).hexdigest()[:16]:
            return ""
        said = re.search(rb"ersion: ([0-9.]*)", program[0])
        return said[1].decode() if said is not None else ""

    # --- the standby's script ---

    def _standby(self, arguments: list[str]) -> Completed:
        if arguments == ["list"]:
            return _said("\n".join(self._listed(component) for component in WITH_STANDBY))
        if arguments == ["outdated"]:
            return _said("\n".join(filter(self._is_outdated, WITH_STANDBY)))
        return self._change_standby(arguments)

    def _change_standby(self, arguments: list[str]) -> Completed:
        if self.refusals:
            self.refusals -= 1
            return _failed(standby.NO_LOCK, "nothing was done")
        self._act(" ".join(arguments))
        match arguments:
            case ["switch", component, revision]:
                return self._switch(component, revision)
            case ["withdraw", component]:
                self.activations[component] = []
            case ["activate", component]:
                return _said("") if self.activations.get(component) else self._put_in_place(component)
            case ["renew", component]:
                return self._put_in_place(component) if self.activations.get(component) else _said("")
            case _:
                raise AssertionError(f"the fake host's standby does not know {arguments}")
        return _said("")

    def _listed(self, component: str) -> str:
        current = self.links.get(self._standby_path(component, "current"), "-")
        return " ".join([component, current, *self.activations.get(component, [])])

    def _switch(self, component: str, revision: str) -> Completed:
        if not self._is_complete(component, revision):
            return _failed(1, f"no revision {revision} of {component}")
        old = self.links.get(self._standby_path(component, "current"), revision)
        if old != revision and self._is_complete(component, old):
            self.disk.link(self._standby_path(component, "previous"), old)
        self.disk.link(self._standby_path(component, "current"), revision)
        return _said("")

    def _put_in_place(self, component: str) -> Completed:
        revision = self._newest_complete(component)
        if revision is None:
            return _failed(1, f"no complete standby of {component}")
        self.activations[component] = [f"{len(self.log):08x}"]
        self.in_place[component] = revision
        return _said("")

    def _newest_complete(self, component: str) -> str | None:
        links = [self.links.get(self._standby_path(component, name)) for name in ("current", "previous")]
        return next((name for name in links if name is not None and self._is_complete(component, name)), None)

    def _is_outdated(self, component: str) -> bool:
        current = self.links.get(self._standby_path(component, "current"))
        is_there = current is not None and self._is_complete(component, current)
        is_active = bool(self.activations.get(component))
        return is_active and is_there and self.in_place.get(component, current) != current

    def _is_complete(self, component: str, revision: str) -> bool:
        pod = self.disk.file(self._standby_path(component, f"{revision}/pod.json"))
        return pod is not None and standby.is_complete(pod[0])

    @staticmethod
    def _standby_path(component: str, name: str) -> str:
        return f"{places.STANDBY}/{component}/{name}"

    # --- the container runtime ---

    def _ctr(self, arguments: list[str]) -> Completed:
        match arguments:
            case ["images", "ls"]:
                lines = [f"{name} application/x {digest} 1" for name, digest in self.images.items()]
                return _said("\n".join(["REF TYPE DIGEST SIZE", *lines]))
            case ["images", "import", "--label", label, archive]:
                assert "containerd" in self.active_units, "no runtime to import into"
                assert label == PINNED, "the kubelet would remove it"
                reference, digest = self.files[archive][0].decode().split()
                self._act(f"import {reference}")
                self.images[reference] = digest
            case ["tasks", "ls"] if self.tasks is None:
                return _failed(1, "ctr: connection refused")
            case ["tasks", "ls"]:
                rows = [f"{name} 1 {state}" for name, state in (self.tasks or {}).items()]
                return _said("\n".join(["TASK PID STATUS", *rows]))
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


def _failed(status: int, stderr: str, text: str = "") -> Completed:
    return Completed(status, text.encode(), stderr)


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
    async def locked(
        self, command: str, tell: object, *, minority: bool = False, passes_workers: Collection[str] = ()
    ) -> AsyncIterator[None]:
        yield

    async def discard(self, name: str, progress: object) -> bool:
        return self.hosts.pop(name, None) is not None

    async def removable(self) -> Sequence[str]:
        return []

    async def remove(self, progress: object) -> None: ...

    async def close(self) -> None: ...
