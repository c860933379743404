"""A member joins etcd by its other members' word: admitted as a learner, promoted when it is in sync.

Contract: one at a time, which is for the caller to see to. What is done already is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.deadline import Condition, poll_until
from autarky.errors import CommandFailed, UserError
from autarky.etcd.members import Member
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.model.etcd_members import peer_url, unusable_names
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
    others = beside(members, name, address)
    urls = [f"{one.name}={url}" for one in others for url in one.peer_urls]
    return ",".join([*urls, etcd.initial_cluster({name: address})])


def beside(members: Sequence[Member], name: str, address: str) -> list[Member]:
    """The others, where a member of that name can join them. UserError where one has been given a name since they were
    judged with which it could not start."""
    others = [one for one in members if peer_url(address) not in one.peer_urls]
    unusable = unusable_names([name, *(one.name for one in others)])
    if wrong := [one for one in others if one.name in unusable]:
        raise names_refused(wrong)
    return others


def names_refused(members: Sequence[Member]) -> UserError:
    said = ", ".join(repr(one.name) if one.name else f"none, at {' '.join(one.peer_urls)}" for one in members)
    return UserError(
        f"members of etcd outside of the cluster have names that the control nodes cannot use: {said}",
        fix="restart each of them on its data with a `--name` of its own, of letters, digits, '-', '.' and '_'; one"
        " without a name has never started: start it, or remove it; and run it again then",
    )


def address_of(member: Member) -> str:
    return member.peer_urls[0].partition("//")[2].rpartition(":")[0]
