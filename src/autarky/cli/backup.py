"""`autarky backup`: ask for backups, look at them, take them to this machine, and verify them.

In the cluster these commands write the objects that a user could write with kubectl. `create --to FILE` and `verify`
need no API: they work through the hosts of control nodes, and on this machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky.cli.archive_keys import identity_option, lock_of, passphrase_option, recipient_option, unlock_of
from autarky.cli.options import cluster_options, dry_run_option, output_option, yes_option
from autarky.cli.say import say
from autarky.cli.session import operation, run_async
from autarky.control.backup.manifests import definitions
from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.archive import Lock
    from autarky.phases.context import Context
    from autarky.ports import Object

table_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it."
)
_LIST = ("NAME", "PHASE", "MADE", "NODE", "TARGET", "SIZE", "KEYS", "VERIFIED", "MESSAGE")
MOST_SECONDS = 4 * 3600.0
"""Nearly as long as its pod may take."""


@click.group()
def backup() -> None:
    """Make, list, verify and prune backups of the cluster."""


@backup.command()
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
def keygen(target: Path) -> None:
    """Write a new age identity to FILE, and print its recipient.

    Backups are encrypted to the recipient, and only the identity opens them. Keep it away from the cluster, and where
    it outlives this machine.
    """
    import os

    from autarky.archive import fresh_identity

    identity, recipient = fresh_identity()
    try:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"# public key: {recipient}\n{identity}\n")
    except FileExistsError as error:
        raise UserError(f"{target} exists", fix="choose another name: what is in it may open backups") from error
    say(recipient)


# --- making --------------------------------------------------------------------------------------------


@backup.command(short_help="Make a backup: one encrypted archive.")
@cluster_options
@click.argument("name", required=False)
@recipient_option
@passphrase_option
@click.option("--like", metavar="SCHEDULE", help="Target and encryption as in that BackupSchedule.")
@click.option("--node", metavar="NODE", help="The control node that makes it; default: any.")
@click.option("--directory", metavar="DIR", help=f"On the node; default: {definitions.DEFAULT_DIRECTORY}.")
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Bring it to FILE on this machine instead; works with the API down.",
)
@click.option(
    "--without-quorum",
    is_flag=True,
    help="With --to: where etcd has no quorum, take what one member has. It may lack writes, and the backup says so.",
)
@click.option("--no-wait", is_flag=True, help="Only ask for it.")
@output_option
def create(
    file: Path | None,
    cluster: str | None,
    name: str | None,
    recipients: Sequence[str],
    passphrase_file: Path | None,
    like: str | None,
    node: str | None,
    directory: str | None,
    to: Path | None,
    without_quorum: bool,
    no_wait: bool,
    output: str,
) -> None:
    """Make a backup: etcd's keys, all CAs and keys, the cluster file, the manifests, in one encrypted archive.

    The snapshot of etcd is restored into an etcd of its own before it counts. A bucket of an S3 server is named in a
    BackupSchedule or in a Backup of your own (see docs/backup.md).
    """
    if to is not None and (directory is not None or like is not None or no_wait or name is not None):
        raise click.UsageError("--to FILE goes without NAME, --directory, --like and --no-wait.")
    if without_quorum and to is None:
        raise click.UsageError("--without-quorum goes with --to FILE only.")
    if like is not None and (recipients or passphrase_file is not None or directory is not None):
        raise click.UsageError("--like SCHEDULE goes without --recipient, --passphrase-file and --directory.")
    if to is not None:
        lock = lock_of(recipients, passphrase_file)
        run_async(lambda: _bring(file, cluster, to, lock, node, output, without_quorum=without_quorum))
        return
    template = None if like is not None else _template(lock_of(recipients, passphrase_file), directory)
    run_async(lambda: _ask(file, cluster, name, template, like, node, output, wait=not no_wait))


def _template(lock: Lock, directory: str | None) -> Object:
    encryption = {"recipients": list(lock.recipients), **({"identity": lock.identity} if lock.identity else {})}
    return {"target": {"directory": directory or definitions.DEFAULT_DIRECTORY}, "encryption": encryption}


async def _ask(
    file: Path | None,
    cluster: str | None,
    name: str | None,
    template: Object | None,
    like: str | None,
    node: str | None,
    output: str,
    *,
    wait: bool,
) -> None:
    from autarky.render.crds import API_VERSION

    async with operation("make a backup", output) as progress, _context(file, cluster) as context:
        kube = context.kube()
        if template is None:
            schedule = await kube.get(API_VERSION, definitions.SCHEDULE, str(like))
            if schedule is None:
                raise UserError(f"there is no BackupSchedule {like}", fix="see `autarky kubectl get backupschedules`")
            template = schedule["spec"]["template"]
        wanted = {**template, **({"node": node} if node is not None else {})}
        asked = await kube.create(definitions.backup(name or _named(context.clock.time()), wanted))
        name = str(asked["metadata"]["name"])
        progress.note(f"Backup {name} is asked for")
        if wait:
            await _complete(context, name, progress)


def _named(now: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(now, UTC).strftime("manual-%Y%m%d-%H%M%S")


async def _complete(context: Context, name: str, progress: Any) -> None:
    from autarky.control.backup.decide.step import Phase
    from autarky.engine.deadline import NotYet, poll_until
    from autarky.render.crds import API_VERSION

    status: dict[str, Any] = {}

    async def ended() -> NotYet | None:
        obj = await context.kube().get(API_VERSION, definitions.BACKUP, name)
        if obj is None:
            raise UserError(f"Backup {name} was deleted", fix="ask for another one")
        status.update(obj.get("status") or {})
        phase = status.get("phase", Phase.PENDING.value)
        if phase in (Phase.COMPLETE.value, Phase.FAILED.value):
            return None
        where = f" on {status['node']}" if status.get("node") else ""
        return NotYet(status.get("message") or f"it is {phase}{where}", (phase, status.get("attempt")))

    await poll_until(
        f"backup {name} is complete",
        ended,
        timeout=MOST_SECONDS,
        progress=progress,
        clock=context.clock,
    )
    if status["phase"] == Phase.FAILED.value:
        raise UserError(f"backup {name} failed: {status.get('message')}", fix="correct that, and ask for another one")
    progress.note(f"{status['file']} on {status['node']}: {status['size']:,} bytes, {status['keys']:,} keys, verified")
    if status.get("message"):
        progress.note(str(status["message"]))


async def _bring(
    file: Path | None,
    cluster: str | None,
    to: Path,
    lock: Lock,
    node: str | None,
    output: str,
    *,
    without_quorum: bool,
) -> None:
    from autarky.cli.backup_files import bring

    async with (
        operation("make a backup", output) as progress,
        _context(file, cluster, api=False, named=node) as context,
    ):
        await bring(context, to, lock, node, progress, without_quorum=without_quorum)


# --- looking -------------------------------------------------------------------------------------------


@backup.command("list", short_help="List the backups that the cluster knows of.")
@cluster_options
@table_option
def list_(file: Path | None, cluster: str | None, output: str) -> None:
    """List the backups that the cluster knows of, in the order in which they were made."""
    found = run_async(lambda: _listed(file, cluster))
    if output == "json":
        say(json.dumps(found, indent=2))
        return
    from autarky.ui.tables import columns
    from autarky.ui.text import one_line

    rows = [_LIST, *(tuple(one_line(str(cell)) for cell in _row(obj)) for obj in found)]
    say("\n".join(columns(rows, right=(5, 6))))


async def _listed(file: Path | None, cluster: str | None) -> list[Object]:
    from autarky.control.backup.decide.schedule import made_of, oldest_first
    from autarky.render.crds import API_VERSION

    async with _context(file, cluster) as context:
        found = {obj["metadata"]["name"]: obj for obj in await context.kube().list(API_VERSION, definitions.BACKUP)}
        made = oldest_first([made_of(obj) for obj in found.values()], context.clock.time())
    return [found[one.name] for one in made]


def _row(obj: Object) -> Sequence[object]:
    status, target = obj.get("status") or {}, obj["spec"]["target"]
    where = target["directory"] if "directory" in target else f"s3://{target['s3']['bucket']}"
    size, keys = (f"{status[key]:,}" if key in status else "" for key in ("size", "keys"))
    texts = (status.get(key, "") for key in ("made", "node"))
    phase = status.get("phase", "Pending")
    return (
        obj["metadata"]["name"],
        phase,
        *texts,
        where,
        size,
        keys,
        status.get("verified", ""),
        status.get("message") or "",
    )


@backup.command(short_help="Show a Backup of the cluster, or what is in a FILE, as JSON.")
@cluster_options
@click.argument("what", metavar="NAME|FILE")
@identity_option
@passphrase_option
def show(
    file: Path | None, cluster: str | None, what: str, identities: Sequence[Path], passphrase_file: Path | None
) -> None:
    """Show a Backup of the cluster, or what a FILE on this machine has in it, as JSON.

    A file is only opened with a key; its contents are checked by `autarky backup verify`.
    """
    path = Path(what)
    if path.is_file():
        from autarky.cli.backup_files import manifest

        say(manifest(path, unlock_of(identities, passphrase_file)))
        return
    say(json.dumps(run_async(lambda: _named_backup(file, cluster, what)), indent=2))


async def _named_backup(file: Path | None, cluster: str | None, name: str) -> Object:
    from autarky.render.crds import API_VERSION

    async with _context(file, cluster) as context:
        found = await context.kube().get(API_VERSION, definitions.BACKUP, name)
    if found is None:
        raise UserError(f"there is neither a file nor a Backup {name}", fix="see `autarky backup list`")
    return found


@backup.command(short_help="Verify an archive: a FILE, or that of a Backup.")
@cluster_options
@click.argument("what", metavar="NAME|FILE")
@identity_option
@passphrase_option
@output_option
def verify(
    file: Path | None,
    cluster: str | None,
    what: str,
    identities: Sequence[Path],
    passphrase_file: Path | None,
    output: str,
) -> None:
    """Verify an archive: a FILE on this machine, or that of a Backup NAME in a node's directory.

    Without a key its digest is compared. With one everything in it is read and compared with its manifest, and its
    snapshot is restored into an etcd on this machine, whose keys are counted. It has to have the key of the cluster's
    CA as this machine knows it: of the cluster that -f or --cluster names, or else of the one that the archive names.
    """
    from autarky.cli import backup_files
    from autarky.cli.wiring import load_cluster

    path, unlock = Path(what), unlock_of(identities, passphrase_file)

    async def work() -> None:
        async with operation("verify a backup", output) as progress:
            if path.is_file():
                named = load_cluster(file, cluster, any_release=True).name if file or cluster else None
                await backup_files.verify(path, unlock, progress, cluster=named)
                return
            obj = await _named_backup(file, cluster, what)
            async with _context(file, cluster, api=False) as context:
                await backup_files.verify_on_node(context, obj, unlock, progress)

    run_async(work)


# --- pruning -------------------------------------------------------------------------------------------


@backup.command()
@cluster_options
@click.option("--keep", required=True, type=click.IntRange(min=1), metavar="N", help="Keep the newest N complete ones.")
@click.option(
    "--days",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of those that --keep leaves, also remove what is N days older than the newest.",
)
@click.option("--schedule", metavar="NAME", help="Only those of this BackupSchedule; default: those of none.")
@dry_run_option
@yes_option
def prune(
    file: Path | None,
    cluster: str | None,
    keep: int,
    days: int | None,
    schedule: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove old archives, and their Backups. The newest complete one is always kept."""
    from autarky.cli.options import confirm

    names = run_async(lambda: _outlived(file, cluster, keep, days, schedule))
    for name in names:
        say(name)
    if dry_run or not names:
        return
    confirm(f"Remove these {len(names)} archives?", yes=yes)
    run_async(lambda: _give_up(file, cluster, names))


