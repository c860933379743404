"""Another version of Kubernetes in the file than the cluster runs is refused: upgrades are not built yet, and a kubelet
that is newer than the API server breaks rule 4 at the next start of its host.

Contract: only looks. What the API says counts first; while it is down, the hosts' markers; where these are of a
release that noted no version, the kubelet and the standby on the hosts' disks
(`control.cluster_file.decide.running_version`).

Danger: a worker may be compromised, and the fix that a refusal names has all hosts prepared for the version that it
reported. So workers count only where no control node says anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from autarky import places
from autarky.control.cluster_file.decide import running_version
from autarky.control.cluster_file.decide.running_version import Runs
from autarky.control.common.skew import image_version
from autarky.control.drift.decide import applied
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER, OPERATOR
from autarky.model.versions import Version
from autarky.phases.context import Context, for_each
from autarky.ports import Host, Kube, Object
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import SYSTEM

STANDBY_POD = f"{places.STANDBY}/{API_SERVER}/current/pod.json"


async def refuse_another_version(context: Context) -> None:
    """UserError; nothing where no host and no API says what runs. Foreign hosts must have been refused before."""
    refuse_other_than(await runs(context), context.cluster.kubernetes_version)


def refuse_other_than(found: Runs | None, asked: Version) -> None:
    if found is not None and found.version != asked:
        raise UserError(
            f"the cluster runs Kubernetes {found.version}, as {found.source} says, and the file says {asked}: upgrades"
            " are not built yet",
            fix=f'set kubernetesVersion: "{str(found.version).removeprefix("v")}" in the file',
        )


async def runs(context: Context) -> Runs | None:
    """What the cluster runs; None where it is not there yet, or nothing of it answers."""
    said = running_version.by_the_api(await _applied_version(context))
    said = said or await _by_hosts(context, context.cluster.control_nodes)
    # A control node made by its label is among these: without the API only its own word says so.
    return said or await _by_hosts(context, context.cluster.workers)


async def _by_hosts(context: Context, nodes: Iterable[Node]) -> Runs | None:
    """What those of these nodes say whose hosts have a marker."""
    marked = [node for node in nodes if node.name in context.versions]
    said = running_version.by_markers({node.name: context.versions[node.name] for node in marked})
    return said or running_version.by_disks(await _on_disks(context, marked))


async def _applied_version(context: Context) -> str | None:
    if not await context.api_answers():
        return None
    try:
        live = await live_control_plane(context.kube())
    except (Unreachable, ApiError):
        return None
    record = None if live is None else applied.record_of(live)
    version: str | None = None if record is None else record["spec"].get("version")
    return version


async def live_operator(kube: Kube) -> Object | None:
    """Its Deployment."""
    return await kube.get("apps/v1", "Deployment", OPERATOR, SYSTEM)


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
        return await _kubelet_version(host), await _standby_version(host)

    return await for_each(nodes, one)


async def _kubelet_version(host: Host) -> str | None:
    """ "v1.36.4", of "Kubernetes v1.36.4"."""
    said = await host.run([render_node.BINARIES["kubelet"], "--version"], check=False)
    return said.text.split()[-1] if said.status == 0 and said.text else None


async def _standby_version(host: Host) -> str | None:
    """None also where the file is malformed: the host may say anything."""
    content = await host.read(STANDBY_POD)
    try:
        found = image_version(json.loads(content or b"")["spec"]["containers"][0]["image"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    return None if found is None else str(found)
