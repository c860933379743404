"""Live copies of the API: an unexpected failure of one is logged and retried, and stops no other."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from autarky.control.admission.act import CSR
from autarky.control.backup.manifests import definitions as backups
from autarky.control.base.decision_log import DecisionLog
from autarky.control.base.node_view import ApiView
from autarky.control.base.operator_view import View, current
from autarky.control.base.reconciler import Reconciler
from autarky.control.base.shield import FIRST_PAUSE, LONGEST_PAUSE, follow
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.membership import EtcdMembership
from autarky.control.load_balancer.node.balancer import LoadBalancer
from autarky.kube import Listing, Reflector
from autarky.ports import Object
from autarky.render import crds
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.cri import FakeCri
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime


@dataclass(slots=True)
class OddKube(FakeKube):
    """Its lists of that kind fail unexpectedly."""

    odd: str = ""
    tries: list[float] = field(default_factory=list)

    async def list_at(self, api_version: str, kind: str, **asked: Any) -> Listing:
        if kind == self.odd:
            self.tries.append(asyncio.get_running_loop().time())
            raise RecursionError("maximum recursion depth exceeded")
        return await FakeKube.list_at(self, api_version, kind, **asked)


@dataclass
class Heard:
    said: list[tuple[str, str]] = field(default_factory=list)
    NODE: ClassVar[Object] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}

    def tell(self, subject: str, sentence: str) -> None:
        self.said.append((subject, sentence))


async def test_a_source_of_the_operator_that_fails_ends_no_other_and_is_read_again() -> None:
    kube, heard = OddKube(odd="Node"), Heard()
    kube.put(crds.control_plane_crd())
    for definition in (etcd_members.crd(), *backups.objects()):
        kube.put(definition)
    view = View(kube, LoopClock(), lambda: None, heard.tell)
    running = asyncio.create_task(view.run())
    await asyncio.sleep(10)
    kube.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "autarky-leaves", "namespace": SYSTEM}})
    kube.put(Heard.NODE)
    await asyncio.sleep(10)
    assert not running.done()
    assert {source.kind for source in view.sources if not source.synced} == {"Node"}
    assert not current([view.nodes])
    assert current(source for source in view.sources if source is not view.nodes)
    assert {subject for subject, _ in heard.said} == {"watching Node failed"}
    assert "RecursionError" in heard.said[0][1]
    kube.odd = ""
    await asyncio.sleep(LONGEST_PAUSE)
    assert set(view.nodes.items) == {(None, "w1")}
    assert current(view.sources)
    running.cancel()


async def test_of_what_a_kubelet_makes_the_operator_keeps_only_what_is_read() -> None:
    """Whether it was listed or came later."""
    kube, heard = FakeKube(), Heard()
    long = {"spec": {"nodeName": "w1", "containers": [], "tolerations": [{"key": "a"}] * 1000}, "status": {}}

    def put(name: str) -> None:
        meta = {"name": name, "namespace": SYSTEM, "annotations": {"kubernetes.io/config.mirror": "x"}}
        kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, **long})
        labels = {f"l{number}": "x" for number in range(1000)}
        spec = {"signerName": "x", "username": "system:node:w1", "usages": [], "request": "eA=="}
        csr = {"apiVersion": CSR[0], "kind": CSR[1], "metadata": {"name": name, "labels": labels}, "spec": spec}
        kube.put(csr)

    put("listed")
    view = View(kube, LoopClock(), lambda: None, heard.tell)
    running = asyncio.create_task(view.run())
    await asyncio.sleep(10)
    put("watched")
    await asyncio.sleep(10)
    assert {name for _, name in view.pods.items} == {name for _, name in view.requests.items} == {"listed", "watched"}
    for kept in (*view.pods.items.values(), *view.requests.items.values()):
        assert len(json.dumps(kept)) < 1000
    running.cancel()


async def test_a_copy_of_the_node_agent_that_fails_ends_no_other() -> None:
    kube, heard = OddKube(odd="Pod"), Heard()
    kube.put(Heard.NODE)
    api = ApiView(kube, LoopClock(), "w1", lambda: None, heard.tell)  # type: ignore[arg-type]
    running = asyncio.create_task(api.run())
    await asyncio.sleep(10)
    assert not running.done()
    assert api.own_node is not None
    assert not api.pods_readable
    assert {subject for subject, _ in heard.said} == {f"watching Pod {SYSTEM} spec.nodeName=w1 failed"}
    kube.odd = ""
    await asyncio.sleep(LONGEST_PAUSE)
    assert api.pods_readable
    running.cancel()


async def test_the_load_balancer_and_the_member_of_etcd_go_on_without_their_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, heard, rounds = LoopClock(), Heard(), list[str]()

    async def look_of(duty: object) -> bool:
        rounds.append(type(duty).__name__)
        return True

    for duty in (LoadBalancer, EtcdMembership):
        monkeypatch.setattr(duty, "look", look_of)
    monkeypatch.setattr(etcd_on_disk, "has_certificates", lambda: True)
    slices, members = OddKube(odd="EndpointSlice"), OddKube(odd="EtcdMember")
    copy = Reflector(members, clock, API_VERSION, "EtcdMember")
    reported = DecisionLog(lambda sentence, component: heard.tell(component, sentence))
    controllers = (
        LoadBalancer("n1", slices, clock, heard.tell),  # type: ignore[arg-type]
        EtcdMembership("n1", members, copy, FakeCri(), clock, reported, lambda: 1, asyncio.Event(), lambda: None),
    )
    running = [asyncio.create_task(Reconciler(one, clock, heard.tell).run()) for one in controllers]
    await asyncio.sleep(20)
    assert not any(task.done() for task in running)
    assert set(rounds[-10:]) == {"LoadBalancer", "EtcdMembership"}
    assert len(slices.tries) > 1
    assert len(members.tries) > 1
    assert {subject.split()[1] for subject, _ in heard.said} == {"EndpointSlice", "EtcdMember"}
    for task in running:
        task.cancel()


async def test_the_pauses_between_its_tries_grow() -> None:
    kube = OddKube(odd="Node")
    copy = Reflector(kube, LoopClock(), "v1", "Node")
    running = asyncio.create_task(follow(copy, Heard().tell))
    await asyncio.sleep(200)
    gaps = [later - earlier for earlier, later in zip(kube.tries, kube.tries[1:], strict=False)]
    assert gaps[0] == pytest.approx(FIRST_PAUSE)
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(LONGEST_PAUSE)
    running.cancel()
