"""What `status` and `doctor` see when the API goes away while they look, and when clocks differ."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from autarky.cli.status import _read
from autarky.cli.status import status as status_command
from autarky.control.certificates import decide as certificates
from autarky.control.guards.decide import ANTI_AFFINITY, KINDS, PRIORITIES
from autarky.control.guards.manifests import tenants
from autarky.control.guards.manifests.policies import BINDING
from autarky.control.kubelet.decide import hosted_report, report
from autarky.control.kubelet.decide.hosted_report import ANNOTATION as HOSTED
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.manifests import daemon_set
from autarky.control.leadership import manifests as controllers
from autarky.control.load_balancer.manifests import haproxy
from autarky.control.rollout.decide.failures import Failure
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.manifests import FAILURES, TYPE, secret_name
from autarky.control.upgrade.decide.templates import with_tag
from autarky.doctor.diagnosis import ClusterEvidence, diagnose
from autarky.doctor.evidence import evidence
from autarky.errors import ApiError, AutarkyError, Unreachable
from autarky.kube.listing import Listing
from autarky.model import ports
from autarky.model.versions import Version
from autarky.phases.context import Context
from autarky.ports import Completed
from autarky.render import crds
from autarky.render.crds import API_VERSION, CONTROL_PLANE, control_plane_crd
from autarky.render.values import MANAGED_BY, SYSTEM, WITHDRAWN
from autarky.status.look import Status, gather
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube
from unit.phases.seen import (
    BEGIN,
    GONE,
    SCRIPT,
    THREE,
    WITH_A_WORKER,
    LeavingKube,
    MakeContext,
    SeenHost,
    a_context,
    a_kube,
    noted_on_its_disk,
    nothing_wrong,
    says,
    whats,
)

pytestmark = pytest.mark.looptime


# --- the API goes away in the middle of a look --------------------------------------------------------


async def a_status(make_context: MakeContext, kube: FakeKube) -> Status:
    """On its disk n2 is a control node."""
    context = a_context(make_context, WITH_A_WORKER, kube)
    await noted_on_its_disk(context, "n2")
    return await gather(context)


async def test_after_whichever_answer_the_api_goes_away_the_status_is_that_of_the_hosts(make_context: MakeContext):
    undisturbed, away = a_kube(WITH_A_WORKER), a_kube(WITH_A_WORKER, answers=0)
    away.set_outage(GONE)
    assert (await a_status(make_context, undisturbed)).api == "ready"
    by_hosts = await a_status(make_context, away)
    assert by_hosts.api == GONE
    assert {(row.component, row.health) for row in by_hosts.rows if row.node == "n1"} >= {
        ("kubelet", "listening"),
        ("kube-apiserver", "listening"),
    }
    assert ("kube-apiserver", "n2") in {(row.component, row.node) for row in by_hosts.rows}
    assert undisturbed.asked > 3
    for answers in range(undisturbed.asked):
        assert await a_status(make_context, a_kube(WITH_A_WORKER, answers=answers)) == by_hosts, answers


async def test_before_there_are_credentials_the_status_is_that_of_the_hosts(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
):
    """Hosts over ssh answer before the first `up` has issued any."""
    context = a_context(make_context, WITH_A_WORKER, a_kube(WITH_A_WORKER))
    monkeypatch.setattr(type(context.pki), "complete", lambda _self, *_names: False)
    found = await gather(context)
    assert "no credentials" in found.api
    assert {row.node for row in found.rows} == {"n1", "n2"}


@pytest.mark.parametrize(("label", "controls"), [("n2", {"n1", "n2"}), ("", {"n1"})])
async def test_while_the_api_answers_its_labels_say_whose_standbys_are_looked_at(
    make_context: MakeContext, label: str, controls: set[str]
):
    """Not the disk, which says here that n2 is a control node."""
    found = await a_status(make_context, a_kube(WITH_A_WORKER, labelled=label))
    assert {row.node for row in found.rows if row.slot == "standby"} == controls


@pytest.mark.parametrize("mirror", [True, False])
async def test_a_workers_static_pod_that_passes_for_an_api_server_is_not_shown_as_one(
    make_context: MakeContext, mirror: bool
):
    kube = a_kube(WITH_A_WORKER)
    labels = {"k8s-app": "kube-apiserver", "autarky.dev/slot": "hosted"}
    meta = {"name": "forged", "namespace": SYSTEM, "labels": labels}
    annotations = {"kubernetes.io/config.mirror": "0f3a"} if mirror else {}
    spec = {"nodeName": "n2", "containers": [{"name": "x", "image": "kube-apiserver:v1.30.0"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "annotations": annotations}, "spec": spec}
    kube.put({**pod, "status": {}})
    found = await a_status(make_context, kube)
    assert any(row.slot == "hosted" and row.node == "n2" for row in found.rows) != mirror


async def test_an_api_that_comes_back_while_it_is_asked_why_it_is_down_is_looked_at(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
):
    said = iter([GONE, GONE])  # when the members of the cluster are learned, and when the look begins

    async def healthy(_self: FakeKube, _path: str = "/readyz", *, timeout: float = 2.0) -> str | None:
        return next(said, None)

    monkeypatch.setattr(LeavingKube, "healthy", healthy)
    found = await a_status(make_context, a_kube(WITH_A_WORKER))
    assert found.api == "ready"
    assert {(row.component, row.node, row.health) for row in found.rows if row.slot != "standby"} == {
        ("kubelet", "n1", "ready"),
        ("kubelet", "n2", "ready"),
    }


def test_a_watch_goes_on_when_the_api_goes_away_in_the_middle_of_a_look(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
):
    class Enough(Exception): ...

    kubes = [a_kube(WITH_A_WORKER), a_kube(WITH_A_WORKER, answers=2), a_kube(WITH_A_WORKER)]
    looks = iter(kubes)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == len(kubes):
            raise Enough

    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda _file, _name, **_more: WITH_A_WORKER)
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda c: a_context(make_context, c, next(looks)))
    monkeypatch.setattr("autarky.cli.status.time.sleep", nap)
    result = CliRunner().invoke(status_command, ["--watch"])
    assert isinstance(result.exception, Enough), result.output
    heads = [line.partition("API: ")[2] for line in result.output.splitlines() if "API: " in line]
    assert heads == ["ready", GONE, "ready"]


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_node_that_writes_what_it_wants_neither_breaks_nor_forges_the_status(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, output: str
):
    kube, word = a_kube(WITH_A_WORKER), "x\x1b[2J\n9 \u202e\ud800y"
    reported = {"ends": {word: "2020-01-01T00:00:00Z"}, "trouble": {"kubelet-client": word, word: word}}
    ready = {"type": "Ready", "status": "False", "message": word}
    metadata = {"name": "n2", "annotations": {certificates.ANNOTATION: json.dumps(reported)}}
    status = {"conditions": [ready], "nodeInfo": {"kubeletVersion": word}}
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda _file, _name, **_more: WITH_A_WORKER)
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda c: a_context(make_context, c, kube))
    result = CliRunner().invoke(status_command, ["-o", output])
    assert isinstance(result.exception, SystemExit), result.exception
    assert all(line.isprintable() for line in result.output.split("\n"))
    if output == "json":
        assert json.loads(result.output)["overdue"] == ["kubelet-client on n2 does not exist: x [2J 9   y"]
    else:
        assert "\nkubelet-client on n2 does not exist: x [2J 9 y\n" in result.output
        [kubelet] = [line for line in result.output.split("\n") if "kubelet  " in line and "n2" in line]
        assert kubelet.split("  ")[-1] == "x [2J 9 y"


async def test_the_word_of_root_on_a_worker_makes_no_control_node_of_it_for_status_or_doctor(make_context: MakeContext):
    """While the API is silent; its servers and its standbys would be looked for there."""
    away = a_kube(WITH_A_WORKER)
    away.set_outage(GONE)
    for known in (True, False):
        context = a_context(make_context, WITH_A_WORKER, away)
        await noted_on_its_disk(context, "n2", known=known)
        rows = (await gather(context)).rows
        assert any(row.component == "kube-apiserver" and row.node == "n2" for row in rows) is known
        seen = await evidence(context)
        assert [node.control_plane for node in seen.nodes] == [True, known]


OF_WORKLOADS = 3 + len(KINDS)
"""Questions, the last ones: of what there is, and of what it is judged by."""


async def an_examination(make_context: MakeContext, kube: FakeKube) -> ClusterEvidence:
    """n2 is a control node by its label, in the API and on its disk."""
    context = a_context(make_context, WITH_A_WORKER, kube)
    await noted_on_its_disk(context, "n2")
    return await evidence(context)


async def test_after_whichever_answer_the_api_goes_away_doctor_says_that_and_what_the_hosts_say(
    make_context: MakeContext,
):
    undisturbed = a_kube(WITH_A_WORKER, labelled="n2")
    all_seen = await an_examination(make_context, undisturbed)
    assert (all_seen.api, whats(all_seen)) == ("", [])
    of_the_cluster = undisturbed.asked - OF_WORKLOADS
    assert of_the_cluster > 8
    for answers in range(of_the_cluster, undisturbed.asked):
        seen = await an_examination(make_context, a_kube(WITH_A_WORKER, labelled="n2", answers=answers))
        assert (seen.api, seen.unseen, whats(seen)) == ("", GONE, ["workloads: they could not be looked at"]), answers
    for answers in range(of_the_cluster):
        seen = await an_examination(make_context, a_kube(WITH_A_WORKER, labelled="n2", answers=answers))
        assert seen.api == GONE, answers
        assert [(node.name, node.problem, node.control_plane) for node in seen.nodes] == [
            ("n1", "", True),
            ("n2", "", True),
        ], answers
        assert whats(seen) == ["API: it does not answer"], answers


async def test_what_the_hosts_say_is_told_without_what_the_api_does_not_say_any_more(make_context: MakeContext):
    ahead = {"n2": 93.0}
    kube = a_kube(THREE)
    await evidence(a_context(make_context, THREE, kube, ahead))
    kube = a_kube(THREE, answers=kube.asked - OF_WORKLOADS - 1)
    seen = await evidence(a_context(make_context, THREE, kube, ahead))
    assert seen.withdrawn == {}
    assert whats(seen) == ["n2: its clock is +93 s off the others'", "API: it does not answer"]


@dataclass
class WithoutJobs(LeavingKube):
    """A tenant has made so many that the API does not list them."""

    error: AutarkyError = field(default_factory=lambda: Unreachable(GONE))

    async def list_at(self, api_version: str, kind: str, **more: Any) -> Listing:
        if kind == "Job":
            raise self.error
        return await super().list_at(api_version, kind, **more)


@pytest.mark.parametrize("error", [Unreachable("no answer within 30 s"), ApiError(503, "Timeout", "too much")], ids=str)
async def test_where_the_api_does_not_list_workloads_all_else_that_it_says_is_told(
    make_context: MakeContext, error: AutarkyError
):
    kube = a_kube(WITH_A_WORKER, kube=WithoutJobs(error=error))
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no heartbeat"}]}}
    await kube.patch("v1", "Node", "n2", unready, subresource="status")
    seen = await evidence(a_context(make_context, WITH_A_WORKER, kube))
    assert seen.api == ""
    assert whats(seen) == ["n2: the node is not Ready", "workloads: they could not be looked at"]
    assert diagnose(seen)[-1].evidence == str(error)


async def test_of_the_conditions_those_are_told_that_say_that_something_is_wrong(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    kube.put(control_plane_crd())
    said = {"StandbysCurrent": "False", "RolloutFailed": "False", "RolledBack": "True", "SpecApplied": "False"}
    conditions = [{"type": name, "status": status, "message": f"{name} says"} for name, status in said.items()]
    status = {"conditions": conditions}
    kube.put({"apiVersion": API_VERSION, "kind": "ControlPlane", "metadata": {"name": CONTROL_PLANE}, "status": status})
    found = await evidence(a_context(make_context, WITH_A_WORKER, kube))
    assert found.conditions == {"StandbysCurrent": "StandbysCurrent says"}


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("Deployment", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("ReplicaSet", "apps/v1"),
        ("ReplicationController", "v1"),
        ("CronJob", "batch/v1"),
        ("Job", "batch/v1"),
    ],
)
async def test_a_workload_whose_new_pods_a_policy_refuses_is_named_until_its_namespace_is_excepted(
    make_context: MakeContext, kind: str, api_version: str
):
    kube = a_kube(WITH_A_WORKER)
    classes = "scheduling.k8s.io/v1"
    metadata = {"name": "system-node-critical"}
    kube.put({"apiVersion": classes, "kind": "PriorityClass", "metadata": metadata, "value": 2000001000})
    labels = {"kubernetes.io/metadata.name": "storage"}
    kube.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "storage", "labels": labels}})
    [binding] = [obj for obj in tenants.objects() if obj["kind"] == BINDING and obj["metadata"]["name"] == PRIORITIES]
    kube.put(binding)
    template = {"template": {"spec": {"priorityClassName": "system-node-critical"}}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    metadata = {"name": "csi", "namespace": "storage"}
    kube.put({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
    seen = await evidence(a_context(make_context, WITH_A_WORKER, kube))
    [found] = diagnose(seen)
    assert found.subject == "namespace storage"
    assert found.evidence == f"{kind} csi has priorityClassName system-node-critical (2000001000)"
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["storage"]}
    excepted = {"spec": {"matchResources": {"namespaceSelector": {"matchExpressions": [expression]}}}}
    await kube.patch(binding["apiVersion"], BINDING, PRIORITIES, excepted)
    assert whats(await evidence(a_context(make_context, WITH_A_WORKER, kube))) == []


async def test_an_exception_by_a_label_of_the_namespace_is_heeded(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    trusted = {"tier": "trusted"}
    kube.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "storage", "labels": trusted}})
    [binding] = [
        obj for obj in tenants.objects() if obj["kind"] == BINDING and obj["metadata"]["name"] == ANTI_AFFINITY
    ]
    expression = {"key": "tier", "operator": "DoesNotExist"}
    matched = {"namespaceSelector": {"matchExpressions": [expression]}}
    kube.put({**binding, "spec": {**binding["spec"], "matchResources": matched}})
    terms = [{"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}]
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec = {"template": {"spec": {"affinity": {"podAntiAffinity": anti}}}}
    for namespace in ("storage", "default"):
        metadata = {"name": "csi", "namespace": namespace}
        kube.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    found = diagnose(await evidence(a_context(make_context, WITH_A_WORKER, kube)))
    assert [finding.subject for finding in found] == ["namespace default"]


# --- level 0 ------------------------------------------------------------------------------------------


def hosts_kubelets(kube: FakeKube, node: str, state: State | None, *, why: str = "", waiting: str = "") -> None:
    """A pod of the DaemonSet, and what the node reports of it."""
    labels = {"k8s-app": "kubelet", "autarky.dev/slot": "hosted"}
    meta = {"name": f"kubelet-{node}", "namespace": SYSTEM, "labels": labels}
    spec = {"nodeName": node, "containers": [{"name": "kubelet", "image": "autarky.dev/kubelet:v1.37.1"}]}
    said = {"containerStatuses": [{"state": {"waiting": {"reason": waiting}}}] if waiting else []}
    kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": said})
    if state is not None:
        live = kube._objects["v1", "Node", None, node]
        live["metadata"]["annotations"] = {HOSTED: hosted_report.text(Report("1-2", Version(1, 37, 1), state, why))}
        kube.put(live)


@pytest.mark.parametrize(
    ("state", "slot", "change"),
    [
        (State.IN_FORCE, "hosted", ""),
        (State.PROVING, "hosted", "it is on trial"),
        (State.WAITING, "host", "the hosted one waits: because"),
        (State.REFUSED, "host", "the hosted one may not be in force: because"),
        (State.FAILED, "host", "the hosted one has failed: because"),
        (None, "host", "the hosted one has not started: ErrImagePull"),
    ],
)
async def test_each_kubelet_is_shown_in_the_slot_that_is_in_force_once(
    make_context: MakeContext, state: State | None, slot: str, change: str
):
    kube = a_kube(WITH_A_WORKER)
    hosts_kubelets(kube, "n1", state, why="because" if "because" in change else "", waiting="ErrImagePull")
    found = await a_status(make_context, kube)
    kubelets = {row.node: (row.slot, row.health, row.change) for row in found.rows if row.component == "kubelet"}
    assert kubelets == {"n1": (slot, "ready", change), "n2": ("host", "ready", "")}
    assert len([row for row in found.rows if row.level == 0]) == 2


V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
LEVEL_0 = a_cluster(controls=3, workers=1, hosts_kubelet=True)


def a_level_0(make_context: MakeContext, *, image: Version = V37) -> tuple[Context, LeavingKube]:
    """Each host's kubelet waits for the lock, and each pod's is in force: all have what is wanted, which is followed.
    image: of the DaemonSet."""
    kube, plane = a_kube(LEVEL_0), crds.control_plane(LEVEL_0)
    context = a_context(make_context, LEVEL_0, kube)
    kube.put(control_plane_crd())
    spec = {**plane["spec"], "selfHosted": "0-4", "version": str(V37), "kubelets": {"follow": True}}
    pools = [{"name": "workers", "wanted": [str(V37)], "done": 1, "total": 1}]
    told = {"version": str(V37), "kubelets": {"pools": pools}}
    kube.put({**plane, "spec": spec, "status": told})
    [daemons] = daemon_set.objects(context.inputs())
    daemons["spec"]["template"]["spec"]["containers"][0]["image"] = f"autarky.dev/kubelet:{image}"
    kube.put(daemons)
    for node in LEVEL_0.nodes:
        hosts_kubelets(kube, node.name, State.IN_FORCE)
        live = kube._objects["v1", "Node", None, node.name]
        target = Target(V37, "base")
        host = report.Report(version=V37, base="base", target=target.digest)
        live["metadata"]["annotations"] |= {hosted_report.TURN: "1-2", report.ANNOTATION: report.text(host)}
        live["status"]["nodeInfo"] = {"kubeletVersion": str(V37)}
        kube.put(live)
        servers = [f"{one.name}-{slot}" for one in LEVEL_0.control_nodes for slot in haproxy.SLOTS]
        of_host = [f"kubelet host {one}" for one in ("base -", "current aa", "boot b1", "uptime 10000")]
        values = {"boot": "b1", "pod": "1-2", "try": 9000, "version": V37, "state": "proven", "uptime": 9995}
        of_hosted = [f"kubelet hosted {key} {value}" for key, value in {**values, "why": ""}.items()]
        says(context, node.name, *nothing_wrong(servers), *of_host, *of_hosted, "kubelet process 77 900")
    return context, kube


async def test_of_hosted_kubelets_that_are_all_in_force_doctor_finds_nothing(make_context: MakeContext):
    context, kube = a_level_0(make_context)
    seen = await evidence(context)
    assert seen.kubelets is not None
    assert (len(seen.kubelets.nodes), seen.nodes[0].kubelet is not None) == (4, True)
    assert diagnose(seen) == []
    hosts_kubelets(kube, "n1", State.FAILED, why="it has exited")
    assert {one.subject for one in diagnose(await evidence(context))} == {"n1"}, "it looks at them"


async def test_doctor_knows_why_the_daemon_set_does_not_follow(make_context: MakeContext):
    context, kube = a_level_0(make_context, image=V36)
    template = kube._objects["apps/v1", "DaemonSet", SYSTEM, "kubelet"]["spec"]["template"]
    failure = Failure(revision_of(with_tag(template, "kubelet", V37)), 1, "n1 has no pod that is Ready")
    content = base64.b64encode(json.dumps([asdict(failure)]).encode()).decode()
    meta = {"name": secret_name("kubelet"), "namespace": SYSTEM, "labels": {**MANAGED_BY}}
    kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": TYPE, "data": {FAILURES: content}})
    [one] = diagnose(await evidence(context))
    assert (one.subject, one.evidence) == ("kubelets", "n1 has no pod that is Ready")
    assert "annotate ds/kubelet autarky.dev/try-again=now" in one.next


@pytest.mark.parametrize("hosted", [True, False])
async def test_without_the_api_a_kubelets_slot_is_that_of_the_port_that_answers_for_its_health(
    make_context: MakeContext, hosted: bool
):
    away = a_kube(WITH_A_WORKER)
    away.set_outage(GONE)
    context = a_context(make_context, WITH_A_WORKER, away)
    host = context.host(context.cluster.node("n1"))
    assert isinstance(host, FakeHost)
    listening = host.host_facts.listening_ports | ({ports.KUBELET_HOSTED_HEALTH} if hosted else set())
    host.host_facts = replace(host.host_facts, listening_ports=listening)
    [row] = [row for row in (await gather(context)).rows if (row.component, row.node) == ("kubelet", "n1")]
    assert (row.slot, row.health) == ("hosted" if hosted else "host", "listening")


class LoggingHost(SeenHost):
    """With a pod of the kubelets' DaemonSet."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        match list(argv):
            case ["journalctl", "-u", unit, *_]:
                return Completed(0, f"journal of {unit}".encode(), "")
            case ["sh", "-c", _, "sh", component]:
                path = f"/var/log/pods/kube-system_{component}-x2b5q_1-2/{component}/0.log"
                return Completed(0, path.encode() if component != "containerd" else b"", "")
            case ["tail", *_, path]:
                return Completed(0, f"end of {path.rpartition('/')[2]}".encode(), "")
        return await super().run(argv, stdin=stdin, timeout=timeout, check=check)


