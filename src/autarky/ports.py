"""The seams between decisions and effects: every effect of autarky goes through one of these.

Contract: adapters (`hosts`, `lab`, `kube`, `etcd`, `cri`, ...) implement them, phases and agents use them,
tests give fakes. The same contract tests run against the fakes and against the real thing.

Dangers: a call may be cut at any moment (SIGKILL, power); every mutation here is therefore atomic on
its own, and callers look before they act so that a second run converges (rule 5).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.model.patience import HEALTH
from autarky.model.runtime import (
    Container,
    ContainerEvent,
    ContainerStatus,
    NodeImage,
    RuntimeVersion,
    Sandbox,
)

Object = dict[str, Any]
"""A Kubernetes object as it is on the wire: typed models would drop fields that they do not know."""
SHORT = 64 * 1024
"""Bytes: none of our markers, certificates or kubeconfigs is longer. Root on a host may write a longer one."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that exited. Output is bounded by the driver (1 MiB unless asked for more)."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace").strip()


class Hold(Protocol):
    """A lock that is held on a host."""

    async def lost(self) -> None:
        """Returns when the lock is lost though nobody released it: the connection or the machine is gone."""
        ...


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

    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        """The file's content, or None if it does not exist. CommandFailed if it has more than `most` bytes; no
        more than that is transferred."""
        ...

    async def digests(self, paths: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        """(sha256 in hex, mode) of those files that exist, in one round trip."""
        ...

    async def write_files(self, files: Sequence[File]) -> None:
        """Write files atomically one by one, in order, creating directories (0755, or 0700 when the
        file's mode gives nothing to others); fsync file and directory before returning."""
        ...

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files (not directories); absent ones are ignored."""
        ...

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        """Copy a big local file to the host, atomically, unless the same content is there already."""
        ...

    async def pull(self, path: str, target: Path, progress: Callable[[float], None] | None = None) -> None:
        """Copy a big file of the host to a local one, mode 0600, atomically and complete: its digest is compared.
        CommandFailed if it does not exist. `progress` gets the bytes that have come."""
        ...

    def hold(self, path: str, holder: str) -> AbstractAsyncContextManager[Hold]:
        """Hold the lock file for the block; it is released with our process or connection. `holder`, one line, is
        what others see. Raises Held at once if somebody else has it."""
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

    def each(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncGenerator[Object, None]:
        """The same, one object at a time, never many of them in memory: for kinds that workers or tenants can create in
        any number and size. ApiError (410) if it takes so long that the API has compacted the listed version."""
        ...

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
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        as_read: Object | None = None,
    ) -> bool:
        """Ask for the deletion; False if the object was absent. `grace_seconds`: overrides the pod's own grace period;
        it may be shortened while the pod terminates, never extended. `as_read`: the object as it was read; Conflict,
        and nothing is deleted, where it is another one by now or was changed (its uid and resourceVersion)."""
        ...

    async def evict(self, namespace: str, pod: str) -> bool:
        """Evict the pod, if its disruption budgets allow it (ApiError 429 otherwise); False if it was absent."""
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

    async def lines(self, path: str, beginnings: Collection[str]) -> Sequence[str]:
        """Of a text that an API server has beside its objects, such as /metrics, the lines that begin with one of
        these. The text may have some hundred megabytes, and these lines a few: then Unreachable."""
        ...

    async def healthy(self, path: str = "/readyz", *, timeout: float = HEALTH) -> str | None:
        """None if the path answers 200, else a short sentence saying what was seen. Never raises."""
        ...

    async def close(self) -> None: ...


class Cri(Protocol):
    """The container runtime of this node, which works without an API server: what runs, what ran, which images.

    Every call has a deadline. Raises Unreachable if the runtime is absent, starting or too slow; UserError
    if it does not speak CRI v1; ApiError for what it refuses.
    """

    async def pods(self) -> Sequence[Sandbox]:
        """All sandboxes, including stopped ones, the oldest first."""
        ...

    async def containers(self) -> Sequence[Container]:
        """All containers, including exited ones, the oldest first."""
        ...

    async def container_status(self, container_id: str) -> ContainerStatus | None:
        """None if there is no such container."""
        ...

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float = 30.0) -> None:
        """Kill its containers without grace, and free its network. Does nothing if it is absent or stopped.

        Danger: the kubelet starts a new sandbox for a pod that should still run.
        """
        ...

    async def remove_sandbox(self, sandbox_id: str, *, timeout: float = 30.0) -> None:
        """Stop it if it runs, and remove it with its containers. Does nothing if it is absent."""
        ...

    async def remove_container(self, container_id: str, *, timeout: float = 30.0) -> None:
        """Kill it if it runs, and remove it. Does nothing if it is absent."""
        ...

    async def images(self) -> Sequence[NodeImage]:
        """All images, by id."""
        ...

    async def has_image(self, reference: str) -> bool:
        """Whether the node has it under this name (with tag or digest) or id."""
        ...

    async def pull_image(self, reference: str, *, timeout: float = 300.0) -> None:
        """From its registry, without credentials. ApiError, or Unreachable, where that fails."""
        ...

    async def version(self) -> RuntimeVersion: ...

    def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Events from now on, and perhaps a few minutes of older ones that nobody has read. It raises like the
        other calls when the runtime goes away, and ends when the runtime ends it.

        Hints to look again, not a record: events may be lost, so also look periodically. It holds a
        stream: close it (contextlib.aclosing) when you leave it early.
        """
        ...

    async def close(self) -> None: ...


class KeptImages(Protocol):
    """The images that must stay on this node: the kubelet's garbage collection skips them, and a name that a user
    removed is restored from content that was held.

    Raises like Cri.
    """

    async def keep(self, references: Collection[str]) -> frozenset[str]:
        """Keep these and no others; returns those of them that the node has. May be interrupted and repeated.

        An image that somebody else pinned stays pinned when it is no longer kept.
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of an image: its size in bytes, and where the content begins in which layer (its digest), as unpacked."""

    size: int
    layer: str
    offset: int


@dataclass(frozen=True, slots=True)
class FoundImage:
    """digest: of its manifest, which says what it contains. files: by path, as it was asked for."""

    reference: str
    digest: str
    files: Mapping[str, FoundFile]


class ImageFiles(Protocol):
    """Files of the images that this node has, read out of their layers: no container, no mount, no privilege, and a few
    MiB of memory, however large they are.

    Raises like Cri; UserError, which names the fix, for an image that is not there or cannot give these files.
    """

    async def find(self, reference: str, paths: Collection[str]) -> FoundImage:
        """Find regular files. UserError where one of them is absent, or something else is in its place."""
        ...

    async def read(self, found: FoundImage, into: Mapping[str, Callable[[bytes], object]]) -> None:
        """Give the content of found files (path → what takes it) piece by piece, one file after the other, in another
        thread, which has ended on return. What was given counts only if this returns: digests are verified last. What
        `into` raises is raised."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time, so that tests can own it. `monotonic` for waiting, `time` for stamps; both in seconds."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Progress(Protocol):
    """How long-running work reports its progress. The engine implements it; renderers decide what is shown."""

    def note(self, sentence: str) -> None:
        """Something happened that is worth one line."""
        ...

    def progress(self, what: str, done: float, total: float) -> None:
        """Live state of one named piece of work; redrawn in place on a terminal."""
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
        """Create or power on what is missing. Machines that we cannot create must exist."""
        ...

    def host(self, name: str) -> Host | None:
        """The host of a node (or of an external etcd), or None while its machine does not exist."""
        ...

    def locked(
        self,
        command: str,
        tell: Callable[[str], None],
        *,
        minority: bool = False,
        passes_workers: Collection[str] = (),
    ) -> AbstractAsyncContextManager[None]:
        """Lock the machines for the block: those that run, and those that `ensure` creates. minority: only those
        of control nodes, and also where most of them do not answer, as long as one does; no worker has a say then.
        passes_workers: workers whose machines are passed over where those of all control nodes are locked, also if
        somebody else has them, or will not let us.

        `command` is what others see, `tell` gets one sentence about each wait. Raises Conflict if somebody else
        holds a lock, and Unreachable or UserError for a machine that cannot be used.
        """
        ...

    async def discard(self, name: str, progress: Progress) -> bool:
        """Remove the machine of this node if `ensure` created it, running or not; False if there is none."""
        ...

    async def removable(self) -> Sequence[str]:
        """What `remove` would do, as sentences. Only machines that `ensure` made are removed."""
        ...

    async def remove(self, progress: Progress) -> None: ...

    async def close(self) -> None: ...
