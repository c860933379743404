"""Building the images of a release: Debian layers if any, then binaries or the agent, in one archive each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from autarky.errors import UserError
from autarky.payload import agent
from autarky.payload.artefacts import find_binary, image_key, image_layers, stored_image
from autarky.payload.debian import debian_key, debian_layer
from autarky.payload.disk import full_disk_explained
from autarky.payload.layers import binary_layer, stored_layer
from autarky.payload.oci import ImageConfig, write_archive
from autarky.payload.programs import in_thread, side_by_side
from autarky.payload.release import ImageSpec, Release, wanted_images
from autarky.payload.store import Store
from autarky.ports import Progress


async def build_images(store: Store, release: Release, groups: Collection[str], progress: Progress) -> None:
    """Build the images that are missing. Their binaries are in the store."""
    missing = [image for image in wanted_images(release, groups) if stored_image(store, release, image) is None]
    await _build_layers(store, release, missing, progress)
    for number, image in enumerate(missing):
        progress.progress("images", number, len(missing))
        await _build_image(store, release, image, progress)
    if missing:
        progress.progress("images", len(missing), len(missing))
        progress.note(f"built images: {', '.join(image.name for image in missing)}")


def missing_layers(store: Store, release: Release, groups: Collection[str]) -> tuple[bool, bool]:
    """Whether layers of Debian packages, and one of Python packages, are to be made for images that are missing."""
    missing = [image for image in wanted_images(release, groups) if stored_image(store, release, image) is None]
    names = {name for image in missing for name in image_layers(release, image)}
    debian = any(stored_layer(store, debian_key(release, release.layer(name))) is None for name in names)
    agents = any(image.base == "agent" for image in missing)
    return debian, agents and stored_layer(store, agent.dependencies_key(release)) is None


async def _build_layers(store: Store, release: Release, images: Collection[ImageSpec], progress: Progress) -> None:
    """Side by side, as they wait for downloads; those that others lie on first."""
    names = dict.fromkeys(name for image in images for name in image_layers(release, image))
    for is_base in (True, False):
        layers = [release.layer(name) for name in names if (not release.layer(name).below) == is_base]
        await side_by_side(debian_layer(store, release, layer, progress) for layer in layers)


async def _build_image(store: Store, release: Release, image: ImageSpec, progress: Progress) -> None:
    key = await asyncio.to_thread(image_key, store, release, image)
    binaries = [(name, find_binary(release, name, store)) for name in image.binaries]
    if key is None:
        raise UserError(f"a binary of image {image.name} is missing", fix="run the command again")
    parts = [await debian_layer(store, release, release.layer(name), progress) for name in image_layers(release, image)]
    with store.scratch(f"image-{image.name}") as scratch, full_disk_explained(store.root):
        if image.base == "agent":
            parts.append(await agent.dependencies_layer(store, release, progress))
            parts.append(await agent.autarky_layer(store, release, scratch, progress))
        if binaries or image.links:
            files = [(name, binary.path) for name, binary in binaries if binary is not None]
            parts.append(await in_thread(binary_layer, scratch / "binaries.tar", files, image.links))
        entrypoint = image.entrypoint or tuple(f"/usr/local/bin/{name}" for name in image.binaries[:1])
        archive = scratch / "image.tar"
        environment = agent.ENVIRONMENT if image.base == "agent" else ()
        config = ImageConfig(image.reference, entrypoint, image.command, environment)
        manifest = await in_thread(write_archive, archive, config, parts)
        digest, size = await in_thread(store.add, archive)
    store.write_record(key, {"sha256": digest, "size": size, "manifest": manifest, "name": image.name})
