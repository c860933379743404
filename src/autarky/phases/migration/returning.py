"""Going back from a copy of etcd that has not come to the decision: everything is as it was.

Contract: it may be cut at any point and repeated; the mark goes last. The copy answers nobody until it is gone: its
authentication is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import CommandFailed, Refused, Unreachable
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.model.files import File
from autarky.phases import hosts
from autarky.phases.context import Context
from autarky.phases.etcd_pods import static_pods
from autarky.phases.migration.leaving import await_end
from autarky.phases.migration.looking import place_of_standby
from autarky.phases.migration.marking import ONE_ETCD, Mark, find_mark, seat_of
from autarky.phases.start import wait_for_api
from autarky.ports import Progress

OPENS_SECONDS = 120.0
REMOVE = """\
if [ -e "$2/ready" ] && [ ! -d "$2/new/member" ]; then rm -rf "$1/member"; fi
rm -rf "$2"
"""
"""DATA WORK: the copy, if it is in its place already; else what is there is of a former member, and stays."""


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
    await _open(context, mark, progress)
    await await_end(host)
    await host.run(["sh", "-c", REMOVE, "sh", places.ETCD_DATA, mark.work], timeout=60)
    for node in context.control_nodes:
        at = context.host(node)
        # With these its agent would look for etcd behind the load balancer.
        await at.remove([nllb.ETCD_CLIENT_PATH, nllb.ETCD_CA_PATH])
        if (plan := mark.plans.get(node.name)) is not None:
            await at.write_files([File(places.LEAVES_PLAN, plan.encode(), 0o600)])
    await host.remove([places.ETCD_COPY])


async def _open(context: Context, mark: Mark, progress: Progress) -> None:
    """The former etcd. Its members may be starting just now."""
    host = context.host(seat_of(context, mark))
    place = await place_of_standby(host)
    if place is None:
        raise Refused(
            ONE_ETCD,
            f"{mark.seat} does not say any more how the etcd at {', '.join(mark.urls)} is reached",
            f"turn off its authentication, with the password in {places.ETCD_COPY} there, and remove that file",
        )
    tools = EtcdTools(host, place=place, password=mark.password)

    async def answers_all() -> str | None:
        try:
            await tools.answer_all()
        except CommandFailed as error:
            return str(error)
        return None

    what = "the etcd outside of the cluster answers again"
    await poll_until(what, answers_all, timeout=OPENS_SECONDS, progress=progress, clock=context.clock)
    if (await tools.membership()).cluster != int(mark.former, 16):
        raise Unreachable(f"the etcd at {place.local} is another one than that which was copied")
