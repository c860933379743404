"""What the phases of one recovery share, and what it leaves on hosts so that it can be resumed."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from autarky import places
from autarky.control.backup.decide import readers
from autarky.control.backup.decide.readers import Readers
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.decide.recovery import beginning
from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import CommandFailed, Refused, UserError
from autarky.etcd.data import Identity
from autarky.etcd.log import End
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.parsing import parsed
from autarky.phases.context import Context, for_each
from autarky.phases.trusted import Trusted
from autarky.ports import SHORT, Host
from autarky.programs import program

SCRIPT = program(
    __file__,
    "recover.sh",
    bin=places.BIN,
    member=f"https://127.0.0.1:{ports.ETCD_CLIENT}",
    ca=f"{etcd.PKI}/ca.crt",
    peer_ca=etcd.PEER_CA.removeprefix(f"{places.ETCD_DATA}/"),
    former_key=FORMER,
)


OF_FORMER = (places.ETCD_CHANGE, places.ETCD_FORMER, places.ETCD_FENCED, places.ETCD_FENCE)
"""What would start a former member on a fenced host, then its fence: whoever sees none finds nothing of it there."""
REVISIONS = 2**62
"""etcd counts up to twice as many. No recovery begins beyond this, so that there is room for what is written then."""
CLUSTERS = 2**64
"""Ids of clusters are below this."""
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Fence:
    """On a host: the recovery that has fenced it, the node whose data becomes the new etcd, and what that is made of,
    as a clause; of which kind the recovery is, and when it was begun (RFC 3339; both empty where an older release has
    written it)."""

    recovery: str
    seat: str
    made_of: str
    kind: str = ""
    at: str = ""

    def file(self) -> File:
        return File(places.ETCD_FENCE, json.dumps(asdict(self), indent=1).encode() + b"\n", 0o600)

    @classmethod
    def read(cls, content: bytes | None) -> Fence | None:
        """UserError where it cannot be understood."""
        if content is None:
            return None
        try:
            found = parsed(content)
            said = [str(found[key]) for key in ("recovery", "seat", "made_of")]
            return cls(*said, *(str(found.get(key, "")) for key in ("kind", "at")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fix = "see what is in /var/lib/etcd on each control node, and remove that file where etcd should run"
            raise UserError(f"{places.ETCD_FENCE} cannot be read: {error}", fix=fix) from error


@dataclass(frozen=True, slots=True)
class Began:
    """What a new etcd begins with: its revision, and the ids of the clusters that it says it has replaced. In a file
    beside its data. etcd: the version that has made it; empty where an earlier release has written the file."""

    revision: int
    former: frozenset[int] = frozenset()
    etcd: str = ""

    def file(self, work: str) -> File:
        said = {"revision": self.revision, "former": [f"{one:x}" for one in sorted(self.former)], "etcd": self.etcd}
        return File(began_in(work), json.dumps(said).encode() + b"\n", 0o600)

    @classmethod
    def read(cls, content: bytes | None) -> Began | None:
        """None where a release has made the data that wrote no such file, or it cannot be understood."""
        try:
            found = parsed(content or b"")
            former, etcd = frozenset(int(str(one), 16) for one in found["former"]), str(found.get("etcd", ""))
            return cls(int(found["revision"]), former, etcd if _VERSION.fullmatch(etcd) else "")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Recovered:
    """On the host where a new etcd began: its cluster's id, in hex; the directory with the data from before it, empty
    where there was none; what it was made of, and when (RFC 3339); the revision that it began with; the ids of all
    clusters that it has replaced: the next one may be made of data that does not know them. kind: as that of a fence.
    kubernetes, etcd: the versions with which the data from before it was written; empty where that is not known."""

    cluster: str
    kept: str
    made_of: str
    at: str
    revision: int
    former: Sequence[str] = ()
    kind: str = ""
    kubernetes: str = ""
    etcd: str = ""
    readers: Readers | None = None

    @property
    def clusters(self) -> set[int]:
        """It and those that it has replaced. ValueError."""
        return {int(self.cluster, 16), *self.replaced}

    @property
    def replaced(self) -> set[int]:
        """ValueError."""
        return {int(one, 16) for one in self.former}

    def file(self) -> File:
        said = asdict(self) | {"readers": {} if self.readers is None else readers.noted(self.readers)}
        return File(places.ETCD_RECOVERED, json.dumps(said, indent=1).encode() + b"\n", 0o600)

    @classmethod
    def read(cls, content: bytes | None) -> Recovered | None:
        """None where there was none, or it cannot be understood."""
        try:
            found = parsed(content or b"")
            cluster, kept, made_of, at = (str(found[key]) for key in ("cluster", "kept", "made_of", "at"))
            former = tuple(map(str, found.get("former", ())))
            kind, kubernetes, etcd = (str(found.get(key, "")) for key in ("kind", "kubernetes", "etcd"))
            by = readers.read(found.get("readers"))
            read = cls(cluster, kept, made_of, at, int(found["revision"]), former, kind, kubernetes, etcd, by)
            possible = 0 <= read.revision < REVISIONS and all(0 <= one < CLUSTERS for one in read.clusters)
        except (ValueError, KeyError, TypeError, OverflowError):
            return None
        return read if possible else None


@dataclass(frozen=True, slots=True)
class Found:
    """What is on one host. has_pod: a static pod of etcd, also one that was taken away for a recovery. identity None:
    it has no data of etcd. size of its database and free space, in bytes. made: the recoveries whose new data is
    complete here; placed: those of them whose data is in its place already."""

    node: str
    address: str
    fence: Fence | None = None
    has_pod: bool = False
    identity: Identity | None = None
    end: End | None = None
    size: int = 0
    free: int = 0
    made: frozenset[str] = frozenset()
    placed: frozenset[str] = frozenset()
    recovered: Recovered | None = None
    unreadable: str = ""
    """Why its log could not be read, if that failed."""
    data: str = places.ETCD_DATA
    """Where its data is: where a recovery was cut, it may have been moved aside, with nothing in its place."""
    aside: str = ""
    """Where nothing shows that a recovery was cut: which directory that is, and how old. It may be of a member that
    left months ago, so that only a person takes it."""

    @property
    def in_place(self) -> bool:
        """Whether there is data where etcd looks for it."""
        return self.identity is not None and self.data == places.ETCD_DATA


@dataclass(frozen=True, slots=True)
class FromMember:
    """The data of a member that is left. node: whose; None: the newest that can be read."""

    node: str | None = None


@dataclass(frozen=True, slots=True)
class FromSnapshot:
    """A snapshot on this machine. name: what it is, for people. node: where the new etcd begins; None: where the leader
    is. size in bytes. etcd, kubernetes: the versions that have written it; empty where that has been judged. members:
    names of the nodes that had a member, which the API will know again. alarms: their kinds; with one of them that etcd
    took no writes. readers: by which what is encrypted in it is read; None where that is not known."""

    path: Path
    name: str
    size: int
    revision: int
    node: str | None = None
    etcd: str = ""
    members: tuple[str, ...] = ()
    kubernetes: str = ""
    alarms: tuple[str, ...] = ()
    readers: Readers | None = None


@dataclass(frozen=True, slots=True)
class FromKept:
    """The data that the last recovery has put aside: that recovery is taken back. again: also one that has itself taken
    one back. made: the time of the recovery that is meant; None: the last one, if it is not old."""

    again: bool = False
    made: str | None = None


Source = FromMember | FromSnapshot | FromKept
KINDS: Mapping[type[Source], str] = {FromMember: "member", FromSnapshot: "snapshot", FromKept: "kept"}
"""What is written of them on hosts."""


@dataclass(frozen=True, slots=True)
class Members:
    """Who is in the cluster before a backup takes its place. nodes: the names of Nodes. trusted: its inventory is not
    empty. control: which of them a label makes control nodes; empty where that was not noted."""

    nodes: frozenset[str]
    trusted: Trusted
    control: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NotDone:
    """clause: what does not happen. command: what is to be run again for that."""

    clause: str
    command: str


@dataclass(slots=True)
class Recovery:
    """One recovery of etcd, in the making. id, seat, made_of: taken from an interrupted one, where it is resumed.
    made: its data is complete; placed: and where etcd looks for it: from then on there is no way back but another
    recovery."""

    source: Source
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    seat: str = ""
    made_of: str = ""
    found: dict[str, Found] = field(default_factory=dict)
    data: str = places.ETCD_DATA
    """Where the data is that the new etcd is made of."""
    current: int | None = None
    """The revision of the etcd that is replaced, where it answers."""
    made: bool = False
    placed: bool = False
    begun: str = ""
    """When (RFC 3339); empty until somebody has looked."""
    as_begun: str = ""
    """Of which kind it was when it began, where it is resumed."""
    not_done: NotDone | None = None
    """What a person has asked for, where another recovery is finished instead."""
    members: Members | None = None
    """None where that could not be learned."""
    replaced: frozenset[int] = frozenset()
    """The ids of the clusters that an etcd which serves has replaced, as it says."""
    earlier: dict[str, Fence] = field(default_factory=dict)
    """Of nodes that another recovery had fenced already: its fence. Their members did not run before this one."""

    @property
    def work(self) -> str:
        """On the seat."""
        return f"{places.ETCD_DATA}/recovery.{self.id}"

    def token(self, cluster: str) -> str:
        """Of the new etcd: its id is made of this and its first member, so no two recoveries make the same one."""
        return f"{cluster}-{self.id}"

    @property
    def fence(self) -> Fence:
        return Fence(self.id, self.seat, self.made_of, self.kind, self.begun)

    @property
    def kind(self) -> str:
        return self.as_begun or KINDS[type(self.source)]

    @property
    def former(self) -> list[int]:
        """The ids of the clusters that the new one replaces, as far as they can be seen."""
        others = [one for one in self.found.values() if self.id not in one.placed]
        seen = {one.identity.cluster for one in others if one.identity is not None}
        return sorted(seen.union(*(one.recovered.clusters for one in self.found.values() if one.recovered is not None)))


def stamp(seconds: float) -> str:
    """Since 1970, as RFC 3339 has it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


