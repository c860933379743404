"""The API servers' serving certificate follows the control nodes, by a rollout that is nobody's edit."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autarky.agents.operator import node_record
from autarky.agents.operator.authorities import Authorities
from autarky.agents.operator.last_good import LastGood
from autarky.agents.operator.rollouts import Rollouts
from autarky.agents.operator.serving import SETTLED_SECONDS, Serving
from autarky.agents.operator.view import View
from autarky.agents.operator.workloads import revision_of
from autarky.decide import applied
from autarky.decide.rollback import Failure, Record
from autarky.duties import serving
from autarky.model.cluster import CertificateSettings
from autarky.pki import PkiStore
from autarky.pki.names import names_of
from autarky.ports import Object
from autarky.render import access
from autarky.render.certificates import certificate_specs
from autarky.render.objects import parts
from autarky.render.values import CONTROL_PLANE_FACT, CONTROL_PLANE_WISH, SYSTEM, Credentials, Inputs
from fakes.clusters import IMAGES, a_cluster
from fakes.kube import FakeKube

API = "kube-apiserver"


class HandClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(3600)


class Scene:
    def __init__(self, root: Path) -> None:
        self.kube, self.clock, self.said = FakeKube(), HandClock(), list[str]()
        cluster = a_cluster(controls=1, workers=2)
        store = PkiStore(root / "pki")
        store.ensure(certificate_specs(cluster), CertificateSettings(), datetime.now(UTC))
        inputs = Inputs(cluster, IMAGES, Credentials(store.files()))
        for part in parts(inputs):
            for obj in part.objects:
                if obj["kind"] in ("Secret", "DaemonSet"):
                    self.kube.put(applied.with_record(obj, obj) if applied.is_recorded(obj) else obj)
        self.kube.put(access.inventory(cluster))
        self.node("n1", fact=True)
        for name in ("ca.crt", "ca.key"):
            (root / name).write_bytes(store.files()[name])
        self.view = View(self.kube, self.clock, lambda: None)
        self.rollouts = Rollouts(self.say, self.view, self.kube, self.clock, lambda: True, lambda _: None)
        authorities = Authorities(root, timedelta(days=30))
        self.serving = Serving(self.say, self.view, self.kube, self.clock, authorities, self.rollouts)

    def say(self, sentence: str, **_: Any) -> None:
        self.said.append(sentence)

    def node(self, name: str, *, fact: bool, wish: bool = True) -> None:
        labels = {label: "" for label, there in ((CONTROL_PLANE_WISH, wish), (CONTROL_PLANE_FACT, fact)) if there}
        addresses = [{"type": "InternalIP", "address": f"192.0.2.1{name[1:]}"}]
        meta = {"name": name, "labels": labels}
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"addresses": addresses}})

    async def live(self) -> Object:
        found = await self.kube.get("apps/v1", "DaemonSet", API, SYSTEM)
        assert found is not None
        return found

    async def proven(self, *failures: Failure) -> None:
        """The live template has been healthy."""
        good = revision_of((await self.live())["spec"]["template"])
        self.rollouts.kept[API] = LastGood(Record(good, failures))

    async def round(self, seconds: float = 0.0) -> None:
        for _ in range(60):
            await asyncio.sleep(0)
        await self.serving.round()
        self.clock.now += seconds
        await self.serving.round()
        for _ in range(60):
            await asyncio.sleep(0)

    async def secret(self) -> str:
        return str(serving.secret_of((await self.live())["spec"]["template"]))

    async def names(self) -> frozenset[str]:
        found = await self.kube.get("v1", "Secret", await self.secret(), SYSTEM)
        assert found is not None
        return names_of(base64.b64decode(found["data"][serving.CERTIFICATE])).all


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    watching = asyncio.create_task(scene.view.run())
    await scene.proven()
    yield scene
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_certificate_that_names_every_control_node_is_left_alone(scene: Scene):
    before = await scene.live()
    await scene.round(seconds=600)
    assert await scene.live() == before


async def test_one_that_does_not_is_issued_anew_and_the_template_names_it(scene: Scene):
    old, before = await scene.secret(), await scene.names()
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    assert await scene.names() == before | {"n2", "192.0.2.12"}
    assert await scene.secret() != old
    assert await scene.kube.get("v1", "Secret", old, SYSTEM) is not None


async def test_a_certificate_that_is_none_is_told_and_left_alone(scene: Scene):
    live, name = await scene.live(), await scene.secret()
    secret = await scene.kube.get("v1", "Secret", name, SYSTEM)
    assert secret is not None
    garbage = {**secret["data"], serving.CERTIFICATE: base64.b64encode(b"no certificate").decode()}
    meta = {"name": "garbage", "namespace": SYSTEM}
    scene.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": garbage})
    live["spec"]["template"] = serving.with_secret(live["spec"]["template"], name, "garbage")
    scene.kube.put(live)
    await scene.round(seconds=600)
    assert await scene.secret() == "garbage"
    assert any("the Secret garbage cannot be read" in said for said in scene.said)


async def test_what_it_writes_is_no_edit_of_somebody_elses(scene: Scene):
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    found = applied.drift_of(await scene.live())
    assert found is not None
    assert not found.drifted


async def test_all_else_of_the_secret_stays(scene: Scene):
    before = await scene.kube.get("v1", "Secret", await scene.secret(), SYSTEM)
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    after = await scene.kube.get("v1", "Secret", await scene.secret(), SYSTEM)
    assert before is not None
    assert after is not None
    changed = {name for name in before["data"] if before["data"][name] != after["data"][name]}
    assert changed == {serving.CERTIFICATE, serving.KEY}
    assert after["immutable"] is True


async def test_nodes_that_join_one_after_the_other_share_a_rollout(scene: Scene):
    old = await scene.secret()
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS - 1)
    scene.node("n3", fact=True)
    await scene.round(seconds=SETTLED_SECONDS - 1)
    assert await scene.secret() == old
    await scene.round(seconds=2)
    assert {"n2", "n3"} <= await scene.names()


async def test_a_template_that_is_not_proven_is_left_alone(scene: Scene):
    scene.rollouts.kept[API] = LastGood(Record("another"))
    old = await scene.secret()
    scene.node("n2", fact=True)
    await scene.round(seconds=60)
    assert await scene.secret() == old


async def test_a_certificate_with_which_the_servers_did_not_come_up_is_not_issued_again(scene: Scene):
    first = await scene.live()
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    failed = revision_of((await scene.live())["spec"]["template"])
    live = await scene.live()
    await scene.kube.replace({**live, "spec": first["spec"]})  # rolled back
    await scene.proven(Failure(failed, 1, "not healthy"))
    secrets = len(await scene.kube.list("v1", "Secret", namespace=SYSTEM))
    for _ in range(3):
        await scene.round(seconds=60)
    assert (await scene.live())["spec"] == first["spec"]
    assert len(await scene.kube.list("v1", "Secret", namespace=SYSTEM)) == secrets
    assert any("did not come up" in sentence for sentence in scene.said)


async def test_names_of_nodes_that_left_go_with_the_next_issue(scene: Scene):
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    await scene.proven()
    scene.node("n2", fact=False, wish=False)
    await scene.round(seconds=60)
    assert "n2" in await scene.names()
    scene.node("n3", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    assert {"n2", "192.0.2.12"}.isdisjoint(await scene.names())
    assert {"n3", "192.0.2.13"} <= await scene.names()


async def test_what_was_issued_is_on_record(scene: Scene):
    scene.node("n2", fact=True)
    await scene.round(seconds=SETTLED_SECONDS)
    kept = await node_record.serving_secret(scene.kube)
    assert kept == {"names": ["192.0.2.11", "192.0.2.12", "n1", "n2"], "secret": await scene.secret()}
