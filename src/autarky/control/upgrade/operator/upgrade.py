"""The controller that brings the hosted control plane to the version in the ControlPlane's spec: `decide.steps`.

Contract: one step a pass, by what is seen then, so that an operator killed anywhere goes on where the last one was.
What is wanted is in the ControlPlane's status (`status.upgrade.versions`) before the first step: a plan that is given
up goes back, also by another operator. A step changes the tag of one image, and what is recorded as applied with it; it
is judged, and rolled back, like any other rollout (`control.rollout`). With `spec.upgrade.soakSeconds` the new binaries
emulate the minor from before for so long: that the plan has had them do so is in the status (`status.upgrade.emulates`)
before the first of these steps, too, so that whoever takes the flag away knows that it is not somebody's edit; the
time is counted by `decide.soak`. `status.version` is the version that the control
plane has had completely last; a cluster of a release before has it in the record of what was applied.

On the way down a minor kubelets that follow go first: with the version noted they are ordered down, and no step is
taken until `down` waits for none. On the way up they follow when it is complete, or somewhat earlier
(`decide.steps.kubelets_may_follow`): then that is in the status first (`status.upgrade.kubelets`), and stays there
until an earlier minor is wanted, or an API server is seen that has one. Where the way down begins before it was
complete, a worker that says that it has a later kubelet than anybody ordered is not waited for.

Before its first step the cluster is looked at (`decide.checks`), again and again while something is wrong; an upgrade
that is refused begins by itself when that is corrected. While `spec.paused` is true no further step is taken; a rollout
that has begun ends, or goes back.

For the status: `unapplied`, `version`, `former`, and `of_status`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.events import report
from autarky.control.base.operator_view import View, current
from autarky.control.common import emulation
from autarky.control.common.shapes import MOST_NAMED, some
from autarky.control.common.skew import minor_of
from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import telling as telling_of_kubelets
from autarky.control.kubelet.decide import wanted as wanted_of_kubelets
from autarky.control.kubelet.decide.down import Decision as Down
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.workloads import workload
from autarky.control.status.decide import Unapplied
from autarky.control.upgrade.decide import checks, path, reported, steps
from autarky.control.upgrade.decide.observed import Finding
from autarky.control.upgrade.decide.reported import Report, State, parsed
from autarky.control.upgrade.decide.soak import SoakClock
from autarky.control.upgrade.decide.templates import with_step
from autarky.control.upgrade.observe import observe
from autarky.control.upgrade.operator import hosted, metrics
from autarky.control.upgrade.operator.hosted import NAMED, Hosted
from autarky.errors import AutarkyError
from autarky.model.components import COMPONENTS, KUBELET, OPERATOR
from autarky.model.versions import Version
from autarky.ports import Clock, Kube, Object

LOOK_SECONDS = 1.0
CHECK_SECONDS, REFUSED_SECONDS = 5.0, 30.0
"""Between two looks at the cluster before the first step: while what was found may pass, and when it was refused. Each
reads some megabytes of metrics."""
SOAK_LOOK_SECONDS = 10.0
"""Between two looks while there is nothing to do but to wait; whatever changes is looked at when it does."""
UNTIL_SHIFTS = 10.0
"""Seconds by which the end of a step must have moved to be shown."""
SUBJECT = "version"
_GOES_ON = (State.UPGRADING, State.SOAKING, State.PAUSED)


def _not_known(_wanted: Version) -> Down | None:
    return None


@dataclass(slots=True)
class _Checked:
    """What the cluster was found to be before a first step to that version, with a soak of so many seconds. erring:
    since when without a break."""

    wanted: Version
    soak: int
    at: float
    erring: float | None
    errors: Sequence[Finding]
    refused: bool

    @property
    def sentence(self) -> str:
        return "; ".join(f"{one.sentence}: {one.fix}" for one in self.errors)

    def next_in(self, now: float) -> float:
        """Seconds until the next look; not positive where that is due."""
        return self.at + (REFUSED_SECONDS if self.refused else CHECK_SECONDS) - now


@dataclass(slots=True)
class Upgrade(ClusterController):
    """down: whose kubelets are waited for before that version, as decided in this pass; None while nobody knows."""

    view: View
    kube: Kube
    clock: Clock
    rollouts: Rollouts
    down: Callable[[Version], Down | None] = _not_known
    name: ClassVar[str] = "upgrade"
    unapplied: list[Unapplied] = field(default_factory=list, init=False)
    version: Version | None = field(default=None, init=False)
    """That the control plane had last, on every node; None while that is not known."""
    former: Version | None = field(default=None, init=False)
    """That it had before; None where it has had no other."""
    versions: frozenset[Version] = field(default=frozenset(), init=False)
    """What was wanted since; none where no upgrade is under way."""
    emulated: str = field(default="", init=False)
    """The minor that the plan under way has had components emulate; "" for none."""
    kubelets: Version | None = field(default=None, init=False)
    """That kubelets may have before it is complete."""
    report: Report | None = field(default=None, init=False)
    soak: SoakClock = field(default_factory=SoakClock, init=False)
    hosted: Hosted = field(init=False)
    _checked: _Checked | None = field(default=None, init=False)
    _passed: tuple[str, ...] = field(default=(), init=False)
    """Workers whose kubelets the plan under way has gone down without."""

    def __post_init__(self) -> None:
        ClusterController.__post_init__(self)
        self.hosted = Hosted(self.view, self.clock, self.rollouts)

    @property
    def of_status(self) -> Object:
        """The part `upgrade` of the ControlPlane's status."""
        return reported.status(self.report, self.versions, self.emulated, self.soak.of_status, self.kubelets)

    def begin_term(self) -> None:
        """What an earlier leader has watched is watched again."""
        self._checked, self._passed = None, ()
        self.soak.forget()
        self.hosted.forget()

    async def reconcile(self) -> float | None:
        view, plane = self.view, self.view.control_plane
        workloads = [view.daemon_sets, view.deployments, view.replica_sets]
        sources = [view.planes, view.nodes, view.control_nodes, view.pods, *workloads]
        if plane is None:
            return None
        # Before anything else: from these the status is written, which must not forget what is under way.
        self.version, self.versions = self._runs(plane)
        wanted = reported.wanted_version(plane)
        self.former, self.emulated = reported.former_version(plane), reported.emulated(plane)
        # What is said for an earlier minor that may yet be refused stays: until that is noted nothing goes there.
        is_noted = wanted in {self.version, *self.versions}
        self.kubelets = reported.for_kubelets(plane) if is_noted else reported.said_for_kubelets(plane)
        if wanted is not None and is_noted:  # what is refused ends no soak
            self.soak.take_over(reported.soaking(plane), wanted)
        if not current(sources):
            self._checked = None
            self.soak.stand_still()
            return None
        if self.kubelets is not None and hosted.servers_have_left(view, self.kubelets):
            self.kubelets = None
        self.unapplied.clear()
        self.report = None
        if self.version is None or wanted is None or (wanted == self.version and not self.versions):
            self._checked = None
            self.soak.forget()
            return None
        return await self._towards(plane, self.version, wanted)

    def _runs(self, plane: Object) -> tuple[Version | None, frozenset[Version]]:
        """(What the control plane has had completely last, what was wanted since)"""
        noted = reported.noted_versions(plane)
        if (complete := reported.complete_version(plane)) is not None:
            return complete, noted
        if not current([self.view.daemon_sets, self.view.deployments]):
            return None, noted
        # Of an object that somebody has made again, from a saved one, the workloads say more than the record of what
        # was applied, which may be as old.
        if hosted.served(self.view) is None:
            return parsed((applied.record_of(plane) or {"spec": {}})["spec"].get("version")), noted
        lowest, later = hosted.versions_of(self.view, plane)
        return lowest, noted | later

    async def _towards(self, plane: Object, runs: Version, wanted: Version) -> float | None:
        if (why := self._refusal(plane, runs, wanted)) is not None:
            self._note("UpgradeRefused", f"version {wanted} is not applied: {why}", refused=True)
            self.report = Report(wanted, State.STOPPED if self.versions else State.REFUSED, why)
            self.soak.stand_still()
            return None
        # One that has begun goes on, and back. Another target is another plan.
        begun = self.versions and wanted in {runs, *self.versions}
        if not begun and (again := await self._check(plane, runs, wanted)) is not None:
            return again
        if not begun:
            await self.hosted.try_again(wanted, emulated=self.emulated, minor=emulation.minor_text(runs))
        self._checked = None
        return await self._go_on(plane, runs, wanted)

    async def _go_on(self, plane: Object, runs: Version, wanted: Version) -> float | None:
        soak = self._soak(plane, runs, wanted)
        known = frozenset({runs, *self.versions})
        parts = self.hosted.parts(wanted, known, emulated=self.emulated, minor=emulation.minor_text(runs))
        seen = steps.Seen(wanted, known, parts, soak)
        decision = steps.decide(seen)
        if wanted in self.versions and self.kubelets != wanted and self._may_kubelets_follow(plane, seen):
            self.kubelets = wanted
        if soak is not None and decision.step is steps.Step.SOAK:
            again = await self._wait_for_soak(plane, decision, wanted, soak)
        else:
            if soak is not None and soak.is_over:
                self.soak.ends(wanted, self.clock.monotonic())
            self.soak.stand_still()
            again = await self._act(plane, decision, wanted)
        if self.report is not None and self.report.state in _GOES_ON:
            follow = wanted > runs and wanted_of_kubelets.follows(plane)
            to_come = (*steps.to_come(seen, decision), *([KUBELET] if follow else []))
            self.report = replace(self.report, to_come=to_come)
        return again

    def _may_kubelets_follow(self, plane: Object, seen: steps.Seen) -> bool:
        """Not hosted ones: those of before would all leave at once, for what may yet go back."""
        is_hosted = wanted_of_kubelets.is_hosted(plane)
        return (
            not is_hosted and steps.kubelets_may_follow(seen) and not hosted.servers_have_left(self.view, seen.wanted)
        )

    def _refusal(self, plane: Object, runs: Version, wanted: Version) -> str | None:
        lacking = [name for name in steps.ORDER if workload(self.view, COMPONENTS[name]) is None]
        if lacking:
            return path.not_hosted(lacking)
        # A worker must not be able to hold up a way back by what it says.
        goes_back = minor_of(wanted) < minor_of(runs)
        of_nodes = hosted.kubelets(self.view, only_of_control_nodes=bool(self.versions) or goes_back)
        return path.refusal(runs, wanted, of_nodes, follow=wanted_of_kubelets.follows(plane))

    async def _check(self, plane: Object, runs: Version, wanted: Version) -> float | None:
        """None where the first step may be taken, else the seconds until the next look at the cluster."""
        before, now = self._checked, self.clock.monotonic()
        if before is None or (before.wanted, before.soak) != (wanted, reported.soak_seconds(plane)):
            before = None
        if before is None or before.next_in(now) <= 0:
            before = self._checked = await self._look(plane, runs, wanted, None if before is None else before.erring)
        if not before.errors:
            return None
        if before.refused:
            self._note("UpgradeRefused", f"version {wanted} is not applied: {before.sentence}", refused=True)
            self.report = Report(wanted, State.STOPPED if self.versions else State.REFUSED, before.sentence)
        else:
            self._note("UpgradeChecks", f"upgrade to {wanted}: not begun yet: {before.sentence}")
            self.report = Report(wanted, State.UPGRADING, f"not begun yet: {before.sentence}")
        return max(LOOK_SECONDS, before.next_in(self.clock.monotonic()))

    async def _look(self, plane: Object, runs: Version, wanted: Version, erring: float | None) -> _Checked:
        seen = await observe(self.kube, runs, wanted)
        soak = reported.soak_seconds(plane)
        found = checks.findings(replace(seen, soak=soak, emulated=self.emulated))
        if wanted == self.former and wanted < runs:  # after a way back the former one is the later one
            found = checks.on_the_way_back(found)
        if self.versions:  # the plan itself has made them; `steps` looks at them
            found = [one for one in found if one.name != "standbys"]
        now, errors = self.clock.monotonic(), [one for one in found if not one.warning]
        if not errors and found:
            said = " ".join(f"{one.sentence} ({one.fix})." for one in found)
            await self._explain(plane, "UpgradeWarnings", f"Upgrade to {wanted}: {said}", token=str(wanted))
        since = None if not errors else now if erring is None else erring
        refused = checks.refusing(found, 0.0 if since is None else now - since)
        return _Checked(wanted, soak, now, since, refused or errors, bool(refused))

    def _left(self, wanted: Version) -> Version | None:
        """What the control plane comes from. A later version that was given up counts, as after a complete way back:
        else another rollback would lead to what was left long before."""
        if self.version != wanted:
            return self.version
        given_up = max(self.versions, default=wanted)
        return given_up if given_up > wanted else self.former

    async def _act(self, plane: Object, decision: steps.Decision, wanted: Version) -> float | None:
        match decision.step:
            case steps.Step.FINISH:
                self.former = self._left(wanted)
                self.version, self.versions, self.emulated, self.kubelets = wanted, frozenset(), "", None
                self._passed = ()
                self.soak.forget()
                self.tell(decision.sentence, SUBJECT)
                await self._explain(plane, "UpgradeComplete", f"{decision.sentence[0].upper()}{decision.sentence[1:]}.")
                return None
            case steps.Step.STOP:
                bare = str(wanted).removeprefix("v")
                go_on = f"set spec.version back, or try it again with `autarky upgrade {bare}`"
                self._note("UpgradeStopped", f"upgrade to {wanted}: {decision.sentence}; {go_on}", refused=True)
                self.report = Report(wanted, State.STOPPED, decision.sentence, decision.component)
                return None
            case steps.Step.SET if reported.is_paused(plane):
                self._note("UpgradePaused", f"upgrade to {wanted}: paused before {decision.sentence}")
                self.report = Report(wanted, State.PAUSED, f"before {decision.sentence}", decision.component)
                return LOOK_SECONDS
            case steps.Step.SET if decision.component not in self.rollouts.kept:
                sentence = f"it is not known yet whether {decision.component} {wanted} was rolled back before"
                self._note("Upgrading", f"upgrade to {wanted}: {sentence}")
                self.report = Report(wanted, State.UPGRADING, sentence, decision.component)
                return LOOK_SECONDS
            case steps.Step.SET if kubelets := self._waits_for_kubelets(plane, wanted):
                self.versions |= {wanted}  # by which they are ordered down
                self._note("KubeletsGoFirst", f"upgrade to {wanted}: {kubelets[0]}")
                self.report = Report(wanted, State.UPGRADING, kubelets[0], KUBELET, kubelets[1])
                return LOOK_SECONDS
            case steps.Step.SET if wanted in self.versions and decision.emulates in ("", self.emulated):
                if not reported.bars_steps(plane):
                    await self._tell_of_passed(plane, wanted)
                    await self._set(decision, wanted)
        self.versions |= {wanted}  # in the status, before anything is changed for it
        self.emulated = self.emulated or decision.emulates  # the same
        sentence = decision.sentence + (f"; {self._passed_over}" if self._passed else "")
        self._note("Upgrading", f"upgrade to {wanted}: {sentence}")
        nodes, left = self.hosted.waits_for(decision.component) if decision.component else ((), None)
        until = None if left is None else self._until_about(plane, decision.component, self.clock.time() + left)
        self.report = Report(wanted, State.UPGRADING, sentence, decision.component, nodes, until)
        return LOOK_SECONDS

    def _waits_for_kubelets(self, plane: Object, wanted: Version) -> tuple[str, tuple[str, ...]] | None:
        """(What is to be said of it, the first nodes). None where no step lowers API servers that kubelets follow."""
        has = hosted.served(self.view)
        self._passed = ()
        if not telling_of_kubelets.is_used(plane) or has is None or minor_of(has) <= minor_of(wanted):
            return None
        found = self.down(wanted)
        if found is None:
            return "it is not known yet which kubelets have to go down first (rule 4)", ()
        self._passed = found.passed
        all_count = self.version is not None and minor_of(self.version) > minor_of(wanted)
        waits = [name for name in found.waits if all_count or name in found.by_order]
        if not waits:
            return None
        why = "".join(f"; {name}: {found.why[name]}" for name in sorted(found.why)[:MOST_NAMED])
        why += f"; {self._passed_over}" if self._passed else ""
        return f"the kubelets of {some(waits)} go down first (rule 4){why}", tuple(waits[:NAMED])

    @property
    def _passed_over(self) -> str:
        """A clause."""
        newer = "until they come down, they may be newer than the API servers"
        return f"not waited for: the kubelets of {some(self._passed)} (rule 4): {newer}"

    async def _tell_of_passed(self, plane: Object, wanted: Version) -> None:
        if self._passed:
            fix = f"`autarky node remove {self._passed[0]}`, if it does not come down"
            token = f"{wanted}-{' '.join(self._passed)}"
            message = f"Upgrade to {wanted}: {self._passed_over}: {fix}."
            await self._explain(plane, "KubeletsPassedOver", message, token, warning=True)

    def _until_about(self, plane: Object, component: str, until: float) -> float:
        """What is shown already, where it is about the same: a status that says the same is not written."""
        shown = reported.read(plane)
        if shown is not None and shown.component == component and shown.until is not None:
            return shown.until if abs(shown.until - until) < UNTIL_SHIFTS else until
        return until

    def _soak(self, plane: Object, runs: Version, wanted: Version) -> steps.Soak | None:
        seconds = reported.soak_seconds(plane)
        if not seconds or not emulation.can_soak(runs, wanted):
            return None
        return steps.Soak(emulation.minor_text(runs), seconds, self.soak.soaked(wanted, self.clock.monotonic()))

    async def _wait_for_soak(
        self, plane: Object, decision: steps.Decision, wanted: Version, soak: steps.Soak
    ) -> float | None:
        begins = self.soak.of_status is None
        shown = self.soak.count(wanted, soak.seconds, self.clock.monotonic(), self.clock.time())
        sentence = f"{decision.sentence} until about {reported.stamp(shown.until)}"
        self._note("UpgradeSoaks", sentence)
        self.report = Report(wanted, State.SOAKING, sentence)
        if begins:
            await self._explain(plane, "UpgradeSoaks", f"Upgrade: {sentence}.", token=str(wanted))
        return min(SOAK_LOOK_SECONDS, max(LOOK_SECONDS, soak.seconds - soak.soaked))

    def _note(self, reason: str, sentence: str, *, refused: bool = False) -> None:
        self.unapplied.append(Unapplied(reason, sentence, refused))
        self.tell(sentence, SUBJECT)

    # --- acting -------------------------------------------------------------------------------------------

    async def _set(self, decision: steps.Decision, wanted: Version) -> None:
        """Under the resourceVersion that was seen."""
        live = workload(self.view, COMPONENTS[decision.component])
        if live is None:
            return
        changed = self._with_step(live, decision, wanted)
        record = applied.record_of(live)
        if record is not None:
            changed = applied.with_record(changed, self._with_step(record, decision, wanted))
        await self.kube.replace(changed)
        metrics.STEPS.labels(decision.component).inc()
        await self._explain(live, "Upgraded", f"Upgrade: {decision.sentence}.", token=f"{wanted}-{decision.component}")

    def _with_step(self, obj: Object, decision: steps.Decision, wanted: Version) -> Object:
        """obj: the live one, or the record of what was applied, in which a flag of ours is as well."""
        template = obj["spec"]["template"]
        flagged = hosted.has_flag_of(template, decision.component, self.emulated)
        changed = with_step(template, decision.component, wanted, decision.emulates, flagged=flagged)
        return {**obj, "spec": {**obj["spec"], "template": changed}}

    async def _explain(self, obj: Object, reason: str, message: str, token: str = "", *, warning: bool = False) -> None:
        """A failure to write the event stops nothing."""
        token = f"{token}-{obj['metadata'].get('generation', 0)}"
        try:
            await report(
                self.kube, obj, reason, message, by=OPERATOR, token=token, now=self.clock.time(), warning=warning
            )
        except AutarkyError as error:
            self.say(f"the event about an upgrade was not written: {error}", subject=SUBJECT)
