"""Waiting until etcd's members are made from the template that is asked for, where level 1 is hosted: the operator and
the node agents change them, one at a time.

Contract: nothing is changed here. A template that is refused, or that a member was not healthy with, is an error with
the reason; the members run as before then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.etcd.decide import template as etcd_template
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND, should_be_member
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError, UserError
from autarky.model.cluster import Level
from autarky.phases import etcd_asked
from autarky.phases.context import Context
from autarky.ports import Object, Progress
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM

FIX = "correct spec.extraArgs.etcd in the file, or spec.etcd there or of the ControlPlane, and run `autarky up` again"


@dataclass(frozen=True, slots=True)
class AwaitEtcd:
    name: str = "await-etcd"
    title: str = "Wait for etcd's members"
    timeout: float = 1800

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not await context.api_answers() or (left := await _left(context)) is None:
            return []
        if away := await _members_away(context):
            return [Warn(f"etcd: {left}: no member is changed while {', '.join(away)} does not answer", in_plan=True)]
        return [Change(f"wait: {left}")]

    async def run(self, context: Context, progress: Progress) -> None:
        async def look() -> str | None:
            return None if await _members_away(context) else await _left(context)

        what = "etcd's members are made from the present template"
        await poll_until(what, look, timeout=self.timeout, progress=progress, clock=context.clock)


async def is_changed_by_agents(context: Context) -> bool:
    """Whether the operator says what etcd's members are made from, so that `up` leaves them alone."""
    if context.cluster.self_hosted > Level.ETCD or not await context.api_answers():
        return False
    live = await context.kube().get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
    return live is not None and etcd.spec_in(live, etcd.IN_FORCE_KEY) is not None


async def _left(context: Context) -> str | None:
    """What is not done, as a clause; None where nothing is, or etcd is not changed this way."""
    if context.cluster.self_hosted > Level.ETCD or context.cluster.external_etcd is not None:
        return None
    asked = await etcd_asked.look(context)
    plane, live, wanted = asked.plane, asked.live, asked.wanted
    if plane is None or live is None or wanted is None:
        return None
    _refuse_given_up(live, wanted)
    if not asked.is_new:
        _refuse_refused(plane)
    in_force = etcd.spec_in(live, etcd.IN_FORCE_KEY)
    if in_force is None or not etcd_template.same(in_force, wanted):
        return _not_begun(in_force, wanted)
    if etcd.spec_in(live, etcd.CONDEMNED_KEY) is not None:
        return "the operator has not forgotten yet what went back"
    return await _members_left(context, etcd_template.revision(in_force))


def _not_begun(in_force: Object | None, wanted: Object) -> str:
    before, after = etcd_template.version_of(in_force), etcd_template.version_of(wanted)
    if before is None or after is None or before == after:
        return "the operator has not taken the template of etcd's members over"
    step = f"from {etcd_template.text_of(before)} to {etcd_template.text_of(after)}"
    return f"etcd goes {step}, one member after the other: the operator has not begun"


def _refuse_given_up(live: Object, wanted: Object) -> None:
    condemned = etcd.spec_in(live, etcd.CONDEMNED_KEY)
    if condemned is not None and etcd_template.same(condemned, wanted):
        why = (live.get("data") or {}).get(etcd.WHY_KEY, "a member was not healthy with it")
        raise UserError(f"etcd was rolled back, and runs as before: {why}", fix=_fix(live, wanted))


def _fix(live: Object, wanted: Object) -> str:
    """A line with a version that is only taken out of the file leaves the same version asked for."""
    runs = etcd_template.version_of(etcd.spec_in(live, etcd.IN_FORCE_KEY))
    again = "once the cause is gone, run `autarky up`"
    if runs is None or runs == etcd_template.version_of(wanted):
        return f"{FIX}; or, {again} with the former ones, and then with these again"
    stays = f'to stay with it, write version: "{etcd_template.text_of(runs)}" into spec.etcd of the file'
    return f"{stays}; to try the other one, {again} with that, and then with the other one again"


def _refuse_refused(plane: Object) -> None:
    if (why := refusal(plane)) is not None:
        raise UserError(f"etcd runs as before: {why}", fix=FIX)


def refusal(plane: Object) -> str | None:
    """Why the operator does not follow what this ControlPlane asks for; None where it has not said so."""
    for condition in (plane.get("status") or {}).get("conditions") or []:
        seen = condition.get("observedGeneration", 0) >= plane["metadata"].get("generation", 0)
        if seen and condition.get("reason") == "EtcdTemplateRefused":
            return str(condition.get("message", ""))
    return None


async def _members_away(context: Context) -> list[str]:
    """The members on hosts that do not answer: the others are changed when they serve, which is not waited for."""
    found = [obj["metadata"]["name"] for obj in await _members(context) if should_be_member(obj)]
    return sorted(name for name in found if name in context.absent)


async def _members(context: Context) -> Sequence[Object]:
    try:
        return await context.kube().list(API_VERSION, KIND)
    except ApiError as error:
        if error.status != 404:
            raise
        return ()


async def _members_left(context: Context, revision: str) -> str | None:
    """A member of which its agent has never said what it is made from, as right after a first `up`, is waited for by
    nobody: who changes has said so before. A second member that stands in for the only one is gone at the end."""
    waiting, seconds = [], []
    for obj in filter(should_be_member, await _members(context)):
        status = obj.get("status") or {}
        if status.get("failedRevision") == revision:
            why = status.get("failure") or "it is not healthy with the present template"
            raise UserError(f"the member of etcd on {obj['metadata']['name']} runs as before: {why}", fix=FIX)
        if status.get("revision", revision) != revision:
            waiting.append(str(obj["metadata"]["name"]))
        elif status.get("second"):
            seconds.append(str(obj["metadata"]["name"]))
    if waiting:
        return f"{', '.join(sorted(waiting))} is not made from the present template yet"
    return f"a second member still stands in for {', '.join(sorted(seconds))}" if seconds else None
