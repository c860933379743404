"""`autarky recover`: a cluster on new machines from a backup, or from the one disk that is left."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.archive_keys import identity_option, passphrase_option, unlock_of
from autarky.cli.options import confirm, dry_run_option, file_option, output_option, yes_option
from autarky.cli.session import operation, run_async

if TYPE_CHECKING:
    from autarky.archive import Unlock
    from autarky.archive.contents import Contents
    from autarky.control.backup.decide.encryption import Encryption
    from autarky.control.cluster_file.decide.records import Record
    from autarky.model.cluster import Cluster


@click.command()
@file_option
@click.option(
    "--from",
    "archive",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The backup.",
)
@click.option("--from-data", "node", metavar="NODE", help="Instead: the control node whose disk is left.")
@identity_option
@passphrase_option
@output_option
@dry_run_option
@yes_option
def recover(
    file: Path | None,
    archive: Path | None,
    node: str | None,
    identities: Sequence[Path],
    passphrase_file: Path | None,
    output: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Bring a cluster up again on new machines, from a backup where no old one is left, or from the one disk that is.

    --from FILE: with -f on the machines of that cluster file, and without -f on those of the cluster file in the
    backup. The CAs are the old ones, so that everybody's credentials and kubeconfigs stay valid. The old nodes are
    forgotten, and their workloads start on the new ones. Run it again to resume.

    --from-data NODE: that control node's machine runs with its old disk, and the others are new or still to be made:
    `autarky etcd recover-quorum --from NODE`, and then `autarky up`.
    """
    if (archive is None) == (node is None):
        raise click.UsageError("Give either --from FILE or --from-data NODE.")
    if archive is None:
        run_async(lambda: _from_data(file, str(node), output, dry_run=dry_run, yes=yes))
        return
    unlock = unlock_of(identities, passphrase_file)
    with tempfile.TemporaryDirectory(prefix="autarky-recover-") as scratch:
        opened = run_async(lambda: _opened(file, archive, unlock, Path(scratch, "snapshot.db"), output))
        if not dry_run:
            confirm(_question(opened), yes=yes)
        run_async(lambda: _bring_up(opened, output, dry_run=dry_run))


async def _from_data(file: Path | None, node: str, output: str, *, dry_run: bool, yes: bool) -> None:
    from autarky.cli.recovery import recover as recover_etcd
    from autarky.cli.say import say
    from autarky.cli.up import bring_up
    from autarky.cli.wiring import load_cluster
    from autarky.errors import Refused
    from autarky.phases.recovery.resuming import ONLY_WITHOUT_QUORUM
    from autarky.phases.recovery.state import FromMember, Recovery

    found = load_cluster(file, None)
    if not dry_run:
        confirm(f"Make a new etcd for cluster {found.name} from the data of {node}? The others must be off.", yes=yes)
    try:
        await recover_etcd("recover", found, Recovery(FromMember(node)), output, dry_run=dry_run)
    except Refused as refused:
        if refused.rule != ONLY_WITHOUT_QUORUM:
            raise
        say("etcd has a quorum already: only the other machines are missing", err=True)
    if not dry_run:
        await bring_up(found, output, (), (), dry_run=False, by_file=file is not None)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A backup that can be read and fits. whose: for a person to compare. by_file: whether the cluster is as the user's
    file says it, or no file does. roots: CAs and service account key by their file names. encryption: by which the API
    server reads what is in it."""

    archive: Path
    snapshot: Path
    contents: Contents
    whose: str
    cluster: Cluster
    by_file: bool
    record: Record
    roots: Mapping[str, bytes] = field(repr=False)
    encryption: Encryption | None


async def _opened(file: Path | None, archive: Path, unlock: Unlock, snapshot: Path, output: str) -> _Opened:
    """snapshot: where that goes. The CA is the archive's own: on new machines there is nothing to compare it with."""
    from autarky.archive.contents import CLUSTER_FILE, CONTROL_PLANE
    from autarky.cli import backup_files
    from autarky.control.backup.decide.written_by import comes_up_with
    from autarky.phases.borrow import ROOTS
    from autarky.upkeep.backup import encryption_in

    files: dict[str, bytes] = {}
    async with operation("open the backup", output) as progress:
        backup_files.compare_digest(archive, progress)
        contents = await backup_files.unpack(archive, unlock, snapshot, progress, files=files)
    contents = replace(contents, kubernetes=comes_up_with(contents.kubernetes, files.get(CONTROL_PLANE)))
    record = _record(files.get(CLUSTER_FILE), archive)
    in_file = _cluster(file, record, archive)
    found = _able_to_read(contents, _of_its_time(contents, in_file, by_file=file is not None))
    _refuse_unfit(contents, found)
    inside = {name: f"{backup_files.PKI}{name}" for name in ROOTS}
    roots = {name: files[path] for name, path in inside.items() if path in files}
    # The record in the backup has the other version: what replaces it is no file of another machine.
    by_file = file is not None or found.kubernetes_version != in_file.kubernetes_version
    whose = backup_files.whose(contents, files)
    return _Opened(archive, snapshot, contents, whose, found, by_file, record, roots, encryption_in(files))


