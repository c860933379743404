"""`autarky restore`: put a backup into the running cluster, or take that back."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.archive_keys import identity_option, passphrase_option, unlock_of
from autarky.cli.options import abandon_option, cluster_options, confirm, dry_run_option, output_option, yes_option
from autarky.cli.session import operation, run_async

if TYPE_CHECKING:
    from autarky.archive import Unlock
    from autarky.archive.contents import Contents
    from autarky.control.backup.decide.fitting import Side
    from autarky.control.backup.decide.loss import Written
    from autarky.model.cluster import Cluster
    from autarky.phases.recovery.state import Recovery

_UNLESS = "(A recovery that was interrupted, whose data is in its place already, is finished instead.)"
"""Whether there is one is seen only when the archive has been opened."""


@click.command()
@cluster_options
@click.argument("archive", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@identity_option
@passphrase_option
@click.option(
    "--on", "node", metavar="NODE", help="The control node where the new etcd begins; default: etcd's leader."
)
@click.option("--undo", is_flag=True, help="Take the last restore, or recovery, back.")
@click.option("--again", is_flag=True, help="With --undo: also if the last one was an --undo itself.")
@click.option("--made", metavar="TIME", help="With --undo: only the one that was made then, which may be an old one.")
@abandon_option
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
    again: bool,
    made: str | None,
    abandon: bool,
    output: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Put the objects of a backup FILE into this cluster, in place of those that it has.

    The archive is verified and compared with the cluster before anything is touched; --dry-run shows what was written
    since, and would be lost. The API is away for some seconds. etcd begins again with one member; the others join it.
    The data from before is kept: --undo takes it up again, and shows before what that takes away. Keys, certificates
    and files of the nodes stay as they are.

    \b
    autarky restore --undo
    autarky restore --undo --made 2026-11-30T08:15:00Z   if older than a day
    autarky restore --undo --again                       if it was an --undo

    Where one of these is needed, --undo is refused, and names the time and the command to use.
    """
    from autarky.cli.recovery import abandon as give_up
    from autarky.cli.wiring import load_cluster

    if [undo, abandon, archive is not None].count(True) != 1:
        raise click.UsageError("Give a FILE, or --undo, or --abandon.")
    if archive is None and (identities or passphrase_file is not None or node is not None):
        raise click.UsageError("--undo and --abandon go without --identity, --passphrase-file and --on.")
    if not undo and (again or made is not None):
        raise click.UsageError("--again and --made go with --undo.")
    if abandon:
        give_up("restore", file, cluster, None, output, dry_run=dry_run, yes=yes)
        return
    found = load_cluster(file, cluster)
    if archive is None:
        _undo(found, output, again=again, made=made, dry_run=dry_run, yes=yes)
        return
    if not dry_run:
        confirm(f"Replace everything in the API of cluster {found.name} by {archive}? {_UNLESS}", yes=yes)
    unlock = unlock_of(identities, passphrase_file)
    run_async(lambda: _restore(found, archive, unlock, node, output, dry_run=dry_run))


def _undo(found: Cluster, output: str, *, again: bool, made: str | None, dry_run: bool, yes: bool) -> None:
    from autarky.cli.recovery import recover
    from autarky.cli.say import say
    from autarky.phases.recovery.state import FromKept, Recovery

    if not dry_run and not yes:
        at, sentences = run_async(lambda: _looked(found, Recovery(FromKept(again, made))))
        for sentence in sentences:
            say(sentence, err=True)
        question = f"Replace everything in the API of cluster {found.name} by what was there before {at}?"
        if at is None:
            question = f"Finish the recovery of cluster {found.name}'s etcd that was interrupted?"
        confirm(question, yes=False)
        made = at or made  # nothing else was agreed to
    run_async(lambda: recover("restore", found, Recovery(FromKept(again, made)), output, dry_run=dry_run))


async def _looked(found: Cluster, recovery: Recovery) -> tuple[str | None, list[str]]:
    """(The time of the recovery that would be taken back, None where one is under way, which would be finished; what is
    to be said of it.) Raises what would refuse it."""
    from autarky.cli.wiring import build_context
    from autarky.engine.phase import Warn
    from autarky.phases.recovery.decrypting import JudgeEncryption
    from autarky.phases.recovery.judging import JudgeVersions
    from autarky.phases.recovery.looking import LookForData

    context = build_context(found)
    try:
        said = [*await LookForData(recovery).plan(context), *await JudgeVersions(recovery).plan(context)]
        said += await JudgeEncryption(recovery).plan(context)
    finally:
        await context.close()
    recovered = recovery.found[recovery.seat].recovered
    at = None if recovery.made or recovered is None else recovered.at
    return at, [one.sentence for one in said if isinstance(one, Warn)]


async def _restore(
    found: Cluster, archive: Path, unlock: Unlock, node: str | None, output: str, *, dry_run: bool
) -> None:
    from autarky.cli import backup_files
    from autarky.cli.recovery import recover
    from autarky.phases.recovery.comparing import TellLoss, read_keys
    from autarky.phases.recovery.decrypting import readers_by
    from autarky.phases.recovery.state import FromSnapshot, Recovery
    from autarky.upkeep.backup import encryption_in, says_encryption

    then: dict[str, Written] = {}
    files: dict[str, bytes] = {}
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
                ca=lambda _: backup_files.known_ca(found.name),
                listing=lambda keys: then.update(read_keys(keys.read_bytes())),
                files=files,
            )
        name = f"{archive.name}, made {contents.made}"
        size, said = snapshot.stat().st_size, contents.etcd
        members, alarms, wrote = tuple(said.members), tuple(said.alarms), contents.kubernetes
        reads = readers_by(encryption_in(files)) if says_encryption(files) else None
        source = FromSnapshot(snapshot, name, size, said.revision, node, said.version, members, wrote, alarms, reads)
        recovery = Recovery(source)
        tell = TellLoss(recovery, lambda: then)
        await recover("restore", found, recovery, output, dry_run=dry_run, after_look=tell, then=lambda: then)


def _refuse_unfit(contents: Contents, found: Cluster) -> None:
    """What can be said before the hosts are asked which etcd they have (that of the release, or any newer one that is
    known here) and which API servers: the file may not say that (`phases.recovery.judging`)."""
    from autarky.cli.backup_files import known_ca
    from autarky.control.backup.decide import fitting
    from autarky.model.fingerprint import fingerprint
    from autarky.payload import known_etcd_versions

    backup = fitting.Side(contents.cluster, contents.ca, contents.kubernetes, contents.etcd.version)
    cluster = side_of(found, fingerprint(known_ca(found.name)))
    fitting.refuse_another_cluster(backup, cluster)
    if fitting.minor_of(backup.etcd) > max(fitting.minor_of(str(one)) for one in known_etcd_versions()):
        fitting.refuse_newer_etcd(backup.etcd, cluster.etcd)
    fitting.refuse_no_version(backup.kubernetes)


def side_of(found: Cluster, ca: str | None) -> Side:
    """The cluster, with the versions that its file wants. ca: the fingerprint of its CA."""
    from autarky.control.backup.decide.fitting import Side
    from autarky.payload import load_release, with_etcd

    release = with_etcd(load_release(found.kubernetes_version), found.etcd_version)
    etcd = next(one.version for one in release.components if one.name == "etcd")
    return Side(found.name, ca, str(found.kubernetes_version), etcd)
