"""What the node's agent waits for before it changes its kubelet, whom a lost sandbox accuses, and content that means
nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.kubelet.decide import hosted_report, order, report
from autarky.control.kubelet.decide.observed import Other
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.decide.pools import Drain
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.node.change import ASK_AGAIN_SECONDS, REST_SECONDS, WORK_SECONDS
from autarky.control.kubelet.node.draining import CORDON, own_pod, own_pods
from autarky.control.kubelet.node.observing import Observing
from autarky.control.kubelet.node.on_disk import KubeletFiles
from autarky.errors import ApiError, Unreachable
from autarky.ports import Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.kube import FakeKube
from unit.control.kubelet.node_scene import (
    DIGEST,
    NEW,
    NODE,
    V36,
    V37,
    Host,
    an_order,
    asked,
    on_trial,
    stage,
    state,
    until_asked,
)
from unit.control.kubelet.staging_scene import generations

IN_FORCE: dict[str, object] = {"pod": "b3f1", "try": 1, "version": V37, "state": "proven", "why": ""}

# --- what is waited for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", Other)
async def test_nothing_begins_beside_what_else_is_at_work(host: Host, other: Other) -> None:
    busy, supervisor = [True], host.root / "kubelet/hosted"
    in_force = IN_FORCE | {"boot": host.boot, "uptime": int(host.clock.now)}
    if other is Other.UP:
        (host.root / "state/kubelet-former.json").write_text("{}")
    elif other is Other.HOSTED:
        supervisor.write_bytes(files.written(in_force | {"behind": "no"}))
    else:
        host.works[other] = lambda: bool(busy)
    host.gets(an_order())
    assert await host.passes(5) == WORK_SECONDS
    assert host.report is not None
    assert (host.report.why, asked(host)) == (other.value, False)
    busy.clear()
    (host.root / "state/kubelet-former.json").unlink(missing_ok=True)
    if other is Other.HOSTED:
        supervisor.write_bytes(files.written(in_force | {"behind": "yes"}))
    await until_asked(host)


async def test_nothing_begins_while_the_hosted_kubelet_is_to_start_and_the_hosts_does_not_run(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet that could end an evicted pod has just been killed: nobody could."""

    def supervisor(**other: object) -> None:
        said = IN_FORCE | {"boot": host.boot, "uptime": int(host.clock.now), "state": "waiting"} | other
        (host.root / "kubelet/hosted").write_bytes(files.written(said))

    evicted: list[str] = []

    async def evict(_: FakeKube, namespace: str, pod: str) -> bool:
        evicted.append(f"{namespace}/{pod}")
        return True

    monkeypatch.setattr(FakeKube, "evict", evict)
    host.pod("web", "shop", metadata=OF_A_JOB)
    host.gets(an_order(**a_drain()))
    host.cordoned()
    host.change_node(annotations={hosted_report.TURN: str(IN_FORCE["pod"])})
    stage(host.root, NEW)
    supervisor(behind="gone")
    await host.passes(5)
    assert host.report is not None
    assert (host.report.why, evicted, asked(host)) == (Other.HOSTED.value, [], False)
    supervisor(behind="no")
    await host.passes(5)
    assert evicted, "the host's kubelet is in force"


@pytest.mark.parametrize("turn", [True, False])
async def test_what_is_ordered_goes_on_where_the_hosted_kubelet_does_not_start_either(host: Host, turn: bool) -> None:
    said = IN_FORCE | {"boot": host.boot, "uptime": int(host.clock.now), "state": "waiting", "behind": "gone"}
    (host.root / "kubelet/hosted").write_bytes(files.written(said))
    if turn:
        host.change_node(annotations={hosted_report.TURN: str(IN_FORCE["pod"])})
        host.write("hosted-verdict", boot=host.boot, pod=IN_FORCE["pod"], **{"try": 1}, verdict="stay", uptime=1)
    host.gets(an_order())
    await until_asked(host)


async def test_what_cannot_be_read_may_be_at_work(host: Host) -> None:
    def damaged() -> bool:
        raise ValueError("damaged")

    host.works[Other.ETCD] = damaged
    host.gets(an_order())
    await host.passes(5)
    assert not asked(host)


