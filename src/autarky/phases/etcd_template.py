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
from autarky.phases.context import Context
from autarky.phases.version_check import live_control_plane
from autarky.ports import Object, Progress
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM

FIX = "correct spec.extraArgs.etcd in the file, or spec.etcd of the ControlPlane, and run `autarky up` again"


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
    kube = context.kube()
    plane, live = await live_control_plane(kube), await kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
    base = None if live is None else etcd.spec_in(live, etcd.TEMPLATE_KEY)
    if plane is None or live is None or base is None:
        return None
    wanted = etcd_template.effective(base, etcd_template.request(plane))
    _refuse_given_up(plane, live, wanted)
    in_force = etcd.spec_in(live, etcd.IN_FORCE_KEY)
    if in_force is None or not etcd_template.same(in_force, wanted):
        return "the operator has not taken the template of etcd's members over"
    return await _members_left(context, etcd_template.revision(in_force))


def _refuse_given_up(plane: Object, live: Object, wanted: Object) -> None:
    condemned = etcd.spec_in(live, etcd.CONDEMNED_KEY)
    if condemned is not None and etcd_template.same(condemned, wanted):
        why = (live.get("data") or {}).get(etcd.WHY_KEY, "a member was not healthy with it")
        raise UserError(f"etcd was rolled back, and runs as before: {why}", fix=FIX)
    for condition in (plane.get("status") or {}).get("conditions") or []:
        seen = condition.get("observedGeneration", 0) >= plane["metadata"].get("generation", 0)
        if seen and condition.get("reason") == "EtcdTemplateRefused":
            raise UserError(f"etcd runs as before: {condition.get('message', '')}", fix=FIX)


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
    nobody: who changes has said so before."""
    waiting = []
    for obj in filter(should_be_member, await _members(context)):
        status = obj.get("status") or {}
        if status.get("failedRevision") == revision:
            why = status.get("failure") or "it is not healthy with the present template"
            raise UserError(f"the member of etcd on {obj['metadata']['name']} runs as before: {why}", fix=FIX)
        if status.get("revision", revision) != revision:
            waiting.append(str(obj["metadata"]["name"]))
    return f"{', '.join(sorted(waiting))} is not made from the present template yet" if waiting else None
