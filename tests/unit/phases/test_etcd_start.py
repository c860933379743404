"""`up` and the static pods of etcd: it founds etcd once, and never disturbs or revives a member afterwards."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.model.cluster import HostRef, Node
from autarky.phases.hosts import FOUNDED, observe
from autarky.phases.start import StartControlPlane, etcd_exists, static_pod_changes
from autarky.render import node as render_node
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

PHASE = StartControlPlane()
AWAY = "nothing listens"


def nodes(count):
    return tuple(
        Node(f"n{n}", HostRef("lab", f"n{n}"), control_plane=True, address=f"192.0.2.1{n}") for n in range(1, count + 1)
    )


@pytest.fixture
def three(make_context):
    """Three control nodes on which nothing has been started."""
    return make_context(replace(a_cluster(), nodes=nodes(3)), kube=FakeKube(unhealthy=AWAY))


def manifests(host):
    return sorted(path for path in host.files if path.startswith(f"{places.MANIFESTS}/etcd-"))


async def started(context, notes):
    """As far as the wait for the API, which answers then."""
    context.kube().unhealthy = AWAY
    for node in context.cluster.control_nodes:
        await PHASE._start(context, node, notes, with_standbys=False, founding=not await etcd_exists(context))
    context.kube().unhealthy = None


async def test_etcd_is_founded_with_all_control_nodes(three, notes):
    await started(three, notes)
    for host in three.machines.hosts.values():
        (path,) = manifests(host)
        reported = etcd.founding_of(json.loads(host.files[path][0]))
        assert reported.state == "new"
        assert reported.cluster.count("https://") == 3
        (written,) = (number for number, what in enumerate(host.log) if what == f"write {path}")
        assert any(what.startswith("make ") for what in host.log[:written])


async def test_members_stay_as_they_are_when_a_control_node_is_added(make_context, notes):
    first = make_context(replace(a_cluster(), nodes=nodes(1)), kube=FakeKube())
    await started(first, notes)
    hosts = first.machines.hosts
    before = manifests(hosts["n1"])
    later = make_context(replace(a_cluster(), nodes=nodes(2)), kube=FakeKube())
    host = later.machines.hosts["n1"]
    host.files = hosts["n1"].files
    stale, missing = await static_pod_changes(later, host, later.cluster.node("n1"))
    assert manifests(host) == before
    assert [path for path in stale if "/etcd-" in path] == []
    assert [file.path for file in missing if "/etcd-" in file.path] == []


async def test_rule_3_a_replaced_machine_gets_no_member_while_etcd_exists(three, notes):
    """It would start from scratch under its old id; it joins as a learner instead, by its node agent."""
    await started(three, notes)
    replaced = three.machines.hosts["n1"]
    replaced.files.clear()
    for seen in ("the API answers", "a host remembers members"):
        if seen == "a host remembers members":
            three.kube().unhealthy = AWAY
            three.machines.hosts["n2"].files[places.MEMBERS_FILE] = (b"[]", 0o600)
        founding = not await etcd_exists(three)
        assert not founding
        _, missing = await static_pod_changes(three, replaced, three.cluster.node("n1"), founding=founding)
        assert [file.path for file in missing if "/etcd-" in file.path] == []


async def test_an_interrupted_first_start_goes_on(three, notes):
    await started(three, notes)
    three.kube().unhealthy = AWAY
    host = three.machines.hosts["n3"]
    for path in manifests(host):
        del host.files[path]
    await started(three, notes)
    assert len(manifests(host)) == 1


async def test_an_initial_member_that_the_first_start_did_not_reach_starts_when_the_others_serve_already(three, notes):
    """Two of three are a quorum, so the API answers. Nobody else would ever start its member (selfHosted 2-4, 4)."""
    left = three.machines.hosts["n3"]
    for node in three.cluster.control_nodes[:2]:
        await PHASE._start(three, node, notes, with_standbys=False, founding=True)
    three.kube().unhealthy = None
    assert any("etcd-" in change.sentence and "n3" in change.sentence for change in await PHASE.plan(three))
    before = {name: manifests(three.machines.hosts[name]) for name in ("n1", "n2")}
    await PHASE.run(three, notes)
    [path] = manifests(left)
    assert etcd.founding_of(json.loads(left.files[path][0])).cluster.count("https://") == 3
    assert {name: manifests(three.machines.hosts[name]) for name in ("n1", "n2")} == before


@pytest.mark.parametrize("trace", [FOUNDED, places.MEMBERS_FILE, f"{etcd.MEMBER_DIRECTORY}/wal"])
async def test_rule_3_an_initial_member_starts_nothing_where_anything_says_that_etcd_has_been(three, notes, trace):
    await started(three, notes)
    host = three.machines.hosts["n3" if trace.endswith("wal") else "n1"]
    host.files[trace] = (b"[]", 0o600)
    await observe(three)
    for path in manifests(three.machines.hosts["n3"]):
        del three.machines.hosts["n3"].files[path]
    await PHASE.run(three, notes)
    assert manifests(three.machines.hosts["n3"]) == []


async def test_a_member_that_an_agent_started_is_left_as_it_is(three, notes):
    context = three
    node = context.cluster.node("n2")
    reported = etcd.Founding("n1=https://192.0.2.11:2380,n2=https://192.0.2.12:2380", "existing")
    spec = etcd.read_template(etcd.template_object(context.inputs()))
    file = render_node.manifest(etcd.filled(spec, "n2", "192.0.2.12", reported, written_for=0xABC))
    host = context.machines.hosts["n2"]
    host.files[file.path] = (file.content, file.mode)
    stale, missing = await static_pod_changes(context, host, node, founding=True)
    assert [path for path in stale if "/etcd-" in path] == []
    assert [found.path for found in missing if "/etcd-" in found.path] == []
