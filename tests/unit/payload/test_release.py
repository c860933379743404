from __future__ import annotations

import copy
import re
from dataclasses import replace

import click
import pytest

from autarky.cli import payload as payload_cli
from autarky.control.kubelet.manifests import daemon_set, files
from autarky.errors import UserError
from autarky.model.components import IMAGES
from autarky.model.versions import Version
from autarky.payload import GROUPS, default_version, image_reference, known_versions, load_release, release_files
from autarky.payload import release as release_module
from autarky.payload.artefacts import image_key, image_layers
from autarky.payload.release import recipe_hash, wanted_binaries, wanted_images
from autarky.render import node

RELEASES = [load_release(version) for version in known_versions()]
every_release = pytest.mark.parametrize("release", RELEASES, ids=lambda release: str(release.kubernetes))


@every_release
def test_binaries_that_images_need_are_built_in_the_same_release(release):
    built = {binary.name for _, binary in wanted_binaries(release, GROUPS)}
    for image in release.images:
        assert set(image.binaries) <= built


@every_release
def test_an_images_binaries_are_in_its_group(release):
    groups = {binary.name: binary.group for _, binary in wanted_binaries(release, GROUPS)}
    for image in wanted_images(release, ("cluster",)):
        assert all(groups[name] == "cluster" for name in image.binaries)


@every_release
def test_everything_a_node_needs_is_in_the_group_of_the_cluster(release):
    binaries = {binary.name for _, binary in wanted_binaries(release, ("cluster",))}
    images = {image.name for image in wanted_images(release, ("cluster",))}
    assert set(node.BINARIES) <= binaries
    assert set(IMAGES) <= images
    assert set(node.ETCD_TOOLS) <= binaries


PROGRAMS_ONLY = {"container-runtime"}
"""Images that nobody runs."""


@every_release
def test_names_are_unique_and_groups_known(release):
    binaries = [binary.name for _, binary in wanted_binaries(release, GROUPS)]
    assert len(binaries) == len(set(binaries)) == sum(len(component.binaries) for component in release.components)
    assert len({image.name for image in release.images}) == len(wanted_images(release, GROUPS))


@every_release
def test_every_image_is_made_of_something_that_the_release_knows(release):
    layers = {layer.name: layer for layer in release.layers}
    for image in release.images:
        assert image.base in {"static", "agent", *layers} or image.name in PROGRAMS_ONLY
        assert image.binaries or image.entrypoint or image.command
    for layer in layers.values():
        assert set(layer.below) <= set(layers)
        assert layer.packages


@every_release
def test_a_kubelet_comes_where_nodes_look_for_it_in_an_image_of_nothing_else_but_a_shell(release):
    image = release.image("kubelet")
    assert image.reference == f"{files.IMAGE}:{release.kubernetes}"
    assert [f"/usr/local/bin/{name}" for name in image.binaries] == [files.IMAGE_PATH]
    assert (image.links, image_layers(release, image)) == ((), ["entry"])
    assert release.layer("entry").only == (daemon_set.SHELL,)
    assert {one.name for one in release.images if not one.base} == PROGRAMS_ONLY


@every_release
def test_containerd_and_runc_come_where_nodes_look_for_them_and_the_tag_has_their_versions(release):
    image = release.image("container-runtime")
    of = {component.name: component.version for component in release.components}
    assert image.reference == f"autarky.dev/container-runtime:{of['containerd']}-runc-{of['runc']}"
    assert tuple(image.binaries) == files.RUNTIME
    assert (image.base, image.links, image_layers(release, image)) == ("", (), [])


def test_other_links_are_another_image(own_store):
    release = load_release(default_version())
    image = release.image("e2e-busybox")
    keys = {image_key(own_store, release, one) for one in (image, replace(image, links=image.links[1:]))}
    assert len(keys) == 2
    assert None not in keys


def test_what_is_in_an_image_of_a_group_is_wanted_with_the_group():
    release = load_release(default_version())
    assert {binary.name for _, binary in wanted_binaries(release, ("conformance",))} == {"e2e.test", "agnhost"}
    assert "e2e.test" not in {binary.name for _, binary in wanted_binaries(release, ("cluster", "test", "bench"))}


def test_what_keeps_nodes_without_machines_is_built_for_the_benchmark_of_it_only():
    release = load_release(default_version())
    [(component, binary)] = wanted_binaries(release, ("scale",))
    assert (component.name, component.cgo, binary.package) == ("kwok", False, "sigs.k8s.io/kwok/cmd/kwok")
    assert f"require sigs.k8s.io/kwok {component.version}\n" in (component.directory / "go.mod").read_text()
    assert f'_ "{binary.package}"' in (component.directory / "tools.go").read_text()
    others = [group for group in GROUPS if group != "scale"]
    assert "kwok" not in {binary.name for _, binary in wanted_binaries(release, others)}


@every_release
def test_every_group_is_one_that_can_be_asked_for(release):
    groups = {binary.group for component in release.components for binary in component.binaries}
    assert groups | {image.group for image in release.images} <= set(GROUPS)
    [kind] = [one.type for one in payload_cli.get.params if one.name == "groups"]
    assert isinstance(kind, click.Choice)
    assert tuple(kind.choices) == GROUPS


def test_a_layer_that_the_agent_image_has_not_leaves_its_tag_alone(monkeypatch):
    file = release_files.files()[default_version()]
    described = release_files.read(file)

    def tag_with(layer, packages):
        changed = copy.deepcopy(described)
        changed["layers"][layer]["packages"] = packages
        return image_reference(release_module._parse(changed, file), "agent")

    tag = image_reference(load_release(default_version()), "agent")
    assert tag_with("busybox", ["busybox"]) == tag
    assert tag_with("network", ["iproute2"]) != tag  # below the agent's own
    assert tag_with("python", ["python3"]) != tag


@every_release
def test_recipes_are_pinned_by_their_sums(release):
    for component in release.components:
        assert (component.directory / "go.mod").is_file()
        assert (component.directory / "go.sum").is_file()
        assert re.fullmatch(r"[0-9a-f]{64}", recipe_hash(component))


@every_release
def test_kubernetes_components_have_the_releases_version(release):
    for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"):
        assert image_reference(release, component).endswith(f":{release.kubernetes}")


@every_release
def test_every_component_that_is_rendered_has_an_image(release):
    references = [image_reference(release, component) for component in IMAGES]
    assert all("@" not in reference and ":" in reference for reference in references)
    with pytest.raises(KeyError):
        image_reference(release, "no-such-component")


def test_the_default_version_has_a_release():
    assert default_version() in known_versions()


def test_a_version_without_a_release_is_told_what_there_is():
    there = r"no release file for Kubernetes v1\.36\.9\n  fix: use v1\.36\.4 \(known: "
    with pytest.raises(UserError, match=rf"{there}.*release new v1\.36\.9"):
        load_release(Version(1, 36, 9))
