"""A label makes a worker a control node and its removal a worker again: operator and agent, on one API in memory.

The operator's duties and the agent's are the real ones, as are certificates, files and the script of the standbys.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from autarky import places
from autarky.control.base.operator_view import View
from autarky.control.certificates import node as leaf_keeping
from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.control.certificates.operator import Serving
from autarky.control.checkpoint.node.checkpointer import write_revision
from autarky.control.control_nodes.decide.observed import ANNOTATION, JOINING, LEAVE, READY
from autarky.control.control_nodes.node import parts as control_parts
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.control_nodes.node.parts import ControlParts
from autarky.control.control_nodes.node.role import ControlNode
from autarky.control.control_nodes.node.role_on_disk import State
from autarky.control.control_nodes.operator.roles import ControlNodes
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots import manifests as standby
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node import ports as ports_seen
from autarky.errors import ApiError, Unreachable
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.cluster import CertificateSettings
from autarky.model.components import API_SERVER, NODE_AGENT, WITH_STANDBY
from autarky.phases.context import with_first_leaves
from autarky.pki import PkiStore
from autarky.pki.issue import alternative_names
from autarky.ports import Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE, control_plane_crd
from autarky.render.kubeconfig import bootstrap_kubeconfig
from autarky.render.node_marker import node_marker
from autarky.render.objects import agent_parts, parts
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, SYSTEM, Credentials, Inputs
from autarky.store import sync_directory, write_private
from fakes.clock import LoopClock
from fakes.clusters import IMAGES, a_cluster
from fakes.cri import FakeCri
from fakes.kube import FakeKube

NODE = "n2"
CAS = ("ca", "front-proxy-ca", "etcd/ca")
RBAC = "rbac.authorization.k8s.io/v1"
GUARDED = {"Secret": "secrets", "ConfigMap": "configmaps", "DaemonSet": "daemonsets", "Deployment": "deployments"}


@dataclass
class AsKubelet:
    """The API as the node's kubelet sees it: what its roles do not name it may not read."""

    kube: FakeKube

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        if kind in GUARDED and not await self._may_read(GUARDED[kind], name):
            raise ApiError(403, "Forbidden", f"system:node:{NODE} cannot get {kind} {name}")
        return await self.kube.get(api_version, kind, name, namespace)

    async def _may_read(self, resource: str, name: str) -> bool:
        bound = {
            binding["roleRef"]["name"]
            for binding in await self.kube.list(RBAC, "RoleBinding", namespace=SYSTEM)
            if f"system:node:{NODE}" in [subject["name"] for subject in binding["subjects"]]
        }
        roles = [r for r in await self.kube.list(RBAC, "Role", namespace=SYSTEM) if r["metadata"]["name"] in bound]
        rules = [rule for role in roles for rule in role["rules"]]
        return any(resource in rule["resources"] and name in rule.get("resourceNames", ()) for rule in rules)

    async def create(self, obj: Object) -> Object:
        who = {"username": f"system:node:{NODE}", "groups": ["system:nodes", "system:authenticated"]}
        return await self.kube.create({**obj, "spec": {**obj["spec"], **who}})

    async def patch(self, *args: Any, **kwargs: Any) -> Object:
        return await self.kube.patch(*args, **kwargs)


