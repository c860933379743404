"""Images that the cluster runs and its file does not name: somebody has set them with kubectl, and a node that joins
later needs them as well, even if no registry has them.

Contract: only images of releases that are known here; whoever sets another image must provide it. Compared by reference
alone: what a node has under that name is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.addons import images_of
from autarky.engine.phase import Change, Warn
from autarky.model.cluster import Cluster, Node
from autarky.payload import Image, Release, get_payload, image_reference, known_versions, load_release, needs
from autarky.phases.context import Context, for_each_or_left_out, left_out_since
from autarky.phases.prepare import SEEN_WITHIN, import_images, present_images
from autarky.phases.supply import GROUPS
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
            f"import {reference}, which the cluster runs, on {node}"
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


async def _lacking(context: Context) -> dict[str, frozenset[str]]:
    """Node → the references that it lacks; nodes that lack nothing, or whose runtime does not answer, are left out."""
    if not await context.api_answers():
        return {}
    run = await _run_images(context)
    own = set(_references(context.cluster, context.release).values())
    known = {reference for release in _others(context) for reference in _references(context.cluster, release).values()}
    wanted = (run & known) - own
    if not wanted:
        return {}

    async def of(node: Node) -> frozenset[str]:
        present = await present_images(context.host(node))
        return frozenset() if present is None else frozenset(wanted - present.keys())

    found = await for_each_or_left_out(context, context.present(context.cluster.nodes), of, seconds=SEEN_WITHIN)
    return {name: references for name, references in found.items() if references}


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
    return {name: image_reference(release, name) for name in images_of(cluster)}


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
