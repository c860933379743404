"""Release files: what one Kubernetes version consists of, with every input pinned.

A release names, per component, the recipe (a Go module of ours with go.mod and go.sum) or the Debian
packages that make it, the binaries and images that come out, and in which group they are needed. Output
digests are recorded in the store under the hash of the recipe; upstream image digests are null until a
command that can reach a registry fills them in, never invented.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autarky.errors import UserError
from autarky.model import defaults
from autarky.model.versions import Version
from autarky.payload import release_files
from autarky.payload.agent_content import agent_tag

GROUPS = ("cluster", "test", "bench", "conformance", "s3", "scale")


@dataclass(frozen=True, slots=True)
class BinarySpec:
    """A program of a recipe. `test`: not the package's main function but its tests, as a program (`go test -c`)."""

    name: str
    package: str
    group: str
    test: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """One Go recipe: a directory with go.mod, named `recipe`, and the binaries built in it.

    For a binary of tests, its tools.go (build tag `tools`) imports what those tests import.
    """

    name: str
    version: str
    recipe: str
    ldflags: tuple[str, ...]
    binaries: tuple[BinarySpec, ...]
    directory: Path
    cgo: bool = False
    tags: str = ""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What an image is made of: the layers of its base, then its binaries in /usr/local/bin and its links.

    `base`: a Debian layer of the release, or "agent"; empty where nothing is below, since nobody runs the image: its
    files are read out of it. `links`: path → where it leads to. `upstream_digest` is null until a command that can
    reach the registry has seen it. `comment` says where it differs from the upstream image of that name.
    """

    name: str
    reference: str
    base: str
    binaries: tuple[str, ...]
    group: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    upstream_digest: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class DebianLayer:
    """A file system layer from Debian packages: what they add to the layers below.

    `only`: the files it keeps, with the shared libraries that programs among them need; all when empty.
    `compile`: directories of Python modules that get byte code.
    """

    name: str
    packages: tuple[str, ...]
    below: tuple[str, ...]
    only: tuple[str, ...] = ()
    compile: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    kubernetes: Version
    components: tuple[Component, ...]
    images: tuple[ImageSpec, ...]
    suite: str
    layers: tuple[DebianLayer, ...]

    @classmethod
    def unknown(cls, kubernetes: Version) -> Release:
        """For a cluster whose version of Kubernetes or etcd this autarky does not know (any more): enough to inspect
        and remove it. It has no components: asking for one raises UserError."""
        return cls(kubernetes, (), (), "", ())

    def refuse_unknown(self) -> None:
        """UserError where this is `unknown`."""
        if self.components or self.images:
            return
        load_release(self.kubernetes)  # says what is known
        raise UserError(
            f"the cluster of Kubernetes {self.kubernetes} is made with a version of etcd that is not known to this"
            " autarky",
            fix="use an autarky that knows it; `autarky status` and `autarky down` work without",
        )

    def layer(self, name: str) -> DebianLayer:
        return next(layer for layer in self.layers if layer.name == name)

    def image(self, name: str) -> ImageSpec:
        return next(image for image in self.images if image.name == name)


@cache
def _found() -> dict[Version, Release | UserError]:
    """Version → its release, or what is wrong with its file."""
    found: dict[Version, Release | UserError] = {}
    for version, file in release_files.files().items():
        try:
            release = read_release(file)
        except UserError as error:
            found[version] = error
            continue
        other = UserError(
            f"it describes {release.kubernetes}", where=str(file), fix=f"rename it to {release.kubernetes}.json"
        )
        found[version] = release if release.kubernetes == version else other
    return found


def known_versions() -> tuple[Version, ...]:
    """The Kubernetes versions with usable release files, oldest first."""
    return tuple(sorted(version for version, found in _found().items() if isinstance(found, Release)))


def versions_of_files() -> tuple[Version, ...]:
    """The versions with release files, usable or not."""
    return tuple(sorted(_found()))


def unusable_files() -> list[UserError]:
    """What is wrong with unusable release files; they do not affect the others."""
    return [found for found in _found().values() if isinstance(found, UserError)]


def forget_releases() -> None:
    """Forget the cache: release files have been added."""
    _found.cache_clear()


def default_version() -> Version:
    """The version of a new cluster whose file names none."""
    return defaults.edition(defaults.newest()).kubernetes


def load_release(version: Version) -> Release:
    """The release of that Kubernetes version; UserError with what is wrong with its file, or the known versions."""
    found = _found().get(version)
    if isinstance(found, UserError):
        raise found
    if found is None:
        known = [str(v) for v in known_versions()]
        near = difflib.get_close_matches(str(version), known, n=1)
        raise UserError(
            f"there is no release file for Kubernetes {version}",
            fix=f"use {near[0] if near else known[-1]} (known: {', '.join(known)}),"
            f" or make one with `autarky payload release new {version}`",
        )
    return found


def read_release(file: Path) -> Release:
    """The release of a file; UserError where it is none, or where one of its recipes is not there."""
    data = release_files.read(file)
    try:
        release = _parse(data, file)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"it is not a release file: {type(error).__name__}: {error}"
        raise UserError(what, where=str(file), fix="make one with `autarky payload release new VERSION`") from error
    if absent := [one.recipe for one in release.components if not (one.directory / "go.sum").is_file()]:
        raise UserError(
            f"there is no recipe {', '.join(absent)}",
            where=str(file),
            fix=f"put it into {file.parent / release_files.RECIPES}",
        )
    return release


def _parse(data: dict[str, Any], file: Path) -> Release:
    components = tuple(
        Component(
            name=c["name"],
            version=c["version"],
            recipe=c["recipe"],
            ldflags=tuple(c["flags"]),
            binaries=tuple(BinarySpec(**b) for b in c["binaries"]),
            directory=release_files.recipe_directory(file, c["recipe"]),
            cgo=c.get("cgo", False),
            tags=c.get("tags", ""),
        )
        for c in data["components"]
    )
    images = tuple(
        ImageSpec(
            name=i["name"],
            reference=i["reference"].replace("@AUTARKY@", agent_tag(_below_agents(data["suite"], data["layers"]))),
            base=i["base"],
            binaries=tuple(i["binaries"]),
            group=i["group"],
            entrypoint=tuple(i.get("entrypoint", ())),
            command=tuple(i.get("command", ())),
            links=tuple(sorted(i.get("links", {}).items())),
            upstream_digest=i["upstreamDigest"],
            comment=i.get("comment", ""),
        )
        for i in data["images"]
    )
    layers = tuple(
        DebianLayer(name, *(tuple(layer.get(field, ())) for field in ("packages", "below", "only", "compile")))
        for name, layer in data["layers"].items()
    )
    return Release(Version.parse(data["kubernetes"]), components, images, data["suite"], layers)


def _below_agents(suite: str, layers: dict[str, Any]) -> str:
    """The recipe of the agent image's Debian layers. Other layers give the image no other tag."""
    names = [*layers["python"]["below"], "python"]
    return json.dumps([suite, [layers[name] for name in names]])


def image_reference(release: Release, component: str) -> str:
    """The reference of a component's image. KeyError when the release has none of that name, UserError when it is not
    known."""
    release.refuse_unknown()
    for image in release.images:
        if image.name == component:
            return image.reference
    raise KeyError(component)


@cache
def recipe_hash(component: Component) -> str:
    """Everything that decides what a recipe builds: its files and its flags."""
    digest = hashlib.sha256()
    for path in sorted(p for p in component.directory.iterdir() if p.is_file() and not p.name.endswith("_test.go")):
        digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    digest.update(json.dumps([component.ldflags, component.tags, component.cgo]).encode())
    return digest.hexdigest()


def wanted_binaries(release: Release, groups: Collection[str]) -> list[tuple[Component, BinarySpec]]:
    """Those of the groups, and those that are in images of the groups."""
    in_images = {name for image in wanted_images(release, groups) for name in image.binaries}
    return [(c, b) for c in release.components for b in c.binaries if b.group in groups or b.name in in_images]


def wanted_images(release: Release, groups: Collection[str]) -> list[ImageSpec]:
    return [image for image in release.images if image.group in groups]
