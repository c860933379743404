"""Versions of etcd for a cluster whose etcd is not the one of its Kubernetes release.

`releases/etcd.json` names them; each has a recipe, `recipes/etcd-VERSION`. The versions of all releases are known as
well. Contract: what is made of a version does not depend on the release that the cluster has; nothing here is built
with a release, only by its own name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from autarky.errors import UserError
from autarky.model.components import ETCD
from autarky.model.versions import Version
from autarky.payload import release_files
from autarky.payload.release import Component, Release, default_version, known_versions, load_release

FILE = release_files.RELEASES / "etcd.json"


def known_etcd_versions() -> tuple[Version, ...]:
    """Oldest first."""
    return tuple(sorted({*_named(), *(etcd_version(release) for release in _releases())}))


def etcd_version(release: Release) -> Version:
    """The version of etcd that belongs to a release. UserError if the release is not known (any more)."""
    return Version.parse(_component(release).version)


def load_etcd(version: Version) -> Release:
    """A release of nothing but etcd: its programs and its image. UserError with the known versions."""
    for release in _releases():
        if etcd_version(release) == version:
            return _only_etcd(release)
    if version not in _named():
        known = ", ".join(map(str, known_etcd_versions()))
        raise UserError(f"etcd {version} is not known to this autarky", fix=f"use one of {known}")
    return _in_version(_only_etcd(load_release(default_version())), version)


def with_etcd(release: Release, version: Version | None) -> Release:
    """The release with another version of etcd in the place of its own; None: as it is. UserError with the known
    versions."""
    if version is None or not release.components or etcd_version(release) == version:
        return release
    [component], [image] = (found := load_etcd(version)).components, found.images
    return replace(
        release,
        components=tuple(component if one.name == ETCD else one for one in release.components),
        images=tuple(image if one.name == ETCD else one for one in release.images),
    )


def release_of(kubernetes: Version, etcd: Version | None) -> Release:
    """What a cluster of these versions is made of (`etcd`: None for the release's own); `Release.unknown` where one of
    them is not known (any more), or its file not usable."""
    if kubernetes not in known_versions() or (etcd is not None and etcd not in known_etcd_versions()):
        return Release.unknown(kubernetes)
    return with_etcd(load_release(kubernetes), etcd)


def _releases() -> Iterator[Release]:
    return (load_release(version) for version in known_versions())


def _named() -> frozenset[Version]:
    return frozenset(map(Version.parse, json.loads(FILE.read_text())["versions"]))


def _component(release: Release) -> Component:
    release.refuse_unknown()
    return next(one for one in release.components if one.name == ETCD)


def _only_etcd(release: Release) -> Release:
    return replace(release, components=(_component(release),), images=(release.image(ETCD),))


def _in_version(release: Release, version: Version) -> Release:
    [component], [image] = release.components, release.images
    recipe = f"{ETCD}-{version}"
    directory = release_files.recipe_directory(FILE, recipe)
    component = replace(component, version=str(version), recipe=recipe, directory=directory)
    repository = image.reference.rpartition(":")[0]
    # Upstream numbers the builds of its image of one version, from 0.
    image = replace(image, reference=f"{repository}:{str(version).removeprefix('v')}-0", upstream_digest=None)
    return replace(release, components=(component,), images=(image,))
