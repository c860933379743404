"""`autarky etcd`: look at etcd and look after it, through the hosts of its members; works with the API down."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky import places
from autarky.cli.migrate import migrate
from autarky.cli.options import abandon_option, cluster_options, dry_run_option, output_option, yes_option
from autarky.cli.say import say
from autarky.cli.session import operation, run_async
from autarky.control.etcd.decide.maintenance import KEPT_REVISIONS, EtcdSeen, MemberSeen, findings
from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.phases.context import Context
    from autarky.ports import Host, Progress
    from autarky.upkeep.etcd import Etcd

SCRATCH = f"{places.HOST_ROOT}/scratch"
"""On a host, root only: where a snapshot is written before it is fetched."""
_STATUS = ("MEMBER", "ID", "ROLE", "VERSION", "TERM", "APPLIED", "SIZE", "IN USE", "QUOTA", "HEALTH")
_MEMBERS = ("MEMBER", "ID", "ADDRESS", "ROLE", "STARTED")
table_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it."
)


@click.group()
def etcd() -> None:
    """Look at etcd and look after it; works with the API down."""


# --- looking -----------------------------------------------------------------------------------------


@etcd.command(short_help="Show each member: role, version, size, health.")
@cluster_options
@table_option
def status(file: Path | None, cluster: str | None, output: str) -> None:
    """Show each member: role, version, log, size of its database, health.

    Exits with 1 if a member is not healthy or etcd has no quorum.
    """
    seen = run_async(lambda: _look(file, cluster))
    noted = findings(seen)
    if output == "json":
        found = {**asdict(seen), "cluster": f"{seen.cluster:x}", "healthy": seen.healthy, "findings": noted}
        found["members"] = [{**asdict(one), "id": f"{one.id:x}", "healthy": one.healthy} for one in seen.members]
        say(json.dumps(found, indent=2))
    else:
        _print([_STATUS, *map(_status_row, seen.members)], right=(4, 5, 6, 7, 8), sentences=noted)
    if not seen.healthy:
        raise SystemExit(1)


@etcd.command()
@cluster_options
@table_option
def members(file: Path | None, cluster: str | None, output: str) -> None:
    """List the members, as the quorum sees them."""
    seen = run_async(lambda: _look(file, cluster))
    rows = [_member_row(one) for one in seen.members]
    if output == "json":
        say(json.dumps([dict(zip(map(str.lower, _MEMBERS), row, strict=True)) for row in rows], indent=2))
        return
    note = [] if seen.quorum else ["etcd has no quorum: this is what one member remembers, or the file says"]
    _print([_MEMBERS, *rows], sentences=note)


def _status_row(one: MemberSeen) -> tuple[str, ...]:
    known = one.version != ""
    used = f"{one.size / one.quota:.0%}" if one.quota else ""
    figures = (str(one.term), f"{one.applied:,}", _size(one.size), _size(one.in_use), used) if known else ("",) * 5
    return (one.name, f"{one.id:x}" if one.id else "", _role(one), one.version, *figures, _health(one))


def _member_row(one: MemberSeen) -> tuple[str, ...]:
    return (one.name, f"{one.id:x}" if one.id else "", one.address, _role(one), "yes" if one.version else "unknown")


def _role(one: MemberSeen) -> str:
    return "learner" if one.learner else "leader" if one.leads else "voter" if one.id else "unknown"


def _health(one: MemberSeen) -> str:
    return "; ".join([*([one.error] if one.error else []), *(f"alarm {name}" for name in one.alarms)]) or "healthy"


def _size(number: int) -> str:
    return f"{number / 1024 / 1024:,.1f} MiB"


def _print(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), sentences: Sequence[str] = ()) -> None:
    from autarky.ui.tables import columns
    from autarky.ui.text import one_line

    say("\n".join([*columns(rows, right=right), *([""] if sentences else []), *map(one_line, sentences)]))


# --- looking after it ----------------------------------------------------------------------------------


@etcd.command(short_help="Give free space inside the databases back to the disks.")
@cluster_options
@click.argument("names", nargs=-1, metavar="[MEMBER]...")
@output_option
def defrag(file: Path | None, cluster: str | None, names: Sequence[str], output: str) -> None:
    """Give free space inside the databases back to the disks: of these MEMBERs (nodes), or of all.

    One member at a time, the leader last, and only while all are healthy. A member answers nothing meanwhile; with a
    single member the API waits for it.
    """
    _act(file, cluster, output, "defragment etcd", lambda it, progress: it.defragment(names, progress))


@etcd.command()
@cluster_options
@click.option(
    "--keep",
    default=KEPT_REVISIONS,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the newest N revisions of history.",
)
@output_option
def compact(file: Path | None, cluster: str | None, keep: int, output: str) -> None:
    """Forget old revisions now. The API server does that itself, every five minutes."""
    _act(file, cluster, output, "compact etcd", lambda it, progress: it.compact(keep, progress))


@etcd.command("move-leader")
@cluster_options
@click.argument("member")
@output_option
def move_leader(file: Path | None, cluster: str | None, member: str, output: str) -> None:
    """Make MEMBER (a node) the leader."""
    _act(file, cluster, output, "move etcd's leadership", lambda it, progress: it.move_leader(member, progress))


@etcd.command()
@cluster_options
@click.option("--disarm", is_flag=True, help="Clear all alarms.")
@output_option
def alarm(file: Path | None, cluster: str | None, disarm: bool, output: str) -> None:
    """List alarms, or clear them after their cause is gone.

    NOSPACE: a database has reached its quota, and etcd refuses writes: compact, defrag, then disarm. CORRUPT: the data
    of members differs.
    """
    if disarm:
        _act(file, cluster, output, "clear etcd's alarms", lambda it, progress: it.disarm(progress))
        return
    rows = [(one.name, kind) for one in run_async(lambda: _look(file, cluster)).members for kind in one.alarms]
    if output == "json":
        say(json.dumps([{"member": name, "alarm": kind} for name, kind in rows]))
    else:
        _print([("MEMBER", "ALARM"), *rows])


@etcd.command()
@cluster_options
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@output_option
def snapshot(file: Path | None, cluster: str | None, target: Path, force: bool, output: str) -> None:
    """Write a snapshot of etcd's keys to FILE on this machine.

    It is no backup: the CA keys, without which no node trusts a restored cluster, are not in it, and it is not
    encrypted: whoever reads it has all Secrets.
    """
    if target.exists() and not force:
        raise UserError(f"{target} exists", fix="choose another name, or say --force")
    if not target.parent.is_dir():
        raise UserError(f"there is no directory {target.parent}", fix="make it, or choose another one")
    _act(file, cluster, output, "take a snapshot of etcd", lambda it, progress: _fetch(it, target, progress))
    say("this is no backup: it has no CA keys, and is not encrypted", err=True)


async def _fetch(it: Etcd, target: Path, progress: Progress) -> None:
    node, member = await it.source()
    host = it.host(node)
    path = f"{SCRATCH}/{target.name}.db"
    await host.run(["install", "-d", "-m", "700", SCRATCH])
    try:
        progress.note(f"{node} writes a snapshot of its {member.size:,} bytes")
        status = await it.save_snapshot(path, node, member)
        await host.pull(path, target, lambda come: progress.progress(f"{target.name}: bytes", come, status.size))
    finally:
        await host.remove([path, f"{path}.part"])
    progress.note(f"{target}: {status.keys:,} keys, revision {status.revision:,}, hash {status.hash:x}")


# --- without a quorum -----------------------------------------------------------------------------------


@etcd.command("recover-quorum", short_help="Make a new etcd from the data of a member that is left.")
@cluster_options
@click.option("--from", "source", metavar="NODE", help="Whose data; default: the newest that can be read.")
@abandon_option
@output_option
@dry_run_option
@yes_option
def recover_quorum(
    file: Path | None, cluster: str | None, source: str | None, abandon: bool, output: str, dry_run: bool, yes: bool
) -> None:
    """Make a new etcd from the data of a member that is left, after most members are lost.

    Works with the API down. The members that can be reached are fenced first, and join the new etcd by themselves; so
    does every other one when its machine is back. Make sure that machines which do not answer are off: most members of
    the old etcd, cut off together, would go on without the rest. It waits 15 s for etcd to come back by itself,
    and is refused where a member serves that it cannot fence.
    """
    from autarky.cli.recovery import abandon as give_up
    from autarky.cli.recovery import recover_quorum as recover

    if abandon:
        give_up("etcd recover-quorum", file, cluster, source, output, dry_run=dry_run, yes=yes)
        return
    recover(file, cluster, source, output, dry_run=dry_run, yes=yes)


etcd.add_command(migrate)


# --- common --------------------------------------------------------------------------------------------


def _act(
    file: Path | None,
    cluster: str | None,
    output: str,
    title: str,
    work: Callable[[Etcd, Progress], Awaitable[Any]],
) -> None:
    async def act() -> None:
        async with operation(title, output) as progress, _etcd(file, cluster) as it:
            await work(it, progress)

    run_async(act)


async def _look(file: Path | None, cluster: str | None) -> EtcdSeen:
    async with _etcd(file, cluster) as it:
        return await it.seen()


@asynccontextmanager
async def _etcd(file: Path | None, cluster: str | None) -> AsyncIterator[Etcd]:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.phases.hosts import observe
    from autarky.phases.labelled import find_labelled
    from autarky.upkeep.etcd import Etcd

    found = load_cluster(file, cluster, any_release=True)
    if found.external_etcd is not None:
        raise UserError(
            f"etcd of cluster {found.name} is external",
            fix=f"look after it where it runs: {', '.join(found.external_etcd.endpoints)}",
        )
    context = build_context(found)
    try:
        await observe(context)
        await find_labelled(context, api=False)
        yield Etcd(_hosts(context), _addresses(context), context.clock)
    finally:
        await context.close()


def _hosts(context: Context) -> dict[str, Host]:
    """Of nodes that may have a member and answer."""
    found = {node.name: context.machines.host(node.name) for node in context.present(context.control_nodes)}
    return {name: host for name, host in found.items() if host is not None}


def _addresses(context: Context) -> dict[str, str]:
    return {node.name: node.address for node in context.cluster.nodes if node.address is not None}
