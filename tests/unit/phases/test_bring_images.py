"""Nodes that come later get the images that the cluster runs, of whatever release."""

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
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube

OLD, NEW = load_release(Version(1, 36, 4)), load_release(Version(1, 37, 1))
SERVER = image_reference(NEW, "kube-apiserver")
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
    archive = tmp_path / "server.tar"
    archive.write_text(f"{SERVER} sha256:new")
    found = Payload(NEW, {}, {"kube-apiserver": Image("kube-apiserver", SERVER, archive, "0" * 64, 1, "sha256:new")})

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


async def test_nothing_is_known_without_an_api(make_context):
    assert await plan(make_context(CLUSTER, kube=FakeKube(unhealthy="connection refused"))) == []