@dataclass
class Scene:
    root: Path
    kube: FakeKube = field(default_factory=FakeKube)
    cri: FakeCri = field(default_factory=FakeCri)
    said: list[str] = field(default_factory=list)
    balanced: list[bool] = field(default_factory=list)
    pki: dict[str, bytes] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)
    """Node → the phase of its EtcdMember."""
    trouble: str | None = None
    """What API servers answer that are asked directly; None where they are ready."""
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        cluster = a_cluster(controls=1, workers=1)
        store = PkiStore(self.root / "pki")
        store.ensure(certificate_specs(cluster), CertificateSettings(), datetime.now(UTC), CAS)
        self.pki = store.files()
        inputs = Inputs(cluster, IMAGES, Credentials(with_first_leaves(cluster, self.pki)))
        self.kube.put(control_plane_crd())
        for part in [*parts(inputs), *agent_parts(inputs)]:
            for obj in part.objects:
                self.kube.put(obj)
        self.put_node("n1", requested=True, active=True, reported=f"{READY}1")
        self.put_node(NODE)
        for image in IMAGES.values():
            self.cri.put_image(image)
        clock = LoopClock()
        self.view = View(self.kube, clock, lambda: None, print)
        self.operator_clock = LoopClock()
        self.control_nodes = ControlNodes(
            self.say, self.view, self.kube, self.operator_clock, lambda: self.phases, self.ask
        )
        self.serving = Serving(self.say, self.view, self.kube)
        self.agent = ControlNode(
            NODE,
            AsKubelet(self.kube),  # type: ignore[arg-type]
            ControlParts(NODE, AsKubelet(self.kube), self.cri),  # type: ignore[arg-type]
            lambda: self.view.nodes.items.get((None, NODE)),
            self.balance,
            clock,
            lambda _, sentence: self.said.append(sentence),
        )

    def say(self, sentence: str, **_: Any) -> None:
        self.said.append(sentence)

    async def ask(self, url: str) -> str | None:
        self.asked.append(url)
        return self.trouble

    async def balance(self) -> None:
        self.balanced.append(role_on_disk.balances_as_control_node())

    # --- the API ---

    def put_node(
        self, name: str, *, requested: bool = False, active: bool = False, reported: str | None = None
    ) -> None:
        labels = {
            label: ""
            for label, there in ((CONTROL_PLANE_REQUESTED, requested), (CONTROL_PLANE_ACTIVE, active))
            if there
        }
        self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels, "annotations": {ANNOTATION: reported} if reported else {}},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": f"192.0.2.1{name[1:]}"}],
                },
            }
        )

    async def give_address(self, address: str) -> None:
        node = await self.kube.get("v1", "Node", NODE)
        assert node is not None
        self.kube.put({**node, "status": {**node["status"], "addresses": [{"type": "InternalIP", "address": address}]}})

    async def label(self, name: str, value: str | None = "") -> None:
        await self.kube.patch("v1", "Node", name, {"metadata": {"labels": {CONTROL_PLANE_REQUESTED: value}}})

    async def metadata(self, name: str = NODE) -> Object:
        found = await self.kube.get("v1", "Node", name)
        assert found is not None
        meta: Object = found["metadata"]
        return meta

    async def reported(self) -> str | None:
        return ((await self.metadata()).get("annotations") or {}).get(ANNOTATION)

    async def has_fact(self, name: str = NODE) -> bool:
        return CONTROL_PLANE_ACTIVE in (await self.metadata(name))["labels"]

    async def rights(self) -> list[str]:
        kinds = [await self.kube.list(RBAC, kind, namespace=SYSTEM) for kind in ("Role", "RoleBinding")]
        names = [obj["metadata"]["name"] for found in kinds for obj in found]
        return sorted(name for name in names if name.endswith(f":{NODE}"))

    # --- time ---

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.view.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def rounds(self, number: int = 1) -> None:
        for _ in range(number):
            await _a_moment()
            await self._operate()
            await self.serving.reconcile()
            await _a_moment()
            await self.agent.reconcile()

    async def operator_rounds(self, number: int) -> None:
        """While the node's agent is dead."""
        for _ in range(number):
            await _a_moment()
            await self._operate()

    async def _operate(self) -> None:
        self.operator_clock.ahead += 6
        await self.control_nodes.reconcile()

    async def says(self, levels: str) -> None:
        """The ControlPlane."""
        await self.kube.patch(API_VERSION, "ControlPlane", CONTROL_PLANE, {"spec": {"selfHosted": levels}})

    async def become(self) -> None:
        await self.label(NODE)
        for _ in range(12):
            await self.rounds()
            if await self.has_fact() and len(await self.rights()) == 1:
                return
        raise AssertionError(self.said)

    async def cease(self) -> None:
        await self.label(NODE, None)
        for _ in range(12):
            await self.rounds()
            if await self.reported() is None and not await self.rights():
                return
        raise AssertionError(self.said)


