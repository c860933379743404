"""Which etcd the members of a new one are: it may be another than that of the release, by an edit of the ControlPlane
or by a file from before. An older one does not start from the data of a newer one, and is let into no etcd of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.etcd.manifests import pods as etcd
from autarky.phases.recovery.letting import let_start
from autarky.phases.recovery.state import FromMember, FromSnapshot
from autarky.phases.recovery.versions import version_on
from autarky.places import ETCD_FENCE, ETCD_FENCED, MANIFESTS
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.kube import FakeKube
from fakes.recovering_host import RecoveringHost
from unit.phases.recovery.scenes import Scene, all_is_well, not_hosted
from unit.phases.recovery.test_taken_back import with_program

OWN, NEWER = "registry.k8s.io/etcd:3.6.16-0", "registry.k8s.io/etcd:3.7.3-0"


def pods_of(host: RecoveringHost) -> dict[str, Any]:
    found = {path: content for path, (content, _) in host.files.items() if path.startswith(f"{MANIFESTS}/etcd-")}
    return {path: json.loads(content) for path, content in found.items()}


def runs(scene: Scene, *names: str, image: str = NEWER) -> None:
    """The members of these nodes have been moved to it."""
    for name in names:
        for path, pod in pods_of(scene.hosts[name]).items():
            pod["spec"]["containers"][0]["image"] = image
            scene.hosts[name].files[path] = (json.dumps(pod).encode(), 0o600)


def images(scene: Scene) -> dict[str, str]:
    found = {name: list(pods_of(host).values()) for name, host in scene.hosts.items()}
    return {name: pod["spec"]["containers"][0]["image"] for name, [pod] in found.items()}


@pytest.mark.parametrize("image", [OWN, NEWER])
async def test_members_that_no_agent_looks_after_come_back_with_the_version_that_the_new_etcd_has(
    scene: Scene, snapshot: FromSnapshot, image: str
) -> None:
    await not_hosted(scene)
    runs(scene, "n1", "n2", "n3", image=image)
    await scene.run(snapshot)
    all_is_well(scene)
    assert images(scene) == dict.fromkeys(("n1", "n2", "n3"), image)


async def test_so_do_members_that_are_left(two_left: Scene) -> None:
    """n2 has the newest data. Where a change was interrupted, the others may run another one."""
    await not_hosted(two_left)
    runs(two_left, "n2")
    await two_left.run(FromMember())
    assert {name: image for name, image in images(two_left).items() if name != "n3"} == {"n1": NEWER, "n2": NEWER}


async def test_a_seat_that_had_no_member_begins_with_the_newest_that_the_others_had(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await not_hosted(scene)
    runs(scene, "n3")
    scene.hosts["n1"].take_away_pods()
    await scene.run(replace(snapshot, node="n1"))
    assert images(scene)["n1"] == NEWER


@pytest.mark.parametrize(("wrote", "begins"), [("3.7.1", NEWER), ("3.6.20", OWN), ("3.5.30", OWN), ("", OWN)])
async def test_the_data_of_a_newer_minor_is_not_given_to_the_seats_older_etcd(
    scene: Scene, snapshot: FromSnapshot, wrote: str, begins: str
) -> None:
    """The hosts have a program that reads it, or it would be refused: its image was brought with it."""
    await not_hosted(scene)
    for host in scene.hosts.values():
        with_program(host, "3.7.3")
    await scene.run(replace(snapshot, etcd=wrote))
    assert set(images(scene).values()) == {begins}


def template(scene: Scene, image: str) -> Object:
    """Of the members, as the API of the backup has it."""
    found = etcd.template_object(scene.make().inputs())
    spec = json.loads(found["data"][etcd.TEMPLATE_KEY])
    spec["containers"][0]["image"] = image
    return {**found, "data": {**found["data"], etcd.IN_FORCE_KEY: json.dumps(spec)}}


async def asked_for(scene: Scene) -> str | None:
    plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    version = (plane["spec"].get("etcd") or {}).get("version")
    return None if version is None else str(version)


async def test_where_agents_look_after_members_an_api_of_an_earlier_time_asks_for_the_version_that_runs(
    scene: Scene, snapshot: FromSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody joins: a member of an older minor would be let in by nobody."""
    runs(scene, "n1", "n2", "n3")
    scene.kube.put(template(scene, OWN))
    patch, fenced = FakeKube.patch, list[bool]()

    async def patched(kube: FakeKube, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> Any:
        done = await patch(kube, api_version, kind, name, *arguments, **more)
        if kind == "ControlPlane" and await asked_for(scene) is not None:
            fenced.extend(ETCD_FENCE in scene.hosts[name].files for name in ("n2", "n3"))
            scene.kube.put(template(scene, NEWER))  # the operator follows
        return done

    monkeypatch.setattr(FakeKube, "patch", patched)
    await scene.run(replace(snapshot, etcd="3.6.16"))
    all_is_well(scene)
    assert await asked_for(scene) == "3.7.3"
    assert fenced == [True, True]


@pytest.mark.parametrize("image", [NEWER, "registry.k8s.io/etcd:3.7.2-0", "registry.k8s.io/etcd:3.8.0-0", None])
async def test_where_it_asks_for_that_minor_a_later_one_or_nothing_nothing_else_is_asked_for(
    scene: Scene, snapshot: FromSnapshot, image: str | None
) -> None:
    runs(scene, "n1", "n2", "n3")
    if image is not None:
        scene.kube.put(template(scene, image))
    await scene.run(snapshot)
    all_is_well(scene)
    assert await asked_for(scene) is None


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b"{}", b'{"spec": {"containers": []}}', b'{"spec": null}'])
async def test_a_static_pod_that_cannot_be_understood_says_no_version(scene: Scene, content: bytes) -> None:
    host = scene.hosts["n1"]
    host.take_away_pods()
    host.files[ETCD_FENCED] = (content, 0o600)
    assert await version_on(host) is None


async def test_a_worker_has_no_say_in_which_image_a_control_node_runs(scene: Scene) -> None:
    """Of a static pod only the version of the image is taken."""
    runs(scene, "n1", image="evil.example/rootkit:3.7.3-0")
    scene.hosts["n2"].take_away_pods()
    context = scene.make()
    await let_start(context, scene.hosts["n1"], context.cluster.node("n2"), {"n1": "192.0.2.11", "n2": "192.0.2.12"})
    assert images(scene)["n2"] == NEWER