async def test_nothing_is_removed_while_up_is_in_the_middle(host: Host) -> None:
    name = stage(host.root, NEW)
    (host.root / "state/kubelet-former.json").write_text("{}")
    await host.passes(3)
    assert name in generations(host.root)
    (host.root / "state/kubelet-former.json").unlink()
    await host.passes()
    assert name not in generations(host.root)


async def test_nothing_begins_before_the_node_has_reported_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(host.root, NEW)

    async def refused(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden", "a policy")

    with monkeypatch.context() as patched:
        patched.setattr(FakeKube, "patch", refused)
        host.gets(an_order())
        assert await host.passes(5) == ASK_AGAIN_SECONDS
        assert not asked(host)
    await until_asked(host)


async def test_nothing_begins_for_what_the_node_has_reported_to_be_over(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is from before that, as out of a snapshot: the operator says when it is its turn."""
    stage(host.root, NEW)
    given = host.gets(an_order())
    said = report.Report(given.id, given.number, given.attempt, State.REFUSED)
    host.change_node(annotations={report.ANNOTATION: report.text(said)})

    async def refused(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden", "a policy")

    with monkeypatch.context() as patched:
        patched.setattr(FakeKube, "patch", refused)
        await host.passes(5)
        assert not asked(host)
    await host.passes(5)
    assert not asked(host)
    assert host.report is not None
    assert (host.report.order, host.report.state, host.report.interrupted) == (given.id, State.WENT_BACK, True)
    host.gets(an_order(number=given.number + 1))
    await until_asked(host)


async def test_nothing_begins_against_the_live_objects(host: Host) -> None:
    """The watch may be late: here it shows the Node from before."""
    stage(host.root, NEW)
    host.gets(an_order())
    before = host.node
    host.agent.own_node = lambda: before
    host.gets(an_order(number=4))
    await host.passes(5)
    assert not asked(host)


@pytest.mark.parametrize("version", [V36, None])
async def test_no_kubelet_is_newer_than_an_api_server(host: Host, version: Any) -> None:
    """Rule 4. And none is changed under a ControlPlane that is not valid."""
    if version is None:
        plane = host.kube._objects[(API_VERSION, "ControlPlane", None, CONTROL_PLANE)]
        host.kube.put({**plane, "spec": {**plane["spec"], "selfHosted": "9"}})
    else:
        host.plane(V36)
    host.gets(an_order())
    await host.passes(8)
    assert not asked(host)
    host.plane(V37)
    await until_asked(host)


async def test_nothing_begins_while_the_api_is_away(host: Host) -> None:
    stage(host.root, NEW)
    host.gets(an_order())
    await host.passes()
    assert state(host) is State.SWITCHING, "it has only to ask"
    host.kube.set_outage("away")
    with pytest.raises(Unreachable):
        await host.passes()
    assert not asked(host)
    host.kube.set_outage(None)
    await until_asked(host)


async def test_nothing_begins_in_a_boot_that_nobody_knows(host: Host) -> None:
    host.boot = None
    host.gets(an_order())
    await host.passes(6)
    assert host.report is not None
    assert (host.report.why, asked(host)) == ("it is not known which boot of the machine this is", False)


@pytest.mark.parametrize("when", ["before the last look at the disk", "after it"])
async def test_an_ask_of_somebody_else_is_left_alone(host: Host, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    stage(host.root, NEW)
    host.gets(an_order())
    await host.passes()
    kind: type = Observing if when.startswith("before") else KubeletFiles
    name = "live" if when.startswith("before") else "note_asked"
    real = getattr(kind, name)

    def meanwhile(*arguments: Any) -> Any:
        host.write("ask", order="of-up", generation="g", boot="boot-1", uptime=1, limit=90)
        return real(*arguments)

    monkeypatch.setattr(kind, name, meanwhile)
    await host.passes(3)
    assert host.read("ask")["order"] == "of-up"
    assert (KubeletFiles(host.root).read().disk.asked is None) is when.startswith("before")


# --- a drain -----------------------------------------------------------------------------------------------------


async def forbidden_by_a_budget(*_: object) -> bool:
    raise ApiError(429, "TooManyRequests", "it would violate the pod's disruption budget")


LOW = "The node was low on resource: memory."
OF_A_JOB = {"ownerReferences": [{"kind": "Job", "uid": "u", "controller": True}]}


def a_drain(seconds: int = 60) -> dict[str, Any]:
    return {"drain": Drain.ALWAYS, "drain_seconds": seconds}


async def test_what_can_go_elsewhere_is_evicted_and_then_it_begins(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    evicted: list[str] = []
    budget = ["web"]

    async def evict(kube: FakeKube, namespace: str, pod: str) -> bool:
        evicted.append(pod)
        if pod in budget:
            raise ApiError(429, "TooManyRequests", "it would violate the pod's disruption budget")
        return await kube.delete("v1", "Pod", pod, namespace)

    monkeypatch.setattr(FakeKube, "evict", evict)
    host.pod("web", "shop", metadata=OF_A_JOB)
    host.pod("job", "shop", metadata=OF_A_JOB)
    host.pod("ended", "shop", metadata=OF_A_JOB, status={"phase": "Succeeded"})
    host.pod("proxy", metadata={"ownerReferences": [{"kind": "DaemonSet", "uid": "u", "controller": True}]})
    host.pod("bare", "shop", metadata={"ownerReferences": [{"kind": "Job", "uid": "u"}]})
    of_all = ({"operator": "Exists", **one} for one in ({}, {"key": CORDON}, {"key": CORDON, "effect": "NoSchedule"}))
    empty = ({"key": CORDON, **one} for one in ({}, {"operator": "Equal", "value": ""}, {"effect": "NoSchedule"}))
    for number, toleration in enumerate([*of_all, *empty]):
        tolerations = [toleration]
        host.pod(f"comes-back-{number}", "kube-system", metadata=OF_A_JOB, tolerations=tolerations)
    host.pod("static", metadata={"annotations": {"kubernetes.io/config.mirror": "hash"}})
    host.gets(an_order(**a_drain()))
    await host.passes(5)
    assert (state(host), evicted, asked(host)) == (State.DRAINING, [], False)
    assert host.report is not None
    assert host.report.why == "waiting until the node takes no new pods"
    host.cordoned()
    await host.passes(4)
    assert sorted(evicted) == ["job", "web"], "each five seconds"
    assert host.report is not None
    assert host.report.why.startswith("shop/web has to go: shop/web: 429 TooManyRequests")
    await host.passes(5)
    assert (evicted.count("web"), asked(host)) == (2, False)
    budget.clear()
    await host.passes(6)
    assert asked(host)
    assert set(evicted) == {"job", "web"}


async def test_a_node_that_is_not_drained_in_time_keeps_its_kubelet(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeKube, "evict", forbidden_by_a_budget)
    host.pod("web", "shop", metadata=OF_A_JOB)
    host.gets(an_order(**a_drain(10)))
    host.cordoned()
    await host.passes(20)
    assert host.report is not None
    assert (host.report.state, asked(host)) == (State.REFUSED, False)
    assert "not drained within 10 s: shop/web has to go" in host.report.why


async def test_a_control_node_goes_on_with_what_was_not_drained_in_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps a pod there would keep the control plane from going back."""

    monkeypatch.setattr(FakeKube, "evict", forbidden_by_a_budget)
    host.pod("web", "shop", metadata=OF_A_JOB)
    host.kube.put({**host.node, "metadata": {**host.node["metadata"], "labels": {CONTROL_PLANE_ACTIVE: ""}}})
    host.gets(an_order(**a_drain(10)))
    host.cordoned()
    await host.passes(9)
    assert (state(host), asked(host)) == (State.DRAINING, False)
    await host.passes(11)
    assert asked(host)


@pytest.mark.parametrize(("namespace", "moves"), [("kube-system", False), ("shop", True)])
async def test_etcds_guard_stays_since_its_member_does(host: Host, namespace: str, moves: bool) -> None:
    """While another member is away its budget lets none go. A tenant's of that name is no guard."""
    host.pod("guard", namespace, metadata={**OF_A_JOB, "labels": {"k8s-app": "etcd-quorum-guard"}})
    [pod] = [one for one in await own_pods(host.kube, "n1") if one.name == "guard"]
    assert pod.moves is moves


@pytest.mark.parametrize(
    "tolerations",
    [
        [{"operator": "Exists", "effect": "NoExecute"}],
        [{"key": "a"}],
        [{"key": CORDON, "value": "a"}],
        [{"key": CORDON, "effect": "NoExecute"}],
        [{"operator": "Equal", "value": ""}],
        [{}],
        None,
    ],
)
async def test_what_does_not_tolerate_a_cordon_is_evicted(host: Host, tolerations: object) -> None:
    host.pod("web", "shop", metadata=OF_A_JOB, tolerations=tolerations)
    [pod] = [one for one in await own_pods(host.kube, "n1") if one.name == "web"]
    assert pod.moves


@pytest.mark.parametrize(
    ("status", "how"),
    [
        ({"phase": "Failed", "reason": "OutOfpods"}, "rejected"),
        ({"phase": "Failed", "reason": "OutOfmemory"}, "rejected"),
        ({"phase": "Failed", "reason": "NodeAffinity"}, "rejected"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "rejected"),
        ({"phase": "Failed", "reason": "Evicted", "message": LOW}, "evicted"),
        ({"phase": "Failed", "reason": "Evicted", "message": "Usage of EmptyDir volume exceeds the limit"}, ""),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, ""),
        ({"phase": "Failed"}, ""),
        ({"phase": "Running", "reason": "OutOfpods"}, ""),
        ({"phase": "Running", "reason": "Evicted", "message": LOW}, ""),
        ({}, ""),
    ],
)
async def test_a_pod_that_a_kubelet_would_not_have_is_told_from_one_that_failed(
    host: Host, status: Object, how: str
) -> None:
    """Whoever has a pod there can have it fail, or evicted, when it likes."""
    host.pod("web", "shop", status=status)
    pod = await own_pod(host.kube, "n1", "shop", "web")
    assert pod is not None
    assert (pod.rejected, pod.evicted) == (how == "rejected", how == "evicted")


SETTINGS = Target(V36, DIGEST, config={"kubeReserved": {"memory": "8Gi"}})


@pytest.mark.parametrize(
    ("target", "status", "verdict"),
    [
        (NEW, {"reason": "Evicted", "message": LOW}, "good"),
        (SETTINGS, {"reason": "Evicted", "message": LOW}, "unproven"),
        (replace(SETTINGS, version=V37), {"reason": "Evicted", "message": LOW}, "unproven"),
        (NEW, {"reason": "OutOfmemory"}, "unproven"),
    ],
)
async def test_an_eviction_accuses_only_new_settings(host: Host, target: Target, status: Object, verdict: str) -> None:
    """Any tenant has a pod evicted when it likes."""
    sandbox = host.pod("web", "shop")
    await on_trial(host, target=target)
    host.cri.end_sandbox(sandbox)
    pod = host.kube._objects[("v1", "Pod", "shop", "web")]
    host.kube.put({**pod, "status": {"phase": "Failed", **status}})
    assert await verdict_after(host) == verdict
    assert ("no room for shop/web" in host.read("verdict")["why"]) is (verdict == "unproven")


# --- whom a lost sandbox accuses ---------------------------------------------------------------------------------


async def verdict_after(host: Host) -> str:
    await host.passes(20, beats=True)
    return host.read("verdict")["verdict"]


async def test_a_pod_whose_sandbox_has_gone_was_harmed(host: Host) -> None:
    sandbox = host.pod("web", "shop")
    host.pod("other", "shop")
    await on_trial(host)
    host.cri.end_sandbox(sandbox)
    host.cri.run_sandbox("web", "shop", "uid-of-web", attempt=1)
    assert await verdict_after(host) == "unproven"
    assert "the sandbox of shop/web is gone" in host.read("verdict")["why"]


async def test_so_was_a_static_pod(host: Host) -> None:
    mirror = {"annotations": {"kubernetes.io/config.mirror": "hash-1"}}
    sandbox = host.pod("etcd", metadata=mirror, runtime_uid="hash-1")
    await on_trial(host)
    host.cri.end_sandbox(sandbox)
    assert await verdict_after(host) == "unproven"


@pytest.mark.parametrize("spec", [{"hostPID": True}, {"shareProcessNamespace": True}, {"runtimeClassName": "vm"}])
async def test_a_pod_that_can_end_its_own_sandbox_sends_no_kubelet_back(host: Host, spec: dict[str, Any]) -> None:
    sandboxes = [host.pod(f"evil-{number}", "tenant", **spec) for number in range(5)]
    host.pod("honest", "tenant")
    await on_trial(host)
    for sandbox in sandboxes:
        host.cri.end_sandbox(sandbox)
    assert await verdict_after(host) == "good"


@pytest.mark.parametrize("end", ["deleted", "ended", "deleting", "mirror"])
async def test_nor_one_that_is_gone_or_goes(host: Host, end: str) -> None:
    mirror = {"annotations": {"kubernetes.io/config.mirror": "hash-1"}}
    other: dict[str, Any] = {"metadata": mirror, "runtime_uid": "hash-1"} if end == "mirror" else {}
    sandbox = host.pod("web", "shop", **other)
    await on_trial(host)
    host.cri.end_sandbox(sandbox)
    pod = host.kube._objects[("v1", "Pod", "shop", "web")]
    if end == "ended":
        host.kube.put({**pod, "status": {"phase": "Failed"}})
    elif end == "deleting":
        going = {"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["x"]}
        host.kube.put({**pod, "metadata": {**pod["metadata"], **going}})
    else:
        await host.kube.delete("v1", "Pod", "web", "shop")
    if end == "mirror":  # of another manifest, or nobody knows: it was made again
        host.pod("web", "shop", sandbox=False, metadata={**mirror, "uid": "another"})
    assert await verdict_after(host) == "good"


async def test_nobody_can_claim_a_sandbox_for_another_pod(host: Host) -> None:
    """A pod that says to be the mirror of a static one, of which the uid is that of an ordinary one."""
    sandbox = host.pod("web", "shop")
    host.pod("fake", "shop", sandbox=False, metadata={"annotations": {"kubernetes.io/config.mirror": "uid-of-web"}})
    await on_trial(host)
    await host.kube.delete("v1", "Pod", "web", "shop")
    host.cri.end_sandbox(sandbox)
    assert await verdict_after(host) == "good"


# --- a node that has none of this, and content of others ----------------------------------------------------------


@pytest.mark.parametrize("missing", ["kubelet/base.json", "bin/kubelet-slots"])
async def test_a_node_without_base_or_script_is_left_alone(host: Host, missing: str) -> None:
    (host.root / missing).unlink()
    host.gets(an_order())
    host.kube.set_outage("nobody may be asked")
    before = {path: path.lstat().st_mtime_ns for path in host.root.rglob("*")}
    assert await host.passes(3) == REST_SECONDS
    assert {path: path.lstat().st_mtime_ns for path in host.root.rglob("*")} == before
    assert (host.report, host.said) == (None, [])


async def test_nor_one_whose_base_means_nothing(host: Host) -> None:
    (host.root / "kubelet/base.json").write_text('{"config": 1}')
    host.gets(an_order())
    await host.passes(3)
    assert host.report is None


ODD = ["", "{", "null", "[]", '{"id": 1}', "\x00", "9" * 5000, '{"order": {}}', "[" * 100000]


@pytest.mark.parametrize("content", ODD, ids=range(len(ODD)))
async def test_content_that_means_nothing_stops_nothing(host: Host, content: str) -> None:
    host.change_node(annotations={order.ANNOTATION: content, report.ANNOTATION: content})
    (host.root / "state/kubelet-order.json").write_text(content)
    for name in ("result", "verdict", "trial"):
        (host.root / "kubelet" / name).write_text(content)
    await host.passes(3)
    assert not asked(host)
    assert host.report is not None
    assert host.report.state is None
    (host.root / "kubelet/trial").unlink()
    host.gets(an_order())
    await until_asked(host)


async def test_an_order_that_was_changed_on_its_way_is_none(host: Host) -> None:
    said = json.loads(order.text(an_order()))
    host.change_node(annotations={order.ANNOTATION: json.dumps({**said, "image": "evil.example/kubelet:v1.37.1"})})
    assert await host.passes(4) == REST_SECONDS
    assert not asked(host)


async def test_a_report_is_written_when_it_differs_and_not_again(host: Host) -> None:
    patches: list[Object] = []
    real = FakeKube.patch

    async def counted(kube: FakeKube, *arguments: Any, **more: Any) -> Object:
        patches.append(arguments[3])
        return await real(kube, *arguments, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FakeKube, "patch", counted)
        await host.passes(5)
        assert len(patches) == 1
        host.change_node(annotations={report.ANNOTATION: None})
        await host.passes(5)
    assert len(patches) == 2
    assert all(list(one["metadata"]) == ["annotations"] for one in patches)
    assert host.node["metadata"]["name"] == NODE
