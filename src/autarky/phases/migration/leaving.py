"""Members leave etcd, one at a time, each only while all that stay are healthy (rule 3)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from autarky.errors import CommandFailed, Refused
from autarky.etcd.members import Member
from autarky.etcd.tools import EtcdTools
from autarky.phases.context import Context
from autarky.phases.etcd_joining import wait
from autarky.phases.migration.looking import on_control_node
from autarky.ports import Host, Progress

QUORUM = "one membership change at a time, only while quorum survives it"


async def await_end(host: Host) -> None:
    """Until no member runs on a control node whose static pod is away. Raises CommandFailed where one goes on."""
    await on_control_node(host, "ended")


def kept() -> str:
    """The name of the directory that former data is moved to (rule 3)."""
    return f"kept.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


class Ways:
    """How members are asked. tools: on the host of one that stays. others: for those with these URLs, which have
    another CA; None where all have one."""

    def __init__(self, tools: EtcdTools, urls: Collection[str] = (), others: EtcdTools | None = None) -> None:
        self.tools, self._urls, self._others = tools, frozenset(urls), others

    def to(self, url: str) -> EtcdTools:
        return self._others if self._others is not None and url in self._urls else self.tools

    async def health(self, members: Sequence[Member]) -> dict[int, str | None]:
        """Member id → None if it is healthy, else why it is not."""
        found: dict[int, str | None] = {}
        for one in members:
            urls = one.client_urls[:1]
            said = [(await self.to(url).health([url]))[url] for url in urls]
            found[one.id] = said[0] if said else "it has not started"
        return found


async def hand_over(context: Context, ways: Ways, leaving: Sequence[Member], progress: Progress) -> None:
    """Leadership moves to a member that stays, if one that leaves has it."""
    gone = {one.id for one in leaving}

    async def led_by_one_that_stays() -> str | None:
        members = (await ways.tools.membership()).members
        try:
            leader, target = await _leader(ways, members), await _heir(ways, members, gone)
            if leader is not None and leader.id not in gone:
                return None
            if leader is None or target is None:
                return "no leader is known" if leader is None else "no member that stays is healthy"
            url = leader.client_urls[0]
            await ways.to(url).move_leader(url, target.id)
        except CommandFailed as error:
            return str(error)
        progress.note(f"{target.name} leads etcd")
        return None

    await wait(context, "a member of etcd that stays leads it", led_by_one_that_stays, progress)


async def _leader(ways: Ways, members: Sequence[Member]) -> Member | None:
    said = [
        status for one in members for url in one.client_urls for status in (await ways.to(url).statuses([url])).values()
    ]
    newest = max(said, key=lambda one: one.raft_term, default=None)
    return next((one for one in members if newest is not None and one.id == newest.leader), None)


async def _heir(ways: Ways, members: Sequence[Member], gone: Collection[int]) -> Member | None:
    staying = [one for one in members if one.id not in gone and not one.is_learner]
    health = await ways.health(staying)
    return next((one for one in staying if health[one.id] is None), None)


async def remove_members(context: Context, ways: Ways, leaving: Sequence[Member], progress: Progress) -> None:
    """Those that are not healthy first: etcd refuses to remove one while others that count do not answer."""
    gone = {one.id for one in leaving}
    health = await ways.health(leaving)
    for member in sorted(leaving, key=lambda one: health[one.id] is None):
        await _refuse_unhealthy(ways, gone)
        name = member.name or f"{member.id:x}"

        async def removed(member: Member = member) -> str | None:
            try:
                if any(one.id == member.id for one in (await ways.tools.membership()).members):
                    await ways.tools.remove(member.id)
            except CommandFailed as error:
                return str(error)
            return None

        await wait(context, f"{name} is removed from etcd", removed, progress)
        progress.note(f"{name} is no member of etcd any more")


async def _refuse_unhealthy(ways: Ways, gone: Collection[int]) -> None:
    staying = [one for one in (await ways.tools.membership()).members if one.id not in gone]
    health = await ways.health(staying)
    wrong = [f"{one.name or f'{one.id:x}'}: {health[one.id]}" for one in staying if health[one.id] is not None]
    wrong += [f"{one.name} does not vote yet" for one in staying if one.is_learner]
    if wrong or not staying:
        raise Refused(QUORUM, "; ".join(wrong) or "no member would be left", "see `autarky doctor`; then run it again")
