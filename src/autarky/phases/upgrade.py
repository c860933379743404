"""Another version of Kubernetes for the control plane: its images on every node, one edit of the ControlPlane object,
and waiting until the operator has carried it out.

Contract: nothing is changed before every check that can be made from here has passed; the operator makes its own before
its first step. A command that is killed leaves an upgrade that goes on: run again, it waits for the same one. etcd and
add-ons stay as they are. Kubelets follow the control plane, or go before it on the way down a minor.

With a soak nobody waits for its end: the work is done when it has begun. `up` goes on as if its file had the version
from before, since a kubelet of the later minor would be newer than what the API servers emulate, and could not stay
when all goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autarky.control.addons import images_for_upgrade
from autarky.control.common.emulation import can_soak, minor_text
from autarky.control.common.skew import minor_of
from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import telling
from autarky.control.kubelet.decide import wanted as wanted_of_kubelets
from autarky.control.rollout.decide.failures import TRY_AGAIN
from autarky.control.upgrade.decide import checks, path, reported
from autarky.control.upgrade.decide.observed import Source
from autarky.control.upgrade.decide.reported import State
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.observe import observe
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import Problems, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.model.components import COMPONENTS
from autarky.model.versions import Version
from autarky.payload import Payload, Release, get_payload, image_reference, load_release, needs
from autarky.phases import hosted_kubelets, kubelets
from autarky.phases.context import Context, for_each_or_left_out, left_out_since
from autarky.phases.hosts import look
from autarky.phases.prepare import SEEN_WITHIN, import_images, present_images
from autarky.phases.supply import GROUPS
from autarky.phases.version_check import needed_control_plane, version_in
from autarky.ports import Object, Progress
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import SYSTEM

WITHIN = 1800.0
"""Seconds for the images of one worker that joined before; it is left out after that."""
STILL = 900.0
"""Seconds without a step, after which the command gives up waiting: a step that is not healthy goes back before."""
TIMEOUT = 3600.0
LOOKS_AGAIN = 60.0
"""Seconds within which the operator looks again at what it has refused: each half minute, or when a node changes."""
CHECK_SECONDS = 2.0
"""Between two looks at a cluster in which something is wrong that may pass."""


@dataclass(frozen=True, slots=True)
class FindCluster:
    """For a command that does nothing else: which version the cluster runs, and which nodes answer."""

    name: str = "find-cluster"
    title: str = "Look at the cluster"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Warn]:
        """A worker whose host is of another cluster, by its own word, is left out: no worker keeps an upgrade from
        beginning."""
        await look(context, leave_out_workers=True)
        if not await context.api_answers():
            raise Unreachable(
                "the API does not answer, and an upgrade is carried out through it\n"
                "  fix: `autarky doctor` says why it does not"
            )
        return left_out_since(context, ())

    async def run(self, context: Context, progress: Progress) -> None:
        """Never reached: nothing is to be changed."""


@dataclass(frozen=True, slots=True)
class UpgradeControlPlane:
    """version: None for that of the file, where the control plane has another one (`up`). soak: the seconds for which a
    later minor emulates the one before it; None for what the file says, or the ControlPlane."""

    version: Version | None = None
    soak: int | None = None
    name: str = "upgrade-control-plane"
    title: str = "Upgrade the control plane"
    timeout: float = 5 * TIMEOUT

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        wanted = self._wanted(context)
        if wanted is None:
            return []
        plane, before = await needed_control_plane(context.kube()), set(context.absent)
        found = reported.read(plane)
        if found is not None and found.wanted == wanted and found.state is State.COMPLETE:
            return [] if self.version is None else await self._of_kubelets(context, plane)
        soak = self._soak(context, plane)
        if _soaks(plane, wanted) and soak == reported.soak_seconds(plane):
            return [Warn(self._leave_soaking(context, plane, wanted))]
        warnings = await refuse(context, plane, wanted, soak=soak)
        release = load_release(wanted)
        lacking = await _lacking(context, release)
        builds = [f"build {name}" for name in needs(release, GROUPS)] if lacking else []
        imports = [f"import {len(names)} images of Kubernetes {wanted} on {node}" for node, names in lacking.items()]
        runs = reported.parsed(version_in(plane))
        soaks = _first_soaks(runs, wanted, soak) if runs is not None else ""
        steps = [f"upgrade the control plane from {version_in(plane)} to {wanted}{soaks}"]
        if self.soak and not soaks:
            warnings.append(Warn(f"there is no soak: from {version_in(plane)} to {wanted} there is nothing to emulate"))
        return [*map(Change, builds + imports + steps), *warnings, *left_out_since(context, before)]

    async def run(self, context: Context, progress: Progress) -> None:
        wanted = self._wanted(context)
        if wanted is None:
            return
        refused = _said_against(await needed_control_plane(context.kube()), wanted)
        await _bring_images(context, load_release(wanted), progress)
        kubelets_before = None if self.version is None else await kubelets.look(context, live_only=True)
        plane = await needed_control_plane(context.kube())
        await ask_for(context, wanted, self._soak(context, plane))
        await _have_it_tried_again(context, plane, wanted)
        if await follow(context, wanted, progress, refused) is State.SOAKING:
            sentence = self._leave_soaking(context, await needed_control_plane(context.kube()), wanted)
            if self.version is None:
                progress.note(sentence)
            return
        if self.version is not None:  # `up` has them followed in the end
            await kubelets.until_current(context, progress, live_only=True, before=kubelets_before)
            await hosted_kubelets.until_followed(context, progress)
            await _tell_of_kubelets(context, wanted, progress)

    async def _of_kubelets(self, context: Context, plane: Object) -> list[Change | Warn]:
        """What they have yet to get, also since it has failed before; `up` looks at them itself."""
        found = await kubelets.planned(context, live_only=True)
        is_more = any(isinstance(one, Change) for one in found)
        if not is_more and await hosted_kubelets.are_behind(context.kube(), plane):
            return [Change("have the hosted kubelets follow"), *found]
        return found

    def _soak(self, context: Context, plane: Object) -> int:
        """The seconds that are to be in the spec: what is there already stays where nobody has named others since."""
        now = reported.soak_seconds(plane)
        if self.version is not None:
            return now if self.soak is None else self.soak
        record = (applied.record_of(plane) or {"spec": {}})["spec"].get("upgrade") or {}
        in_file = context.cluster.soak_seconds
        return now if in_file == record.get("soakSeconds") else in_file or 0

    def _leave_soaking(self, context: Context, plane: Object, wanted: Version) -> str:
        """What there is to say of it. What comes after this phase is done as for the version from before."""
        runs, found = reported.parsed(version_in(plane)), reported.soaking(plane)
        until = "" if found is None else f" until about {reported.stamp(found.until)}"
        before = "the minor before" if runs is None else minor_text(runs)
        bare = str(wanted).removeprefix("v")
        context.soaks = (
            f"the control plane is of version {wanted} and emulates {before}{until}, when it is raised by itself; at"
            f" once: `autarky upgrade {bare} --soak 0`; back to {runs}: `autarky upgrade rollback`"
        )
        if self.version is None and runs is not None:
            context.upgrade_from = None
            context.use_version(runs)
            context.soaks += "; kubelets stay until it is raised: run `autarky up` again then"
        return context.soaks

    def _wanted(self, context: Context) -> Version | None:
        asked = context.cluster.kubernetes_version if context.upgrade_from is not None else None
        return self.version if self.version is not None else asked


# --- before the first change ---------------------------------------------------------------------------


async def refuse(context: Context, plane: Object, wanted: Version, *, soak: int = 0) -> list[Warn]:
    """UserError where the control plane cannot go to that version; else what there is to say against it. What may pass
    by itself is given its time. soak: the seconds for which the minor that runs is to be emulated."""
    runs = reported.parsed(version_in(plane))
    if runs is None:
        raise UserError(
            "the ControlPlane object does not say which version the control plane has",
            fix="run `autarky up`, which brings the operator",
        )
    of_nodes = await kubelets.versions(context)
    if (why := path.refusal(runs, wanted, of_nodes, follow=wanted_of_kubelets.follows(plane))) is not None:
        is_of_kubelets = path.refusal(runs, wanted, {}) is None
        raise _cannot(runs, wanted, [UserError(why, fix=_ask_first(plane, wanted) if is_of_kubelets else "")])
    if reported.noted_versions(plane):  # one that has begun goes on, and back
        return []
    began = context.clock.monotonic()
    while True:
        seen = await observe(context.kube(), runs, wanted)
        # Images are this command's own affair.
        found = [one for one in checks.findings(replace(seen, soak=soak)) if one.name != "images"]
        if wanted == reported.former_version(plane) and wanted < runs:  # after a way back it is the later one
            found = checks.on_the_way_back(found)
        lacking = [name for name in ORDER if name not in seen.workloads and Source.WORKLOADS not in seen.unseen]
        errors = [UserError(path.not_hosted(lacking))] if lacking else []
        errors += [
            UserError(f"{one.name}: {one.sentence}", fix=one.fix)
            for one in checks.refusing(found, context.clock.monotonic() - began)
        ]
        if errors:
            raise _cannot(runs, wanted, errors)
        if all(one.warning for one in found):
            return [Warn(f"{one.name}: {one.sentence}; {one.fix}") for one in found]
        await context.clock.sleep(CHECK_SECONDS)


def _ask_first(plane: Object, wanted: Version) -> str:
    """What comes before `up` with that version in the file, where the file had it when it was applied last: such a file
    is followed by what was asked for through the API. Empty where it is a new one, or is asked for already."""
    record = (applied.record_of(plane) or {"spec": {}})["spec"].get("version")
    if record != str(wanted) or reported.wanted_version(plane) == wanted:
        return ""
    edit = f"""`kubectl patch controlplane cluster --type=merge -p '{{"spec":{{"version":"{wanted}"}}}}'`"""
    ask = "`autarky upgrade rollback`" if reported.goes_back_to(plane) == wanted else edit
    return f"{wanted} was in the file before: ask for it first, by {ask}; then `autarky up` brings back all of it"


def _cannot(runs: Version, wanted: Version, why: Sequence[UserError]) -> Problems:
    return Problems(f"the control plane cannot be upgraded from {runs} to {wanted}", why)


# --- images ----------------------------------------------------------------------------------------------


async def _lacking(context: Context, release: Release) -> dict[str, list[str]]:
    """Node → the names of the images that it lacks, by reference; nodes that lack none are left out."""
    wanted = {name: image_reference(release, name) for name in images_for_upgrade(context.cluster)}

    async def of(node: Node) -> list[str]:
        present = await present_images(context.host(node)) or {}
        return [name for name, reference in wanted.items() if reference not in present]

    nodes = context.present(context.cluster.nodes)
    found = await for_each_or_left_out(context, nodes, of, seconds=SEEN_WITHIN)
    return {name: lacks for name, lacks in found.items() if lacks}


async def _bring_images(context: Context, release: Release, progress: Progress) -> None:
    lacking = await _lacking(context, release)
    if not lacking:
        return
    payload: Payload = await get_payload(release, progress, groups=GROUPS)

    async def one(node: Node) -> None:
        await import_images(context.host(node), [payload.images[name] for name in lacking[node.name]], progress)
        progress.note(f"{node.name} has the images of Kubernetes {release.kubernetes}")

    nodes = [node for node in context.cluster.nodes if node.name in lacking]
    await for_each_or_left_out(context, nodes, one, progress, seconds=WITHIN)


# --- the edit, and what follows from it ------------------------------------------------------------------


async def ask_for(context: Context, version: Version, soak: int | None = None) -> None:
    """The edit that `kubectl patch` makes, and which nodes have the images, if none was left out. soak: seconds; None
    leaves what is there."""
    edit: Object = {"spec": {"version": str(version)}}
    if soak is not None and soak != reported.soak_seconds(await needed_control_plane(context.kube())):
        edit["spec"]["upgrade"] = {"soakSeconds": soak}
    edit["metadata"] = {"annotations": await _placed(context, version)}
    await context.kube().patch(API_VERSION, "ControlPlane", CONTROL_PLANE, edit)


async def _placed(context: Context, version: Version) -> Object:
    """Nothing where a node was left out, or is not in the file: nobody has brought it the images."""
    live = await context.kube().list("v1", "Node")
    known = {node.name for node in context.cluster.nodes}
    if context.absent or any(node["metadata"]["name"] not in known for node in live):
        return reported.not_placed()
    return reported.placed(version, live)


async def follow(context: Context, wanted: Version, progress: Progress, refused: str = "") -> State:
    """Wait until the operator has brought the control plane to that version, or has begun a soak of it; which of the
    two. UserError where it has stopped, or somebody has asked for another one meanwhile. refused: what it has said
    against that version before this command has changed anything, which it is given time to look at again."""
    ended = State.COMPLETE
    began = context.clock.monotonic()
    named: set[str] = set()

    async def look_again() -> NotYet | None:
        nonlocal ended
        plane = await needed_control_plane(context.kube())
        asked, found = reported.wanted_version(plane), reported.read(plane)
        if asked != wanted:
            raise UserError(f"somebody has asked for version {asked} meanwhile", fix="`autarky upgrade status`")
        if found is None or (found.state is State.REFUSED and not _is_current(plane)):
            return NotYet("the operator has not begun")
        again = found.state in (State.REFUSED, State.STOPPED) and found.message == refused
        if again and context.clock.monotonic() < began + LOOKS_AGAIN:
            return NotYet(found.message)
        _raise_if_ended(found)
        if found.component and found.component not in named:
            named.add(found.component)
            progress.note(found.message)
        ended = State.SOAKING if _soaks(plane, wanted) else State.COMPLETE
        done = found.state is State.COMPLETE or ended is State.SOAKING
        return None if done else NotYet(found.message, come=come_to(plane, found.component))

    what = f"the control plane is of version {wanted}"
    await poll_until(what, look_again, timeout=TIMEOUT, still=STILL, progress=progress, clock=context.clock)
    return ended


def come_to(plane: Object, component: str) -> tuple[str, int]:
    """How far it is: what is changed now, and, since kubelets that come down first take their time one after the other,
    how many of them have got there."""
    kubelets = telling.read(plane)
    return component, 0 if kubelets is None else sum(pool.done for pool in kubelets.pools)


def _said_against(plane: Object, wanted: Version) -> str:
    """Why the operator refuses that version, which is asked for already, or has stopped on the way there; empty where
    it does neither."""
    found = reported.read(plane)
    says = found is not None and found.wanted == wanted and found.state in (State.REFUSED, State.STOPPED)
    return found.message if found is not None and says else ""


async def _have_it_tried_again(context: Context, plane: Object, wanted: Version) -> None:
    """Whoever asks for a version again whose upgrade has stopped says that the step which was rolled back may work
    now."""
    found = reported.read(plane)
    if found is None or (found.wanted, found.state) != (wanted, State.STOPPED) or found.component not in ORDER:
        return
    kind = COMPONENTS[found.component].kind
    edit = {"metadata": {"annotations": {TRY_AGAIN: "now"}}}
    await context.kube().patch("apps/v1", kind, found.component, edit, namespace=SYSTEM)


def _soaks(plane: Object, wanted: Version) -> bool:
    """Whether the operator says so of the spec as it is now."""
    found = reported.read(plane)
    soaks = found is not None and found.wanted == wanted and found.state is State.SOAKING
    return soaks and _is_current(plane) and reported.soak_seconds(plane) > 0


def _is_current(plane: Object) -> bool:
    """Whether the operator has seen the spec as it is."""
    seen = (plane.get("status") or {}).get("observedGeneration") or 0
    return bool(seen >= plane["metadata"].get("generation", 0))


def _first_soaks(runs: Version, wanted: Version, soak: int) -> str:
    """A clause, empty where nothing is emulated."""
    if not soak or not can_soak(runs, wanted):
        return ""
    size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "min"), (1, "s")) if soak % size == 0)
    return f", which emulates {minor_text(runs)} for {soak // size} {unit} first"


def _raise_if_ended(found: reported.Report) -> None:
    wanted = str(found.wanted).removeprefix("v")
    if found.state is State.REFUSED:
        raise UserError(
            f"version {found.wanted} is refused, and nothing was changed: {found.message}",
            fix=f"correct that, and the upgrade begins by itself; `autarky upgrade abort` gives {wanted} up",
        )
    if found.state is State.STOPPED:
        raise UserError(
            f"the upgrade to {found.wanted} has stopped: {found.message}",
            fix=f"`autarky upgrade abort` takes everything back; or correct that, and `autarky upgrade {wanted}` again",
        )
    if found.state is State.PAUSED:
        raise UserError(f"the upgrade is paused {found.message}", fix="`autarky upgrade resume`")


async def _tell_of_kubelets(context: Context, wanted: Version, progress: Progress) -> None:
    """Those that do not follow by themselves."""
    older = {
        name: version for name, version in (await kubelets.versions(context)).items() if version not in (None, wanted)
    }
    if older and context.upgrade_from is None:
        names = ", ".join(sorted(older)[:3]) + (f" and {len(older) - 3} more" if len(older) > 3 else "")
        least = min(one for one in older.values() if one is not None)
        behind = "" if minor_of(least) >= minor_of(wanted) else ", which may stay for three minors"
        progress.note(f"kubelets of another version: {names} ({least}){behind}")
