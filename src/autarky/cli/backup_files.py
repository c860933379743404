"""What `autarky backup` does with archives on this machine, and on hosts that it reaches."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autarky import __version__, places
from autarky.archive import Directory, Lock, Unlock, opened
from autarky.archive.contents import CLUSTER_FILE, CONTROL_PLANE, HOST, SNAPSHOT, Contents, checked
from autarky.archive.keeping import description, digest, keep
from autarky.archive.streams import drain
from autarky.control.backup.decide.fitting import SAME_CLUSTER, refuse_no_version
from autarky.errors import AutarkyError, Refused, Unreachable, UserError
from autarky.etcd import EtcdTools, snapshots
from autarky.etcd.snapshots import Tried
from autarky.model.fingerprint import fingerprint
from autarky.model.names import is_name
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.payload import Release, etcd_version, get_payload, known_versions, load_etcd, load_release
from autarky.pki import PkiStore
from autarky.pki.issue import Pair, read_pair
from autarky.upkeep import backup
from autarky.upkeep.patience import seconds_for

if TYPE_CHECKING:
    from autarky.phases.context import Context
    from autarky.ports import Host, Object, Progress

_SCRATCH = "backup-to-administrator"
PKI = f"{HOST}{places.PKI.removeprefix('/')}/"
"""Where an archive has the keys and certificates of a control node."""
CA = f"{PKI}ca.crt"
COMPARE = f"as `openssl x509 -outform DER -in {places.PKI}/ca.crt | sha256sum` said it on a control node"
"""How a person gets the fingerprint of a cluster's CA."""
_MOST_DESCRIPTION = 64 * 1024
"""Bytes of the file beside an archive."""


# --- making --------------------------------------------------------------------------------------------


async def bring(
    context: Context, to: Path, lock: Lock, node: str | None, progress: Progress, *, without_quorum: bool = False
) -> None:
    """A backup to a file on this machine, through the host of a control node whose member of etcd reaches the quorum.
    without_quorum: where none does, of what the member with the latest log has."""
    for path in (to, _beside(to)):
        if path.exists():
            raise UserError(f"{path} exists", fix="choose another name")
    to = to.absolute()  # the programs that look at it run elsewhere
    host, quorum = await _fit(_sources(context, node), progress, without_quorum=without_quorum)
    marker = backup.marker_of(await host.read(places.NODE_MARKER))
    with tempfile.TemporaryDirectory(prefix=".autarky-backup-", dir=to.parent) as scratch:
        local = Path(scratch, "snapshot.db")
        made = _now()
        async with backup.snapshot_taken(
            host, _SCRATCH, backup.TRIED_ELSEWHERE, progress.note, without_quorum=not quorum
        ) as taken:
            await host.pull(taken.path, local, lambda come: progress.progress("snapshot: bytes", come, taken.size))
            files = await backup.files_of(host)
            plane = await _plane_of(host) if quorum else b""
        intact = await asyncio.to_thread(snapshots.intact, local)
        tried = await _tried(local, marker.kubernetes, taken.version, progress)
        record = next((one.content for one in files if one.name.endswith("/state/cluster.json")), None)
        contents, parts = backup.archive_of(
            marker,
            backup.Snapshot(local, taken, intact, tried),
            files,
            made=made,
            autarky=__version__,
            cluster={
                **({CLUSTER_FILE: record} if isinstance(record, bytes) else {}),
                **({CONTROL_PLANE: plane} if plane else {}),
            },
        )
        progress.note(f"sealing {sum(one.size for one in contents.files.values()):,} bytes")
        await asyncio.to_thread(keep, Directory(to.parent), to.name, contents, parts, lock, _now)
    progress.note(f"{to}: {tried.keys:,} keys of revision {tried.revision:,}, verified")
    if lacks := backup.lacking_in(parts):
        progress.note(lacks)


