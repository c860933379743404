"""`up`, `status` and `doctor` get along with control nodes that a label has made: workers in the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.phase import Change
from autarky.errors import Unreachable
from autarky.model.balancer import ApiNode, Balancer
from autarky.model.files import File
from autarky.phases.context import Context
from autarky.phases.hosts import observe
from autarky.phases.labelled import find_labelled
from autarky.phases.members import as_it_joins
from autarky.phases.prepare import PrepareHosts, missing_leaves, write_leaves
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube

CLUSTER = a_cluster(controls=1, workers=1)
READY = File(places.CONTROL_NODE_STATE, b'{"state": "ready"}')


def live(name: str, *labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict.fromkeys(labels, "")}}


async def prepared(make_context: Callable[..., Context], *labels: str, silent: bool = False) -> Context:
    """As after its look at the hosts. Labels: of n2, whose disk says that it is a control node."""
    kube = FakeKube()
    kube.put(live("n1", CONTROL_PLANE_ACTIVE))
    kube.put(live("n2", *labels))
    kube.unhealthy = "it is down" if silent else None
    context = make_context(CLUSTER, kube=kube)
    await context.host(CLUSTER.node("n2")).write_files([READY])
    await observe(context)
    return context


async def test_one_of_an_earlier_release_gets_its_first_leaves_before_its_api_server_needs_them(
    make_context: Callable[..., Context],
):
    """Its agent knows nothing of them yet. What it has stays."""
    context = await prepared(make_context, CONTROL_PLANE_ACTIVE)
    host, node = context.host(CLUSTER.node("n2")), CLUSTER.node("n2")
    kept = File(f"{places.ETCD_PKI}/peer.crt", b"its own"), File(f"{places.ETCD_PKI}/peer.key", b"its own")
    await host.write_files(kept)
    missing = {file.path for file in await missing_leaves(context, host, node)}
    assert f"{places.LEAVES}/kube-apiserver/apiserver.key" in missing
    assert not missing & {file.path for file in kept}
    await write_leaves(host, await missing_leaves(context, host, node))
    assert await missing_leaves(context, host, node) == []


async def test_the_word_of_root_on_a_worker_brings_no_key_of_the_control_plane_there(
    make_context: Callable[..., Context],
):
    """Its label decides, which no kubelet may set. The requested one is only a request."""
    for context in (await prepared(make_context), await prepared(make_context, CONTROL_PLANE_REQUESTED)):
        host = context.host(CLUSTER.node("n2"))
        assert await missing_leaves(context, host, CLUSTER.node("n2")) == []
        planned = [one.sentence for one in await PrepareHosts().plan(context) if isinstance(one, Change)]
        assert [one for one in planned if "n2" in one]
        assert not [one for one in planned if "n2" in one and (places.LEAVES in one or places.ETCD_PKI in one)]


async def test_while_the_api_is_silent_it_is_given_nothing_whatever_it_was(make_context: Callable[..., Context]):
    """Its agent issues what it lacks, without `up`."""
    context = await prepared(make_context, CONTROL_PLANE_ACTIVE, silent=True)
    assert await missing_leaves(context, context.host(CLUSTER.node("n2")), CLUSTER.node("n2")) == []


async def test_a_label_that_is_gone_at_the_next_look_counts_no_more(make_context: Callable[..., Context]):
    context = await prepared(make_context, CONTROL_PLANE_ACTIVE)
    assert context.active_in_api == {"n1", "n2"}
    await context.kube().patch("v1", "Node", "n2", {"metadata": {"labels": {CONTROL_PLANE_ACTIVE: None}}})
    await observe(context)
    assert context.active_in_api == {"n1"}


async def test_a_control_node_of_the_file_that_joins_by_its_label_is_asked_itself(make_context: Callable[..., Context]):
    """The file says that it is one, whoever is root there."""
    joins = replace(CLUSTER.node("n2"), control_plane=True, initial_member=False)
    context = make_context(replace(CLUSTER, nodes=(CLUSTER.node("n1"), joins)))
    host = context.host(joins)
    assert await missing_leaves(context, host, as_it_joins(joins)) == []
    await host.write_files([READY])
    assert await missing_leaves(context, host, as_it_joins(joins)) != []


async def test_a_certificate_without_its_key_is_written_with_another_one(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    host, node = context.host(CLUSTER.node("n1")), CLUSTER.node("n1")
    await write_leaves(host, await missing_leaves(context, host, node))
    await host.remove([f"{places.ETCD_PKI}/peer.key"])
    missing = [file.path for file in await missing_leaves(context, host, node)]
    assert missing == [f"{places.ETCD_PKI}/peer.key", f"{places.ETCD_PKI}/peer.crt", places.LEAVES_PLAN]


async def test_labelled_nodes_are_found_by_the_label(make_context: Callable[..., Context]):
    kube = FakeKube()
    for name in ("n1", "n2"):
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {CONTROL_PLANE_ACTIVE: ""}}})
    context = make_context(CLUSTER, kube=kube)
    await find_labelled(context, api=True)
    assert context.labelled == {"n2"}
    assert [node.name for node in context.control_nodes] == ["n1", "n2"]


def members(name: str, address: str) -> File:
    content = [{"name": "n1", "address": "192.0.2.11", "learner": False}, {"name": name, "address": address}]
    return File(places.MEMBERS_FILE, json.dumps(content).encode())


def balancer(name: str, address: str) -> File:
    config = nllb.config(Balancer("n1", True, (ApiNode("n1", "192.0.2.11"), ApiNode(name, address)), ()))
    return File(nllb.CONFIG_PATH, config.encode())


def seat(name: str, _: str) -> File:
    return File(places.ETCD_FENCE, json.dumps({"recovery": "abc", "seat": name, "made_of": "x"}).encode())


KNOWN = {"a member of etcd": members, "a server of the API": balancer, "the seat of a recovery": seat}


@pytest.mark.parametrize("how", KNOWN)
@pytest.mark.parametrize(("state", "found"), [("ready", {"n2"}), ("joining", set()), ("leaving", set())])
async def test_without_the_api_they_are_those_whose_disks_say_so_and_that_a_control_node_of_the_file_knows(
    make_context: Callable[..., Context], state: str, found: set[str], how: str
):
    context = make_context(CLUSTER)
    noted = File(places.CONTROL_NODE_STATE, f'{{"state": "{state}"}}'.encode())
    await context.host(CLUSTER.node("n2")).write_files([noted])
    await context.host(CLUSTER.node("n1")).write_files([KNOWN[how]("n2", "192.0.2.12")])
    assert await find_labelled(context, api=False) == []
    assert context.labelled == found


async def test_a_second_member_on_a_node_is_one_of_its_own(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    await context.host(CLUSTER.node("n2")).write_files([READY])
    await context.host(CLUSTER.node("n1")).write_files([members("n2:second", "192.0.2.12")])
    await find_labelled(context, api=False)
    assert context.labelled == {"n2"}


@pytest.mark.parametrize(
    "known",
    [
        *(
            make(name, address)
            for make in (members, balancer)
            for name, address in (("n9", "192.0.2.12"), ("n2", "192.0.2.99"))
        ),
        File(places.MEMBERS_FILE, b"null"),
        File(places.MEMBERS_FILE, b'[["n2"], {"name": "n2"}]'),
        File(nllb.CONFIG_PATH, b"\xff"),
        File(places.ETCD_FENCE, b"[]"),
        File(places.MEMBERS_FILE, b""),
    ],
)
async def test_the_word_of_root_on_a_worker_makes_no_control_node_of_it(
    make_context: Callable[..., Context], known: File
):
    """Whatever it writes there, and though it says that it has the address of one: it is the name that counts, too."""
    context = make_context(CLUSTER)
    await context.host(CLUSTER.node("n2")).write_files([READY, *(make("n2", "192.0.2.12") for make in KNOWN.values())])
    await context.host(CLUSTER.node("n1")).write_files([known])
    assert await find_labelled(context, api=False) == ["n2"]
    assert [node.name for node in context.control_nodes] == ["n1"]


async def test_whom_a_person_names_is_believed_and_whom_that_one_knows(make_context: Callable[..., Context]):
    """Where no control node of the file is left. Not one that does not even say so itself."""
    cluster = a_cluster(controls=1, workers=3)
    context = make_context(cluster)
    del context.machines.hosts["n1"]  # type: ignore[attr-defined]
    for name in ("n2", "n3"):
        await context.host(cluster.node(name)).write_files([READY])
    await context.host(cluster.node("n2")).write_files([members("n3", "192.0.2.13")])
    assert await find_labelled(context, api=False, named={"n3"}) == ["n2"]
    assert await find_labelled(context, api=False, named={"n2", "n4"}) == []
    assert context.labelled == {"n2", "n3"}


class Gone(FakeHost):
    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        raise Unreachable("it is gone")


async def test_a_host_that_fails_meanwhile_knows_nobody_and_says_nothing(make_context: Callable[..., Context]):
    hosts = {name: FakeHost(name) for name in ("n1", "n2")}
    context = make_context(CLUSTER, hosts=hosts)
    await hosts["n2"].write_files([READY])
    hosts["n1"] = Gone("n1")
    assert await find_labelled(context, api=False) == ["n2"]
    hosts["n2"] = Gone("n2")
    assert await find_labelled(context, api=False) == []


async def test_a_machine_that_is_off_says_nothing(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    context.machines.hosts.pop("n2")  # type: ignore[attr-defined]
    await find_labelled(context, api=False)
    assert context.labelled == frozenset()


async def test_before_anything_is_known_the_control_nodes_are_those_of_the_file(make_context: Callable[..., Context]):
    context = make_context(replace(CLUSTER))
    assert [node.name for node in context.control_nodes] == ["n1"]