def _question(opened: _Opened) -> str:
    from autarky.cli.backup_files import COMPARE

    return (
        f"Bring up {opened.whose}? Anybody who knows a recipient may have made it, with a CA of his own: compare the"
        f" fingerprint, {COMPARE}. The old machines must be off, and stay off."
    )


async def _bring_up(opened: _Opened, output: str, *, dry_run: bool) -> None:
    from autarky.cli.up import bring_up
    from autarky.phases.recovery.state import FromSnapshot, Recovery
    from autarky.workflows.recover import phases

    etcd, snapshot = opened.contents.etcd, opened.snapshot
    name = f"{opened.archive.name}, made {opened.contents.made}"
    recovery = Recovery(FromSnapshot(snapshot, name, snapshot.stat().st_size, etcd.revision))
    recovery.made_of = f"made of {name}"
    await bring_up(
        opened.cluster,
        output,
        (),
        (),
        dry_run=dry_run,
        by_file=opened.by_file,
        phases=phases(recovery, opened.roots, opened.record, int(etcd.cluster, 16), opened.encryption),
        initial_member=opened.cluster.control_nodes[0].name,
    )


def _record(content: bytes | None, archive: Path) -> Record:
    from autarky.errors import UserError
    from autarky.render import cluster_record

    found = cluster_record.read(content)
    if found is None:
        raise UserError(f"{archive} has no cluster file that can be read", fix="use another backup")
    return found


def _cluster(file: Path | None, kept: Record, archive: Path) -> Cluster:
    """Of the user's file, or of the backup's. What either leaves out is as it was when the backup was made."""
    from autarky.config import loads
    from autarky.model.defaults import had
    from autarky.payload import default_version, versions_of_files

    return loads(
        file.read_text() if file is not None else json.dumps(dict(kept.file)),
        str(file or f"the cluster file in {archive}"),
        default_version=default_version(),
        known_versions=versions_of_files(),
        founded=lambda _: had(dict(kept.file)),
    )


def _of_its_time(contents: Contents, found: Cluster, *, by_file: bool) -> Cluster:
    """With the version of Kubernetes that has written the backup. Its own file may name another one: an upgrade through
    the API does not change it. A file that the user names must say it: later `up` would take any other one as a new
    request."""
    from autarky.cli.say import say
    from autarky.control.upgrade.decide.reported import parsed

    wrote, in_file = parsed(contents.kubernetes), found.kubernetes_version
    if by_file or wrote is None or wrote == in_file:
        return found  # refused where it does not fit
    say(
        f"the cluster file in the backup says Kubernetes {in_file}, and the backup was made with {wrote}: the cluster"
        " comes up with that, and its file says so from now on",
        err=True,
    )
    return replace(found, kubernetes_version=wrote)


def _able_to_read(contents: Contents, found: Cluster) -> Cluster:
    """With the version of etcd that has written the backup, where the file names none and Kubernetes' own is older:
    that would not start from it."""
    from autarky.model.versions import Version
    from autarky.payload import etcd_version, known_etcd_versions, load_release

    try:
        written_by = Version.parse(contents.etcd.version)
    except ValueError:
        return found  # refused as what it is
    newer = written_by > etcd_version(load_release(found.kubernetes_version))
    if found.etcd_version is None and newer and written_by in known_etcd_versions():
        return replace(found, etcd_version=written_by)
    return found


def _refuse_unfit(contents: Contents, found: Cluster) -> None:
    from autarky.cli.restore import side_of
    from autarky.control.backup.decide.fitting import Side, refuse_unfit
    from autarky.errors import Refused

    if contents.cluster != found.name:
        raise Refused(
            "a recovered cluster keeps its name",
            f"the backup is of cluster {contents.cluster}, and the file is of cluster {found.name}",
            f"write metadata.name: {contents.cluster}",
        )
    backup = Side(contents.cluster, contents.ca, contents.kubernetes, contents.etcd.version)
    refuse_unfit(backup, side_of(found, contents.ca))