async def _plane_of(host: Host) -> bytes:
    """What a backup has of the ControlPlane, as etcd's quorum has it: the API may be down. Empty where etcd does not
    say it, or has it encrypted: then the standby on the host says the version."""
    from autarky.control.backup.decide.written_by import excerpt
    from autarky.phases.upgrade_looking import PLANE_KEY

    try:
        found = parsed(await EtcdTools(host).value(PLANE_KEY))
    except (AutarkyError, ValueError):
        return b""
    return json.dumps(excerpt(found), indent=1).encode() if isinstance(found, dict) else b""


def _sources(context: Context, node: str | None) -> list[Host]:
    chosen = [one for one in context.present(context.control_nodes) if node in (None, one.name)]
    hosts = [host for one in chosen if (host := context.machines.host(one.name)) is not None]
    if not hosts:
        raise Unreachable("no control node's host answers" if node is None else f"node {node} is no control node here")
    return hosts


async def _fit(hosts: Sequence[Host], progress: Progress, *, without_quorum: bool) -> tuple[Host, bool]:
    """(the host of a member that can be backed up, whether it reaches the quorum)."""
    unfit: list[str] = []
    for host in hosts:
        try:
            await backup.newest_revision(host)
        except (backup.Unfit, Unreachable) as error:
            unfit.append(error.seen if isinstance(error, backup.Unfit) else str(error))
        else:
            return host, True
    if not without_quorum:
        go_on = "see `autarky etcd status`; --without-quorum takes what a single member has, whatever it lacks"
        raise Refused(backup.HAS_ALL, "; ".join(unfit), go_on)
    latest, host = await _latest(hosts)
    progress.note(f"etcd has no quorum: this is what the member on {host.name} has ({latest}); it may lack writes")
    return host, False


async def _latest(hosts: Sequence[Host]) -> tuple[str, Host]:
    """(its last entry, the host of the member that answers and has the latest log)."""
    found = []
    for host in hosts:
        with suppress(backup.Unfit, Unreachable):
            status = await backup.own_status(host)
            found.append(((status.raft_term, status.raft_index), host))
    if not found:
        fix = "start one, or see the page on recovery: `autarky etcd recover-quorum`"
        raise UserError("no member of etcd answers on any control node that answers", fix=fix)
    (term, index), host = max(found, key=lambda one: one[0])
    return f"entry {index:,} of term {term}", host


# --- looking and verifying -----------------------------------------------------------------------------


def manifest(path: Path, unlock: Unlock) -> str:
    """What the archive says of itself, as JSON. Without a key: what the file beside it says."""
    if not unlock.identities and unlock.passphrase is None:
        beside = _beside(path)
        if not beside.is_file():
            raise UserError(f"{path} can only be opened with a key", fix="give --identity or --passphrase-file")
        return json.dumps(_description(beside), indent=1)
    with path.open("rb") as file, opened(file, unlock) as files:
        contents, _ = checked(files)
        found = json.dumps(asdict(contents), indent=2)
        for _name, content in files:
            drain(content)
    return found


async def verify(path: Path, unlock: Unlock, progress: Progress, *, cluster: str | None = None) -> None:
    """UserError if it is not what it should be; Refused if its maker has not proved to be the cluster. cluster: which
    one; None: the one that it names. Where this machine does not know the CA of that, a person has to compare it."""
    await asyncio.to_thread(compare_digest, path, progress)
    if not unlock.identities and unlock.passphrase is None:
        progress.note("give --identity or --passphrase-file to verify what is in it")
        return
    with _scratch() as scratch:
        snapshot = scratch / "snapshot.db"
        contents = await unpack(path, unlock, snapshot, progress, ca=lambda said: known_ca(cluster or said.cluster))
    if known_ca(cluster or contents.cluster) is None:
        progress.note(
            f"this machine does not know the CA of cluster {cluster or contents.cluster}: anybody who knows a recipient"
            f" may have made the archive with a CA of his own, so compare its fingerprint, {COMPARE}"
        )


