"""The temporary control plane: one for all initial members, standbys of the others once the API has answered."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.control.slots import manifests as standby
from autarky.model.cluster import Level
from autarky.model.components import API_SERVER, WITH_STANDBY
from autarky.phases import standbys
from autarky.phases.hosts import FOUNDED, observe
from autarky.phases.prepare import PrepareHosts
from autarky.phases.start import BETWEEN_LOOKS, LOOKS, StartControlPlane, static_pod_changes
from autarky.places import NODE_MARKER
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

API = API_SERVER
THREE = a_cluster(controls=3)
ACTIVATIONS = [f"activate {component}" for component in WITH_STANDBY]


def acts(context, name: str, verb: str) -> list[str]:
    log = context.machines.hosts[name].log
    return [act for act in log if act.startswith(verb) and not act.startswith("switch to generation ")]


async def started(context, kube, notes, *, looks: int = 1) -> None:
    """Run the phase; the API answers when the first host has been told to activate its standbys."""
    async with asyncio.TaskGroup() as group:
        run = group.create_task(StartControlPlane().run(context, notes))
        await asyncio.sleep((looks - 1) * BETWEEN_LOOKS + 5)
        assert acts(context, "n1", "activate")
        assert not run.done()
        kube.unhealthy = None


@pytest.mark.looptime
async def test_only_the_first_member_has_a_temporary_control_plane_and_all_get_complete_standbys(make_context, notes):
    kube = FakeKube(unhealthy="connection refused")
    context = make_context(THREE, kube=kube)
    await observe(context)
    await PrepareHosts().run(context, notes)
    assert [len(acts(context, name, "switch")) for name in ("n1", "n2", "n3")] == [3, 0, 0]
    await started(context, kube, notes)
    assert acts(context, "n1", "activate") == ACTIVATIONS
    assert acts(context, "n2", "activate") == acts(context, "n3", "activate") == []
    assert [len(acts(context, name, "switch")) for name in ("n1", "n2", "n3")] == [3, 3, 3]
    await observe(context)
    assert context.founded
    assert await PrepareHosts().plan(context) == []


@pytest.mark.looptime
async def test_that_the_cluster_is_founded_is_noted_after_the_standbys_are_complete(make_context, notes):
    kube = FakeKube(unhealthy="connection refused")
    context = make_context(THREE, kube=kube)
    await observe(context)
    await PrepareHosts().run(context, notes)
    await started(context, kube, notes)
    log = context.machines.hosts["n2"].log
    assert log.index(f"write {FOUNDED}") > max(n for n, act in enumerate(log) if act.startswith("switch"))


@pytest.fixture
async def founded(make_context):
    """Three control nodes with standbys of another revision than the file's, none of which is in place."""
    context = make_context(THREE, kube=FakeKube(unhealthy="connection refused"))
    for name in ("n1", "n2", "n3"):
        said = {"cluster": "demo", "node": name, "founders": ["n1", "n2", "n3"]}
        context.machines.hosts[name].files[NODE_MARKER] = (json.dumps(said).encode(), 0o644)
        context.machines.hosts[name].files[FOUNDED] = (b"", 0o644)
        context.machines.hosts[name].put_standbys()
    await observe(context)
    return context


@pytest.mark.looptime
async def test_of_a_cluster_that_is_down_the_standbys_of_all_nodes_are_activated(founded, notes):
    await started(founded, founded.kube(), notes, looks=LOOKS)
    assert all(acts(founded, name, "activate") == ACTIVATIONS for name in ("n1", "n2", "n3"))


@pytest.mark.looptime
async def test_rule_2_a_cluster_whose_api_answers_at_the_second_look_is_not_down(founded, notes):
    async with asyncio.TaskGroup() as group:
        group.create_task(StartControlPlane().run(founded, notes))
        await asyncio.sleep(BETWEEN_LOOKS / 2)
        founded.kube().unhealthy = None
    assert not [act for name in ("n1", "n2", "n3") for act in acts(founded, name, "activate")]


NODES = ("n1", "n2", "n3")


async def activated(context) -> dict[str, dict[str, list[str]]]:
    """What is in place on each node, all of it of another revision than the file's."""
    for name in NODES:
        for component in WITH_STANDBY:
            await context.machines.hosts[name].run([standby.SCRIPT_PATH, "activate", component])
    return {name: dict(context.machines.hosts[name].activations) for name in NODES}


