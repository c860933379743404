"""Another version of Kubernetes in the file than the cluster runs: the control plane is upgraded first, by the
operator, and a kubelet that is newer than the API server breaks rule 4 at the next start of its host.

Contract: a file that has not changed since it was applied is followed by an upgrade that somebody has made through the
API. A file with a new version asks for an upgrade, which only `up` makes; every other command is refused. So does a
file whose version is asked for through the API as well: a rollback that is under way, which `up` takes part in. Only
looks.
What the API says counts first, by the ControlPlane object, or where that is gone by the workloads (`hosted_version`);
while it is down, the hosts' markers; where these are of a release that noted no
version, the kubelet and the standby on the hosts' disks (`control.cluster_file.decide.running_version`).

Danger: a worker may be compromised, and the fix that a refusal names has all hosts prepared for the version that it
reported. So workers count only where no control node says anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from autarky.control.backup.decide.written_by import STANDBY_POD, of_standby
from autarky.control.cluster_file.decide import running_version
from autarky.control.cluster_file.decide.running_version import Runs
from autarky.control.common.shapes import within
from autarky.control.common.skew import minor_of
from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import hosted
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests import hosted as hosted_files
from autarky.control.slots import manifests as slots
from autarky.control.upgrade.decide import reported
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.model.components import OPERATOR
from autarky.model.defaults import had
from autarky.model.versions import Version
from autarky.phases import hosted_version, kept_file
from autarky.phases.context import Context, for_each
from autarky.ports import Host, Kube, Object
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import SYSTEM

_UPTIME = "/proc/uptime"


async def settle_version(context: Context) -> None:
    """Follow what the cluster runs, or note that it is to be upgraded, or UserError; nothing where no host and no API
    says what runs. Foreign hosts must have been refused before."""
    asked = context.version_in_file or context.cluster.kubernetes_version
    plane, says = await _live_plane(context)
    found = running_version.by_the_api(None if plane is None else version_in(plane))
    if found is not None and plane is not None:
        if found.version != asked and is_followed(context, plane, asked):
            context.use_version(found.version)
        elif found.version != asked and context.upgrades:
            _refuse_stale(context, plane, found.version, asked)
            context.upgrade_from = found.version
        else:
            refuse_other_than(found, asked)
        return
    if says and plane is None and await _settled_by_workloads(context, asked):
        return
    found = await _by_hosts(context, context.cluster.control_nodes)
    if found is not None and found.version != asked and context.known is not None:
        context.use_version(found.version)  # the file that is kept here may be older than an upgrade
        return
    # A control node made by its label is among these: without the API only its own word says so.
    refuse_other_than(found or await _by_hosts(context, context.cluster.workers), asked)


def is_followed(context: Context, plane: Object, asked: Version) -> bool:
    """Whether the file says what was applied last: then another version was asked for through the API. To `up` not
    where that version is asked for again: on the way there, nothing may go on as for the version that is left."""
    record = applied.record_of(plane)
    is_under_way = context.upgrades and reported.wanted_version(plane) == asked
    unchanged = record is not None and record["spec"].get("version") == str(asked)
    return not context.take_ownership and unchanged and not is_under_way


def _refuse_stale(context: Context, plane: Object, runs: Version, asked: Version) -> None:
    """UserError where another machine has applied another version since, of which this one has never known: whoever
    applies the file here may mean anything in it but the version, which is the one that it has had all along."""
    record = applied.record_of(plane)
    since = reported.parsed(within(record, "spec", "version"))
    here = {one.version for one in map(had, kept_file.kept(context.directory)) if one is not None}
    if context.take_ownership or reported.wanted_version(plane) == asked:
        return
    if since is not None and since != asked and here == {asked}:
        bare, ours = (str(version).removeprefix("v") for version in (runs, asked))
        raise UserError(
            f"another machine has changed the cluster to Kubernetes {since}, and it runs {runs}; the file still has the"
            f" {asked} that this machine applied before",
            fix=f'set kubernetesVersion: "{bare}" in the file; or change the cluster: `autarky upgrade {ours}`',
        )


def refuse_other_than(found: Runs | None, asked: Version) -> None:
    if found is not None and found.version != asked:
        raise UserError(
            f"the cluster runs Kubernetes {found.version}, as {found.source} says, and the file says {asked}",
            fix=f'set kubernetesVersion: "{str(found.version).removeprefix("v")}" in the file; or upgrade the cluster'
            f" first: `autarky upgrade {str(asked).removeprefix('v')}`",
        )


async def refuse_newer_kubelet(context: Context) -> None:
    """Rule 4, asked right before a kubelet is started or restarted with our version: somebody may have asked for an
    earlier minor since the file was looked at, which takes one edit of the ControlPlane and no lock of ours."""
    plane, ours = await live_control_plane(context.kube()), context.cluster.kubernetes_version
    least = None if plane is None else reported.lowest_version(plane)
    if plane is None or least is None or minor_of(ours) <= minor_of(least):
        return
    asked, bare = reported.wanted_version(plane), str(ours).removeprefix("v")
    if asked is not None and minor_of(asked) < minor_of(ours):
        earlier = str(asked).removeprefix("v")
        what = f"and the ControlPlane object asks for {asked}"
        fix = (
            f'run `autarky up` with kubernetesVersion: "{earlier}" in the file, which waits until all has it; or'
            f" `autarky upgrade {bare}` to stay with {ours}, and then the same again"
        )
    else:
        what = f"and not all of the control plane has left {least}"
        fix = "run the same again when the upgrade is complete: `autarky upgrade status --watch`"
    raise UserError(f"no kubelet may be newer than an API server (rule 4): ours would be {ours}, {what}", fix=fix)


async def _by_hosts(context: Context, nodes: Iterable[Node]) -> Runs | None:
    """What those of these nodes say whose hosts have a marker."""
    marked = [node for node in nodes if node.name in context.versions]
    said = running_version.by_markers({node.name: context.versions[node.name] for node in marked})
    return said or running_version.by_disks(await _on_disks(context, marked))


async def _live_plane(context: Context) -> tuple[Object | None, bool]:
    """None also where the API does not answer; and whether it does."""
    if not await context.api_answers():
        return None, False
    try:
        return await live_control_plane(context.kube()), True
    except (Unreachable, ApiError):
        return None, False


async def _settled_by_workloads(context: Context, asked: Version) -> bool:
    try:
        return await hosted_version.settle(context, asked)
    except (Unreachable, ApiError):
        return False


def version_in(plane: Object) -> str | None:
    """That the control plane has had completely last: as the operator says, else as it was applied last."""
    record = applied.record_of(plane) or {"spec": {}}
    version: str | None = (plane.get("status") or {}).get("version") or record["spec"].get("version")
    return version


async def live_operator(kube: Kube) -> Object | None:
    """Its Deployment."""
    return await kube.get("apps/v1", "Deployment", OPERATOR, SYSTEM)


async def needed_control_plane(kube: Kube) -> Object:
    """UserError where there is none."""
    plane = await live_control_plane(kube)
    if plane is None:
        raise UserError("the cluster has no ControlPlane object", fix="run `autarky up`, which makes it")
    return plane


async def live_control_plane(kube: Kube) -> Object | None:
    try:
        return await kube.get(API_VERSION, "ControlPlane", CONTROL_PLANE)
    except ApiError as error:
        if error.status == 404:  # its CRD is not there yet
            return None
        raise


async def _on_disks(context: Context, nodes: Iterable[Node]) -> dict[str, tuple[str | None, ...]]:
    async def one(node: Node) -> tuple[str | None, ...]:
        host = context.host(node)
        standby = of_standby(await host.read(STANDBY_POD))
        return await kubelet_version(host), None if standby is None else str(standby)

    return await for_each(nodes, one)


async def kubelet_version(host: Host) -> str | None:
    """ "v1.36.4", of "Kubernetes v1.36.4"."""
    said = await host.run([render_node.BINARIES["kubelet"], "--version"], check=False)
    return said.text.split()[-1] if said.status == 0 and said.text else None


async def newest_kubelet(host: Host) -> Version | None:
    """Of the host's kubelet, and the one of level 0 that is in force there, as far as they are known."""
    noted = await asyncio.gather(*(host.read(path) for path in (hosted_files.HOSTED, slots.BOOT_FILE, _UPTIME)))
    found = (reported.parsed(await kubelet_version(host)), _hosted_kubelet(*(content or b"" for content in noted)))
    return max((version for version in found if version is not None), default=None)


def _hosted_kubelet(content: bytes, boot: bytes, uptime: bytes) -> Version | None:
    """Where it is not known whether what its supervisor has written is of now, it counts."""
    values = files.parse(content)
    this_boot, now = values.get("boot"), 0
    with suppress(ValueError):
        this_boot = slots.parse_boot(boot.decode(errors="replace"))
    with suppress(ValueError):
        now = int(uptime.split(b".")[0])
    one = hosted.said(values, this_boot, now)
    return one.version if one is not None and one.is_in_force else None
