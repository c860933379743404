"""A node leaves: refused where it must be, in an order in which nothing is missed, and again after it was killed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autarky.control.admission.act import read_inventory
from autarky.control.control_nodes.decide.serving import STEADY_SECONDS
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.phase import Change, Warn
from autarky.errors import Refused, TimedOut, UserError
from autarky.phases import forget, members
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.objects import ApplyObjects
from autarky.phases.removal import (
    SILENCE_SECONDS,
    CheckRemoval,
    DrainNode,
    ForgetNode,
    TakeLabelAway,
    is_silent,
    known_node,
    refuse_removal,
    still_control,
)
from autarky.phases.replaced import ForgetReplaced
from autarky.places import NODE_MARKER
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

THREE = a_cluster(controls=3, workers=1)
LABELS = {CONTROL_PLANE_ACTIVE: "", CONTROL_PLANE_REQUESTED: ""}


def put_node(kube: FakeKube, name: str, labels: dict[str, str] | None = None) -> None:
    meta = {"name": name, "labels": labels or {}}
    status = {"addresses": [{"type": "InternalIP", "address": f"192.0.2.1{name[-1]}"}]}
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status})


def put_pod(kube: FakeKube, name: str, node: str, owner: str = "ReplicaSet") -> None:
    meta = {"name": name, "namespace": "default", "ownerReferences": [{"kind": owner, "name": "x"}]}
    kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": node}, "status": {}})


def renewed(kube: FakeKube, node: str, ago: float) -> None:
    stamp = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"renewTime": stamp}}
    kube.put({**lease, "metadata": {"name": node, "namespace": "kube-node-lease"}})


async def renew(kube: FakeKube, node: str) -> None:
    """As a kubelet that runs: for as long as the test lets it."""
    for ago in range(100, 0, -1):
        renewed(kube, node, ago)
        await asyncio.sleep(10)


@pytest.fixture
def kube() -> FakeKube:
    api = FakeKube()
    for node in THREE.nodes:
        put_node(api, node.name, LABELS if node.control_plane else {})
    return api


@pytest.fixture
def context(make_context, kube):
    return make_context(THREE, kube=kube)


# --- refusals ------------------------------------------------------------------------------------------------


async def test_a_node_whose_host_does_not_answer_goes_only_when_it_is_said_to_be_dead(context):
    del context.machines.hosts["n4"]
    with pytest.raises(Refused, match="unknown is not down"):
        await CheckRemoval(THREE.node("n4"), dead=False).plan(context)
    assert await CheckRemoval(THREE.node("n4"), dead=True).plan(context) == []


@pytest.mark.parametrize(("name", "refused"), [("n4", False), ("n3", True)])
async def test_while_etcd_moves_a_worker_may_be_removed_and_no_control_node(context, name, refused):
    """It may be what the move waits for."""
    moved = {"spec": {"etcd": {"external": {"lab": "store"}}}}
    (context.directory / "cluster.json").write_text(json.dumps(moved))
    for node in THREE.nodes:
        said = {"cluster": "demo", "node": node.name, "founders": ["n1"], "ca": context.ours.ca}
        context.machines.hosts[node.name].files[NODE_MARKER] = (json.dumps(said).encode(), 0o644)
    removed = CheckRemoval(THREE.node(name), dead=False).plan(context)
    if refused:
        with pytest.raises(UserError, match="etcd is outside of the cluster"):
            await removed
    else:
        assert await removed == []


async def test_a_host_that_answers_is_not_dead(context):
    with pytest.raises(Refused, match="unknown is not down"):
        await CheckRemoval(THREE.node("n4"), dead=True).plan(context)


async def test_a_member_is_not_removed_while_others_do_not_answer(context):
    context.absent = {"n2": "off", "n3": "off"}
    with pytest.raises(Refused, match="etcd keeps its quorum"):
        await refuse_removal(context, THREE.node("n1"), answers=True, dead=False)


def put_member(kube: FakeKube, name: str) -> None:
    member = {"apiVersion": "autarky.dev/v1alpha1", "kind": "EtcdMember", "metadata": {"name": name}}
    kube.put({**member, "spec": {"nodeName": name}, "status": {"phase": "Member"}})


@pytest.mark.looptime
@pytest.mark.parametrize("lost", ["n4", None])
async def test_a_member_on_a_worker_of_the_file_that_a_label_made_a_control_node_counts(context, kube, lost):
    """Four members; without n3 there are three, and all must agree that it leaves."""
    kube.put(etcd_members.crd())
    for node in THREE.nodes:
        put_member(kube, node.name)
    context.absent = {name: "off" for name in ("n3", lost) if name is not None}
    removed = refuse_removal(context, THREE.node("n3"), answers=False, dead=True)
    if lost is None:
        await removed
    else:
        with pytest.raises(Refused, match="not healthy among them: n4"):
            await removed


@pytest.mark.looptime
async def test_a_control_node_goes_when_another_was_seen_to_serve_for_a_while(context, kube, looptime):
    await refuse_removal(context, THREE.node("n1"), answers=True, dead=False)
    assert looptime >= STEADY_SECONDS


@pytest.mark.looptime
async def test_a_control_node_stays_while_the_others_are_ready_but_serve_nothing_and_what_was_seen_is_said(
    context, kube
):
    """Their Nodes are Ready, their labels are there, etcd is well: their API servers do not answer."""
    kube.unhealthy = "connection refused"
    for name in ("n2", "n3"):
        context.machines.hosts[name].balanced_paths = frozenset()
    with pytest.raises(Refused, match="the last control node that serves stays") as refused:
        await refuse_removal(context, THREE.node("n1"), answers=True, dead=False)
    assert "n2: " in str(refused.value)
    assert "connection refused" in str(refused.value)


@pytest.mark.looptime
async def test_where_no_address_can_be_reached_the_hosts_say_whether_their_api_servers_serve(context, kube):
    kube.unhealthy = "no connection was made in time"
    context.machines.hosts["n2"].balanced_paths = frozenset({"/n2-standby"})
    context.machines.hosts["n3"].balanced_paths = frozenset()
    await refuse_removal(context, THREE.node("n1"), answers=True, dead=False)


async def test_the_last_control_node_is_refused_by_name(make_context):
    cluster = a_cluster(workers=1)
    kube = FakeKube()
    put_node(kube, "n1", LABELS)
    put_node(kube, "n2")
    with pytest.raises(Refused, match="the last control node stays"):
        await CheckRemoval(cluster.node("n1"), dead=False).plan(make_context(cluster, kube=kube))


async def test_a_name_that_nobody_knows_is_told_with_those_that_are(context):
    with pytest.raises(UserError, match="there is no node n7"):
        known_node(context, "n7")


@pytest.mark.looptime
async def test_a_lease_that_is_renewed_while_we_watch_is_a_sign_of_life(context, kube):
    async def renew() -> None:
        await asyncio.sleep(9)
        renewed(kube, "n4", ago=0)

    renewed(kube, "n4", ago=3)
    async with asyncio.TaskGroup() as group:
        group.create_task(renew())
        assert not await is_silent(context, THREE.node("n4"))


@pytest.mark.looptime
@pytest.mark.parametrize("ago", [3, 1000, -1000])
async def test_a_lease_that_stays_as_it_is_is_silence_once_it_was_watched(context, kube, looptime, ago):
    """However old it looks by the clock here, which may be ahead."""
    renewed(kube, "n4", ago=ago)
    assert await is_silent(context, THREE.node("n4"))
    assert looptime == SILENCE_SECONDS


# --- leaving ---------------------------------------------------------------------------------------------------


async def test_draining_asks_for_what_another_node_can_run_and_cordons_in_any_case(context, kube, notes):
    put_pod(kube, "web", "n4")
    put_pod(kube, "agent", "n4", owner="DaemonSet")
    put_pod(kube, "elsewhere", "n1")
    drain = DrainNode(THREE.node("n4"), evict=True)
    assert await drain.plan(context) == [Change("cordon node n4"), Change("evict pod default/web")]
    await drain.run(context, notes)
    assert await drain.plan(context) == []
    left = [pod["metadata"]["name"] for pod in await kube.list("v1", "Pod")]
    assert sorted(left) == ["agent", "elsewhere"]


async def test_a_worker_has_no_label_to_lose(context):
    assert await TakeLabelAway(THREE.node("n4")).plan(context) == []


@pytest.mark.looptime
async def test_a_control_node_loses_its_request_and_is_waited_for(context, kube, notes):
    with pytest.raises(TimedOut, match="the operator still counts it as a control node"):
        await TakeLabelAway(THREE.node("n3")).run(context, notes)
    live = await kube.get("v1", "Node", "n3")
    assert live is not None
    assert CONTROL_PLANE_REQUESTED not in live["metadata"]["labels"]
    put_node(kube, "n3")
    await TakeLabelAway(THREE.node("n3")).run(context, notes)
    assert await still_control(context, THREE.node("n3")) is None


async def test_nothing_of_the_node_is_left_in_the_api_and_a_second_run_finds_nothing(context, kube, notes):
    await WriteKubeconfig().run(context, notes)
    inventory = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n3": "{}", "n4": "{}"}}
    kube.put({**inventory, "metadata": {"name": "autarky-join-inventory", "namespace": "kube-system"}})
    renewed(kube, "n4", ago=3)
    put_pod(kube, "web", "n4")
    csr = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    kube.put({**csr, "metadata": {"name": "csr-1"}, "spec": {"username": "system:node:n4"}})
    kube.put({**csr, "metadata": {"name": "csr-2"}, "spec": {"username": "system:node:n3"}})
    phase = ForgetNode(THREE.node("n4"))
    assert await phase.plan(context)
    await phase.run(context, notes)
    assert await forget.left_of(kube, "n4") == []
    assert await phase.plan(context) == []
    left = await kube.get("v1", "ConfigMap", "autarky-join-inventory", "kube-system")
    assert left is not None
    assert list(left["data"]) == ["n3"]
    assert len(await kube.list("certificates.k8s.io/v1", "CertificateSigningRequest")) == 1
    assert "n4" not in members.remembered(context.directory)
    assert "n4" not in context.machines.hosts


async def test_after_a_removal_the_join_inventory_is_as_the_smaller_file_wants_it(make_context, context, kube, notes):
    await ApplyObjects().run(context, notes)
    await forget.forget(kube, "n4")
    smaller = make_context(a_cluster(controls=3), kube=kube)
    assert not [change for change in await ApplyObjects().plan(smaller) if "inventory" in str(change)]
    assert [change for change in await ApplyObjects().plan(context) if "inventory" in str(change)]


# --- a machine that was replaced ---------------------------------------------------------------------------------


def joined(context, *names: str) -> None:
    for name in names:
        files = context.machines.hosts[name].files
        files[kubelet_credentials.KUBELET_KUBECONFIG] = (b"{}", 0o600)
        said = {"cluster": "demo", "node": name, "founders": ["n1", "n2", "n3"]}
        files[NODE_MARKER] = (json.dumps(said).encode(), 0o644)


@pytest.mark.looptime
async def test_a_worker_with_an_empty_disk_is_forgotten_before_it_joins_again(context, kube, notes):
    joined(context, "n1", "n2", "n3")
    renewed(kube, "n4", ago=1000)
    phase = ForgetReplaced()
    assert await phase.plan(context) == [Change("forget the machine that was n4 before")]
    await phase.run(context, notes)
    assert await kube.get("v1", "Node", "n4") is None
    assert await phase.plan(context) == []


@pytest.mark.looptime
async def test_a_machine_that_was_replaced_is_in_the_join_inventory_again_before_it_joins(context, kube, notes):
    joined(context, "n1", "n2", "n3")
    renewed(kube, "n4", ago=1000)
    await ApplyObjects().run(context, notes)
    assert not [change for change in await ApplyObjects().plan(context) if "inventory" in str(change)]
    await ForgetReplaced().run(context, notes)
    assert "n4" not in (await read_inventory(kube))
    await ApplyObjects().run(context, notes)
    assert "n4" in (await read_inventory(kube))


async def test_a_worker_whose_disk_cannot_be_read_is_left_out(context, kube, notes):
    """Root there could else end every plan and every `up`."""
    joined(context, "n1", "n2", "n3")
    context.machines.hosts["n4"].disk.make_directory(kubelet_credentials.KUBELET_KUBECONFIG)
    context.joined = frozenset({"n1", "n2", "n3", "n4"})
    [said] = await ForgetReplaced().plan(context)
    assert isinstance(said, Warn)
    assert said.sentence.startswith("n4 is left out: n4: cat ")
    context.absent = {}
    await ForgetReplaced().run(context, notes)
    assert set(context.absent) == {"n4"}
    [note] = notes.notes
    assert note == said.sentence


@pytest.mark.looptime
async def test_a_worker_that_answers_from_elsewhere_too_is_left_out_and_a_control_node_is_refused(context, kube, notes):
    """A worker has only to remove its kubelet's kubeconfig and let the kubelet go on."""
    joined(context, "n1", "n2", "n3")
    going_on = asyncio.create_task(renew(kube, "n4"))
    await ForgetReplaced().run(context, notes)
    assert set(context.absent) == {"n4"}
    assert notes.notes == [f"n4 is left out: {context.absent['n4']}"]
    assert "the host of node n4 has an empty disk, and another machine answers as n4: power" in context.absent["n4"]
    assert await kube.get("v1", "Node", "n4") is not None
    going_on.cancel()
    context.machines.hosts["n3"].files.clear()
    going_on = asyncio.create_task(renew(kube, "n3"))
    with pytest.raises(Refused, match="another machine answers as n3"):
        await ForgetReplaced().run(context, notes)
    going_on.cancel()


async def test_hosts_that_have_joined_are_not_replaced(context):
    joined(context, "n1", "n2", "n3", "n4")
    assert await ForgetReplaced().plan(context) == []


async def test_without_an_api_nobody_is_forgotten(make_context):
    context = make_context(replace(THREE), kube=FakeKube(unhealthy="connection refused"))
    assert await ForgetReplaced().plan(context) == []