async def _a_moment() -> None:
    """Long enough for what was written to be seen by the live copies."""
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    for name in ("STANDBY", "MANIFESTS", "RUN"):
        monkeypatch.setattr(places, name, str(tmp_path / name.lower()))
    (tmp_path / "manifests").mkdir()
    monkeypatch.setattr(role_on_disk, "FILE", tmp_path / "control-node.json")
    monkeypatch.setattr(role_on_disk, "MARKER", tmp_path / "node.json")
    monkeypatch.setattr(slots_on_disk, "WANTED", tmp_path / "wanted.json")
    monkeypatch.setattr(control_parts, "PKI", tmp_path / "node-pki")
    monkeypatch.setattr(control_parts, "ETCD_PKI", tmp_path / "node-pki/etcd")
    monkeypatch.setattr(control_parts, "BALANCER", tmp_path / "nllb")
    monkeypatch.setattr(control_parts, "WAY_BACK", tmp_path / "bootstrap-kubelet.conf")
    monkeypatch.setattr(places, "PKI", str(tmp_path / "node-pki"))
    monkeypatch.setattr(places, "ETCD_PKI", str(tmp_path / "node-pki/etcd"))
    monkeypatch.setattr(places, "LEAVES", str(tmp_path / "leaves"))
    monkeypatch.setattr(places, "LEAVES_PLAN", str(tmp_path / "leaves.json"))
    monkeypatch.setattr(nllb, "ETCD_CLIENT_PATH", str(tmp_path / "nllb/etcd-client.pem"))
    monkeypatch.setattr(nllb, "ETCD_CA_PATH", str(tmp_path / "nllb/etcd-ca.crt"))
    monkeypatch.setattr(leaf_keeping, "KUBELET_PKI", str(tmp_path / "kubelet-pki"))
    monkeypatch.setattr(leaf_keeping, "KUBELET_KUBECONFIG", str(tmp_path / "kubelet.conf"))
    monkeypatch.setattr(leaf_keeping, "GIVEN", str(tmp_path / "kubelet-pki/given"))
    monkeypatch.setattr(leaves, "GROUP", os.getgid())
    script = standby.script().content.decode()
    for place in (("/var/lib/autarky/standby", "standby"), ("/etc/kubernetes/manifests", "manifests")):
        script = script.replace(place[0], str(tmp_path / place[1]))
    (tmp_path / "script").write_text(script.replace("/run/autarky", str(tmp_path / "run")))
    monkeypatch.setattr(standby, "SCRIPT_PATH", str(tmp_path / "script"))

    async def listens(port: int) -> bool:
        return role_on_disk.balances_as_control_node() and port == 2378

    monkeypatch.setattr(ports_seen, "listens", listens)
    scene = Scene(tmp_path)
    async with scene.watched():
        yield scene


def _is_root_only(path: Path) -> bool:
    return stat.S_IMODE(path.stat().st_mode) == 0o600


# --- becoming ----------------------------------------------------------------------------------------


async def test_a_label_gives_a_worker_all_that_a_control_node_has(scene: Scene):
    await scene.become()
    assert str(await scene.reported()).startswith(READY)
    assert role_on_disk.state() is State.READY
    assert scene.agent.role_changed.is_set()
    for component in (*WITH_STANDBY, NODE_AGENT):
        assert (Path(places.STANDBY) / component / "current" / "pod.json").exists(), component
    files = [*control_parts.ETCD_PKI.iterdir(), *control_parts.BALANCER.iterdir()]
    assert all(_is_root_only(path) for path in files)
    names = {*(f"{role}.{kind}" for role in ("ca", "server", "peer") for kind in ("crt", "key"))}
    assert {path.name for path in control_parts.ETCD_PKI.iterdir()} == names
    for name, content in scene.pki.items():
        if name.startswith(("ca.", "front-proxy-ca.", "etcd/ca.", "sa.")):
            assert (control_parts.PKI / name).read_bytes() == content
    assert {path.parent.name for path in Path(places.LEAVES).glob("*/*.key")} == set(WITH_STANDBY)
    assert slots_on_disk.wanted_level() == 2


async def test_its_etcd_certificate_names_it_and_nobody_else(scene: Scene):
    await scene.become()
    assert names_in(control_parts.ETCD_PKI / "peer.crt") == {"localhost", "127.0.0.1", NODE, "192.0.2.12"}


