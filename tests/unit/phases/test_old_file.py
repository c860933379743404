"""Two people work on one cluster from two machines; the API is down when the one with the old file runs `up`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.config import default_cluster, dump
from autarky.engine.phase import Kept
from autarky.errors import Conflict
from autarky.payload import default_version, known_versions
from autarky.phases.check_file import CheckFile, CheckFileAgain
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.hosts import FOUNDED, CheckHosts
from autarky.render import access, cluster_record
from autarky.render.values import SYSTEM
from autarky.workflows.up import PHASES
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

THREE, FOUR = a_cluster(controls=3), a_cluster(controls=3, workers=1)
DOWN = "connection refused"


def document(**spec):
    made = dump(
        replace(default_cluster(default_version=default_version(), known_versions=known_versions()), name="demo")
    )
    return {**made, "spec": {**made["spec"], **spec}}


OLD, NEW = document(), document(selfHosted="2-4")


def record(file, number, cluster=FOUR):
    nodes = {
        node.name: {
            "host": str(node.host),
            "address": node.address,
            "controlPlane": node.control_plane,
            "founder": node.initial_member,
        }
        for node in cluster.nodes
    }  # fmt: skip
    return cluster_record.read(
        json.dumps({"file": cluster_record.portable(file), "nodes": nodes, "number": number}).encode()
    )


def put_record(context, found):
    context.kube().put(cluster_record.config_map(cluster_record.written(found), context.ours.ca))


def put_node(kube, name, address):
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status})


@pytest.fixture
def kube():
    return FakeKube(unhealthy=DOWN)


@pytest.fixture
def context(make_context, kube):
    """The second machine's: the old file is what it has kept, and the cluster has been founded."""
    made = make_context(THREE, kube=kube)
    made.document, made.file_content = OLD, b"old"
    made.known = [cluster_record.portable(OLD)]
    for name, host in made.machines.hosts.items():
        said = {"cluster": "demo", "node": name, "founders": ["n1", "n2", "n3"], "ca": made.ours.ca}
        host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)
        host.files[FOUNDED] = (b"", 0o644)
        leave(made, name, record(OLD, 1, THREE))
    return made


def leave(context, name, found):
    context.machines.hosts[name].files[places.CLUSTER_RECORD] = (cluster_record.written(found), 0o600)


def untouched(context):
    return not (context.directory / "cluster.json").exists() and not any(h.log for h in context.machines.hosts.values())


async def test_with_the_api_down_the_newer_record_of_one_initial_member_is_enough_to_refuse(context):
    leave(context, "n3", record(NEW, 2))
    for phase in (CheckFile(), CheckHosts()):
        with pytest.raises(Conflict, match="host n3 has it") as refused:
            await phase.plan(context)
        assert "`autarky login -f FILE` fetches that one" in str(refused.value)
    assert untouched(context)


async def test_an_initial_member_that_was_off_when_the_file_was_applied_refuses_nobody(context):
    context.known = [cluster_record.portable(NEW)]
    for name in ("n1", "n2"):
        leave(context, name, record(NEW, 2))
    await CheckFile().plan(context)


async def test_records_of_an_older_release_are_compared_too(context):
    leave(context, "n2", record(NEW, 0))
    await CheckFile().plan(context)  # those with a number are newer
    for name in ("n1", "n3"):
        leave(context, name, record(OLD, 0))
    with pytest.raises(Conflict, match="host n2 has it"):
        await CheckFile().plan(context)


async def test_a_file_that_is_named_replaces_any(context):
    leave(context, "n3", record(NEW, 2))
    context.known = None
    await CheckFile().plan(context)


async def test_what_is_applied_next_gets_the_next_number(context):
    leave(context, "n3", record(NEW, 7))
    context.known = None
    await CheckFile().plan(context)
    found = cluster_record.read(context.inputs().record)
    assert (found.number, found.file) == (8, cluster_record.portable(OLD))
    for name in ("n1", "n2", "n3"):
        leave(context, name, found)
    await CheckFile().plan(context)
    assert context.inputs().record == cluster_record.written(found), "a second run changes nothing"


# --- the API answers later ---------------------------------------------------------------------------------------


def test_the_file_is_compared_again_before_the_first_object_is_applied():
    names = [phase.name for phase in PHASES]
    assert names.index("check-file-again") == names.index("start-control-plane") + 1
    assert names.index("check-file-again") < names.index("start-joining") < names.index("apply-objects")


async def test_an_old_file_is_refused_by_an_api_that_answers_later_with_the_inventory_as_it_was(context, kube):
    kube.put(access.inventory(FOUR))
    put_node(kube, "n4", "192.0.2.14")
    put_record(context, record(NEW, 2))
    await CheckFile().plan(context)
    assert await CheckFileAgain().plan(context) == []
    kube.unhealthy = None
    with pytest.raises(Conflict, match="the API has it"):
        await CheckFileAgain().plan(context)
    inventory = await kube.get("v1", "ConfigMap", access.INVENTORY, SYSTEM)
    assert "n4" in inventory["data"]


@pytest.mark.parametrize("known", [None, [cluster_record.portable(OLD)]])
async def test_nodes_that_an_api_that_answers_later_has_are_not_gone_on_without(context, kube, known):
    """Nothing was rendered with them; the next run knows them from the start."""
    context.known = known
    kube.put(access.inventory(FOUR))
    put_node(kube, "n4", "192.0.2.14")
    await CheckFile().plan(context)
    kube.unhealthy = None
    with pytest.raises(Conflict, match="other nodes than the run was prepared for: n4"):
        await CheckFileAgain().plan(context)
    await CheckFile().plan(context)
    assert "n4" in access.inventory(context.inputs().cluster)["data"]
    assert await CheckFileAgain().plan(context) == []


async def test_an_api_that_answers_later_with_what_was_known_is_gone_on_with(context, kube, notes):
    await WriteKubeconfig().run(context, notes)
    put_record(context, record(OLD, 1, THREE))
    for node in THREE.nodes:
        put_node(kube, node.name, node.address)
    await CheckFile().plan(context)
    kube.unhealthy = None
    assert await CheckFileAgain().plan(context) == []


# --- a node that lives and is in no inventory ----------------------------------------------------------------------


async def reported(context):
    return [found for found in await CheckHosts().plan(context) if isinstance(found, Kept)]


async def test_a_node_that_was_lost_from_the_inventory_gets_back_into_it_by_the_record(context, kube):
    kube.unhealthy = None
    kube.put(access.inventory(THREE))
    put_node(kube, "n4", "192.0.2.11")
    put_record(context, record(OLD, 1, FOUR))
    [kept] = await reported(context)
    assert "autarky node remove n4" in kept.live
    assert "192.0.2.14" in access.inventory(context.inputs().cluster)["data"]["n4"]


async def test_a_node_whose_address_nobody_has_written_down_is_told_with_what_follows(context, kube):
    kube.unhealthy = None
    kube.put(access.inventory(THREE))
    put_node(kube, "n4", "192.0.2.11")
    [kept] = await reported(context)
    assert kept.live.startswith("in no join inventory, so that its certificates will expire")
    assert "autarky node add n4" in kept.live
    assert "n4" not in access.inventory(context.inputs().cluster)["data"]
