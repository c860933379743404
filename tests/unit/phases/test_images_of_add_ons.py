"""No host gets the image of an add-on that the cluster does not have, whichever way its images come; and that of a
kubelet only with another version, or where its level is hosted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.cli import render_files
from autarky.model.cluster import Cni
from autarky.model.components import IMAGES, KUBELET
from autarky.model.versions import Version
from autarky.payload import image_reference, load_release
from autarky.phases import images
from autarky.phases.images import BringImages, push_images
from autarky.phases.prepare import PrepareHosts
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

OURS, WITH_KUBELET = a_cluster(), a_cluster(hosts_kubelet=True)
THE_USERS = replace(OURS, network=replace(OURS.network, cni=Cni.NONE))
PHASE = PrepareHosts()


@pytest.fixture(params=[OURS, THE_USERS, WITH_KUBELET], ids=["our pod network", "the user's pod network", "level 0"])
def cluster(request):
    return request.param


def needed(cluster) -> set[str]:
    return set(IMAGES) - ({"flannel"} if cluster is THE_USERS else set()) | (
        {KUBELET} if cluster is WITH_KUBELET else set()
    )


def on_the_host(context) -> set[str]:
    """The names of the images on it, in the release."""
    names = {image_reference(context.release, name): name for name in (*IMAGES, KUBELET)}
    return {names[reference] for reference in context.machines.hosts["n1"].images}


async def test_a_host_is_prepared_with_what_the_cluster_needs_and_then_lacks_nothing(make_context, notes, cluster):
    context = make_context(cluster)
    imports = [change.sentence for change in await PHASE.plan(context) if change.sentence.startswith("import")]
    assert imports == [f"import {len(needed(cluster))} images on n1"]
    await PHASE.run(context, notes)
    assert on_the_host(context) == needed(cluster)
    assert await PHASE.plan(context) == []


async def test_of_a_release_that_is_pushed_nodes_get_what_the_cluster_needs_and_its_kubelet(
    make_context, notes, cluster
):
    context = make_context(cluster)
    context.machines.hosts["n1"].active_units.add("containerd")
    await push_images(context, context.payload, notes)
    assert on_the_host(context) == {*needed(cluster), KUBELET}
    assert notes.notes == [f"n1 has the images of Kubernetes {context.release.kubernetes}"]


async def test_beside_rendered_files_is_what_the_cluster_needs(make_context, notes, tmp_path, monkeypatch, cluster):
    context = make_context(cluster)

    async def get(*_: Any, **__: Any) -> Any:
        return context.payload

    monkeypatch.setattr("autarky.payload.get_payload", get)
    await render_files.write_payload(context.release, cluster, tmp_path / "out", notes)
    assert {path.stem for path in (tmp_path / "out/images").iterdir()} == needed(cluster)


def test_nothing_is_rendered_with_an_image_that_the_cluster_does_not_need(make_context, cluster):
    assert make_context(cluster).inputs().images.keys() == needed(cluster)


async def test_a_users_pod_network_is_not_taken_for_ours_of_another_release(make_context, notes, monkeypatch, cluster):
    """Whoever brings a pod network brings its image."""
    own = load_release(cluster.kubernetes_version)
    reference = "registry.example/flannel:of-another-release"
    of_another = [replace(one, reference=reference) if one.name == "flannel" else one for one in own.images]
    other = replace(own, kubernetes=Version(1, 99, 0), images=tuple(of_another))
    monkeypatch.setattr(images, "_others", lambda _: [other])
    kube = FakeKube()
    template = {"spec": {"containers": [{"name": "main", "image": reference}]}}
    meta = {"name": "kube-flannel", "namespace": "kube-system"}
    kube.put({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {"template": template}})
    context = make_context(cluster, kube=kube)
    lacks = [f"import {reference}, which the cluster runs, on n1"]
    await PHASE.run(context, notes)
    assert [change.sentence for change in await BringImages().plan(context)] == lacks * (cluster is not THE_USERS)


async def test_where_the_api_asks_for_level_0_and_the_file_does_not_nodes_get_the_image_all_the_same(
    make_context, notes
):
    kube = FakeKube()
    context = make_context(OURS, kube=kube)
    await PHASE.run(context, notes)
    assert await BringImages().plan(context) == []
    context.cluster = WITH_KUBELET
    reference = image_reference(context.release, KUBELET)
    lacks = [f"import {reference}, in which its kubelet comes, on n1"]
    assert [change.sentence for change in await BringImages().plan(context)] == lacks
    context.machines.hosts["n1"].images[reference] = "sha256:x"
    assert await BringImages().plan(context) == []