async def _outlived(
    file: Path | None, cluster: str | None, keep: int, days: int | None, schedule: str | None
) -> list[str]:
    import time

    from autarky.control.backup.decide import schedule as schedules

    found = await _listed(file, cluster)
    own = [obj for obj in found if (obj["metadata"].get("labels") or {}).get(definitions.OF_SCHEDULE) == schedule]
    wanted = schedules.Schedule(every=math.inf, count=keep, days=days)  # nobody knows how often they are made
    return schedules.outlived(wanted, [schedules.made_of(obj) for obj in own], time.time())


async def _give_up(file: Path | None, cluster: str | None, names: Sequence[str]) -> None:
    from autarky.render.crds import API_VERSION

    async with _context(file, cluster) as context:
        for name in names:
            patch = {"spec": {"state": definitions.REMOVED}}
            await context.kube().patch(API_VERSION, definitions.BACKUP, name, patch)


# --- common --------------------------------------------------------------------------------------------


@asynccontextmanager
async def _context(
    file: Path | None, cluster: str | None, *, api: bool = True, named: str | None = None
) -> AsyncIterator[Context]:
    """named: a node that a person takes for a control node, whoever else knows it as one."""
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.phases.hosts import observe
    from autarky.phases.labelled import find_labelled

    context = build_context(load_cluster(file, cluster, any_release=True))
    try:
        await observe(context)
        if not api:
            await find_labelled(context, api=False, named={named} if named is not None else ())
        yield context
    finally:
        await context.close()
