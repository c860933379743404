"""Members leave etcd, one at a time, each only while all that stay are healthy (rule 3)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from autarky.errors import CommandFailed, Refused
from autarky.etcd.members import Member
from autarky.etcd.tools import EtcdTools
from autarky.phases.context import Context
from autarky.phases.etcd_joining import wait
from autarky.ports import Progress

ENDED = "for second in $(seq 45); do pgrep -x etcd >/dev/null || break; sleep 1; done"
"""Waits until no member runs on a host."""
QUORUM = "one membership change at a time, only while quorum survives it"


def kept() -> str:
    """The name of the directory that former data is moved to (rule 3)."""
    return f"kept.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


async def hand_over(context: Context, tools: EtcdTools, leaving: Sequence[Member], progress: Progress) -> None:
    """Leadership moves to a member that stays, if one that leaves has it."""
    gone = {one.id for one in leaving}

    async def led_by_one_that_stays() -> str | None:
        members = (await tools.membership()).members
        try:
            leader, target = await _leader(tools, members), await _heir(tools, members, gone)
            if leader is not None and leader.id not in gone:
                return None
            if leader is None or target is None:
                return "no leader is known" if leader is None else "no member that stays is healthy"
            await tools.move_leader(leader.client_urls[0], target.id)
        except CommandFailed as error:
            return str(error)
        progress.note(f"{target.name} leads etcd")
        return None

    await wait(context, "a member of etcd that stays leads it", led_by_one_that_stays, progress)


async def _leader(tools: EtcdTools, members: Sequence[Member]) -> Member | None:
    urls = [url for one in members for url in one.client_urls]
    said = (await tools.statuses(urls)).values()
    newest = max(said, key=lambda one: one.raft_term, default=None)
    return next((one for one in members if newest is not None and one.id == newest.leader), None)


async def _heir(tools: EtcdTools, members: Sequence[Member], gone: Collection[int]) -> Member | None:
    for one in members:
        if one.id not in gone and not one.is_learner and one.client_urls:
            url = one.client_urls[0]
            if (await tools.health([url]))[url] is None:
                return one
    return None


async def remove_members(context: Context, tools: EtcdTools, leaving: Sequence[Member], progress: Progress) -> None:
    gone = {one.id for one in leaving}
    for member in leaving:
        await _refuse_unhealthy(tools, gone)
        name = member.name or f"{member.id:x}"

        async def removed(member: Member = member) -> str | None:
            try:
                if any(one.id == member.id for one in (await tools.membership()).members):
                    await tools.remove(member.id)
            except CommandFailed as error:
                return str(error)
            return None

        await wait(context, f"{name} is removed from etcd", removed, progress)
        progress.note(f"{name} is no member of etcd any more")


async def _refuse_unhealthy(tools: EtcdTools, gone: Collection[int]) -> None:
    staying = [one for one in (await tools.membership()).members if one.id not in gone]
    said = await tools.health([one.client_urls[0] for one in staying if one.client_urls])
    wrong = [f"{url}: {why}" for url, why in said.items() if why is not None]
    wrong += [f"{one.name or f'{one.id:x}'} has not started" for one in staying if not one.client_urls]
    wrong += [f"{one.name} does not vote yet" for one in staying if one.is_learner]
    if wrong or not staying:
        raise Refused(QUORUM, "; ".join(wrong) or "no member would be left", "see `autarky doctor`; then run it again")
