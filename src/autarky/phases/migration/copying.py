"""The etcd outside of the cluster is copied to a new one on a control node, while nobody is answered.

Contract: everything that takes time is done while the API serves. Then the former etcd refuses everybody but us, by its
own authentication, which goes through Raft and outlasts restarts: what was acknowledged before is in the snapshot, and
nothing is acknowledged after it. The copy has authentication on as well, since the snapshot has it. The decision is one
rename (`marking`): whatever fails or ends before it leads back, by itself (`returning`), and after it everything leads
forward (`opening`).

Danger: the former etcd goes on to delete what leases end; so the new one begins far above it (`pausing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autarky import places
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import AutarkyError, CommandFailed, Conflict, Refused, TimedOut, Unreachable
from autarky.etcd.tools import EtcdTools, Place
from autarky.model.cluster import Node
from autarky.model.components import ETCD
from autarky.model.etcd_members import peer_url
from autarky.phases.binaries import install_binaries, missing_binaries
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.phases.migration import opening, pausing, peering
from autarky.phases.migration.leaving import await_end, kept
from autarky.phases.migration.looking import inside, place_of_standby
from autarky.phases.migration.marking import (
    FENCE,
    ONE_ETCD,
    Mark,
    find_mark,
    keep_password,
    new_mark,
    seat_of,
    write_mark,
)
from autarky.phases.migration.returning import go_back, open_without_seat
from autarky.phases.prepare import import_images
from autarky.phases.recovery.state import on_host
from autarky.ports import Object, Progress
from autarky.render import node as render_node

_PREPARED_SECONDS = 600.0
SNAPSHOT = "snapshot.db"


@dataclass(frozen=True, slots=True)
class CopyEtcd:
    """Where etcd is on control nodes already, there is nothing to copy."""

    name: str = "copy-etcd"
    title: str = "Copy etcd into the cluster, with a pause"
    timeout: float = 3 * 3600
    needs: tuple[str, ...] = ("issue-certificates",)

    async def plan(self, context: Context) -> Sequence[Change]:
        mark = await find_mark(context)
        if mark is not None and mark.opened:
            return [Change(f"let the API servers use the copy of etcd on {mark.seat}")]
        if mark is None and await inside(context) is not None:
            return []
        seat = context.first
        size = 0 if mark is not None else await _size(await outer(context, seat))
        said = [] if mark is not None else [Change(f"wait for the end of the pause: {pausing.announced(size)}")]
        return [
            Change(f"prepare {seat.name} for a member of etcd, and all control nodes for API servers that use it"),
            Change("let the etcd outside of the cluster refuse everybody"),
            Change(f"copy it to {seat.name}, and let the API servers use the copy"),
            *said,
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        mark = await find_mark(context)
        if mark is not None and not mark.opened:
            raise Refused(ONE_ETCD, "a copy that was cut is still there", "run the same command again")
        if mark is None:
            mark = await _copied(context, progress)
        await opening.let_use(context, mark, progress)


async def _copied(context: Context, progress: Progress) -> Mark:
    """Up to the decision; else everything is as it was."""
    seat = context.first
    place = await _place_outside(context, seat)
    membership = await EtcdTools(context.host(seat), place=place).membership()
    plans = await for_each(context.control_nodes, lambda node: _plan_of(context, node))
    mark, deciding = new_mark(seat.name, membership.cluster, place.local.split(","), plans), asyncio.Event()
    try:
        await write_mark(context, mark)
        await _prepared(context, mark, progress)
        await keep_password(context, mark)
        return await _within_its_bound(context, mark, deciding, progress)
    except BaseException as error:
        await asyncio.shield(_went_back(context, mark, deciding, progress))
        if isinstance(error, AutarkyError):
            progress.note("nothing has changed: the etcd outside of the cluster serves, as before")
        raise


async def _went_back(context: Context, mark: Mark, deciding: asyncio.Event, progress: Progress) -> None:
    """Unless it had come to the decision, and only its answer was lost: then nobody goes back."""
    try:
        now = await find_mark(context)
    except Unreachable:
        if deciding.is_set():
            raise
        await open_without_seat(context, mark, progress)
        progress.note(f"{mark.seat} does not answer: when it does, run the same command again, which removes the copy")
        return
    if now is not None and now.id != mark.id:
        raise Conflict(f"another command copies etcd now, to {now.seat}: see what it does before this one is run again")
    if now is not None and not now.opened:
        await go_back(context, mark, progress)
    elif now is not None:
        raise Unreachable(
            "the copy of etcd is complete, and the API servers do not use it yet: run the same command again"
        )


async def outer(context: Context, node: Node, mark: Mark | None = None) -> EtcdTools:
    """The etcd outside of the cluster, as the API servers on that node reach it."""
    place = await _place_outside(context, node)
    return EtcdTools(context.host(node), place=place, password=None if mark is None else mark.password)


async def _place_outside(context: Context, node: Node) -> Place:
    place = await place_of_standby(context.host(node))
    if place is None:
        raise Refused(ONE_ETCD, f"no API server of {node.name} uses an etcd outside of the cluster", "leave out --copy")
    return place


async def _size(tools: EtcdTools) -> int:
    """Of the database: of the biggest one, where members differ."""
    members = (await tools.membership()).members
    said = await tools.statuses([url for one in members for url in one.client_urls])
    return max((one.db_size for one in said.values()), default=0)


# --- while the API serves --------------------------------------------------------------------------------------------


async def _plan_of(context: Context, node: Node) -> str | None:
    content = await context.host(node).read(places.LEAVES_PLAN)
    return None if content is None else content.decode(errors="replace")


async def _prepared(context: Context, mark: Mark, progress: Progress) -> None:
    async with asyncio.timeout(_PREPARED_SECONDS):
        await for_each(context.control_nodes, lambda node: _prepare(context, node, progress))
        await _make_room(context, mark)


async def _prepare(context: Context, node: Node, progress: Progress) -> None:
    host, payload = context.host(node), context.require_payload()
    await install_binaries(host, await missing_binaries(host, payload, render_node.ETCD_TOOLS), progress)
    await import_images(host, [payload.images[ETCD]], progress)
    await peering.prepare(context, node, None)


async def _make_room(context: Context, mark: Mark) -> None:
    """For the data: of a former member, which `judging` has found to be one no more."""
    host = context.host(seat_of(context, mark))
    await host.remove(list(await static_pods(host)))
    await await_end(host)
    await host.run(["install", "-d", "-m", "700", places.ETCD_DATA, mark.work])


# --- the pause, up to the decision -----------------------------------------------------------------------------------


async def _within_its_bound(context: Context, mark: Mark, deciding: asyncio.Event, progress: Progress) -> Mark:
    former = await outer(context, seat_of(context, mark), mark)
    size = await _size(former)
    limit = pausing.bound(size)
    progress.note(f"the pause begins: {pausing.announced(size)}; if this command is killed, run it again at once")
    mark = replace(mark, paused=context.clock.time())
    await write_mark(context, mark)
    try:
        async with asyncio.timeout(limit):
            await former.refuse_all_but(mark.password)
            await for_each(context.control_nodes, lambda node: _refuse_answered(context, node))
            await _copy(context, mark, former, limit, progress)
    except TimeoutError as error:
        raise TimedOut(f"the copy of etcd was not complete after {limit:.0f} s") from error
    mark = replace(mark, opened=True)
    deciding.set()
    await _decide(context, mark)
    return mark


async def _refuse_answered(context: Context, node: Node) -> None:
    """The fence holds for the API servers' own certificate, whatever it is by now."""
    try:
        await (await outer(context, node)).value(FORMER)
    except CommandFailed:
        return
    what = f"the etcd outside of the cluster answers {node.name}, though it was told to refuse everybody"
    raise Refused(FENCE, what, "see which certificate the API servers have for etcd, and run the same command again")


