"""A member joins etcd by its other members' word: admitted as a learner, promoted when it is in sync.

Contract: one at a time, which is for the caller to see to. What is done already is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.deadline import Condition, poll_until
from autarky.errors import CommandFailed
from autarky.etcd.members import Member
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.phases.context import Context
from autarky.ports import Progress

JOIN_SECONDS = 300.0


async def admitted(context: Context, tools: EtcdTools, name: str, peer: str, progress: Progress) -> Member:
    """The member with that peer URL, which is admitted if etcd does not list it. etcd admits nobody until its members
    have been connected for some seconds."""
    found: Member | None = None

    async def is_listed() -> str | None:
        nonlocal found
        try:
            found = await listed(tools, peer)
            if found is None:
                await tools.add_learner(peer)
                found = await listed(tools, peer)
        except CommandFailed as error:
            return str(error)
        return None if found is not None else "it is not in etcd's list yet"

    await wait(context, f"etcd admits a member on {name}", is_listed, progress)
    assert found is not None  # noqa: S101 # the wait has ended
    return found


async def promoted(context: Context, tools: EtcdTools, name: str, member: Member, progress: Progress) -> None:
    """A learner gets its vote. It must have been started."""

    async def votes() -> str | None:
        try:
            await tools.promote(member.id)
        except CommandFailed as error:
            now = await listed(tools, member.peer_urls[0])
            return None if now is not None and not now.is_learner else str(error)
        return None

    await wait(context, f"the member of etcd on {name} is in sync, and votes", votes, progress)


async def listed(tools: EtcdTools, peer: str) -> Member | None:
    """The member with that peer URL, as the quorum sees it."""
    return next((one for one in (await tools.membership()).members if peer in one.peer_urls), None)


async def wait(context: Context, what: str, condition: Condition, progress: Progress) -> None:
    await poll_until(
        what, condition, timeout=JOIN_SECONDS, still=patience.STILL, progress=progress, clock=context.clock
    )


def addresses_of(members: tuple[Member, ...]) -> dict[str, str]:
    """Name → address, of those that have started once."""
    return {one.name: address_of(one) for one in members if one.name}


def cluster_of(members: Sequence[Member], name: str, address: str) -> str:
    """`--initial-cluster` for a new member of that name, from what etcd lists: with all URLs of the others' peers."""
    others = [f"{one.name}={url}" for one in members if one.name and one.name != name for url in one.peer_urls]
    return ",".join([*others, etcd.initial_cluster({name: address})])


def address_of(member: Member) -> str:
    return member.peer_urls[0].partition("//")[2].rpartition(":")[0]
