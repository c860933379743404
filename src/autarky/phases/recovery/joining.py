"""The other members join the new etcd: by themselves where etcd is hosted (level 1), else by this command, as it made
them.

Contract: one at a time, as learners with empty directories under new ids; each is promoted when it is in sync. Former
data is moved aside. A host stays fenced until its member may start, and no longer: the boot of a fenced host takes its
static pods away. The recovery's directory on the seat is removed last: so the same command, run again, resumes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky import places
from autarky.control.etcd.manifests import members
from autarky.engine.deadline import NotYet
from autarky.engine.phase import Change, Warn
from autarky.errors import AutarkyError, CommandFailed, UserError
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.etcd_members import client_url, peer_url
from autarky.model.levels import HostedLevels, Level
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_joining import JOIN_SECONDS, addresses_of, admitted, promoted, wait
from autarky.phases.etcd_pods import static_pods
from autarky.phases.recovery.letting import let_start
from autarky.phases.recovery.reading import identity_of
from autarky.phases.recovery.state import OF_FORMER, Recovery, is_fenced, nodes_of, on_host, seat_of
from autarky.phases.recovery.versions import ask_for_what_runs
from autarky.ports import Progress
from autarky.render.crds import API_VERSION

_MOVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReturnMembers:
    """Those that had data, and whose hosts answer."""

    recovery: Recovery
    name: str = "return-members"
    title: str = "Bring the other members back"
    timeout: float = patience.most(*[JOIN_SECONDS] * 4)

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        joining = [Change(f"make {node.name} a member of the new etcd") for node in self._others(context)]
        unread = [
            Warn(f"{one.node}: its data could not be read: it joins when its disk is replaced, by `autarky up`")
            for one in self.recovery.found.values()
            if one.unreadable
        ]
        return [*unread, *joining, Change("remove the fences, and what the recovery has left")]

    async def run(self, context: Context, progress: Progress) -> None:
        if await _is_hosted(context):
            unasked = await self._ask(context, progress)
            await for_each(nodes_of(context, self.recovery), lambda node: _unfence(context, node))
            if unasked is not None:
                raise unasked
            await self._await_agents(context, progress)
        else:
            for node in await self._joining(context, progress):
                await self._join(context, node, progress)
            await for_each(nodes_of(context, self.recovery), lambda node: _unfence(context, node))
        await seat_of(context, self.recovery).run(["rm", "-rf", self.recovery.work], timeout=_MOVE_SECONDS)

    async def _ask(self, context: Context, progress: Progress) -> AutarkyError | None:
        """For the version that runs. Where that fails nobody stays fenced for it: a member that joins later would be
        taken away at the next boot of its host. Returns what the phase ends with then."""
        try:
            await ask_for_what_runs(context, seat_of(context, self.recovery), progress)
        except AutarkyError as error:
            progress.note(f"the fences go, though members cannot join yet: {error}")
            return error
        return None

    async def _await_agents(self, context: Context, progress: Progress) -> None:
        others, wanted = self._others(context), await _wanted(context)
        for name in sorted(node.name for node in others if node.name not in wanted):
            progress.note(f"the API wants no member of etcd on {name}: `autarky up` changes that")
        if self.recovery.seat not in wanted:
            progress.note(f"{self.recovery.seat} is not known to the API: `autarky up` lets the others join")
            return
        awaited = [node.name for node in others if node.name in wanted]
        await self._until_they_vote(context, awaited, progress)

    def _others(self, context: Context) -> list[Node]:
        """Also those whose former data was moved aside before a run was cut. No member starts on a disk that fails."""
        found = [one for one in self.recovery.found.values() if one.node != self.recovery.seat and not one.unreadable]
        names = {one.node for one in found if (one.identity is not None and not one.aside) or one.has_pod}
        return [node for node in context.cluster.nodes if node.name in names]

    async def _joining(self, context: Context, progress: Progress) -> list[Node]:
        """Also those that etcd lists already: on a host where a run was cut there may be no pod, no data, no fence."""
        urls: set[str] = set()

        async def listed() -> str | None:
            try:
                urls.update(url for one in (await self._tools(context).membership()).members for url in one.peer_urls)
            except CommandFailed as error:
                return str(error)
            return None

        await wait(context, "the new etcd lists its members", listed, progress)
        seen = {node.name for node in self._others(context)}
        others = [node for node in nodes_of(context, self.recovery) if node.name != self.recovery.seat]
        return [node for node in others if node.name in seen or peer_url(node.known_address()) in urls]

    def _tools(self, context: Context) -> EtcdTools:
        return EtcdTools(seat_of(context, self.recovery))

    async def _until_they_vote(self, context: Context, names: Sequence[str], progress: Progress) -> None:
        tools = self._tools(context)

        async def joined() -> NotYet | str | None:
            try:
                listed = (await tools.membership()).members
            except CommandFailed as error:
                return str(error)
            voters = {one.name for one in listed if not one.is_learner}
            waited = [name for name in names if name not in voters]
            come = (len(voters), len(listed))
            return NotYet(f"not yet a member: {', '.join(waited)}", come) if waited else None

        await wait(context, "all members have joined", joined, progress)

    async def _join(self, context: Context, node: Node, progress: Progress) -> None:
        tools, host = self._tools(context), context.host(node)
        member = await admitted(context, tools, node.name, peer_url(node.known_address()), progress)
        identity = await identity_of(host, places.ETCD_DATA)
        has_data = identity is not None and identity.member == member.id
        if not member.is_learner and not has_data:
            # From scratch under its old id it would have forgotten what it has acknowledged.
            raise UserError(
                f"etcd lists {node.name} as a member that votes, and the member's data is not there",
                fix=f"remove it with `etcdctl member remove {member.id:x}`, and run the same command again",
            )
        if not has_data:
            await host.remove(list(await static_pods(host)))
            kept = f"{places.ETCD_DATA}/kept.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
            await on_host(host, ["aside", places.ETCD_DATA, kept], timeout=_MOVE_SECONDS)
        listed = (await tools.membership()).members
        addresses = addresses_of(listed) | {node.name: node.known_address()}
        await let_start(context, seat_of(context, self.recovery), node, addresses)
        if not member.is_learner:
            await self._until_it_answers(context, node, progress)
            return

        await promoted(context, tools, node.name, member, progress)
        progress.note(f"{node.name} is a member of the new etcd")

    async def _until_it_answers(self, context: Context, node: Node, progress: Progress) -> None:
        """A member that votes already: a run that was cut has brought it back, and something has stopped it since."""
        tools, url = self._tools(context), client_url(node.known_address())

        async def answers() -> str | None:
            return None if url in await tools.statuses([url]) else "it does not answer"

        await wait(context, f"the member of etcd on {node.name} answers", answers, progress)


async def _unfence(context: Context, node: Node) -> None:
    """Its former static pod stays away. Without a fence a change is one of the new member, which goes on."""
    host = context.host(node)
    await host.remove(OF_FORMER if await is_fenced(host) else [places.ETCD_FENCED])


async def _is_hosted(context: Context) -> bool:
    plane = await context.kube().get(API_VERSION, "ControlPlane", "cluster")
    text = str(((plane or {}).get("spec") or {}).get("selfHosted") or context.cluster.self_hosted_text)
    return HostedLevels.parse(text).hosts(Level.ETCD)


async def _wanted(context: Context) -> set[str]:
    """The nodes that should have a member, by the API."""
    found = await context.kube().list(API_VERSION, members.KIND)
    return {obj["metadata"]["name"] for obj in found if members.should_be_member(obj)}
