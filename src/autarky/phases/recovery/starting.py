"""Starting the new etcd, and the control plane afresh with it.

Contract: from the first step on the old data is out of its place, and only going on leads to an etcd that runs; run
again, every step finds what was done. Every API server, controller-manager, scheduler and operator that answers to us
is ended before the new etcd starts: what they remember is of a time that did not happen (a garbage collector deletes
what belongs to an owner that it has seen gone, also if that is back). Which clusters the new etcd replaces is on the
disk of its host before it starts, and in its data (`making`): else two former members that come back would be an etcd.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autarky import places
from autarky.control.backup.decide.readers import Readers
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.slots import manifests as standby
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.errors import CommandFailed, Unreachable, UserError
from autarky.etcd.members import Membership
from autarky.etcd.tools import EtcdTools
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.components import OPERATOR, WITH_STANDBY
from autarky.model.files import File
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.phases.recovery.decrypting import readers_on
from autarky.phases.recovery.judging import api_servers
from autarky.phases.recovery.letting import let_start
from autarky.phases.recovery.programs import newest_etcd
from autarky.phases.recovery.reading import identity_of
from autarky.phases.recovery.state import (
    Began,
    Recovered,
    Recovery,
    began_in,
    fence_in,
    is_fenced,
    nodes_of,
    on_host,
    seat_of,
    stamp,
)
from autarky.phases.recovery.versions import seat_pod
from autarky.phases.start import start_kubelet, wait_for_api
from autarky.ports import SHORT, Host, Progress
from autarky.render import node as render_node

STARTS_SECONDS = 120.0
_RESTARTED = (*WITH_STANDBY, OPERATOR)


@dataclass(frozen=True, slots=True)
class StartEtcd:
    recovery: Recovery
    name: str = "start-etcd"
    title: str = "Start the new etcd, and the control plane afresh"
    timeout: float = patience.most(STARTS_SECONDS, 120.0)

    async def plan(self, context: Context) -> Sequence[Change]:
        recovery = self.recovery
        return [
            Change(f"put the new data in its place on {recovery.seat}, and keep the old"),
            Change(f"restart the control plane on {', '.join(sorted(recovery.found))}"),
            Change(f"start the new etcd on {recovery.seat}"),
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        recovery, host = self.recovery, seat_of(context, self.recovery)
        resumed = recovery.placed
        wanted = f"kept.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        recovery.placed = True  # from here on there is no way back: half of it may be done
        placed = await on_host(host, ["place", places.ETCD_DATA, recovery.work, wanted], timeout=60)
        kept = next(iter(placed), "")  # nowhere, where there was none
        # With this, what is not noted yet is resumed when the fence is gone.
        await host.write_files([File(fence_in(recovery.work), recovery.fence.file().content, 0o600)])
        await _forget_former(host)
        own, began = await identity_of(host, places.ETCD_DATA), Began.read(await host.read(began_in(recovery.work)))
        noted = None
        if own is not None and began is not None:
            noted = await self._note_on_host(context, kept, own.cluster, began, resumed=resumed)
        if not await static_pods(host):
            await self._write_pod(context, host)
            await for_each(nodes_of(context, recovery), lambda node: _restart_control_plane(context, node))
        await host.run([standby.SCRIPT_PATH, "release-etcd"], timeout=60)
        await start_kubelet(host)
        if resumed:
            await self._let_voters_start(context, host)
        membership = await _answers(context, host, progress)
        if noted is None:  # an earlier release has made the data
            noted = await self._note_on_host(context, kept, *await _serving(host), resumed=resumed)
        await _note_in_etcd(host, noted)
        former = f"its former data is in {kept}" if kept else "it had no data before"
        progress.note(f"etcd {membership.cluster:x} runs on {recovery.seat}; {former}")

    async def _note_on_host(
        self, context: Context, kept: str, cluster: int, began: Began, *, resumed: bool
    ) -> Recovered:
        recovery, host = self.recovery, seat_of(context, self.recovery)
        former = set(recovery.former)
        if resumed and kept and (replaced := await identity_of(host, kept)) is not None:
            former.add(replaced.cluster)  # the run that was cut has seen it in its place
        versions = str(max(await api_servers(context, recovery))), await newest_etcd(context, host)
        at = stamp(context.clock.time())
        made_of, kind = recovery.made_of, recovery.kind
        noted = _recovered(cluster, began, former, kept, made_of, at=at, kind=kind, versions=versions)
        noted = replace(noted, readers=await _readers_before(host, noted.cluster))
        await host.write_files([noted.file()])
        return noted

    async def _let_voters_start(self, context: Context, host: Host) -> None:
        """Where members have joined already and their static pods are away, the new etcd has no quorum, and cannot be
        asked who they are: so it is those whose data is of it."""
        own = await identity_of(host, places.ETCD_DATA)
        found = self.recovery.found.values()
        of_it = {one.node for one in found if own and one.identity and one.identity.cluster == own.cluster}
        nodes = [node for node in nodes_of(context, self.recovery) if node.name in of_it | {self.recovery.seat}]
        addresses = {node.name: node.known_address() for node in nodes}
        for node in nodes:
            if node.name != self.recovery.seat and not await static_pods(context.host(node)):
                await let_start(context, host, node, addresses)

    async def _write_pod(self, context: Context, host: Host) -> None:
        """The static pod of the seat, for when its fence goes."""
        recovery = self.recovery
        node = context.cluster.node(recovery.seat)
        old = await seat_pod(context, recovery, node)
        pod = etcd.founded_again(old, node.name, node.known_address(), recovery.token(context.cluster.name))
        await host.write_files([File(places.ETCD_FENCED, render_node.manifest(pod).content, 0o600)])


async def _readers_before(host: Host, cluster: str) -> Readers | None:
    """By which the data from before the new etcd is read. cluster: the id of that. A run that was cut may have let API
    servers come back that read as that one's data wants it."""
    noted = Recovered.read(await host.read(places.ETCD_RECOVERED, most=SHORT))
    return noted.readers if noted is not None and noted.cluster == cluster else await readers_on(host)


