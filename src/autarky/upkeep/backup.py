"""What a backup has in it: a snapshot of etcd, and everything of a control node that a recovery needs.

Contract: works through the host of one control node, which may be this machine, with the API down as well. A snapshot
is what that node's own member has: so the member reaches the quorum first, and what the quorum had then is in it. It
counts only when its hash is right and an etcd that was started from it serves its keys. What is left in the scratch
directory by a kill is removed by the next one.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from autarky import places
from autarky.archive.contents import (
    CONTROL_PLANE,
    HOST,
    MANIFEST,
    SNAPSHOT,
    Contents,
    EtcdSeen,
    FileSeen,
    refuse_large,
)
from autarky.archive.sealing import Part
from autarky.control.backup.decide.encryption import Encryption, encryption_of, lacking
from autarky.control.backup.decide.written_by import STANDBY_POD, at_least, written_by
from autarky.errors import CommandFailed, Refused, Unreachable, UserError
from autarky.etcd import EtcdTools, MemberStatus, Place
from autarky.etcd.snapshots import Intact, Tried
from autarky.parsing import parsed
from autarky.ports import Host
from autarky.upkeep.patience import LEAST_SECONDS, seconds_for

TRIED_HERE = 2.2
"""Times the database, of free disk: the snapshot, what it is restored to, and a little."""
TRIED_ELSEWHERE = 1.1
KEPT_FREE, MOST_KEPT_FREE = 0.05, 1024**3
"""Of the disk, and in bytes: etcd, which stops when its disk is full, takes 64 MB at a time for its log."""
_LOOKS = 3
_ENOUGH_SPACE = "a backup leaves the node's disk room"
HAS_ALL = "a backup has all that etcd has acknowledged"
_QUORUM_SECONDS = 15.0
"""For a member to read by its quorum: longer than an election takes."""
_STANDBY = f"{HOST}{STANDBY_POD.removeprefix('/')}"
FILES = (
    *("etc/kubernetes/pki", "etc/kubernetes/manifests", "var/lib/autarky/state", "var/lib/autarky/leaves"),
    "var/lib/autarky/standby/*/current",
)
"""Below /; `current` is a link to the standby that counts."""
# Links are followed. tar says 1 where a file has changed while it was read; ours are replaced, never changed.
_COLLECT = f"""\
cd "$1"
set -- {" ".join(FILES)}
for path; do
  shift
  [ ! -e "$path" ] || set -- "$@" "$path"