async def _decide(context: Context, mark: Mark) -> None:
    """Whoever is interrupted meanwhile waits for its end: it must be known whether it is decided."""
    writing = asyncio.ensure_future(write_mark(context, mark))
    try:
        await asyncio.shield(writing)
    finally:
        await asyncio.wait([writing])


async def _copy(context: Context, mark: Mark, former: EtcdTools, limit: float, progress: Progress) -> None:
    node, host = seat_of(context, mark), context.host(seat_of(context, mark))
    fenced = await former.revision()
    revision = await _snapshot(context, mark, former, fenced, limit, progress)
    keys = await former.count(revision, timeout=limit)
    bump = str(pausing.first_revision(revision) - revision)
    made = [mark.work, node.name, peer_url(node.known_address()), mark.token(context.cluster.name), bump, SNAPSHOT]
    await on_host(host, ["make", *made], timeout=limit)
    await on_host(host, ["place", places.ETCD_DATA, mark.work, kept()], timeout=60)
    await host.write_files([render_node.manifest(new_member(context, mark))])
    tools = EtcdTools(host, password=mark.password)
    await opening.await_member(context, tools, limit, progress)
    its_keys = await tools.count(pausing.first_revision(revision), timeout=limit)
    why = pausing.differs(pausing.Compared(fenced, revision, keys, await tools.revision(), its_keys))
    if why is not None:
        raise Refused("what was acknowledged is kept", why, "run the same command again")
    await opening.remember_former(tools, mark)  # and so it takes writes: else nobody would get out of it again
    progress.note(f"{node.name} has a copy of etcd, with {its_keys:,} keys")


def new_member(context: Context, mark: Mark) -> Object:
    """`existing`: without its data it must not begin from scratch."""
    node = seat_of(context, mark)
    cluster = etcd.initial_cluster({node.name: node.known_address()})
    return etcd.member_pod(context.inputs(), node, etcd.Founding(cluster, "existing", mark.token(context.cluster.name)))


async def _snapshot(
    context: Context, mark: Mark, former: EtcdTools, fenced: int, limit: float, progress: Progress
) -> int:
    """Its revision. Of a member that has all that any of them has acknowledged."""
    path, revision = f"{mark.work}/{SNAPSHOT}", 0
    members = (await former.membership()).members
    urls = [url for one in members if not one.is_learner for url in one.client_urls]

    async def taken() -> str | None:
        nonlocal revision
        said = await former.statuses(urls)
        newest = max(said, key=lambda url: said[url].revision, default=None)
        if newest is None:
            return "no member answers"
        try:
            await former.save_snapshot(path, timeout=limit, endpoint=newest)
            revision = (await former.snapshot_status(path, timeout=limit)).revision
        except CommandFailed as error:
            return str(error)
        return pausing.lacks(revision, fenced)

    what = "a snapshot of the etcd outside of the cluster is complete"
    await poll_until(what, taken, timeout=limit, progress=progress, clock=context.clock)
    return revision