async def test_its_api_server_is_named_by_the_certificates_of_all_before_it_is_one(scene: Scene):
    await scene.become()
    plan = await scene.kube.get("v1", "ConfigMap", leaves.CONFIG_MAP, SYSTEM)
    assert plan is not None
    assert {"n1", "192.0.2.11", NODE, "192.0.2.12"} <= set(leaves.plan_in(plan).names)
    served = names_in(Path(places.LEAVES) / "kube-apiserver/apiserver.crt")
    assert {"n1", NODE, "192.0.2.11", "192.0.2.12", "127.0.0.1", "kubernetes"} <= served


def names_in(path: Path) -> set[str]:
    found = alternative_names(x509.load_pem_x509_certificate(path.read_bytes()))
    return {str(name.value) for name in found}


async def test_what_its_agent_might_read_is_taken_back_once_it_has(scene: Scene):
    await scene.label(NODE)
    await scene.rounds()
    assert f"autarky:joining:{NODE}" in await scene.rights()
    await scene.become()
    assert await scene.rights() == [f"autarky:control-node-leases:{NODE}"]


async def test_an_image_that_is_missing_is_told_on_the_node(scene: Scene):
    scene.agent.parts.cri = FakeCri()
    for image in set(IMAGES.values()) - {IMAGES["kube-scheduler"]}:
        scene.agent.parts.cri.put_image(image)
    await scene.label(NODE)
    await scene.rounds(4)
    assert (await scene.reported()).startswith(f"{JOINING}the image {IMAGES['kube-scheduler']} is not on the node")
    assert not await scene.has_fact()


