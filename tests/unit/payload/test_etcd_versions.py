"""Versions of etcd other than those of the releases."""

from __future__ import annotations

import re

import pytest

from autarky.errors import UserError
from autarky.model.versions import Version
from autarky.payload import (
    GROUPS,
    default_version,
    etcd_version,
    etcd_versions,
    known_etcd_versions,
    known_versions,
    load_etcd,
    load_release,
    needs,
)
from autarky.payload.artefacts import binary_key, image_key
from autarky.payload.release import Release, recipe_hash, wanted_binaries
from autarky.render.node import ETCD_TOOLS

NAMED = sorted(etcd_versions._named())
RELEASES = [load_release(version) for version in known_versions()]
every_named = pytest.mark.parametrize("version", NAMED, ids=str)


def test_the_versions_of_the_releases_are_known_as_well():
    assert set(known_etcd_versions()) == {*NAMED, *map(etcd_version, RELEASES)}
    assert list(known_etcd_versions()) == sorted(known_etcd_versions())


@every_named
def test_one_is_a_release_of_etcds_programs_and_its_image_alone(version):
    release = load_etcd(version)
    assert {binary.name for _, binary in wanted_binaries(release, ("cluster",))} == set(ETCD_TOOLS)
    [image] = release.images
    assert image.reference == f"registry.k8s.io/etcd:{version.major}.{version.minor}.{version.patch}-0"
    assert set(image.binaries) == set(ETCD_TOOLS)
    assert etcd_version(release) == version


@every_named
def test_its_recipe_is_pinned_to_that_version(version):
    [component] = load_etcd(version).components
    text = (component.directory / "go.mod").read_text()
    required = re.findall(r"^\tgo\.etcd\.io/etcd/([\w/]+)/v3 (\S+)$", text, re.MULTILINE)
    assert required == [(name, str(version)) for name in ("etcdctl", "etcdutl", "server")]
    assert (component.directory / "go.sum").stat().st_size
    assert re.fullmatch(r"[0-9a-f]{64}", recipe_hash(component))


@every_named
def test_no_release_has_it_or_builds_it(version):
    for release in RELEASES:
        assert etcd_version(release) != version
        keys = {binary_key(c, b) for c, b in wanted_binaries(release, GROUPS)}
        assert not keys & {binary_key(c, b) for c, b in wanted_binaries(load_etcd(version), GROUPS)}


@every_named
def test_nothing_is_in_the_store_before_it_is_asked_for(own_store, version):
    assert needs(load_etcd(version), ("cluster",)) == [*(f"binary {name}" for name in ETCD_TOOLS), "image etcd"]


def test_the_version_of_a_release_is_what_the_release_has_built(own_store):
    release = load_release(default_version())
    alone = load_etcd(etcd_version(release))
    built = {binary_key(c, b) for c, b in wanted_binaries(release, ("cluster",)) if c.name == "etcd"}
    assert {binary_key(c, b) for c, b in wanted_binaries(alone, ("cluster",))} == built
    for component in alone.components:
        for binary in component.binaries:
            with own_store.scratch("build") as scratch:
                (scratch / "built").write_text(binary.name)
                digest, size = own_store.add(scratch / "built")
            own_store.write_record(binary_key(component, binary), {"sha256": digest, "size": size})
    key = image_key(own_store, alone, alone.image("etcd"))
    assert key is not None
    assert key == image_key(own_store, release, release.image("etcd"))


def test_one_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(UserError, match=r"etcd v3\.4\.0 is not known .*\n  fix: use one of v3\.5\.") as raised:
        load_etcd(Version(3, 4, 0))
    assert all(str(version) in str(raised.value) for version in known_etcd_versions())


def test_a_release_that_is_not_known_any_more_has_no_version_of_etcd():
    with pytest.raises(UserError, match=r"no release file for Kubernetes v1\.20\.0"):
        etcd_version(Release.unknown(Version(1, 20, 0)))
