"""What the store holds of a release: looking things up. Builds nothing, changes nothing.

Danger: an artefact's path may disappear at any moment, if somebody prunes the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from autarky.payload import agent
from autarky.payload.agent_content import package_sources, sources_key
from autarky.payload.debian import below, debian_key
from autarky.payload.release import (
    GROUPS,
    BinarySpec,
    Component,
    ImageSpec,
    Release,
    recipe_hash,
    wanted_binaries,
    wanted_images,
)
from autarky.payload.store import Store

_FORMAT = 4
"""Version of the image archive format: raise it when the same inputs give a different archive."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A program, executable where it lies. `size` in bytes."""

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


@dataclass(frozen=True, slots=True)
class Artefact:
    """One line of `autarky payload list`. `sha256` is None for what the store has not."""

    kind: str
    name: str
    version: str
    group: str
    sha256: str | None
    size: int


def needs(release: Release, groups: Collection[str]) -> list[str]:
    """What is not in the store, by name ("binary kubelet", "image etcd")."""
    return missing(Store(), release, groups)


def missing(store: Store, release: Release, groups: Collection[str]) -> list[str]:
    binaries = [b.name for c, b in wanted_binaries(release, groups) if stored_binary(store, c, b) is None]
    images = [i.name for i in wanted_images(release, groups) if stored_image(store, release, i) is None]
    return [*(f"binary {name}" for name in binaries), *(f"image {name}" for name in images)]


def stored_artefacts(release: Release) -> list[Artefact]:
    """Everything in a release, with what the store has of it."""
    store = Store()
    rows = []
    for component, spec in wanted_binaries(release, GROUPS):
        binary = stored_binary(store, component, spec)
        rows.append(_row("binary", spec.name, component.version, spec.group, binary))
    for image in wanted_images(release, GROUPS):
        version = image.reference.rpartition(":")[2]
        rows.append(_row("image", image.name, version, image.group, stored_image(store, release, image)))
    return rows


def _row(kind: str, name: str, version: str, group: str, found: Binary | Image | None) -> Artefact:
    return Artefact(kind, name, version, group, found.sha256 if found else None, found.size if found else 0)


# --- binaries ----------------------------------------------------------------------------------------


def binary_key(component: Component, binary: BinarySpec) -> str:
    return f"binary-{binary.name}-{recipe_hash(component)[:24]}"


def stored_binary(store: Store, component: Component, binary: BinarySpec) -> Binary | None:
    record = store.record(binary_key(component, binary))
    if record is None or not store.has(record["sha256"]):
        return None
    return Binary(binary.name, store.blob_path(record["sha256"]), record["sha256"], record["size"])


def find_binary(release: Release, name: str, store: Store | None = None) -> Binary | None:
    """A binary from the store, or None; KeyError when the release has none of that name."""
    for component in release.components:
        for binary in component.binaries:
            if binary.name == name:
                return stored_binary(store or Store(), component, binary)
    raise KeyError(name)


# --- images ------------------------------------------------------------------------------------------


def image_layers(release: Release, image: ImageSpec) -> list[str]:
    """The Debian layers of an image, lowest first."""
    top = "python" if image.base == "agent" else image.base
    return below(release, top) if top else []


def image_key(store: Store, release: Release, image: ImageSpec) -> str | None:
    """The hash of everything an image is made of; None while one of its binaries is missing."""
    recipe: list[object] = [image.reference, image.base, image.entrypoint, image.command, _FORMAT]
    for name in image.binaries:
        binary = find_binary(release, name, store)
        if binary is None:
            return None
        recipe.append(binary.sha256)
    recipe += [debian_key(release, release.layer(name)) for name in image_layers(release, image)]
    if image.links:
        recipe.append(image.links)
    if image.base == "agent":
        recipe += [agent.dependencies_key(release), sources_key(package_sources())]
    return f"image-{image.name}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:24]}"


def stored_image(store: Store, release: Release, image: ImageSpec) -> Image | None:
    key = image_key(store, release, image)
    record = store.record(key) if key is not None else None
    if record is None or not store.has(record["sha256"]):
        return None
    path = store.blob_path(record["sha256"])
    return Image(image.name, image.reference, path, record["sha256"], record["size"], record["manifest"])


def needed_records(store: Store, release: Release) -> set[str]:
    """The keys of all records that a release leads to, layers included."""
    keys = {binary_key(c, b) for c, b in wanted_binaries(release, GROUPS)}
    keys |= {debian_key(release, layer) for layer in release.layers}
    keys.add(agent.dependencies_key(release))
    return keys | {key for i in wanted_images(release, GROUPS) if (key := image_key(store, release, i)) is not None}