async def on_host(
    host: Host,
    arguments: Sequence[str],
    *,
    timeout: float = 60.0,
    stdin: bytes | None = None,
    programs: Sequence[str] = (),
) -> list[str]:
    """A step of the host's part; the lines that it prints. CommandFailed has the step's name. programs: the words for
    others of etcd's than those that the host uses."""
    words = ["bash", "-c", SCRIPT, "recover", *programs, *arguments]
    done = await host.run(words, stdin=stdin, timeout=timeout, check=False)
    if done.status != 0:
        raise CommandFailed(host.name, ["recover", *arguments[:1]], done.status, done.stderr.strip())
    return done.text.splitlines()


async def fence_on(host: Host, placed: Iterable[str] = ()) -> Fence | None:
    """placed: recoveries that are not over though the seat's own fence may be gone."""
    for path in (places.ETCD_FENCE, *(fence_in(f"{places.ETCD_DATA}/recovery.{one}") for one in placed)):
        found = Fence.read(await host.read(path, most=SHORT))
        if found is not None:
            return found
    return None


async def is_fenced(host: Host) -> bool:
    """By whichever recovery, also by a fence that cannot be understood."""
    return await host.read(places.ETCD_FENCE, most=SHORT) is not None


def fence_in(work: str) -> str:
    """A copy of it, beside the data of the new etcd."""
    return f"{work}/fence.json"


