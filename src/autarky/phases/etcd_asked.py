"""Which version and which arguments of etcd's members are asked for: by the ControlPlane object, as it is once the file
is applied.

Contract: only looks. A file that names no version leaves etcd at the one that the cluster has: the version that comes
with another release of Kubernetes, or of autarky, is for new clusters. A version that etcd cannot be moved to is
refused before anything is touched, where it is the file that asks for it; the operator refuses what edits ask for.
Where level 1 is not hosted, what the static pods on the hosts run counts: no object has to be right about that.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from autarky.control.etcd.decide import template as etcd_template
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.upgrade.decide import reported
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.cluster import Level
from autarky.model.components import ETCD
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.payload import known_etcd_versions
from autarky.phases import ownership
from autarky.phases.context import Context
from autarky.phases.etcd_pods import static_pods
from autarky.phases.version_check import live_control_plane
from autarky.ports import Object
from autarky.render.values import SYSTEM, Inputs

FIELD = "spec.etcd.version"


@dataclass(frozen=True, slots=True)
class Asked:
    """plane: the ControlPlane as the API has it, None without one; applied: as it is once the file is applied. live:
    the ConfigMap with the template, None without one."""

    plane: Object | None
    applied: Object
    live: Object | None

    @property
    def request(self) -> etcd_template.Request:
        return etcd_template.request(self.applied)

    @property
    def is_new(self) -> bool:
        """Whether the file asks for something, and the object does not yet."""
        return self.plane is None or etcd_template.request(self.plane) != self.request

    @property
    def is_new_version(self) -> bool:
        """The same of the version."""
        return self.plane is None or etcd_template.request(self.plane).version != self.request.version

    @property
    def base(self) -> Object | None:
        """The template without any requests, as `up` wrote it."""
        return None if self.live is None else etcd.spec_in(self.live, etcd.TEMPLATE_KEY)

    @property
    def runs(self) -> Object | None:
        """The template that all members ran last; until the operator has noted one, what they were started with."""
        keys = (etcd.SETTLED_KEY, etcd.IN_FORCE_KEY, etcd.TEMPLATE_KEY)
        found = (None if self.live is None else etcd.spec_in(self.live, key) for key in keys)
        return next((spec for spec in found if spec is not None), None)

    @property
    def wanted(self) -> Object | None:
        return None if self.base is None else etcd_template.effective(self.base, self.request)


async def look(context: Context) -> Asked:
    kube = context.kube()
    plane, live = await live_control_plane(kube), await kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
    return Asked(plane, ownership.as_applied(context, plane), live)


async def version(context: Context) -> Version | None:
    """Of etcd, as asked for; None where that is not known, and for an etcd outside of the cluster."""
    if context.cluster.external_etcd is not None or not await context.api_answers():
        return None
    found = await look(context)
    if found.request.version is not None:
        return reported.parsed(found.request.version)
    numbers = etcd_template.version_of(found.base)
    return None if numbers is None else Version(*numbers)


async def with_own_image(context: Context, inputs: Inputs) -> Inputs:
    """For the template in the API, which keeps the version that it was made with: the ControlPlane asks for others."""
    if context.moves_etcd or inputs.cluster.external_etcd is not None:
        return inputs
    live = await context.kube().get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
    base = None if live is None else etcd.spec_in(live, etcd.TEMPLATE_KEY)
    if base is None:
        return inputs
    return replace(inputs, images={**inputs.images, ETCD: str(base["containers"][0]["image"])})


# --- what is refused ---------------------------------------------------------------------------------------------


async def refuse_impossible(context: Context) -> None:
    """UserError where the file asks for a version that etcd cannot be moved to from the one that it has."""
    if context.moves_etcd or context.cluster.external_etcd is not None:
        return
    if context.cluster.self_hosted > Level.ETCD:
        asked = context.cluster.etcd_version
        runs = [] if asked is None else await _on_hosts(context)
        _refuse(min(runs, default=None), None if asked is None else (asked.major, asked.minor, asked.patch))
        return
    if not await context.api_answers():
        return
    with suppress(Unreachable, ApiError):
        found = await look(context)
        if found.is_new_version:
            _refuse(etcd_template.version_of(found.runs), etcd_template.version_of(found.wanted))


def _refuse(runs: etcd_template.Numbers | None, asked: etcd_template.Numbers | None) -> None:
    why = etcd_template.step_refused(runs, asked)
    if why is None or runs is None or asked is None:
        return
    first = etcd_template.stepping_stone(runs, asked, _numbers(known_etcd_versions()))
    takes = "stays as it is with" if first == runs else "goes there by steps, and first to"
    fix = f'etcd {takes} version: "{etcd_template.text_of(first)}" in spec.etcd of the file'
    raise UserError(f"the file asks for another version of etcd than this one can have: {why}", where=FIELD, fix=fix)


async def _on_hosts(context: Context) -> list[etcd_template.Numbers]:
    """What the members run whose hosts answer. Those of the file only: of a worker nobody knows whether it has one."""
    found = []
    for node in context.present(context.cluster.control_nodes):
        for content in (await static_pods(context.host(node))).values():
            with suppress(ValueError, KeyError, TypeError):
                found.append(etcd_template.version_of(parsed(content)["spec"]))
    return [numbers for numbers in found if numbers is not None]


def _numbers(versions: Iterable[Version]) -> list[etcd_template.Numbers]:
    return [(one.major, one.minor, one.patch) for one in versions]
