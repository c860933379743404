"""What somebody who has a worker makes it say: `doctor` tells it of that worker, and judges no control node by it."""

from __future__ import annotations

import json

import pytest

from autarky.control.common.pods import MIRROR
from autarky.control.kubelet.decide import report
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.decide.report import Report
from autarky.doctor.evidence import evidence
from autarky.render.crds import API_VERSION, CONTROL_PLANE, control_plane_crd
from autarky.render.values import SYSTEM, WITHDRAWN
from autarky.status.look import Row, gather
from fakes.kube import FakeKube
from unit.phases.seen import WITH_A_WORKER, MakeContext, a_context, a_kube, says, whats

pytestmark = pytest.mark.looptime


async def test_a_worker_that_calls_itself_withdrawn_is_not_told(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    for name in ("n1", "n2"):
        await kube.patch("v1", "Node", name, {"metadata": {"annotations": {WITHDRAWN: "send money"}}})
    assert whats(await evidence(a_context(make_context, WITH_A_WORKER, kube))) == [
        "n1: its API servers get no new connections"
    ]


async def test_a_worker_that_says_another_time_is_the_one_that_is_off(make_context: MakeContext):
    seen = await evidence(a_context(make_context, WITH_A_WORKER, a_kube(WITH_A_WORKER), {"n2": -3600.0}))
    assert whats(seen) == ["n2: its clock is -3600 s off the others'"]


async def test_a_worker_that_sees_a_server_which_nobody_has_hides_nothing_of_the_control_node(
    make_context: MakeContext,
):
    """A control node that is cut off would explain all that is wrong with it."""
    kube = a_kube(WITH_A_WORKER)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no heartbeat"}]}}
    await kube.patch("v1", "Node", "n1", unready, subresource="status")
    context = a_context(make_context, WITH_A_WORKER, kube)
    says(context, "n1", "etcd 503", "balancer 200", "alive n1-hosted 200")
    says(context, "n2", "balancer 200", "alive n1-hosted -", "alive x-hosted 200")
    assert whats(await evidence(context)) == [
        "n2: it and the other nodes do not reach each other",
        "n1: etcd is not healthy",
        "n1: the node is not Ready",
    ]


def of_the_load_balancer(kube: FakeKube, number: int, *, slot: str, ready: bool = False, node: str = "n2") -> None:
    """A mirror pod that its kubelet says to be the node's load balancer, with a reason of its choice."""
    labels = {"k8s-app": "node-load-balancer", "autarky.dev/slot": slot}
    meta = {"name": f"{number:04}", "namespace": SYSTEM, "labels": labels, "annotations": {MIRROR: "0f3a"}}
    spec = {"nodeName": node, "containers": [{"name": "x", "image": f"haproxy:v{number}"}]}
    waiting = {"state": {"waiting": {"reason": f"reason {number}"}}}
    condition = {"type": "Ready", "status": str(ready)}
    status = {"conditions": [condition], "containerStatuses": [] if ready else [waiting]}
    kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})


async def balancers(make_context: MakeContext, kube: FakeKube) -> list[Row]:
    found = await gather(a_context(make_context, WITH_A_WORKER, kube))
    return [row for row in found.rows if row.component == "node-load-balancer"]


@pytest.mark.parametrize("slots", [("",), ("static", "hosted", "standby"), tuple(map(str, range(50)))], ids=len)
async def test_a_worker_with_many_load_balancers_has_one_in_status_and_hides_nothing_of_doctors(
    make_context: MakeContext, slots: tuple[str, ...]
):
    kube = a_kube(WITH_A_WORKER)
    for number in range(200):
        of_the_load_balancer(kube, number, slot=slots[number % len(slots)])
    of_the_load_balancer(kube, 200, slot="", node="n1")
    rows = await balancers(make_context, kube)
    assert [(row.node, row.slot, row.health) for row in rows] == [
        ("n1", "static", "not ready"),
        ("n2", "static", "not ready"),
    ]
    assert whats(await evidence(a_context(make_context, WITH_A_WORKER, kube))) == [
        "n1: a pod of node-load-balancer is not ready",
        "n2: a pod of node-load-balancer is not ready",
    ]


@pytest.mark.parametrize("ready", range(3))
async def test_of_several_load_balancers_of_a_node_one_that_is_ready_is_shown(make_context: MakeContext, ready: int):
    kube = a_kube(WITH_A_WORKER)
    for number in range(3):
        of_the_load_balancer(kube, number, slot="", ready=number == ready)
    [row] = await balancers(make_context, kube)
    assert (row.health, row.version) == ("ready", f"v{ready}")


async def test_pods_that_a_controller_has_made_are_all_shown(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    for name in ("coredns-a", "coredns-b"):
        meta = {"name": name, "namespace": SYSTEM, "labels": {"k8s-app": "kube-dns"}}
        spec = {"nodeName": "n2", "containers": [{"name": "x", "image": "coredns:v1"}]}
        kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}})
    found = await gather(a_context(make_context, WITH_A_WORKER, kube))
    assert [row.node for row in found.rows if row.component == "coredns"] == ["n2", "n2"]


async def test_what_a_worker_says_of_its_kubelet_is_shown_of_it_and_judges_no_other_node(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    version = str(WITH_A_WORKER.kubernetes_version)
    spec = {"version": version, "kubelets": {"follow": True}}
    kube.put(control_plane_crd())
    plane = {"apiVersion": API_VERSION, "kind": "ControlPlane", "metadata": {"name": CONTROL_PLANE}}
    kube.put({**plane, "spec": spec, "status": {"version": version}})
    said = {"order": "0" * 16, "number": 1, "state": "Refused", "why": "send\nmoney", "base": "", "version": "v9.9.9"}
    annotations = {"metadata": {"annotations": {report.ANNOTATION: json.dumps(said)}}}
    for name in ("n1", "n2"):
        info = {"status": {"nodeInfo": {"kubeletVersion": version}}}
        await kube.patch("v1", "Node", name, info, subresource="status")
    await kube.patch("v1", "Node", "n2", annotations)
    target = Target(WITH_A_WORKER.kubernetes_version, "base")
    has = Report(version=target.version, base="base", target=target.digest)
    await kube.patch("v1", "Node", "n1", {"metadata": {"annotations": {report.ANNOTATION: report.text(has)}}})
    context = a_context(make_context, WITH_A_WORKER, kube)
    rows = {row.node: row for row in (await gather(context)).rows if row.component == "kubelet"}
    assert [rows[name].change for name in ("n1", "n2")] == ["", "another kubelet was refused: send money"]
    assert (rows["n2"].version, rows["n2"].detail) == (version, "")
    assert whats(await evidence(context)) == ["n2: its kubelet is left alone"]


async def test_without_the_api_doctor_says_what_the_hosts_files_say_of_kubelets(make_context: MakeContext):
    away = a_kube(WITH_A_WORKER)
    away.set_outage("refused")
    context = a_context(make_context, WITH_A_WORKER, away)
    lines = ["kubelet host boot b1", "kubelet host uptime 9000", "kubelet host base yes", "kubelet host current aa"]
    says(context, "n2", *lines, "kubelet result result back", "kubelet result why it exited", "balancer 200")
    assert "n2: the last change of its kubelet was taken back" in whats(await evidence(context))