@pytest.mark.parametrize(
    ("component", "read"),
    [
        ("kubelet", [("kubelet", "journal of kubelet"), ("kubelet-x2b5q", "end of 0.log")]),
        ("containerd", [("containerd", "journal of containerd")]),
        ("kube-proxy", [("kube-proxy-x2b5q", "end of 0.log")]),
    ],
)
async def test_logs_of_a_kubelet_are_those_of_both_slots(
    make_context: MakeContext, component: str, read: list[tuple[str, str]]
):
    context = make_context(hosts={"n1": LoggingHost("n1", facts_of(a_cluster())["n1"])})
    assert await _read(context, context.cluster.nodes[0], component, 5) == read


# --- clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "said"), [(93.0, "+93 s"), (-93.0, "-93 s")])
async def test_a_clock_that_is_off_is_named_with_its_difference(make_context: MakeContext, ahead: float, said: str):
    found = diagnose(await evidence(a_context(make_context, THREE, a_kube(THREE), {"n2": ahead})))
    assert [(finding.subject, finding.what) for finding in found] == [("n2", f"its clock is {said} off the others'")]


async def test_the_round_trip_to_a_host_is_not_taken_for_a_difference(make_context: MakeContext):
    seen = await evidence(a_context(make_context, THREE, a_kube(THREE), {"n1": 1.0, "n2": 1.0, "n3": 1.0}))
    assert [node.clock for node in seen.nodes] == pytest.approx([BEGIN + 1] * 3, abs=0.01)


