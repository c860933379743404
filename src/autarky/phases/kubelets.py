"""Waiting until every kubelet has what is wanted of it: its version, its arguments and settings, what follows from its
host. The operator gives orders, the agents carry them out, and the hosts go back to what was there where it is not
proven (`control.kubelet`): this phase changes nothing but to ask once more for what has failed before.

Contract: what is wanted is decided as the operator does (`decide.nodes`), with the base that `prepare` has written to
the host. A control node's kubelet that does not get it fails the phase. A worker's leaves its node out, with its
reason, once nothing else is on its way: all that comes after is done, and the command says in the end that it has not
done all. A worker that says nothing is noted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autarky.control.common.shapes import mapping, name_of
from autarky.control.kubelet.decide import nodes as nodes_of
from autarky.control.kubelet.decide import pools, report, standing, turns, wanted
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.manifests import configuration as kubelet_configuration
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests.generation import base_digest, base_file
from autarky.control.upgrade.decide import path
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import CommandFailed, TimedOut, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.model.patience import CEILING, ROUNDS_OFF
from autarky.model.versions import Version
from autarky.phases import hosted_kubelets, members
from autarky.phases.context import Context, left_out_since
from autarky.phases.restarted import quoted
from autarky.phases.version_check import live_control_plane
from autarky.ports import Host, Object, Progress
from autarky.render import crds
from autarky.render.values import Inputs

TIMEOUT, STILL = 1800.0, 300.0
"""Seconds for all kubelets; and without a step of any of them, in which one has been proven, or has gone back."""
BETWEEN_LOOKS = 2.0
"""Seconds: each look lists all Nodes, and a kubelet takes ten and more."""
MOST_WORDS = 64 * 1024
"""Bytes of a kubelet's last words."""


