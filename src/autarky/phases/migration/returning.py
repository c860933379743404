"""Going back from a copy of etcd that has not come to the decision: everything is as it was.

Contract: it may be cut at any point and repeated; the mark goes last. The copy answers nobody until it is gone: its
authentication is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import CommandFailed, Refused, Unreachable
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases import hosts, kept_file
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.phases.migration.leaving import await_end
from autarky.phases.migration.looking import place_of_standby
from autarky.phases.migration.marking import ONE_ETCD, Mark, find_mark, forget_password, kept_here, seat_of
from autarky.phases.start import wait_for_api
from autarky.ports import Host, Progress

OPENS_SECONDS = 120.0
REMOVE = """\
if [ -e "$2/ready" ] && [ ! -d "$2/new/member" ]; then rm -rf "$1/member"; fi
rm -f "$2/ready"; sync "$2" 2>/dev/null
rm -rf "$2"
"""
"""DATA WORK: the copy, if it is in its place already; else what is there is of a former member, and stays. The
mark that it is complete goes first: with the mark and without its data it would seem to be in its place."""


@dataclass(frozen=True, slots=True)
class ReturnEtcd:
    """Whatever follows finds the cluster as it was before the copy."""

    name: str = "return-etcd"
    title: str = "Go back from a copy of etcd that was cut"
    timeout: float = patience.most(OPENS_SECONDS, patience.API_STARTS)

    async def plan(self, context: Context) -> Sequence[Change]:
        await hosts.look(context)
        mark = await find_mark(context)
        if mark is None or mark.opened:
            return []
        return [
            Change(f"remove what was made of a copy of etcd on {mark.seat}"),
            Change("let the etcd outside of the cluster answer again"),
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        mark = await find_mark(context)
        if mark is None or mark.opened:
            return
        await go_back(context, mark, progress)
        await wait_for_api(context, progress)


async def go_back(context: Context, mark: Mark, progress: Progress) -> None:
    host = context.host(seat_of(context, mark))
    await host.remove(list(await static_pods(host)))
    await _open(context, mark, host, progress)
    await await_end(host)
    await host.run(["sh", "-c", REMOVE, "sh", places.ETCD_DATA, mark.work], timeout=60)
    await for_each(context.present(context.control_nodes), lambda node: _as_before(context, mark, node))
    await forget_password(context, mark)
    kept_file.take_back(context.directory)
    await host.remove([places.ETCD_COPY])


async def open_without_seat(context: Context, mark: Mark, progress: Progress) -> None:
    """For who knows that nothing was decided, and does not reach the seat: the former etcd answers again, asked through
    another control node. What is on the seat refuses everybody, and is removed when the same command is run again."""
    others = [node for node in context.present(context.control_nodes) if node.name != mark.seat]
    if not others:
        raise Unreachable(
            f"{mark.seat} does not answer, through which the etcd at {', '.join(mark.urls)} is opened again: power it"
            f" on and run the same command; if it is lost, `etcdctl auth disable` as user root opens that etcd, with"
            f" the password in {kept_here(context)}"
        )
    *first, last = others
    for node in first:
        with suppress(Unreachable):
            await _open(context, mark, context.host(node), progress)
            return
    await _open(context, mark, context.host(last), progress)


async def _as_before(context: Context, mark: Mark, node: Node) -> None:
    """With these its agent would look for etcd behind the load balancer."""
    host = context.host(node)
    await host.remove([nllb.ETCD_CLIENT_PATH, nllb.ETCD_CA_PATH])
    if (plan := mark.plans.get(node.name)) is not None:
        await host.write_files([File(places.LEAVES_PLAN, plan.encode(), 0o600)])


async def _open(context: Context, mark: Mark, host: Host, progress: Progress) -> None:
    """The former etcd, asked from that control node. Its members may be starting just now."""
    place = await place_of_standby(host)
    if place is None:
        raise Refused(
            ONE_ETCD,
            f"{host.name} does not say any more how the etcd at {', '.join(mark.urls)} is reached",
            f"turn off its authentication, with the password in {places.ETCD_COPY} on {mark.seat}, and remove the file",
        )
    tools = EtcdTools(host, place=place, password=mark.password)

    async def answers_all() -> str | None:
        try:
            found = (await tools.membership()).cluster
            if found == int(mark.former, 16):
                await tools.answer_all()
        except CommandFailed as error:
            return str(error)
        if found != int(mark.former, 16):
            raise Refused(
                ONE_ETCD,
                f"the etcd at {place.local} is another one than that which was copied",
                f"bring that one back at {', '.join(mark.urls)}, and run the same command again",
            )
        return None

    what = "the etcd outside of the cluster answers again"
    await poll_until(what, answers_all, timeout=OPENS_SECONDS, progress=progress, clock=context.clock)
