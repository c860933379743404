"""Nodes that come later get the images that the cluster runs, of whatever release, and those whose kubelet follows the
control plane the image in which it comes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from autarky.engine.phase import Warn
from autarky.model.versions import Version
from autarky.payload import Image, Payload, image_reference, load_release
from autarky.phases import images, prepare
from autarky.phases.images import BringImages
from autarky.render.crds import API_VERSION, CONTROL_PLANE, control_plane_crd
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube

OLD, NEW = load_release(Version(1, 36, 4)), load_release(Version(1, 37, 1))
SERVER = image_reference(NEW, "kube-apiserver")
KUBELET = image_reference(NEW, "kubelet")
CLUSTER = replace(a_cluster(controls=1, workers=1), kubernetes_version=OLD.kubernetes)


def runs(kube: FakeKube, image: str) -> None:
    meta = {"name": "kube-apiserver", "namespace": "kube-system"}
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    kube.put({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {"template": template}})


@pytest.fixture
def context(make_context):
    context = make_context(CLUSTER)
    for host in context.machines.hosts.values():
        host.active_units.add("containerd")
    return context


@pytest.fixture
def stored(monkeypatch, tmp_path):
    made = {}
    for name in ("kube-apiserver", "kubelet"):
        reference, archive = image_reference(NEW, name), tmp_path / f"{name}-new.tar"
        archive.write_text(f"{reference} sha256:new")
        made[name] = Image(name, reference, archive, f"{name:0<64}", 1, "sha256:new")
    found = Payload(NEW, {}, made)

    async def get(*_, **__):
        return found

    monkeypatch.setattr(images, "get_payload", get)


async def plan(context):
    return [change.sentence for change in await BringImages().plan(context)]


async def test_an_image_of_another_release_goes_to_the_nodes_that_lack_it(context, notes, stored):
    runs(context.kube(), SERVER)
    context.machines.hosts["n1"].images[SERVER] = "sha256:whatever"
    assert await plan(context) == [f"import {SERVER}, which the cluster runs, on n2"]
    await BringImages().run(context, notes)
    assert context.machines.hosts["n2"].images[SERVER] == "sha256:new"
    assert context.machines.hosts["n1"].images[SERVER] == "sha256:whatever"
    assert await plan(context) == []


@pytest.mark.looptime
@pytest.mark.parametrize("asked", ["looked at", "brought"])
async def test_a_worker_whose_host_never_ends_is_left_out(context, notes, stored, monkeypatch, asked):
    """What it has joined with ends no command, whoever has it."""
    context.joined = frozenset({"n1", "n2"})
    runs(context.kube(), SERVER)
    real: Any = {"looked at": prepare.present_images, "brought": prepare.import_images}[asked]

    async def never(host: FakeHost, *rest: Any) -> Any:
        if host.name == "n2":
            await asyncio.Event().wait()
        return await real(host, *rest)

    monkeypatch.setattr(images, real.__name__, never)
    reported = [found.sentence for found in await BringImages().plan(context) if isinstance(found, Warn)]
    assert reported == ["n2 is left out: it was not done within 120 s"] * (asked == "looked at")
    await BringImages().run(context, notes)
    assert context.machines.hosts["n1"].images[SERVER] == "sha256:new"
    assert list(context.absent) == ["n2"]
    assert await plan(context) == []


@pytest.mark.parametrize("image", [image_reference(OLD, "kube-apiserver"), "registry.example/of-my-own:v1"])
async def test_the_files_own_release_and_unknown_images_are_left_to_others(context, image):
    runs(context.kube(), image)
    assert await plan(context) == []


# --- kubelets ----------------------------------------------------------------------------------------------


def has_a_plane(kube: FakeKube, version: str = str(NEW.kubernetes), *, follow: bool = True) -> None:
    spec = {"version": version, "kubelets": {"follow": follow}}
    kube.put(control_plane_crd())
    kube.put({"apiVersion": API_VERSION, "kind": "ControlPlane", "metadata": {"name": CONTROL_PLANE}, "spec": spec})


def has_a_node(kube: FakeKube, name: str, kubelet: str) -> None:
    status = {"nodeInfo": {"kubeletVersion": kubelet}} if kubelet else {}
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})


@pytest.mark.parametrize("runs", [str(OLD.kubernetes), "of-my-own", ""], ids=["older", "unknown", "none"])
async def test_the_image_of_the_kubelet_that_a_node_is_to_get_goes_to_it_alone(context, notes, stored, runs):
    has_a_plane(context.kube())
    has_a_node(context.kube(), "n1", str(NEW.kubernetes))
    has_a_node(context.kube(), "n2", runs)
    has_a_node(context.kube(), "not-in-the-file", runs)
    assert await plan(context) == [f"import {KUBELET}, in which its kubelet comes, on n2"]
    await BringImages().run(context, notes)
    assert [host.images.get(KUBELET) for host in context.machines.hosts.values()] == [None, "sha256:new"]
    assert await plan(context) == []


async def test_a_node_gets_it_beside_what_all_nodes_lack(context, notes, stored):
    has_a_plane(context.kube())
    has_a_node(context.kube(), "n1", str(NEW.kubernetes))
    has_a_node(context.kube(), "n2", str(OLD.kubernetes))
    runs(context.kube(), SERVER)
    await BringImages().run(context, notes)
    brought = {name: set(host.images) for name, host in context.machines.hosts.items()}
    assert brought == {"n1": {SERVER}, "n2": {SERVER, KUBELET}}


async def test_the_release_of_the_file_is_no_exception(context):
    """What `up` has prepared a node with is the program, not the image."""
    has_a_plane(context.kube(), str(OLD.kubernetes))
    has_a_node(context.kube(), "n2", str(NEW.kubernetes))
    reference = image_reference(OLD, "kubelet")
    assert await plan(context) == [f"import {reference}, in which its kubelet comes, on n2"]


@pytest.mark.parametrize("plane", [{"follow": False}, {"version": "v1.99.0"}, {"version": "of-my-own"}], ids=str)
async def test_where_kubelets_do_not_follow_or_nobody_here_has_theirs_none_is_brought(context, plane):
    has_a_plane(context.kube(), **plane)
    has_a_node(context.kube(), "n2", str(OLD.kubernetes))
    assert await plan(context) == []


async def test_a_host_that_is_off_is_not_asked(context):
    has_a_plane(context.kube())
    for name in ("n1", "n2"):
        has_a_node(context.kube(), name, str(OLD.kubernetes))
    context.absent["n2"] = "it is off"
    del context.machines.hosts["n2"]
    assert await plan(context) == [f"import {KUBELET}, in which its kubelet comes, on n1"]


async def test_nothing_is_known_without_an_api(make_context):
    assert await plan(make_context(CLUSTER, kube=FakeKube(unhealthy="connection refused"))) == []
