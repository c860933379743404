"""Getting a payload: from the store in a moment, else building what is missing, with progress.

Contract: only what the asked groups need is built; nothing is built twice, also by two processes at
once; what is handed out was verified by digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autarky.errors import UserError
from autarky.payload import gobuild, layers
from autarky.payload.oci import ImageConfig, Layer, write_archive
from autarky.payload.release import (
    GROUPS,
    BinarySpec,
    Component,
    ImageSpec,
    Release,
    wanted_binaries,
    wanted_images,
)
from autarky.payload.store import Store, full_disk_explained
from autarky.ports import Progress
from autarky.store import waiting_lock

PARALLEL_BUILDS = 2
"""Go uses all cores for one build; a second one fills the gaps of linking and downloading."""


@dataclass(frozen=True, slots=True)
class Binary:
    name: str
    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Image:
    """An OCI archive for `ctr images import`; the manifest digest is what containerd lists."""

    name: str
    reference: str
    archive: Path
    sha256: str
    size: int
    manifest_digest: str


@dataclass(frozen=True, slots=True)
class Payload:
    """Everything of one release that was asked for. Images by component name ("kube-apiserver")."""

    release: Release
    binaries: Mapping[str, Binary]
    images: Mapping[str, Image]


def find_binary(release: Release, name: str) -> Binary | None:
    """A binary from the store, or None; builds nothing."""
    store = Store()
    for component in release.components:
        for binary in component.binaries:
            if binary.name == name:
                return _stored_binary(store, component, binary)
    raise KeyError(name)


def needs(release: Release, groups: Collection[str]) -> list[str]:
    """What is not in the store, by name ("binary kubelet", "image etcd")."""
    store = Store()
    missing = [f"binary {b.name}" for c, b in wanted_binaries(release, groups) if _stored_binary(store, c, b) is None]
    return missing + [
        f"image {i.name}" for i in wanted_images(release, groups) if _stored_image(store, release, i) is None
    ]


def stored_artefacts(release: Release) -> list[tuple[str, str, str | None, int]]:
    """(kind, name, sha256 or None when it is not in the store, size in bytes) of everything in a release."""
    store = Store()
    rows: list[tuple[str, str, str | None, int]] = []
    for component, binary in wanted_binaries(release, GROUPS):
        found = _stored_binary(store, component, binary)
        rows.append(("binary", binary.name, found.sha256 if found else None, found.size if found else 0))
    for spec in wanted_images(release, GROUPS):
        image = _stored_image(store, release, spec)
        rows.append(("image", spec.name, image.sha256 if image else None, image.size if image else 0))
    return rows


async def get_payload(
    release: Release,
    progress: Progress,
    *,
    groups: Collection[str] = ("cluster",),
    sources: Sequence[str] = ("store", "build"),
) -> Payload:
    """The payload; UserError when it is neither in the store nor may be built."""
    missing = needs(release, groups)
    if missing and "build" not in sources:
        raise UserError(f"not in the store: {', '.join(missing)}", fix=f"autarky payload get {release.kubernetes}")
    store = Store()
    if missing:
        async with waiting_lock(store.root / "lock", lambda: progress.note("waiting for another process that builds")):
            store = Store()
            await _build_binaries(store, release, groups, progress)
            await _build_images(store, release, groups, progress)
    return _collect(store, release, groups)


def _collect(store: Store, release: Release, groups: Collection[str]) -> Payload:
    binaries = {b.name: _stored_binary(store, c, b) for c, b in wanted_binaries(release, groups)}
    images = {i.name: _stored_image(store, release, i) for i in wanted_images(release, groups)}
    lost = [name for name, found in (*binaries.items(), *images.items()) if found is None]
    if lost:
        raise UserError(f"the store lost {', '.join(lost)} meanwhile", fix="run the command again")
    return Payload(
        release,
        {name: binary for name, binary in binaries.items() if binary is not None},
        {name: image for name, image in images.items() if image is not None},
    )


# --- binaries ----------------------------------------------------------------------------------------


def _stored_binary(store: Store, component: Component, binary: BinarySpec) -> Binary | None:
    record = store.record(gobuild.record_key(component, binary))
    if record is None or not store.has(record["sha256"]):
        return None
    return Binary(binary.name, store.blob_path(record["sha256"]), record["sha256"], record["size"])


async def _build_binaries(store: Store, release: Release, groups: Collection[str], progress: Progress) -> None:
    missing: dict[str, list[BinarySpec]] = {}
    components = {component.name: component for component in release.components}
    for component, binary in wanted_binaries(release, groups):
        if _stored_binary(store, component, binary) is None:
            missing.setdefault(component.name, []).append(binary)
    if missing:  # once, before the builds start side by side: it may have to be installed
        await asyncio.to_thread(gobuild.find_go)
    limit = asyncio.Semaphore(PARALLEL_BUILDS)

    async def build(name: str) -> None:
        async with limit:
            await gobuild.build_binaries(store, components[name], missing[name], progress)

    await _all(build(name) for name in missing)


# --- images ------------------------------------------------------------------------------------------


def _image_key(store: Store, release: Release, image: ImageSpec) -> str | None:
    """The hash of everything an image is made of; None while one of its binaries is missing."""
    recipe: list[object] = [image.reference, image.base, image.entrypoint, image.command, 3]
    for name in image.binaries:
        binary = _find(store, release, name)
        if binary is None:
            return None
        recipe.append(binary.sha256)
    recipe += [layers.debian_key(release, release.layer(name)) for name in _debian_layers(release, image)]
    if image.base == "agent":
        recipe += layers.agent_keys()
    return f"image-{image.name}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:24]}"


def _find(store: Store, release: Release, name: str) -> Binary | None:
    for component in release.components:
        for binary in component.binaries:
            if binary.name == name:
                return _stored_binary(store, component, binary)
    raise KeyError(name)


def _debian_layers(release: Release, image: ImageSpec) -> list[str]:
    if image.base == "static":
        return []
    top = "python" if image.base == "agent" else image.base
    return [*release.layer(top).below, top]


def _stored_image(store: Store, release: Release, image: ImageSpec) -> Image | None:
    key = _image_key(store, release, image)
    record = store.record(key) if key is not None else None
    if record is None or not store.has(record["sha256"]):
        return None
    path = store.blob_path(record["sha256"])
    return Image(image.name, image.reference, path, record["sha256"], record["size"], record["manifest"])


def needed_records(store: Store, release: Release) -> set[str]:
    """The keys of all records that a release leads to, layers included."""
    keys = {gobuild.record_key(c, b) for c, b in wanted_binaries(release, GROUPS)}
    for image in wanted_images(release, GROUPS):
        key = _image_key(store, release, image)
        keys |= {key} if key is not None else set()
    keys |= {layers.debian_key(release, layer) for layer in release.layers}
    return keys | set(layers.agent_keys())


async def _build_images(store: Store, release: Release, groups: Collection[str], progress: Progress) -> None:
    missing = [i for i in wanted_images(release, groups) if _stored_image(store, release, i) is None]
    for name in dict.fromkeys(name for image in missing for name in _debian_layers(release, image)):
        await layers.debian_layer(store, release, release.layer(name), progress)
    for number, image in enumerate(missing):
        progress.progress("images", number, len(missing))
        await _build_image(store, release, image, progress)
    if missing:
        progress.note(f"built images: {', '.join(image.name for image in missing)}")


async def _build_image(store: Store, release: Release, image: ImageSpec, progress: Progress) -> None:
    key = _image_key(store, release, image)
    if key is None:
        raise UserError(f"a binary of image {image.name} is missing", fix="run the command again")
    parts: list[Layer] = [
        await layers.debian_layer(store, release, release.layer(name), progress)
        for name in _debian_layers(release, image)
    ]
    if image.base == "agent":
        parts += [await layers.python_dependencies_layer(store, progress), await layers.autarky_layer(store)]
    if image.binaries:
        binaries = [_find(store, release, name) for name in image.binaries]
        blobs = [binary.sha256 for binary in binaries if binary is not None]
        parts.append(await layers.binary_layer(store, image.binaries, blobs, static=image.base == "static"))
    entrypoint = image.entrypoint or (f"/usr/local/bin/{image.binaries[0]}",)
    with store.scratch(f"image-{image.name}") as scratch, full_disk_explained(store.root):
        archive = scratch / "image.tar"
        manifest = write_archive(archive, ImageConfig(image.reference, entrypoint, image.command), parts)
        digest, size = store.add(archive)
    store.write_record(key, {"sha256": digest, "size": size, "manifest": manifest, "name": image.name})


async def _all(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Run side by side; the first failure alone is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