async def test_a_node_whose_clock_is_off_and_is_withdrawn_is_told_once(make_context: MakeContext):
    kube = a_kube(THREE)
    await kube.patch("v1", "Node", "n2", {"metadata": {"annotations": {WITHDRAWN: "its clock is ahead"}}})
    [found] = diagnose(await evidence(a_context(make_context, THREE, kube, {"n2": 93.0})))
    assert (found.subject, found.what) == ("n2", "its clock is +93 s off the others'")
    assert "its API servers get no new connections" in found.evidence


def renewed(kube: FakeKube, holder: str, stamp: float) -> None:
    """Both leases of level 3 are held and were last renewed then, by the holder's clock."""
    when = datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": f"{holder}_0e6b2f0c", "renewTime": when}
    for name in controllers.CONTROLLERS:
        meta = {"name": name, "namespace": SYSTEM}
        kube.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})


@pytest.mark.parametrize(
    ("ahead", "holder", "of_the_stamp"),
    [
        pytest.param({"n1": -30.0, "n2": -30.0, "n3": -30.0}, "n1", -30.0, id="this machine is ahead"),
        pytest.param({"n1": 30.0, "n2": 30.0, "n3": 30.0}, "n1", 30.0, id="this machine is behind"),
        pytest.param({"n2": -93.0}, "n2", -93.0, id="the leader is behind"),
        pytest.param({"n2": -93.0}, "N2", -93.0, id="the leader's name is in capitals"),
        pytest.param({"n2": -93.0}, "n9", 0.0, id="nobody knows the leader: most of the control nodes"),
        pytest.param({"n1": None, "n2": None, "n3": 30.0}, "n1", 30.0, id="the leader says no time: another one"),
        pytest.param({"n1": None, "n2": None, "n3": None}, "n1", 0.0, id="no control node says a time: this machine"),
    ],
)
async def test_a_lease_is_as_old_as_it_is_on_the_node_that_renews_it(
    make_context: MakeContext, ahead: dict[str, float | None], holder: str, of_the_stamp: float
):
    kube = a_kube(THREE)
    renewed(kube, holder, BEGIN + of_the_stamp - 2)
    seen = await evidence(a_context(make_context, THREE, kube, ahead))
    passed = asyncio.get_running_loop().time()
    assert passed >= SCRIPT
    assert seen.idle_leases == pytest.approx(dict.fromkeys(controllers.CONTROLLERS, 2 + passed), abs=0.01)


async def test_a_clock_of_a_worker_does_not_judge_leases(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    renewed(kube, "n9", BEGIN)
    seen = await evidence(a_context(make_context, WITH_A_WORKER, kube, {"n1": 0.0, "n2": -93.0}))
    passed = asyncio.get_running_loop().time()
    assert seen.idle_leases == pytest.approx(dict.fromkeys(controllers.CONTROLLERS, passed), abs=0.01)


async def test_a_machine_half_a_minute_ahead_finds_leaders(make_context: MakeContext):
    kube = a_kube(THREE)
    renewed(kube, "n1", BEGIN - 30)
    assert whats(await evidence(a_context(make_context, THREE, kube, {"n1": -30.0, "n2": -30.0, "n3": -30.0}))) == []


async def test_a_machine_half_a_minute_behind_finds_that_nobody_leads(make_context: MakeContext):
    kube = a_kube(THREE)
    renewed(kube, "n1", BEGIN + 30 - 40)
    seen = await evidence(a_context(make_context, THREE, kube, {"n1": 30.0, "n2": 30.0, "n3": 30.0}))
    assert whats(seen) == [f"{name}: nobody leads" for name in controllers.CONTROLLERS]
