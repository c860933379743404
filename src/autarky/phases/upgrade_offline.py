"""The way back of an upgrade while no API server serves: the standbys on the control nodes' disks.

Contract: nothing is changed before it is certain that nothing serves, that etcd does, and that some node can go back
(`upgrade_looking`, `control.upgrade.decide.offline`). The hosted pods stay: as soon as an API server of the former
version answers, the version is asked for through it, as `autarky upgrade rollback` does else, and the operator takes
back the rest. Killed anywhere and run again, it goes on: what is switched stays, and where the API answers already,
only the edit is left.

What runs meanwhile undoes none of it. The agent of a node puts in place what `current` leads to, and leads it elsewhere
only when a hosted pod has been healthy for as long as a checkpoint needs: where that is of the version from which this
goes back, it has served all that time, and its API takes the edit. The former revision stays as the previous one then.
A node that was off begins with what its disk has, a minor away at most, until the operator has taken back its hosted
API server.

Danger: from when the API answers until the operator has taken them back, controller-manager, scheduler and kube-proxy
may be a minor newer than the API servers, against rule 4: without an API nobody can change them, and they do nothing
without one. They are what the operator changes first. Meanwhile the standbys of the first two are activated, which are
of the former version: the hosted ones have exited, and their kubelets wait before they start them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.common.skew import minor_of
from autarky.control.slots.manifests import SCRIPT_PATH
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.offline import KUBELETS_GO_BACK, Act, Decision, Refusal, Verb, decide
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import CommandFailed, Refused, TimedOut, Unreachable, UserError
from autarky.model import patience
from autarky.model.components import API_SERVER
from autarky.model.versions import Version
from autarky.phases.context import Context
from autarky.phases.start import wait_for_api
from autarky.phases.upgrade_looking import Found, look, refuse_what_serves
from autarky.phases.version_check import needed_control_plane
from autarky.ports import Progress
from autarky.render.crds import API_VERSION, CONTROL_PLANE

SCRIPT_SECONDS = 60.0
"""For one change of a standby: it waits for another writer, too."""
ASK_SECONDS = 120.0
"""For the edit: an API server that has just started refuses requests at first."""


@dataclass(slots=True)
class GoingBack:
    """What the phases share. accepts_kubelets: whether those of control nodes may be newer for a while. found,
    decision: of the last look."""

    accepts_kubelets: bool = False
    found: Found | None = None
    decision: Decision | None = None

    @property
    def to(self) -> Version:
        assert self.decision is not None  # noqa: S101 # the first phase has decided, or raised
        return self.decision.to


async def look_and_decide(context: Context, going: GoingBack) -> Decision:
    """UserError, Unreachable and Refused where nothing may be done."""
    going.found = await look(context, accepts_kubelets=going.accepts_kubelets, watched=going.decision is not None)
    found = decide(going.found.cluster)
    if isinstance(found, Refusal):
        if found.rule:
            raise Refused(found.rule, found.sentence, found.fix)
        raise UserError(found.sentence, fix=found.fix)
    if going.decision is not None and going.decision.to != found.to:
        raise UserError(f"the way back leads to {found.to} meanwhile", fix="run the same command again")
    going.decision = found
    return found


@dataclass(frozen=True, slots=True)
class SwitchStandbys:
    going: GoingBack
    name: str = "switch-standbys"
    title: str = "Lead the standbys back to the former version"
    timeout: float = 600

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        decision = await look_and_decide(context, self.going)
        changes = [Change(_sentence(act, name, decision.to)) for name, acts in decision.acts.items() for act in acts]
        return [*changes, *(Warn(one, in_plan=True) for one in _warnings(self.going, decision))]

    async def run(self, context: Context, progress: Progress) -> None:
        """A node on which it fails does not keep the others from serving. Whether anything serves is asked once more:
        it took a while to look at all the disks."""
        assert self.going.decision is not None  # noqa: S101 # `plan` has run
        await refuse_what_serves(context)
        failed: list[Exception] = []
        for name, acts in self.going.decision.acts.items():
            try:
                await _carry_out(context, name, acts)
                progress.note(f"{name} goes back to {self.going.to}")
            except (CommandFailed, Unreachable) as error:
                failed.append(error)
                progress.note(f"{name} stays as it is: {error}")
        if len(failed) == len(self.going.decision.acts):
            raise failed[0]


async def _carry_out(context: Context, name: str, acts: Sequence[Act]) -> None:
    host = context.host(context.cluster.node(name))
    for act in acts:
        arguments = [act.component, *([act.revision] if act.revision else [])]
        await host.run([SCRIPT_PATH, act.verb.value, *arguments], timeout=SCRIPT_SECONDS)


def _sentence(act: Act, node: str, to: Version) -> str:
    match act.verb:
        case Verb.SWITCH:
            return f"make {to} (revision {act.revision}) the standby of {act.component} on {node}"
        case Verb.RENEW:
            return f"put the standby of {act.component} on {node} in the place of the one that is active"
        case Verb.ACTIVATE:
            return f"activate the standby of {act.component} on {node}"


def _warnings(going: GoingBack, decision: Decision) -> list[str]:
    assert going.found is not None  # noqa: S101 # it was decided by that
    newer = [
        f"the kubelet of {name} ({version}) is newer than the API servers will be: {KUBELETS_GO_BACK}"
        for name, version in sorted({**going.found.workers, **_of_control_nodes(going.found)}.items())
        if minor_of(version) > minor_of(decision.to)
    ]
    return [
        *(f"{name} stays as it is: {why}" for name, why in sorted(decision.left.items())),
        *(
            f"{name} cannot be looked at, and goes back when it is there: {why}"
            for name, why in going.found.silent.items()
        ),
        *decision.kept,
        *newer,
    ]


def _of_control_nodes(found: Found) -> dict[str, Version]:
    return {name: seen.kubelet for name, seen in found.cluster.nodes.items() if seen.kubelet is not None}


@dataclass(frozen=True, slots=True)
class AwaitFormer:
    name: str = "await-api"
    title: str = "Wait for the API"
    timeout: float = patience.most(patience.API_STARTS)

    async def plan(self, context: Context) -> Sequence[Change]:
        return [] if await context.api_answers() else [Change("wait until the API answers")]

    async def run(self, context: Context, progress: Progress) -> None:
        try:
            await wait_for_api(context, progress)
        except TimedOut as error:
            fix = "`autarky doctor` says why the former version does not serve either; then run the same command again"
            raise TimedOut(f"{error}\n  fix: {fix}") from error


@dataclass(frozen=True, slots=True)
class AskForFormer:
    """The edit that the command makes else, so that the operator takes back what is hosted."""

    going: GoingBack
    name: str = "ask-for-former"
    title: str = "Ask for the former version"
    timeout: float = 2 * ASK_SECONDS

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(f"set spec.version of the ControlPlane to {self.going.to}")]

    async def run(self, context: Context, progress: Progress) -> None:
        async def ask() -> str | None:
            plane = await needed_control_plane(context.kube())
            if reported.wanted_version(plane) != self.going.to or reported.is_paused(plane):
                edit = reported.going_back(self.going.to)
                await context.kube().patch(API_VERSION, "ControlPlane", CONTROL_PLANE, edit)
            return None

        what = f"the ControlPlane asks for {self.going.to}"
        await poll_until(what, ask, timeout=ASK_SECONDS, progress=progress, clock=context.clock)


@dataclass(frozen=True, slots=True)
class LeadWithFormer:
    """One of each component, on the first node that does it. The node's agent withdraws it again, when a hosted one is
    there to lead; where this fails, it activates one itself, later."""

    going: GoingBack
    name: str = "lead-with-former"
    title: str = "Let level 3 of the former version lead"
    timeout: float = 600

    async def plan(self, context: Context) -> Sequence[Change]:
        assert self.going.decision is not None  # noqa: S101 # the first phase has decided, or raised
        return [Change(f"activate the standby of {component}") for component in self.going.decision.leads]

    async def run(self, context: Context, progress: Progress) -> None:
        assert self.going.decision is not None  # noqa: S101 # see `plan`
        for component, names in self.going.decision.leads.items():
            for name in names:
                try:
                    await _carry_out(context, name, [Act(Verb.ACTIVATE, component)])
                    break
                except (CommandFailed, Unreachable) as error:
                    progress.note(f"the standby of {component} is not activated on {name}: {error}")


def phases(going: GoingBack) -> tuple[SwitchStandbys | AwaitFormer | AskForFormer | LeadWithFormer, ...]:
    """The edit comes right after the first answer: from then on the operator goes on by itself."""
    return SwitchStandbys(going), AwaitFormer(), AskForFormer(going), LeadWithFormer(going)


# --- what is shown before it is asked --------------------------------------------------------------------


def rows(going: GoingBack) -> list[tuple[str, ...]]:
    """A table: what each control node's API server runs, and which former version is on its disk."""
    assert going.found is not None and going.decision is not None  # noqa: S101, PT018 # `look_and_decide` has run
    decision, found = going.decision, going.found
    table: list[tuple[str, ...]] = [("NODE", "HOSTED", "STANDBY", "BACK")]
    for name, seen in found.cluster.nodes.items():
        standby = seen.standbys[API_SERVER]
        hosted = [one for one in found.containers.get(name, ()) if one.hosted]
        running = any(one.running for one in found.containers.get(name, ()) if not one.hosted)
        state = "" if not standby.active else ", active" if running else ", active, does not run"
        back = decision.left.get(name)
        acts = decision.acts.get(name, ())
        to = next((act.revision for act in acts if act.component == API_SERVER and act.revision), standby.current)
        table.append(
            (
                name,
                _shown([one.version for one in hosted], running=any(one.running for one in hosted)),
                f"{standby.version or '?'} ({standby.current or 'none'}){state}",
                f"{decision.to} ({to})" if back is None else f"no: {back}",
            )
        )
    table += [(name, "?", "?", f"no: {why}") for name, why in sorted(found.silent.items())]
    return table


def _shown(versions: Sequence[Version | None], *, running: bool) -> str:
    if not versions:
        return "-"
    names = sorted({"?" if one is None else str(one) for one in versions})
    return ", ".join(names) + ("" if running else ", does not run")
