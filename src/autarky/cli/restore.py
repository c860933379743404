"""`autarky restore`: put a backup into the running cluster, or take that back."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.backup import identity_option, passphrase_option, unlock_of
from autarky.cli.options import cluster_options, confirm, dry_run_option, output_option, yes_option
from autarky.cli.session import operation, run_async

if TYPE_CHECKING:
    from autarky.archive import Unlock
    from autarky.archive.contents import Contents
    from autarky.control.backup.decide.fitting import Side
    from autarky.control.backup.decide.loss import Written
    from autarky.model.cluster import Cluster


@click.command()
@cluster_options
@click.argument("archive", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@identity_option
@passphrase_option
@click.option(
    "--on", "node", metavar="NODE", help="The control node where the new etcd begins; default: etcd's leader."
)
@click.option("--undo", is_flag=True, help="Take the last restore, or recovery, back.")
@output_option
@dry_run_option
@yes_option
def restore(
    file: Path | None,
    cluster: str | None,
    archive: Path | None,
    identities: Sequence[Path],
    passphrase_file: Path | None,
    node: str | None,
    undo: bool,
    output: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Put the objects of a backup FILE into this cluster, in place of those that it has.

    The archive is verified and compared with the cluster before anything is touched; --dry-run shows what was written
    since, and would be lost. The API is away for some seconds. etcd begins again with one member; the others join it.
    The data from before is kept: --undo takes it up again. Keys, certificates and files of the nodes stay as they are.
    """
    from autarky.cli.wiring import load_cluster

    if undo == (archive is not None):
        raise click.UsageError("Give a FILE, or --undo.")
    if undo and (identities or passphrase_file is not None or node is not None):
        raise click.UsageError("--undo goes without --identity, --passphrase-file and --on.")
    found = load_cluster(file, cluster)
    if not dry_run:
        what = "what was there before the last restore or recovery" if undo else str(archive)
        confirm(f"Replace everything in the API of cluster {found.name} by {what}?", yes=yes)
    if archive is None:
        run_async(lambda: _undo(found, output, dry_run=dry_run))
        return
    unlock = unlock_of(identities, passphrase_file)
    run_async(lambda: _restore(found, archive, unlock, node, output, dry_run=dry_run))


async def _undo(found: Cluster, output: str, *, dry_run: bool) -> None:
    from autarky.cli.recovery import recover
    from autarky.phases.recovery.state import FromKept, Recovery

    await recover("restore", found, Recovery(FromKept()), output, dry_run=dry_run)


async def _restore(
    found: Cluster, archive: Path, unlock: Unlock, node: str | None, output: str, *, dry_run: bool
) -> None:
    from autarky.cli import backup_files
    from autarky.cli.recovery import recover
    from autarky.phases.recovery.comparing import TellLoss, read_keys
    from autarky.phases.recovery.state import FromSnapshot, Recovery

    then: dict[str, Written] = {}
    with tempfile.TemporaryDirectory(prefix="autarky-restore-") as scratch:
        snapshot = Path(scratch, "snapshot.db")
        async with operation("open the backup", output) as progress:
            backup_files.compare_digest(archive, progress)
            contents = await backup_files.unpack(
                archive,
                unlock,
                snapshot,
                progress,
                judge=lambda said: _refuse_unfit(said, found),
                listing=lambda keys: then.update(read_keys(keys.read_bytes())),
            )
        name = f"{archive.name}, made {contents.made}"
        recovery = Recovery(FromSnapshot(snapshot, name, snapshot.stat().st_size, contents.etcd.revision, node))
        tell = TellLoss(recovery, lambda: then)
        await recover("restore", found, recovery, output, dry_run=dry_run, after_look=tell, then=lambda: then)


def _refuse_unfit(contents: Contents, found: Cluster) -> None:
    from autarky import places
    from autarky.control.backup.decide.fitting import Side, refuse_unfit
    from autarky.pki import PkiStore

    backup = Side(contents.cluster, contents.ca, contents.kubernetes, contents.etcd.version)
    refuse_unfit(backup, side_of(found, PkiStore(places.cluster_dir(found.name) / "pki").fingerprint()))


def side_of(found: Cluster, ca: str | None) -> Side:
    """The cluster, with the versions that its file wants. ca: the fingerprint of its CA."""
    from autarky.control.backup.decide.fitting import Side
    from autarky.payload import load_release, with_etcd

    release = with_etcd(load_release(found.kubernetes_version), found.etcd_version)
    etcd = next(one.version for one in release.components if one.name == "etcd")
    return Side(found.name, ca, str(found.kubernetes_version), etcd)
