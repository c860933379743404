"""The end of `up`: every workload of ours is available and nothing of it may go back, and the user gets a kubeconfig.

Contract: while the operator judges what was applied, `up` waits for its verdict, since a release that is about to go
back is none that `up` has brought. An operator that says nothing keeps it for VERDICT seconds, and fails no `up`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autarky.control.rollout.decide.stepping import SERVES_SECONDS
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import TimedOut
from autarky.model import patience
from autarky.phases import members
from autarky.phases.available import (
    rendered_workloads,
    rolled_out,
    unavailable,
    unready_nodes,
    waits_for_network,
)
from autarky.phases.context import Context, left_out, memory_of
from autarky.phases.held_up import LOOK_EVERY, HeldUp
from autarky.phases.static_pods import unready_by_node
from autarky.phases.went_back import JUDGED_EVERY, Trial, WentBack, changed, unjudged
from autarky.ports import Progress
from autarky.render.kubeconfig import client_kubeconfig
from autarky.store import write_private


@dataclass(frozen=True, slots=True)
class AwaitWorkloads:
    name: str = "await-workloads"
    title: str = "Wait until everything is available"
    timeout: float = patience.most(patience.WORKLOADS, patience.VERDICT)
    needs: tuple[str, ...] = ("apply-objects", "join-nodes", "apply-agents")

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not await context.api_answers():
            return [Change("wait until all workloads are available")]
        if names := await changed(context):
            return [Change(f"see why {', '.join(names)} is not as it was applied")]
        waiting = await unavailable(context)
        changes = [Change(f"wait: {waiting.sentence}")] if waiting else []
        if names := await unjudged(context, rendered_workloads(context)):
            changes += [Change(f"wait until {', '.join(names)} is judged")]
        return [*changes, *await waits_for_network(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        applied = WentBack(context)
        await self._until_available(context, applied, progress)
        await self._until_judged(context, applied, progress)
        for warning in await waits_for_network(context):
            progress.note(warning.sentence)

    async def _until_available(self, context: Context, applied: WentBack, progress: Progress) -> None:
        workers = _Workers(context)

        async def missing() -> str | NotYet | None:
            await applied.look()
            found = await unavailable(context)
            if found is not None and await workers.leave_out(progress):
                return await unavailable(context)
            return found

        await poll_until(
            "all nodes are Ready and all workloads available",
            missing,
            timeout=patience.WORKLOADS,
            still=patience.STEP,
            progress=progress,
            clock=context.clock,
        )

    async def _until_judged(self, context: Context, applied: WentBack, progress: Progress) -> None:
        trial = Trial(context, applied)

        async def missing() -> str | None:
            await applied.look()
            return await trial.look()

        try:
            await poll_until(
                "the operator has judged what was applied",
                missing,
                timeout=patience.VERDICT,
                interval=JUDGED_EVERY,
                progress=progress,
                clock=context.clock,
            )
        except TimedOut:
            if not await context.api_answers():
                raise
            if names := await trial.names():
                progress.note(
                    f"{', '.join(names)}: not judged within {patience.VERDICT:.0f} s, and may still go back;"
                    " see the condition RolloutsSettled of `autarky kubectl describe controlplane cluster`"
                )


@dataclass(slots=True)
class _Workers:
    """Workers that joined before this run, and hold it up: whoever is root there may intend that, and it keeps add-ons
    and settings from all others. After `ON_WORKERS` seconds they are left out, like those whose hosts do not answer.
    One that is Ready now and then is no better, until it has been for SERVES_SECONDS."""

    context: Context
    _held: HeldUp = field(init=False)
    _since: dict[str, float] = field(default_factory=dict, init=False)
    _well: dict[str, float] = field(default_factory=dict, init=False)
    """Node → since when it has been ready again without a break."""
    _unready: Sequence[str] = field(default=(), init=False)
    _looked: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._held = HeldUp(self.context)

    async def leave_out(self, progress: Progress) -> bool:
        """Whether any was."""
        control = {node.name for node in self.context.cluster.control_nodes}
        workers = self.context.joined - control - self.context.absent.keys()
        if not workers:
            return False
        found = await self._not_ready(workers) | await self._lacking()
        late = sorted(workers & found.keys())
        for name in late:
            self.context.absent[name] = found[name]
            progress.note(left_out(self.context, name))
        return bool(late)

    async def _not_ready(self, workers: Collection[str]) -> dict[str, str]:
        """Nor are its own static pods, by its own word."""
        nodes = await self.context.kube().list("v1", "Node")
        unready = {*unready_nodes(self.context, nodes), *await self._with_unready_pods(workers)}
        now = self.context.clock.monotonic()
        self._forget_those_that_are_well(unready, now)
        since = {name: self._since.setdefault(name, now) for name in unready}
        why = f"it was not ready within {patience.ON_WORKERS:.0f} s"
        return {name: why for name, began in since.items() if now - began >= patience.ON_WORKERS}

    def _forget_those_that_are_well(self, unready: Collection[str], now: float) -> None:
        """Else one would be left out for two moments that lie far apart, because another one has held up the wait."""
        self._well = {name: self._well.get(name, now) for name in self._since.keys() - {*unready}}
        for name, began in self._well.items():
            if now - began >= SERVES_SECONDS:
                del self._since[name]

    async def _with_unready_pods(self, workers: Collection[str]) -> Collection[str]:
        """As of the last look: they may make any number of pods."""
        now = self.context.clock.monotonic()
        if self._looked is None or now - self._looked >= LOOK_EVERY:
            nodes = [node for node in self.context.present(self.context.cluster.nodes) if node.name in workers]
            found = await unready_by_node(self.context, nodes)
            self._unready = [name for name, components in found.items() if components]
            self._looked = self.context.clock.monotonic()
        return self._unready

    async def _lacking(self) -> dict[str, str]:
        """On which a DaemonSet of ours lacks pods, or CoreDNS does, and on no control node."""
        found: dict[str, str] = {}
        for obj in rendered_workloads(self.context):
            meta, kube = obj["metadata"], self.context.kube()
            live = await kube.get(obj["apiVersion"], obj["kind"], meta["name"], meta["namespace"])
            if rolled_out(obj, live, 0)[0]:
                for name in await self._held.by(f"{obj['kind']} {meta['name']}", live):
                    found[name] = f"no pod of {meta['name']} became available there within {patience.ON_WORKERS:.0f} s"
        return found


@dataclass(frozen=True, slots=True)
class WriteKubeconfig:
    name: str = "write-kubeconfig"
    title: str = "Write the kubeconfig"
    timeout: float = 10
    needs: tuple[str, ...] = ("issue-certificates",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known or not context.pki.complete():
            return [Change("write the kubeconfig")]
        files = self._files(context).items()
        return [Change(f"write {p}") for p, content in files if not p.exists() or p.read_bytes() not in content]

    async def run(self, context: Context, progress: Progress) -> None:
        for path, (content, *_) in self._files(context).items():
            write_private(path, content)

    def _files(self, context: Context) -> dict[Path, list[bytes]]:
        """Path → the acceptable contents, the first of which is written. A kubeconfig may name any of the servers
        first: `autarky kubeconfig` switches it to one that answers."""
        endpoint = context.cluster.control_plane_endpoint
        servers = context.servers if endpoint is None else [f"https://{endpoint}"]
        kubeconfigs = [
            client_kubeconfig(context.inputs(), "kubernetes-admin", "admin", server=server, servers=sorted(servers))
            for server in servers
        ]
        # A worker whose removal was interrupted has no address any more, and must be known to continue its removal.
        rendered, before = {node.name for node in context.complete.nodes}, members.remembered(context.directory)
        left = [before[node.name] for node in context.unlisted if node.name in before.keys() - rendered]
        nodes = memory_of([*context.complete.nodes, *left])
        return {context.directory / "kubeconfig": kubeconfigs, members.path_of(context.directory): [nodes]}