done
tar --create --dereference --exclude='.autarky.*' -- "$@" || [ $? = 1 ]
"""


class Unfit(Refused):
    """This node's member does not have all, or nobody knows: another one may."""

    def __init__(self, host: str, seen: str) -> None:
        go_on = "see `autarky etcd status`, or name a control node whose member reaches the others"
        super().__init__(HAS_ALL, f"{host}: {seen}", go_on)
        self.seen = f"{host}: {seen}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot that was written on a host. size: of the database, in bytes. cluster: etcd's id of it. members: their
    names, sorted. least: the revision that the quorum had before; None where none was reached, and that is accepted.
    alarms: their kinds."""

    path: str
    size: int
    version: str
    cluster: int
    members: tuple[str, ...]
    least: int | None
    alarms: tuple[str, ...] = ()


@asynccontextmanager
async def snapshot_taken(
    host: Host,
    scratch: str,
    copies: float,
    tell: Callable[[str], None],
    *,
    without_quorum: bool = False,
    place: Place | None = None,
) -> AsyncIterator[Taken]:
    """A snapshot of the host's member, in the directory `scratch` below the host's own; it is gone after the block.

    copies: how many there may be on that disk. Unfit if the member does not reach the quorum, unless without_quorum;
    Refused if etcd's data differs between members, or the disk has no room for the copies; CommandFailed or Unreachable
    if etcd gives no snapshot. Its hash and its revision are still to be looked at.
    """
    tools = EtcdTools(host, place=place)
    directory = f"{places.HOST_ROOT}/scratch/{scratch}"
    path = f"{directory}/snapshot.db"
    try:
        await host.run(["rm", "-rf", directory])
        await host.run(["install", "-d", "-m", "700", f"{places.HOST_ROOT}/scratch", directory])
        least = None if without_quorum else await newest_revision(host, place)
        status = await own_status(host, place)
        await _refuse_full_disk(host, directory, int(status.db_size * copies))
        membership = await tools.membership(by_quorum=False)
        tell(f"writing a snapshot of {status.db_size:,} bytes")
        await tools.save_snapshot(path, timeout=seconds_for(status.db_size))
        members = tuple(sorted(one.name for one in membership.members if one.name))
        yield Taken(path, status.db_size, status.version, membership.cluster, members, least, status.alarms)
    finally:
        await host.run(["rm", "-rf", directory], timeout=LEAST_SECONDS, check=False)


async def newest_revision(host: Host, place: Place | None = None) -> int:
    """The revision that the quorum has, read through this host's member, which has applied it then. Unfit if it does
    not reach the quorum; Refused while an alarm says that the members' data differs: who knows which one is right?"""
    await own_status(host, place)
    tools = EtcdTools(host, timeout=_QUORUM_SECONDS, place=place)
    try:
        revision = await tools.revision()
        alarms = await tools.alarms()
    except (CommandFailed, Unreachable) as error:
        raise Unfit(host.name, f"its member of etcd does not reach a quorum: {error}") from error
    if any(one.kind == "CORRUPT" for one in alarms):
        raise Refused(
            HAS_ALL,
            "alarm CORRUPT: the data of etcd's members differs",
            "see `autarky etcd status`, remove the member that differs, and `autarky etcd alarm --disarm`",
        )
    return revision


async def own_status(host: Host, place: Place | None = None) -> MemberStatus:
    """Of this host's member. Unfit if it does not answer."""
    endpoint = (place or Place()).local
    status = (await EtcdTools(host, place=place).statuses([endpoint])).get(endpoint)
    if status is None:
        raise Unfit(host.name, "its member of etcd does not answer")
    return status


async def _refuse_full_disk(host: Host, directory: str, needed: int) -> None:
    free, size = map(int, (await host.run(["df", "--output=avail,size", "-B1", directory])).text.split()[-2:])
    kept = int(min(MOST_KEPT_FREE, size * KEPT_FREE))
    if free - needed < kept:
        raise Refused(
            _ENOUGH_SPACE,
            f"{needed:,} bytes are needed for the snapshot and its trial, {kept:,} are to stay free for etcd, and"
            f" {free:,} are free below {directory}",
            "free some space on the node, or choose another node",
        )


# --- files --------------------------------------------------------------------------------------------


async def files_of(host: Host, root: str = "/") -> list[Part]:
    """Keys, certificates, manifests and the state of a control node. root: another directory in tests."""
    done = await host.run(["sh", "-c", _COLLECT, "sh", root], timeout=LEAST_SECONDS)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        return [
            Part(f"{HOST}{entry.name}", content.read(), entry.mode)
            for entry in tar
            if entry.isfile() and (content := tar.extractfile(entry)) is not None
        ]


def files_here(root: Path) -> list[Part]:
    """The same of this machine, without a shell."""
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):  # a standby was replaced meanwhile: the next look finds the new one
            return [_part(path, root) for path in sorted(set(_files_below(root)))]
    return [_part(path, root) for path in sorted(set(_files_below(root)))]


def _part(path: Path, root: Path) -> Part:
    return Part(f"{HOST}{path.relative_to(root)}", path.read_bytes(), path.stat().st_mode & 0o777)


def _files_below(root: Path) -> Iterator[Path]:
    for pattern in FILES:
        for start in root.glob(pattern):
            for directory, _, names in os.walk(start, followlinks=True):
                yield from (Path(directory, name) for name in names if not name.startswith(".autarky."))


