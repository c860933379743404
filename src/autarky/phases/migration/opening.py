"""The copy of etcd takes the place of the former one: after the decision.

Contract: everything here is done again where it was cut, and nothing leads back. The former etcd goes on to refuse
everybody: an API server that still uses it, or comes back from somewhere and would use it, can do nothing there.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from autarky import places
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots import manifests as standby
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import CommandFailed, Unreachable
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.model.balancer import EtcdNode
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER
from autarky.model.files import File
from autarky.phases import balancer, standbys
from autarky.phases.context import Context, for_each
from autarky.phases.migration.looking import (
    ROLL_SECONDS,
    THROUGH_BALANCER,
    Migration,
    await_rollout,
    dialled,
    on_control_node,
    why_silent,
)
from autarky.phases.migration.marking import Mark, find_mark, forget_password, seat_of
from autarky.phases.start import start_kubelet
from autarky.ports import Host, Progress

STARTS_SECONDS = 120.0


async def await_member(context: Context, tools: EtcdTools, seconds: float, progress: Progress) -> None:
    what = "the copy of etcd answers"
    await poll_until(what, lambda: why_silent(tools), timeout=seconds, progress=progress, clock=context.clock)


async def let_use(context: Context, mark: Mark, progress: Progress) -> None:
    await start_kubelet(context.host(seat_of(context, mark)))
    await _open(context, mark, progress)
    await _on_each(context, mark, lambda node: _lead_there(context, mark, node))
    await _await_api(context, mark, progress)
    away = context.clock.time() - mark.paused
    progress.note(f"the API serves again, with the copy of etcd on {mark.seat}; it was away for {away:.1f} s")
    await context.host(seat_of(context, mark)).run(["rm", "-rf", mark.work], timeout=60)


async def _on_each(context: Context, mark: Mark, act: Callable[[Node], Awaitable[None]]) -> None:
    """A control node that does not answer, the seat apart, is passed over: the others serve, and nothing that it could
    start there is answered by the former etcd."""

    async def one(node: Node) -> None:
        try:
            await act(node)
        except Unreachable:
            if node.name == mark.seat:
                raise

    await for_each(context.present(context.control_nodes), one)


async def _open(context: Context, mark: Mark, progress: Progress) -> None:
    """It knows which etcd it replaces: a member of that one that comes back on a node stays out of the way."""
    host = context.host(seat_of(context, mark))
    tools = EtcdTools(host, password=mark.password)
    await await_member(context, tools, STARTS_SECONDS, progress)
    await remember_former(tools, mark)
    await tools.answer_all()


async def remember_former(tools: EtcdTools, mark: Mark) -> None:
    known = former_of(await tools.value(FORMER))
    if int(mark.former, 16) not in known:
        await tools.put(FORMER, json.dumps([f"{one:x}" for one in sorted({*known, int(mark.former, 16)})]))


async def _lead_there(context: Context, mark: Mark, node: Node) -> None:
    """Its load balancer, as its agent would do it half a minute later. One that leads to members knows them."""
    host, seat = context.host(node), seat_of(context, mark)
    current = await balancer.configured(host)
    if current is None or current.etcd:
        return
    pem = await host.read(nllb.ETCD_CLIENT_PATH)
    wanted = replace(
        current,
        etcd=(EtcdNode(seat.name, seat.known_address()),),
        certificate=nllb.certificate_name(None if pem is None else pem.decode(errors="replace")) or "",
    )
    entry = {"name": seat.name, "address": seat.known_address(), "learner": False}
    await host.write_files([File(places.MEMBERS_FILE, f"{json.dumps([entry], indent=2)}\n".encode(), 0o600)])
    await balancer.configure(host, wanted)


def api_server_of(context: Context, node: Node) -> standby.Revision:
    """The standby of the API server that uses etcd in its new place."""
    return next(one for one in standbys.wanted_revisions(context, node) if one.component == API_SERVER)


async def _let_api_server_use_it(context: Context, node: Node) -> None:
    """Those that use the former etcd end first: their node's agent makes the standby a copy of what it considers
    healthy, which etcd's refusals do not change. Where it has made one that uses the new etcd, that stays."""
    host = context.host(node)
    # Who is connected to them would go on to ask them, in vain.
    await on_control_node(host, "end", THROUGH_BALANCER)
    if await dialled(host) - {THROUGH_BALANCER}:
        await standbys.put_revision(host, api_server_of(context, node))
        await host.remove([f"{places.STANDBY}/{API_SERVER}/previous"])
    await host.run([standby.SCRIPT_PATH, "activate", API_SERVER])
    await standbys.renew_outdated(host, [API_SERVER])


async def _await_api(context: Context, mark: Mark, progress: Progress) -> None:
    """By new connections, and again and again: kubelets start servers that use the former etcd, and an agent may have
    been about to put such a standby back."""

    async def answers() -> str | None:
        try:
            await _on_each(context, mark, lambda node: _let_api_server_use_it(context, node))
        except CommandFailed as error:  # the agent removes revisions that nothing uses yet
            return str(error)
        kube = context.connect(context.servers, "super-admin")
        try:
            return await kube.healthy("/readyz")
        finally:
            await kube.close()

    what = "the API answers, with the new etcd"
    await poll_until(what, answers, timeout=patience.API_STARTS, progress=progress, clock=context.clock)


@dataclass(frozen=True, slots=True)
class FinishCopy:
    """Last: no API server, and no standby, uses the former etcd."""

    migration: Migration
    name: str = "finish-copy"
    title: str = "Wait until nothing uses the etcd that was copied"
    timeout: float = patience.most(ROLL_SECONDS)
    needs: tuple[str, ...] = ("copy-etcd",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if await find_mark(context) is None:
            return []
        return [Change("wait until no API server, and no standby, uses the etcd that was copied")]

    async def run(self, context: Context, progress: Progress) -> None:
        mark = await find_mark(context)
        if mark is None:
            return
        await await_rollout(context, [THROUGH_BALANCER], progress)
        host = context.host(seat_of(context, mark))
        await host.write_files([mark.file(places.ETCD_COPIED)])
        await forget_password(context, mark)
        await host.remove([places.ETCD_COPY])
        if self.migration.outside() is None:
            progress.note(_what_stays(mark, host))


def _what_stays(mark: Mark, host: Host) -> str:
    return (
        f"the etcd at {', '.join(mark.urls)} still has the former data, and refuses everybody: shut it down. The"
        f" password of its user root is in {places.ETCD_COPIED} on {host.name} (ETCDCTL_USER, ETCDCTL_PASSWORD)"
    )
