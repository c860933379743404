"""The seams between decisions and effects: every effect of autarky goes through one of these.

Contract: adapters (`hosts`, `lab`, `kube`, `etcd`, ...) implement them, phases and agents use them,
tests give fakes. The same contract tests run against the fakes and against the real thing.

Dangers: a call may be cut at any moment (SIGKILL, power); every mutation here is therefore atomic on
its own, and callers look before they act so that a second run converges (rule 5).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autarky.model.facts import HostFacts
from autarky.model.files import File

Object = dict[str, Any]
"""A Kubernetes object as it is on the wire: typed models would lose fields they do not know."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ended. Output is bounded by the driver (1 MiB unless asked for more)."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace").strip()


class Host(Protocol):
    """A Linux machine with systemd, as root.

    Every method raises Unreachable when the machine does not answer, and CommandFailed when it
    answered with a failure. Paths are absolute paths on that machine.
    """

    @property
    def name(self) -> str: ...

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        """Run a program to its end. Secrets go through stdin, never argv. `timeout` in seconds."""
        ...

    async def read(self, path: str) -> bytes | None:
        """The file's content, or None where there is none."""
        ...

    async def digests(self, paths: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        """(sha256 in hex, mode) of those of the files that exist, in one round trip."""
        ...

    async def write_files(self, files: Sequence[File]) -> None:
        """Write files atomically one by one, in order, creating directories (0755, or 0700 when the
        file's mode gives nothing to others); fsync file and directory before returning."""
        ...

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files (not directories); those that are absent are passed over."""
        ...

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        """Copy a big local file to the host, atomically."""
        ...

    async def facts(self) -> HostFacts: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED or BOOKMARK, with the object as it was sent."""

    type: str
    object: Object


class Kube(Protocol):
    """The Kubernetes API. Raises Unreachable, Conflict (409) or ApiError; absent objects are None."""

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None: ...

    async def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Object]: ...

    async def apply(self, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Server-side apply with force: `manager` owns every field of `obj`. Returns the result."""
        ...

    async def create(self, obj: Object) -> Object: ...

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        patch: Object,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """JSON merge patch."""
        ...

    async def replace(self, obj: Object, *, subresource: str | None = None) -> Object:
        """PUT under the object's resourceVersion; Conflict when it has changed meanwhile."""
        ...

    async def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, *, grace_seconds: int | None = None
    ) -> bool:
        """Ask for the deletion; False where the object was absent. `grace_seconds`: how long a pod has to end,
        where that is not the pod's own affair; it may be shortened while the pod ends, never extended."""
        ...

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[WatchEvent, None]:
        """One watch cycle: ends when the server ends it; raises like the other calls. It holds a
        connection: close it (contextlib.aclosing) when you leave it early."""
        ...

    async def logs(
        self, namespace: str, pod: str, *, container: str | None = None, previous: bool = False, tail: int | None = None
    ) -> str: ...

    async def healthy(self, path: str = "/readyz", *, timeout: float = 2.0) -> str | None:
        """None when the path answers 200, else a short sentence saying what was seen. Never raises."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time, so that tests can own it. `monotonic` for waiting, `time` for stamps; both in seconds."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Progress(Protocol):
    """How long work says where it is. The engine implements it; renderers decide what is shown."""

    def note(self, sentence: str) -> None:
        """Something happened that is worth one line."""
        ...

    def progress(self, what: str, done: float, total: float) -> None:
        """Live state of one named piece of work; shown in place on a terminal."""
        ...

    def waiting(self, what: str, deadline: float, last: str) -> None:
        """Still waiting for `what`, `deadline` seconds left, `last` is the last thing seen."""
        ...


class Machines(Protocol):
    """The machines of a cluster: finds or makes the host of each node, by its driver."""

    async def missing(self) -> Sequence[str]:
        """What `ensure` would do, as sentences ("create lab host n1"); empty when all machines run."""
        ...

    async def ensure(self, progress: Progress) -> None:
        """Create or power on what is missing. Machines that are not ours to make must be there."""
        ...

    def host(self, name: str) -> Host | None:
        """The host of a node (or of an external etcd), or None while its machine does not exist."""
        ...

    async def removable(self) -> Sequence[str]:
        """What `remove` would do, as sentences. Only machines that `ensure` made are removed."""
        ...

    async def remove(self, progress: Progress) -> None: ...

    async def close(self) -> None: ...