@pytest.mark.looptime
async def test_without_an_agent_an_api_server_in_place_restarts_as_the_file_has_it(founded, notes):
    """It may be what does not start, and nobody else would repair it. Level 3 belongs to another phase."""
    host = founded.machines.hosts["n1"]
    before = await activated(founded)
    old = host.in_place[API]
    await started(founded, founded.kube(), notes, looks=LOOKS)
    for name in NODES:
        host = founded.machines.hosts[name]
        assert host.links[f"{places.STANDBY}/{API}/current"] == host.in_place[API] != old
        assert host.activations[API] != before[name].pop(API)
        assert {component: host.activations[component] for component in before[name]} == before[name]


@pytest.mark.looptime
@pytest.mark.parametrize("lowest", [Level.ETCD, Level.CONTROLLERS, Level.ADD_ONS])
async def test_rule_1_where_an_agent_is_no_api_server_is_restarted_though_the_api_does_not_answer(
    founded, notes, lowest
):
    """It may be etcd that is away; and what is in place has served, which nobody knows of what the file has now."""
    founded.cluster = replace(founded.cluster, self_hosted=lowest)
    before = await activated(founded)
    in_place = {name: dict(founded.machines.hosts[name].in_place) for name in NODES}
    current = [path for path in founded.machines.hosts["n1"].links if path.startswith(f"{places.STANDBY}/")]
    for name in NODES:
        path = f"{places.MANIFESTS}/{STANDBY_POD}-{name}.json"
        founded.machines.hosts[name].files[path] = (b"{}", 0o600)
    operator = {"name": "autarky-operator", "namespace": "kube-system"}
    founded.kube().put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": operator})
    await started(founded, founded.kube(), notes, looks=LOOKS)
    assert {name: founded.machines.hosts[name].activations for name in NODES} == before
    assert {name: founded.machines.hosts[name].in_place for name in NODES} == in_place
    for path in current if lowest is Level.ETCD else []:
        assert [founded.machines.hosts[name].links[path] for name in NODES] == ["0123456789"] * 3


@pytest.mark.looptime
async def test_killed_before_the_api_server_is_restarted_the_next_up_does_it(founded, notes):
    host = founded.machines.hosts["n1"]
    await activated(founded)
    old = host.in_place[API]
    [new] = [r for r in standbys.wanted_revisions(founded, founded.first) if r.component == API]
    await standbys.put_revision(host, new)
    await started(founded, founded.kube(), notes, looks=LOOKS)
    assert host.in_place[API] == new.name != old


@pytest.mark.looptime
async def test_of_a_cluster_that_is_down_what_is_in_place_as_the_file_has_it_goes_on(founded, notes):
    """It is about to serve, maybe: nothing would be won by another one."""
    host = founded.machines.hosts["n1"]
    for revision in standbys.wanted_revisions(founded, founded.first):
        await standbys.put_revision(host, revision)
        await host.run([standby.SCRIPT_PATH, "activate", revision.component])
    before = dict(host.activations)
    await started(founded, founded.kube(), notes, looks=LOOKS)
    assert host.activations == before


@pytest.mark.looptime
async def test_what_the_agent_has_made_of_what_works_is_not_replaced_by_what_the_file_says(founded, notes):
    host = founded.machines.hosts["n1"]
    host.put_standbys("checkpoint-0123456789")
    await started(founded, founded.kube(), notes, looks=LOOKS)
    assert host.in_place == dict.fromkeys(WITH_STANDBY, "checkpoint-0123456789")


async def test_etcds_static_pod_is_not_rewritten_when_a_member_has_left(make_context):
    context = make_context(THREE)
    host = context.machines.hosts["n1"]
    _, files = await static_pod_changes(context, host, THREE.nodes[0])
    await host.write_files(files)
    smaller = make_context(a_cluster(controls=2))
    stale, missing = await static_pod_changes(smaller, host, THREE.nodes[0])
    assert not [path for path in stale if path.startswith(f"{places.MANIFESTS}/etcd-")]
    assert not [file for file in missing if file.path.startswith(f"{places.MANIFESTS}/etcd-")]