async def test_an_agent_that_is_killed_between_any_two_steps_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    """Each round dies a little later than the one before."""

    class Killed(BaseException):
        pass

    left = 0

    def mortal(function: Any) -> Any:
        def dies(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return function(*args, **kwargs)

        return dies

    monkeypatch.setattr(control_parts, "write_private", mortal(write_private))
    monkeypatch.setattr(control_parts, "write_revision", mortal(write_revision))
    monkeypatch.setattr(role_on_disk, "remember", mortal(role_on_disk.remember))
    await scene.label(NODE)
    for lives in range(40):
        left = lives
        try:
            await scene.rounds()
        except Killed:
            assert not role_on_disk.acts_as_control_node()
        if await scene.has_fact():
            break
    assert str(await scene.reported()).startswith(READY)
    assert control_parts.complete() is not None


async def test_a_node_that_lies_about_its_address_gets_nothing(scene: Scene):
    await scene.give_address("192.0.2.1")
    await scene.label(NODE)
    await scene.rounds(4)
    assert await scene.rights() == []
    events = await scene.kube.list("v1", "Event", namespace="default")
    assert [event["reason"] for event in events] == ["ControlNodeRefused"]
    assert "join inventory" in events[0]["message"]


async def test_a_node_that_nobody_has_labelled_may_read_no_key(scene: Scene):
    parts_ = ControlParts(NODE, AsKubelet(scene.kube), scene.cri)  # type: ignore[arg-type]
    await scene.rounds(3)
    with pytest.raises(control_parts.NotYet, match="grant access"):
        await parts_.authorities()
    assert not control_parts.PKI.exists()


async def test_a_control_node_of_an_earlier_release_gets_the_keys_that_it_lacks(scene: Scene):
    await scene.become()
    (control_parts.PKI / "front-proxy-ca.key").unlink()
    for _ in range(6):
        await scene.rounds()
    assert (control_parts.PKI / "front-proxy-ca.key").exists()
    assert str(await scene.reported()).startswith(READY)


# --- ceasing -----------------------------------------------------------------------------------------


async def test_without_the_label_everything_is_taken_away_again(scene: Scene):
    await scene.become()
    await scene.cease()
    assert not await scene.has_fact()
    assert not Path(places.STANDBY).exists()
    assert not list(control_parts.ETCD_PKI.iterdir())
    assert not list(control_parts.BALANCER.iterdir())
    assert not Path(places.LEAVES).exists()
    assert not Path(places.LEAVES_PLAN).exists()
    assert role_on_disk.state() is None
    assert await scene.rights() == []
    assert scene.balanced[-1] is False


async def test_nobody_ceases_while_the_other_api_server_does_not_answer_though_its_node_is_ready(scene: Scene):
    await scene.become()
    scene.trouble = "nothing accepts connections"
    await scene.label(NODE, None)
    await scene.rounds(6)
    assert await scene.has_fact()
    assert "n1: nothing accepts connections" in scene.control_nodes.unsettled[0]
    assert {url.partition("//")[2].partition(":")[0] for url in scene.asked} == {"192.0.2.11"}
    scene.trouble = None
    await scene.rounds(2)
    assert await scene.has_fact()
    await scene.cease()


async def test_api_servers_are_asked_only_while_a_control_node_is_to_go(scene: Scene):
    await scene.become()
    await scene.rounds(3)
    assert scene.asked == []


async def test_a_node_that_up_has_made_keeps_no_ca_key_when_it_ceases(scene: Scene):
    await scene.become()
    for name in ("ca.key", "front-proxy-ca.key", "sa.key", "etcd/ca.key", "ca.crt"):
        (control_parts.PKI / name).write_text("from up")
    await scene.cease()
    assert not list(control_parts.PKI.rglob("*.key"))


@pytest.mark.parametrize("before", [None, "a token", "torn"])
async def test_who_ceases_has_what_its_kubelet_can_come_back_with_and_no_ca_key(scene: Scene, before: str | None):
    """As a worker its agent signs it nothing any more."""
    await scene.become()
    if before is not None:
        token = bootstrap_kubeconfig(b"ca", "c", "abcdef.0123456789abcdef")
        control_parts.WAY_BACK.write_bytes(token if before == "a token" else b"\xff{")
    await scene.cease()
    assert not list(control_parts.PKI.rglob("*.key"))
    assert _is_root_only(control_parts.WAY_BACK)
    found = read_kubeconfig(control_parts.WAY_BACK)
    assert found.server == "https://127.0.0.1:6443"
    assert found.ca_pem == scene.pki["ca.crt"]
    certificate = x509.load_pem_x509_certificate(found.client_cert_pem or b"")
    assert certificate.subject.rfc4514_string() == f"CN=renew:node:{NODE},O=autarky:kubelet-renewals"
    ca = x509.load_pem_x509_certificate(scene.pki["ca.crt"])
    certificate.verify_directly_issued_by(ca)
    assert certificate.not_valid_after_utc == ca.not_valid_after_utc


async def test_who_has_something_to_come_back_with_keeps_it(scene: Scene):
    """It is noted in the API as the only one that is good."""
    await scene.become()
    await scene.cease()
    given = control_parts.WAY_BACK.read_bytes()
    await scene.become()
    await scene.cease()
    assert control_parts.WAY_BACK.read_bytes() == given


async def test_a_ca_key_that_can_sign_nothing_goes_all_the_same(scene: Scene):
    await scene.become()
    (control_parts.PKI / "ca.key").write_text("damaged")
    await scene.cease()
    assert not list(control_parts.PKI.rglob("*.key"))
    assert not control_parts.WAY_BACK.exists()
    assert any("no credential to rejoin with" in sentence for sentence in scene.said)


async def test_an_initial_member_that_becomes_a_worker_is_no_initial_member_any_more(scene: Scene):
    role_on_disk.MARKER.write_bytes(node_marker("c", NODE, ("n1", NODE), version="v1.36.4").content)
    await scene.become()
    assert "n1" in role_on_disk.MARKER.read_text()
    await scene.cease()
    assert role_on_disk.MARKER.read_bytes() == node_marker("c", NODE, (), version="v1.36.4").content


async def test_of_a_dead_machine_a_removed_member_counts_as_gone_though_its_pod_stays(scene: Scene):
    await scene.become()
    labels = {"k8s-app": "etcd"}
    pod = {"metadata": {"name": "etcd-n2", "namespace": SYSTEM, "labels": labels}, "spec": {"nodeName": NODE}}
    scene.kube.put({"apiVersion": "v1", "kind": "Pod", **pod})
    scene.phases[NODE] = "Leaving"
    await scene.label(NODE, None)
    await scene.operator_rounds(5)
    assert await scene.has_fact()
    scene.phases[NODE] = "Removed"
    await scene.operator_rounds(3)
    assert not await scene.has_fact()


@pytest.mark.parametrize(("levels", "lowest"), [("0-4", 1), ("02-4", 2)])
async def test_a_hosted_kubelet_is_not_the_lowest_level_that_a_node_remembers(scene: Scene, levels: str, lowest: int):
    await scene.says(levels)
    await scene.become()
    assert slots_on_disk.wanted_level() == lowest


async def test_a_power_cut_after_a_node_has_ceased_to_be_one_leaves_no_key_and_no_standby(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    """Its disk had not kept the removals yet: the operator has forgotten the node, and its agent removes all again."""
    await scene.become()
    before, remember = scene.root.parent / "before", role_on_disk.remember

    def snapshot(new: State) -> None:
        remember(new)
        if new is State.CEASING and not before.exists():
            shutil.copytree(scene.root, before, symlinks=True)

    monkeypatch.setattr(role_on_disk, "remember", snapshot)
    await scene.cease()
    shutil.rmtree(scene.root)
    shutil.copytree(before, scene.root, symlinks=True)
    assert list(control_parts.PKI.rglob("*.key"))
    await scene.rounds(4)
    assert not list(control_parts.PKI.rglob("*.key"))
    assert not Path(places.LEAVES).exists()
    assert not Path(places.STANDBY).exists()
    assert role_on_disk.state() is None
    assert await scene.reported() is None


async def test_what_was_removed_is_durable_before_the_node_forgets_that_it_ceases(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    await scene.become()
    synced: dict[Path, State | None] = {}

    def noted(directory: Path) -> None:
        synced[directory] = role_on_disk.state()
        sync_directory(directory)

    for module in (control_parts, role_on_disk):
        monkeypatch.setattr(module, "sync_directory", noted)
    await scene.cease()
    removed_from = {Path(places.MANIFESTS), scene.root, *(control_parts.PKI, control_parts.ETCD_PKI)}
    removed_from.add(control_parts.BALANCER)
    assert removed_from <= synced.keys()
    assert {state for path, state in synced.items() if path != role_on_disk.FILE.parent} == {State.CEASING}
    assert synced[role_on_disk.FILE.parent] is None  # the last one: of the note itself


async def test_what_an_earlier_release_left_running_is_stopped_before_its_parts_are_removed(scene: Scene):
    """A power cut has brought the standbys back, and the kubelet's start has activated one."""
    await scene.become()
    await slots_on_disk.run_script("activate", API_SERVER)
    (Path(places.MANIFESTS) / "etcd-0123abcd.json").write_text("{}")
    role_on_disk.remember(State.CEASING)
    await scene.label(NODE, None)
    await scene.operator_rounds(3)
    await scene.rounds(2)
    assert control_parts.has_standbys()
    (Path(places.MANIFESTS) / "etcd-0123abcd.json").unlink()
    await scene.rounds(3)
    assert not list(Path(places.MANIFESTS).iterdir())
    assert role_on_disk.state() is None


async def test_back_and_forth(scene: Scene):
    for _ in range(3):
        await scene.become()
        await scene.cease()


async def test_a_label_that_goes_before_the_node_is_ready_leaves_nothing(scene: Scene):
    scene.agent.parts.cri = FakeCri()  # which has no image
    await scene.label(NODE)
    await scene.rounds(3)
    await scene.cease()
    assert role_on_disk.state() is None
    assert not Path(places.STANDBY).exists()


@pytest.mark.parametrize("reached", [State.JOINING, State.PREPARED])
async def test_a_request_that_was_refused_and_is_withdrawn_leaves_nothing(scene: Scene, reached: State):
    """Its node has begun; the operator, which has no record of it, never says `leave`."""
    await scene.give_address("192.0.2.1")
    await scene.label(NODE)
    await scene.rounds(3)
    assert role_on_disk.state() is State.JOINING
    role_on_disk.remember(reached)
    await scene.label(NODE, None)
    await scene.rounds(4)
    assert role_on_disk.state() is None
    assert await scene.reported() is None
    assert not Path(places.STANDBY).exists()
    assert scene.balanced[-1] is False


async def test_the_right_to_read_keys_ends_with_the_label_and_not_when_the_node_says_that_it_has_left(scene: Scene):
    """A node that somebody has broken into need never say so."""
    scene.agent.parts.cri = FakeCri()  # which has no image
    await scene.label(NODE)
    await scene.rounds(3)
    joining = f"autarky:joining:{NODE}"
    assert joining in await scene.rights()
    await scene.label(NODE, None)
    await scene.operator_rounds(4)
    assert await scene.reported() == LEAVE
    assert joining not in await scene.rights()


class LosesOne:
    """An API of which one object cannot be applied."""

    def __init__(self, kube: FakeKube, name: str) -> None:
        self.kube, self.name = kube, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.kube, attribute)

    async def apply(self, obj: Object, **how: Any) -> Object:
        if obj["metadata"]["name"] == self.name:
            raise Unreachable("the API server that it was sent to is gone")
        return await self.kube.apply(obj, **how)


async def test_a_right_to_read_keys_whose_grant_was_interrupted_ends_as_well(scene: Scene):
    """A control node, from which the right was taken back in this term, asks for it again; then its label goes."""
    await scene.become()
    await scene.kube.patch("v1", "Node", NODE, {"metadata": {"annotations": {ANNOTATION: f"{JOINING}something"}}})
    await _a_moment()
    scene.control_nodes.kube = LosesOne(scene.kube, f"autarky:control-node-leases:{NODE}")
    with pytest.raises(Unreachable):
        await scene.control_nodes.reconcile()
    assert f"autarky:joining:{NODE}" in await scene.rights()
    scene.control_nodes.kube = scene.kube
    await scene.label(NODE, None)
    await scene.operator_rounds(4)
    assert await scene.reported() == LEAVE
    assert f"autarky:joining:{NODE}" not in await scene.rights()


async def test_its_parts_stay_while_something_of_it_runs(scene: Scene):
    await scene.become()
    (Path(places.MANIFESTS) / "etcd-0123abcd.json").write_text("{}")
    await scene.label(NODE, None)
    await scene.rounds(8)
    assert await scene.reported() == LEAVE
    assert role_on_disk.state() is State.LEAVING
    assert control_parts.complete() is not None
    (Path(places.MANIFESTS) / "etcd-0123abcd.json").unlink()
    await scene.rounds(4)
    assert await scene.reported() is None


async def test_a_label_that_comes_back_on_the_way_out_keeps_what_is_there(scene: Scene):
    await scene.become()
    (Path(places.MANIFESTS) / "etcd-0123abcd.json").write_text("{}")
    await scene.label(NODE, None)
    await scene.rounds(6)
    await scene.label(NODE)
    await scene.rounds(6)
    assert role_on_disk.state() is State.READY
    assert await scene.has_fact()


async def test_a_node_object_that_is_deleted_and_created_again_is_a_control_node_again(scene: Scene):
    await scene.become()
    await scene.kube.delete("v1", "Node", NODE)
    await scene.rounds(2)
    scene.put_node(NODE)
    await scene.rounds(6)
    meta = await scene.metadata()
    assert {CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE} <= meta["labels"].keys()
    assert control_parts.complete() is not None


async def test_the_last_control_node_is_told_that_it_stays_one(scene: Scene):
    await scene.rounds()
    await scene.label("n1", None)
    await scene.rounds(3)
    assert await scene.has_fact("n1")
    events = await scene.kube.list("v1", "Event", namespace="default")
    assert [event["message"] for event in events] == ["no control node would be left: it stays one"]


async def test_pods_that_need_a_control_node_end_the_operators_own_last(scene: Scene):
    await scene.become()
    for component in ("autarky-operator", "kube-scheduler"):
        scene.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"a-{component}" if component == "autarky-operator" else component,
                    "namespace": SYSTEM,
                    "labels": {"k8s-app": component},
                    "ownerReferences": [{"kind": "ReplicaSet", "uid": "1"}],
                },
                "spec": {"nodeName": NODE, "nodeSelector": {CONTROL_PLANE_ACTIVE: ""}},
            }
        )
    (Path(places.MANIFESTS) / "etcd-0123abcd.json").write_text("{}")
    await scene.label(NODE, None)
    ended: list[Any] = []
    for _ in range(8):
        await scene.rounds()
        there = {pod["metadata"]["name"] for pod in await scene.kube.list("v1", "Pod", namespace=SYSTEM)}
        ended += sorted({"kube-scheduler", "a-autarky-operator"} - there - set(ended))
    assert ended == ["kube-scheduler", "a-autarky-operator"]