async def unpack(
    path: Path,
    unlock: Unlock,
    snapshot: Path,
    progress: Progress,
    *,
    judge: Callable[[Contents], None] = lambda _: None,
    ca: Callable[[Contents], bytes | None] = lambda _: None,
    listing: Callable[[Path], None] | None = None,
    files: dict[str, bytes] | None = None,
) -> Contents:
    """Read everything, write the snapshot, and try it. UserError if anything is not what it should be. judge: may
    refuse what the manifest says, before the rest is read; ca: the CA whose key has to be in it, or else nothing of the
    snapshot is read; None: the archive's own. listing: as for `snapshots.tried`. files: gets all others by their names;
    they hold keys. Kubernetes' version is that of what has written the data, whatever the manifest says."""
    files = {} if files is None else files
    contents = await asyncio.to_thread(_unpack_snapshot, path, unlock, snapshot, judge, ca, files)
    contents = replace(contents, kubernetes=backup.version_of(contents, files))
    progress.note(f"all {len(contents.files)} files are what the manifest says")
    progress.note(f"it is of {whose(contents, files)}")
    if not contents.etcd.quorum:
        progress.note(
            f"it was made without a quorum: it is what the member on {contents.node} had, and may lack writes"
        )
    await asyncio.to_thread(snapshots.intact, snapshot)
    tried = await _tried(snapshot, contents.kubernetes, contents.etcd.version, progress, listing)
    if tried != Tried(contents.etcd.revision, contents.etcd.keys):
        raise UserError(
            f"an etcd that is started from it has {tried.keys:,} keys of revision {tried.revision:,}, and had"
            f" {contents.etcd.keys:,} of revision {contents.etcd.revision:,} when it was made",
            fix="use another backup",
        )
    progress.note(f"an etcd that was started from it serves {tried.keys:,} keys of revision {tried.revision:,}")
    return contents


def whose(contents: Contents, files: Mapping[str, bytes]) -> str:
    """For a person to compare: the fingerprint is that of the CA in the archive, whatever its manifest says."""
    ca = fingerprint(files.get(CA))
    return f"cluster {contents.cluster} with the CA {ca}, made {contents.made} on {contents.node}"


def known_ca(cluster: str) -> bytes | None:
    """The certificate of that cluster's CA, as this machine has it. cluster: an archive may name anything."""
    return PkiStore(places.cluster_dir(cluster) / "pki").files().get("ca.crt") if is_name(cluster) else None


def refuse_unproven(files: Mapping[str, bytes], ca: bytes | None) -> None:
    """Refused where the archive lacks the key of that CA. Whoever knows a recipient can seal an archive for it, and can
    write whose it is, and the digest beside it: that its maker had the key, nobody else can say."""
    key = files.get(f"{PKI}ca.key")
    with suppress(ValueError):
        if key is not None and ca is not None and fingerprint(ca) is not None:
            read_pair(Pair(ca, key))
            return
    raise Refused(
        SAME_CLUSTER,
        f"the archive does not have the key of the cluster's CA (fingerprint {fingerprint(ca) or 'unknown'}): it may be"
        " made by anybody who knows a recipient",
        "use another backup",
    )


async def _tried(
    snapshot: Path, kubernetes: str, etcd: str, progress: Progress, listing: Callable[[Path], None] | None = None
) -> Tried:
    """Restored on this machine. kubernetes: the version that the cluster has; etcd: of what has written it."""
    payload = await get_payload(_etcd_for(kubernetes, etcd), progress)
    with _scratch() as programs:
        for name in ("etcd", "etcdctl", "etcdutl"):
            shutil.copyfile(payload.binaries[name].path, programs / name)
            (programs / name).chmod(0o755)
        limit = seconds_for(snapshot.stat().st_size)
        place = snapshot.parent / "tried"
        return await snapshots.tried(snapshot, place, programs, timeout=limit, listing=listing)


def _etcd_for(kubernetes: str, etcd: str) -> Release:
    """A release with the etcd that belongs to that version of Kubernetes, or with the one that has written the
    snapshot, if that is newer: an older one does not start from it."""
    refuse_no_version(kubernetes)
    try:
        written_by = Version.parse(etcd)
    except ValueError as error:
        raise UserError(f"{etcd!r} is no version of etcd", fix="use another backup") from error
    if (version := Version.parse(kubernetes)) in known_versions():  # somebody may have set an image of another one
        release = load_release(version)
        if written_by <= etcd_version(release):
            return release
    return load_etcd(written_by)