@dataclass(frozen=True, slots=True)
class ChangeKubelets:
    name: str = "configure-kubelets"
    title: str = "Wait for the kubelets"
    timeout: float = CEILING * TIMEOUT + ROUNDS_OFF

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not context.addresses_known or not context.pki.complete() or not await context.api_answers():
            return []
        return [*await planned(context), *await _hosted_that_stay(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        await until_current(context, progress)


@dataclass(frozen=True, slots=True)
class Lacks:
    """A kubelet that has not what is wanted of it. state: as its node reports it of the order for that; failed: why it
    went back, or was refused; empty where neither."""

    target: Target
    what: str
    control: bool
    state: str = ""
    failed: str = ""


async def _hosted_that_stay(context: Context) -> list[Warn]:
    """The wait for all that is available looks at their pods, which are Ready with a former version, too."""
    plane = await live_control_plane(context.kube())
    failure = None if plane is None else await hosted_kubelets.rolled_back(context.kube(), plane)
    if plane is None or failure is None:
        return []
    sentence = hosted_kubelets.sentence_of(failure, hosted_kubelets.followed_version(plane))
    return [Warn(f"{sentence}; once the cause is gone: `{hosted_kubelets.TRY}`", in_plan=True)]


async def kubelet_runs(host: Host) -> bool:
    return (await host.run(["systemctl", "is-active", "kubelet"], check=False)).text == "active"


# --- looking -----------------------------------------------------------------------------------------------------


async def versions(context: Context) -> dict[str, Version | None]:
    """Node → the version of its kubelet, as it reports it."""
    return {name_of(node): path.kubelet_of(node) for node in await context.kube().list("v1", "Node")}


async def planned(context: Context, *, live_only: bool = False) -> list[Change | Warn]:
    """What kubelets lack, for a plan. live_only: as for `look`."""
    before, found = set(context.absent), await look(context, live_only=live_only)
    changes = [Change(f"have the kubelet of {name} changed: {one.what}") for name, one in found.items()]
    return [*changes, *left_out_since(context, before)]


async def look(context: Context, *, live_only: bool = False) -> dict[str, Lacks]:
    """Node → what its kubelet lacks, of those whose hosts answer; without those that lack nothing. live_only: by what
    the API says alone, whatever the file is."""
    kube = context.kube()
    plane = await live_control_plane(kube)
    if plane is None:
        return {}
    live = {name_of(obj): obj for obj in await kube.list("v1", "Node")}
    if live_only:
        bases = {node.name: _reported_base(live.get(node.name)) for node in members.that_answer(context)}
    else:
        plane = _as_in_file(context, plane)
        inputs = context.inputs()
        bases = {node.name: _base(inputs, node) for node in members.that_answer(context)}
    around = nodes_of.Around(plane, pools.read(mapping(plane.get("spec")).get("pools")))
    found = nodes_of.found([live[name] for name in bases if name in live], around).nodes
    lacking = {node.name: _lacks(plane, node, live[node.name], bases[node.name]) for node in found}
    return {name: one for name, one in lacking.items() if one is not None}


def _as_in_file(context: Context, plane: Object) -> Object:
    """With what is about to be applied, where it is not yet."""
    rendered = crds.control_plane(context.cluster)["spec"]
    ours = {key: rendered[key] for key in ("componentArguments", "kubelets", "pools") if key in rendered}
    return {**plane, "spec": {**plane["spec"], **ours}}


def _reported_base(obj: Object | None) -> str:
    said = None if obj is None else report.read(mapping(obj.get("metadata")))
    return "" if said is None else said.base


def _base(inputs: Inputs, node: Node) -> str:
    return base_digest(base_file(kubelet_configuration.base_of(inputs, node)).content)


def _lacks(plane: Object, node: turns.Node, obj: Object, base: str) -> Lacks | None:
    asked = wanted.version(plane, node.pool, wanted.pin_of(mapping(obj.get("metadata"))), node.runs)
    if asked.version is None or not base:
        return None
    target = wanted.target(plane, node.pool, asked.version, base=base)
    said = node.report or report.Report()
    is_proven = said.state is None or said.is_final
    if standing.has(node, target) and is_proven:
        return None
    what = f"Kubernetes {target.version}" if node.runs != target.version else "its new settings"
    lacks = Lacks(target, what, node.control)
    of_this = node.order is not None and node.order.target == target and said.order == node.order.id
    if not of_this or said.state is None:
        return lacks
    failed = said.is_final and said.state is not report.State.DONE
    return replace(lacks, state=str(said.state), failed=(said.why or str(said.state)) if failed else "")


# --- waiting -----------------------------------------------------------------------------------------------------


async def until_current(
    context: Context, progress: Progress, *, live_only: bool = False, before: Mapping[str, Lacks] | None = None
) -> None:
    """UserError where a control node's kubelet has gone back, or was refused: what has failed before is asked for once
    more first.
    live_only: as for `look`. before: what that said when the command began; None where it is only just beginning."""
    waits = _Waits(context, progress, live_only)
    first = await look(context, live_only=live_only)
    waits.before = dict(first)
    if failed := {name: one.target for name, one in first.items() if one.failed and _failed_in(before, name, one)}:
        waits.ignored = failed
        await _ask_again(context)
    try:
        await poll_until(
            "every kubelet has what is wanted of it",
            waits.look,
            timeout=TIMEOUT,
            still=STILL,
            progress=progress,
            clock=context.clock,
            interval=BETWEEN_LOOKS,
        )
    except TimedOut:
        waits.failed = {name: one for name, one in waits.last.items() if one.failed}
        if any(one.control for one in waits.failed.values()):
            raise await _failure(context, waits.failed) from None
        if any(one.control for one in waits.last.values()):
            raise
        for name, one in sorted(waits.last.items()):
            if not one.failed:
                progress.note(f"the kubelet of {name} does not get {one.what}: its node does not say why")
    for name, one in sorted(waits.failed.items()):
        context.leave_out(name, f"its kubelet does not get {one.what}: {one.failed}")


def _failed_in(before: Mapping[str, Lacks] | None, name: str, now: Lacks) -> bool:
    """Kubelets may fail while a command still waits for the control plane: that is what it has asked for."""
    then = now if before is None else before.get(name)
    return then is not None and then.failed != "" and then.target == now.target


@dataclass(slots=True)
class _Waits:
    """ignored: those that have failed before this wait, until they report something else. failed: of workers alone,
    when nothing else is waited for."""

    context: Context
    progress: Progress
    live_only: bool
    before: dict[str, Lacks] = field(default_factory=dict)
    last: dict[str, Lacks] = field(default_factory=dict)
    ignored: dict[str, Target] = field(default_factory=dict)
    failed: dict[str, Lacks] = field(default_factory=dict)

    async def look(self) -> NotYet | None:
        found = await look(self.context, live_only=self.live_only)
        for name in self.before.keys() - found.keys():
            self.progress.note(f"the kubelet of {name} has {self.before[name].what}")
        # One on trial has the version already: what it came for says more.
        same = {name: one for name, one in self.before.items() if name in found and one.target == found[name].target}
        self.before, self.last = found | same, found
        self.ignored = {name: self.ignored[name] for name in self.ignored if name in found and found[name].failed}
        failed = {name: one for name, one in found.items() if one.failed and name not in self.ignored}
        if failed and _is_all(found, failed):
            if any(one.control for one in failed.values()):
                raise await _failure(self.context, failed)
            self.failed, found = failed, {}
        if not found:
            return None
        what = ", ".join(f"{name}: {one.state or 'waits for its turn'}" for name, one in list(found.items())[:3])
        # Whoever has failed has come to an end as well, and the next ones get their turn.
        come = hosted_kubelets.steps({name: one for name, one in found.items() if not one.failed})
        return NotYet(f"{len(found)} do not have it yet ({what})", come=come)


def _is_all(found: Mapping[str, Lacks], failed: Collection[str]) -> bool:
    """Whether nothing more is to be waited for: a control node has failed, or nothing is on its way. A control node
    gets its turn whatever workers have come to."""
    on_their_way = [one for name, one in found.items() if name not in failed and (one.state or one.control)]
    return not on_their_way or any(found[name].control for name in failed)


async def _failure(context: Context, failed: Mapping[str, Lacks]) -> UserError:
    name, one = min(failed.items(), key=lambda item: (not item[1].control, item[0]))
    said = await _last_words(context, name)
    others = f" ({len(failed) - 1} more nodes the same)" if len(failed) > 1 else ""
    return UserError(
        f"node {name}: its kubelet is not healthy with {one.what} ({one.failed}), so that it has the former ones"
        f" again{others}. Its last output:\n{said}",
        fix="correct spec.extraArgs.kubelet (or what else was changed) in the file, and run `autarky up` again",
    )


async def _last_words(context: Context, name: str) -> str:
    """Nothing where its host does not say: the failure counts all the same."""
    node = next((node for node in members.that_answer(context) if node.name == name), None)
    try:
        content = None if node is None else await context.host(node).read(files.LAST_WORDS, most=MOST_WORDS)
    except (CommandFailed, Unreachable, TimedOut):
        content = None
    return quoted((content or b"").decode(errors="replace").splitlines())


async def _ask_again(context: Context) -> None:
    """A new value has the operator try again what has failed."""
    edit = {"spec": {"kubelets": {"asked": f"{context.clock.time():.0f}"}}}
    await context.kube().patch(crds.API_VERSION, "ControlPlane", crds.CONTROL_PLANE, edit)
