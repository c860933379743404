"""The version of a cluster whose ControlPlane object is gone: hosts' markers have that of the last `up`, which may be
from before an upgrade that was made through the API.

Contract: only looks. `up` makes the object again, with the version of its file: so that has to be what runs, else the
new value would reach all components at once. Other commands follow what runs.
"""

from __future__ import annotations

from autarky.control.cluster_file.decide import hosted_versions
from autarky.control.cluster_file.decide.hosted_versions import Hosted
from autarky.control.common import emulation
from autarky.control.common.shapes import image_of
from autarky.control.upgrade.decide.steps import ORDER
from autarky.errors import UserError
from autarky.model.components import COMPONENTS
from autarky.model.versions import Version
from autarky.phases.context import Context
from autarky.render.values import SYSTEM


async def settle(context: Context, asked: Version) -> bool:
    """Whether the workloads say what runs: then it is followed, or is what is asked for; or UserError."""
    hosted = await _hosted(context)
    found = hosted_versions.runs(hosted)
    if found is None:
        return False
    if found.version != asked and context.known is not None and not context.upgrades:
        context.use_version(found.version)
        return True
    refuse(context, hosted, asked)
    return True


async def refuse_others(context: Context) -> None:
    """UserError where the workloads are of another version than ours."""
    refuse(context, await _hosted(context), context.cluster.kubernetes_version)


def refuse(context: Context, hosted: list[Hosted], asked: Version) -> None:
    """UserError where the object would be made again with another version than runs."""
    found = hosted_versions.runs(hosted)
    if found is None:
        return
    gone, bare = "the cluster has no ControlPlane object", str(found.version).removeprefix("v")
    in_file = f'with kubernetesVersion: "{bare}" in the file, which makes the object again'
    if context.upgrades and (unsettled := hosted_versions.unsettled(hosted)) is not None:
        what, steps = unsettled
        raise UserError(
            f"{gone}, which was deleted in the middle of an upgrade: {what}",
            fix=f"{steps}; each when the one before is available. Then run `autarky up` {in_file}",
        )
    if found.version != asked:
        raise UserError(
            f"{gone}, and runs Kubernetes {found.version}, as {found.source} says; the file says {asked}",
            fix=f"run `autarky up` {in_file}; to {asked} from there: `autarky upgrade {str(asked).removeprefix('v')}`",
        )


async def _hosted(context: Context) -> list[Hosted]:
    found = []
    for name in ORDER:
        kind = COMPONENTS[name].kind
        live = await context.kube().get("apps/v1", kind, name, SYSTEM)
        if live is None:
            continue
        template = live["spec"]["template"]
        is_ours = emulation.FLAG in context.cluster.extra_args.get(name, {})
        emulates = "" if is_ours else ", ".join(emulation.given(template, name))
        found.append(Hosted(name, kind, image_of(template, name), emulates))
    return found