async def verify_on_node(context: Context, obj: Object, unlock: Unlock, progress: Progress) -> None:
    """The archive of a Backup in a directory of a node. With a key it is brought here."""
    status, target = obj.get("status") or {}, obj["spec"]["target"]
    name = obj["metadata"]["name"]
    if "directory" not in target or "file" not in status:
        raise UserError(
            f"the archive of Backup {name} is not in a directory of a node",
            fix="get it from its bucket, and give its FILE" if "s3" in target else "wait until it is complete",
        )
    [host, *_] = _sources(context, status["node"])
    path = f"{target['directory']}/{status['file']}"
    done = await host.run(["sha256sum", path], timeout=seconds_for(status["size"]))
    if done.text.split()[0] != status["sha256"]:
        raise UserError(f"{path} on {status['node']} is not what was written", fix="use another backup")
    progress.note(f"{path} on {status['node']} has the digest that it was written with")
    if not unlock.identities and unlock.passphrase is None:
        return
    with _scratch() as scratch:
        local = scratch / "archive"  # its name is what a pod on that node said
        await host.pull(path, local, lambda come: progress.progress("archive: bytes", come, status["size"]))
        await verify(local, unlock, progress, cluster=context.cluster.name)


def compare_digest(path: Path, progress: Progress) -> None:
    beside = _beside(path)
    if not beside.is_file():
        return
    real = path.resolve()  # what you name may be a link; in a target's directory none is followed
    if _description(beside).get("sha256") != digest(Directory(real.parent), real.name):
        raise UserError(f"{path} is not what {beside} says", fix="use another backup")
    progress.note(f"{path} has the digest that {beside} says")


def _description(beside: Path) -> dict[str, Any]:
    """What the file beside an archive says. UserError where that is nothing: the archive may be intact all the same."""
    with beside.open("rb") as file:
        content = file.read(_MOST_DESCRIPTION + 1)
    why = f"it has more than {_MOST_DESCRIPTION:,} bytes"
    if len(content) <= _MOST_DESCRIPTION:
        try:
            found = parsed(content)
        except ValueError as error:
            why = str(error)
        else:
            if isinstance(found, dict):
                return found
            why = "it has no object of JSON"
    raise UserError(
        f"{beside} cannot be read: {why}", fix="move it away: the archive itself says whether it is complete"
    )


def _unpack_snapshot(
    path: Path,
    unlock: Unlock,
    snapshot: Path,
    judge: Callable[[Contents], None],
    ca: Callable[[Contents], bytes | None],
    others: dict[str, bytes],
) -> Contents:
    """Reads everything, and writes the snapshot, which comes last: by then the other files, which `others` gets, have
    proved who has made the archive. It may be of any size, and an etcd is started from it."""
    with path.open("rb") as file, opened(file, unlock) as files:
        contents, arriving = checked(files)
        if SNAPSHOT not in contents.files:
            raise UserError(f"{path} is an archive without a snapshot of etcd", fix="use another backup")
        judge(contents)
        for one in arriving:
            if one.name == SNAPSHOT:
                known = ca(contents)
                refuse_unproven(others, others.get(CA) if known is None else known)
                _refuse_full_disk(contents, snapshot.parent)
                with snapshot.open("wb") as written:
                    written.writelines(one.pieces())
            else:
                others[one.name] = b"".join(one.pieces())
    return contents


def _refuse_full_disk(contents: Contents, directory: Path) -> None:
    needed = int(contents.files[SNAPSHOT].size * backup.TRIED_HERE)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise UserError(
            f"the snapshot and its trial need {needed:,} bytes, and {free:,} are free in {directory}",
            fix="free some space there, or let TMPDIR name a directory that has it",
        )


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="autarky-backup-") as scratch:
        yield Path(scratch)


def _beside(path: Path) -> Path:
    return path.with_name(description(path.name))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