def began_in(work: str) -> str:
    return f"{work}/began.json"


def first_revision(recovery: Recovery, source: int) -> int:
    """With which the new etcd begins, from data of that revision. Refused where etcd could not count on from there."""
    begun = {one.node: one.recovered.revision for one in recovery.found.values() if one.recovered is not None}
    first = beginning(source, recovery.current, list(begun.values()))
    if first < REVISIONS:
        return first
    highest = max(begun, key=lambda name: begun[name], default="")
    said = f"{places.ETCD_RECOVERED} on {highest} says {begun[highest]:,}" if highest else f"its data has {source:,}"
    raise Refused(
        "a new etcd begins above all revisions that there were",
        f"that would be revision {first:,}, which is more than any etcd comes to: {said}",
        "see whether that is true; remove that file where it is not",
    )


def nodes_of(context: Context, recovery: Recovery) -> list[Node]:
    """Whose hosts were found: the control nodes of the file first."""
    found = [node for node in context.cluster.nodes if node.name in recovery.found]
    return sorted(found, key=lambda node: not node.control_plane)


_Said = TypeVar("_Said")


async def said_by_nodes(
    context: Context, recovery: Recovery, ask: Callable[[Host], Awaitable[_Said | None]]
) -> Mapping[str, _Said]:
    """Node → what it says, of those that say anything. What a worker says of itself counts only where no control node
    of the file does."""
    nodes = nodes_of(context, recovery)
    ours = [node for node in nodes if node.control_plane]
    for asked in (ours, [node for node in nodes if node not in ours]):
        said = await for_each(asked, lambda node: ask(context.host(node)))
        if found := {name: one for name, one in sorted(said.items()) if one is not None}:
            return found
    return {}


def seat_of(context: Context, recovery: Recovery) -> Host:
    return context.host(context.cluster.node(recovery.seat))
