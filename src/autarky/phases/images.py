"""Images that nodes need besides those of the cluster's file. Some the cluster runs, since somebody has set them with
kubectl: a node that joins later needs them as well, even if no registry has them. And where kubelets follow the control
plane, those of an older or later version come in an image. Hosted ones (level 0) do as well, also where it is not the
file that asks for them.

Contract: only images of releases that are known here; whoever sets another image must provide it. Compared by reference
alone: what a node has under that name is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.addons import images_for_upgrade
from autarky.control.kubelet.decide.wanted import follows
from autarky.control.kubelet.manifests import files
from autarky.control.upgrade.decide import reported
from autarky.engine.phase import Change, Warn
from autarky.model.cluster import Cluster, Node
from autarky.model.components import CONTAINER_RUNTIME, KUBELET
from autarky.payload import Image, Payload, Release, get_payload, image_reference, known_versions, load_release, needs
from autarky.phases import kubelets
from autarky.phases.context import Context, for_each_or_left_out, left_out_since
from autarky.phases.prepare import SEEN_WITHIN, import_images, present_images
from autarky.phases.supply import GROUPS
from autarky.phases.version_check import live_control_plane
from autarky.ports import Object, Progress
from autarky.render.values import SYSTEM

WITHIN = 1800.0
"""Seconds for the images of one worker that joined before; it is left out after that."""


@dataclass(frozen=True, slots=True)
class BringImages:
    name: str = "bring-images"
    title: str = "Bring the images that the cluster runs"
    timeout: float = 3600

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        before = set(context.absent)
        lacking = await _lacking(context)
        sentences = [
            f"import {reference}, {_why(reference)}, on {node}"
            for node, references in lacking.items()
            for reference in sorted(references)
        ]
        return [*map(Change, sentences), *left_out_since(context, before)]

    async def run(self, context: Context, progress: Progress) -> None:
        lacking = await _lacking(context)
        images = await _images(context.cluster, frozenset().union(*lacking.values()), progress)

        async def one(node: Node) -> None:
            wanted = [images[reference] for reference in sorted(lacking[node.name])]
            await import_images(context.host(node), wanted, progress)

        lacks = [node for node in context.cluster.nodes if node.name in lacking]
        await for_each_or_left_out(context, lacks, one, progress, seconds=WITHIN)


async def push_images(context: Context, payload: Payload, progress: Progress, *, with_runtime: bool = False) -> None:
    """Put the images of a payload on every node, as an upgrade to it does; those that are there are left alone.
    with_runtime: also the one in which containerd and runc come, which no upgrade brings."""
    names = (*images_for_upgrade(context.cluster), *([CONTAINER_RUNTIME] if with_runtime else []))
    images = [payload.images[name] for name in names]

    async def one(node: Node) -> None:
        await import_images(context.host(node), images, progress)
        progress.note(f"{node.name} has the images of Kubernetes {payload.release.kubernetes}")

    await for_each_or_left_out(context, context.present(context.cluster.nodes), one, progress)


def _why(reference: str) -> str:
    is_a_kubelets = reference.startswith(f"{files.IMAGE}:")
    return "in which its kubelet comes" if is_a_kubelets else "which the cluster runs"


async def _lacking(context: Context) -> dict[str, frozenset[str]]:
    """Node → the references that it lacks; nodes that lack nothing, or whose runtime does not answer, are left out."""
    if not await context.api_answers():
        return {}
    of_all, of_one = await _set_by_others(context) | _hosted_kubelet(context), await _kubelet_images(context)
    needed = {node.name: of_all | of_one.get(node.name, frozenset()) for node in context.cluster.nodes}

    async def of(node: Node) -> frozenset[str]:
        present = await present_images(context.host(node))
        return frozenset() if present is None else needed[node.name] - present.keys()

    nodes = [node for node in context.present(context.cluster.nodes) if needed[node.name]]
    found = await for_each_or_left_out(context, nodes, of, seconds=SEEN_WITHIN)
    return {name: references for name, references in found.items() if references}


async def _set_by_others(context: Context) -> frozenset[str]:
    """The images of other releases that the cluster runs."""
    run = await _run_images(context)
    own = set(_references(context.cluster, context.release).values())
    known = {reference for release in _others(context) for reference in _references(context.cluster, release).values()}
    return frozenset((run & known) - own)


def _hosted_kubelet(context: Context) -> frozenset[str]:
    """The image of the kubelets' DaemonSet, where level 0 is hosted."""
    return frozenset({image_reference(context.release, KUBELET)} if context.cluster.hosts_kubelet else ())


async def _kubelet_images(context: Context) -> dict[str, frozenset[str]]:
    """Node whose kubelet has another version than it is to get from the control plane, or an unknown one → the image
    with that."""
    plane = await live_control_plane(context.kube())
    if plane is None or not follows(plane):
        return {}
    version = reported.wanted_version(plane)
    if version is None or version not in known_versions():
        return {}
    image = frozenset({image_reference(load_release(version), KUBELET)})
    return {name: image for name, runs in (await kubelets.versions(context)).items() if runs != version}


async def _run_images(context: Context) -> set[str]:
    kube = context.kube()
    workloads: list[Object] = []
    for kind in ("DaemonSet", "Deployment"):
        workloads += await kube.list("apps/v1", kind, namespace=SYSTEM)
    specs = [workload["spec"]["template"]["spec"] for workload in workloads]
    return {c["image"] for spec in specs for c in (*spec.get("containers", ()), *spec.get("initContainers", ()))}


def _others(context: Context) -> list[Release]:
    own = context.release.kubernetes
    return [load_release(version) for version in known_versions() if version != own]


def _references(cluster: Cluster, release: Release) -> dict[str, str]:
    """The names of the cluster's images in a release → their references."""
    return {name: image_reference(release, name) for name in images_for_upgrade(cluster)}


async def _images(cluster: Cluster, references: frozenset[str], progress: Progress) -> dict[str, Image]:
    """From the store, or built if they are not there."""
    found: dict[str, Image] = {}
    for version in known_versions():
        release = load_release(version)
        run = _references(cluster, release)
        names = [name for name, reference in run.items() if reference in references - found.keys()]
        if names:
            if missing := needs(release, GROUPS):
                progress.note(f"Kubernetes {version} is built here first: {len(missing)} parts are not in the store")
            payload = await get_payload(release, progress, groups=GROUPS)
            found |= {payload.images[name].reference: payload.images[name] for name in names}
    return found