async def _forget_former(host: Host) -> None:
    """With a note of the former data's cluster the seat would leave its own etcd at a boot; with one of what its agent,
    or an `up`, was changing of the former member, that would go on. Without a fence a change is one of the new one."""
    changes = [places.ETCD_CHANGE, places.ETCD_FORMER] if await is_fenced(host) else []
    await host.remove([places.ETCD_CLUSTER, *changes])


async def _restart_control_plane(context: Context, node: Node) -> None:
    await on_host(context.host(node), ["restart", *_RESTARTED])


async def _answers(context: Context, host: Host, progress: Progress) -> Membership:
    tools, found = EtcdTools(host, timeout=1.0), None

    async def look() -> NotYet | str | None:
        nonlocal found
        try:
            found = await tools.membership()
        except (CommandFailed, Unreachable) as error:
            return str(error)
        return None

    what = f"the new etcd on {host.name} answers"
    await poll_until(what, look, timeout=STARTS_SECONDS, progress=progress, clock=context.clock)
    assert found is not None  # noqa: S101 # the wait has ended
    return found


async def note_recovery(host: Host, former: Iterable[int], made_of: str) -> None:
    """Of an etcd that serves: on its host, and in itself, which clusters it replaces."""
    noted = _recovered(*await _serving(host), former, "", made_of, at=stamp(datetime.now(UTC).timestamp()))
    await host.write_files([noted.file()])
    await _note_in_etcd(host, noted)


async def _serving(host: Host) -> tuple[int, Began]:
    """What an etcd that serves says of itself, after the id of its cluster."""
    tools = EtcdTools(host)
    membership, revision = await tools.membership(), await tools.revision()
    return membership.cluster, Began(revision, former_of(await tools.value(FORMER)))


def _recovered(
    cluster: int,
    began: Began,
    former: Iterable[int],
    kept: str,
    made_of: str,
    *,
    at: str,
    kind: str = "",
    versions: tuple[str, str] = ("", ""),
) -> Recovered:
    """versions: of Kubernetes and etcd, which have written the data from before."""
    ids = [f"{one:x}" for one in sorted({*began.former, *former} - {cluster})]
    return Recovered(f"{cluster:x}", kept, made_of, at, began.revision, ids, kind, *versions)


async def _note_in_etcd(host: Host, noted: Recovered) -> None:
    """Which clusters it replaces, where it does not say so: a member of a former one that comes back finds its own id
    there, and stays out of the way."""
    tools = EtcdTools(host)
    known = former_of(await tools.value(FORMER))
    if noted.replaced <= known:
        return
    ids = sorted((known | noted.replaced) - {int(noted.cluster, 16)})
    try:
        await tools.put(FORMER, json.dumps([f"{one:x}" for one in ids]))
    except CommandFailed as error:
        raise UserError(
            f"{host.name}: the new etcd does not take the note of which ones it has replaced: {error}",
            fix="run the same command again; if etcd is full, after `autarky etcd defrag` and `autarky etcd alarm"
            " --disarm`. Leave machines off that are off: their members may be of an etcd that was replaced",
        ) from error


@dataclass(frozen=True, slots=True)
class AwaitApi:
    recovery: Recovery
    name: str = "await-api"
    title: str = "Wait for the API"
    timeout: float = patience.most(patience.API_STARTS)

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change("wait until the API answers")]

    async def run(self, context: Context, progress: Progress) -> None:
        await wait_for_api(context, progress)