# --- what the archive says of itself --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marker:
    """Which cluster and node a host belongs to. ca: the fingerprint. kubernetes: the version that it was prepared
    for."""

    cluster: str
    ca: str
    node: str
    kubernetes: str


def marker_of(content: bytes | None) -> Marker:
    """Of a host's marker file. UserError if it belongs to no cluster."""
    try:
        said = parsed(content or b"")
    except ValueError:
        said = None
    if not isinstance(said, dict) or not said.get("cluster"):
        raise UserError("this host belongs to no cluster", fix="name a control node")
    return Marker(*(str(said.get(key) or "") for key in ("cluster", "ca", "node", "version")))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot on this machine that has proved itself."""

    local: Path
    taken: Taken
    intact: Intact
    tried: Tried


def archive_of(
    marker: Marker,
    snapshot: Snapshot,
    files: Iterable[Part],
    *,
    made: str,
    autarky: str,
    cluster: Mapping[str, bytes],
) -> tuple[Contents, list[Part]]:
    """The manifest and all files, that first. made: RFC 3339, autarky: its version. cluster: the cluster file and the
    ControlPlane by their names in the archive, those that are known. Its version is that of what has written the data,
    as far as the ControlPlane and the standby say. Unfit if the snapshot lacks what there was; UserError if the files
    are more than whoever opens it would read."""
    taken = snapshot.taken
    if taken.least is not None and snapshot.tried.revision < taken.least:
        lacks = f"its snapshot is of revision {snapshot.tried.revision:,}, and the quorum had {taken.least:,} before"
        raise Unfit(marker.node, lacks)
    small = [(Part(name, content), content) for name, content in sorted(cluster.items())]
    small += [(part, part.content) for part in files if isinstance(part.content, bytes)]
    seen = {part.name: FileSeen(len(content), sha256(content).hexdigest(), part.mode) for part, content in small}
    seen[SNAPSHOT] = FileSeen(snapshot.intact.size, snapshot.intact.sha256)
    etcd = EtcdSeen(
        version=taken.version,
        cluster=f"{taken.cluster:x}",
        revision=snapshot.tried.revision,
        keys=snapshot.tried.keys,
        size=snapshot.intact.size,
        members=taken.members,
        quorum=taken.least is not None,
        alarms=taken.alarms,
    )
    found = {part.name: content for part, content in small}
    kubernetes = written_by(marker.kubernetes, found.get(CONTROL_PLANE), found.get(_STANDBY))
    contents = Contents(marker.cluster, marker.ca, made, marker.node, autarky, kubernetes, etcd, seen)
    refuse_large(
        contents, f"move what is none of autarky's out of {places.PKI} and {places.MANIFESTS} on {marker.node}"
    )
    parts = [Part(MANIFEST, contents.written()), *(part for part, _ in small), Part(SNAPSHOT, snapshot.local)]
    return contents, parts


def version_of(contents: Contents, files: Mapping[str, bytes]) -> str:
    """Of Kubernetes, with which an archive is to be read. Earlier releases wrote that of the host's marker into it,
    which an upgrade through the API leaves behind; the standby among its files is what had served."""
    return at_least(contents.kubernetes, files.get(CONTROL_PLANE), files.get(_STANDBY))


def encryption_in(files: Mapping[str, bytes]) -> Encryption | None:
    """How the API server reads what it has stored encrypted, by an archive's files; None where nothing is."""
    on_node = {f"/{name.removeprefix(HOST)}": content for name, content in files.items() if name.startswith(HOST)}
    return encryption_of(files.get(_STANDBY), on_node)


def says_encryption(files: Mapping[str, bytes]) -> bool:
    """Whether an archive with these files says that at all."""
    return _STANDBY in files


def lacking_in(parts: Iterable[Part]) -> str:
    """What a recovery from this archive would need besides, a sentence; empty: nothing."""
    return lacking(encryption_in({part.name: part.content for part in parts if isinstance(part.content, bytes)}))
