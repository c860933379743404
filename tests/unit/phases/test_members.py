"""Who is in the cluster: the file, what was taken out of it, hosts that do not answer, machines that were replaced."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import Problems, Unreachable
from autarky.model.cluster import HostRef
from autarky.phases import members
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.hosts import FOUNDED, CheckHosts, observe
from autarky.phases.prepare import look
from autarky.places import NODE_MARKER
from autarky.render import access
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

THREE = a_cluster(controls=3, workers=1)


def node_object(name: str, address: str = "192.0.2.99", **labels: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def found_cluster(context, *names: str) -> None:
    """As the first `up` leaves the hosts."""
    for name in names:
        said = {"cluster": "demo", "node": name, "founders": list(names)}
        context.machines.hosts[name].files[NODE_MARKER] = (json.dumps(said).encode(), 0o644)
        context.machines.hosts[name].files[FOUNDED] = (b"", 0o644)


class SilentHost(FakeHost):
    async def facts(self):
        raise Unreachable(f"{self.name}: no answer")


async def test_what_is_known_of_nodes_is_remembered_with_the_kubeconfig(make_context, notes):
    context = make_context(THREE)
    await WriteKubeconfig().run(context, notes)
    assert await WriteKubeconfig().plan(context) == []
    found = members.remembered(context.directory)
    assert found == {node.name: node for node in THREE.nodes}


async def test_a_host_that_does_not_answer_keeps_its_address_and_is_left_out(make_context, notes):
    context = make_context(THREE)
    await WriteKubeconfig().run(context, notes)
    unknown = replace(THREE, nodes=tuple(replace(node, address=None) for node in THREE.nodes))
    context = make_context(THREE)
    context.cluster = unknown
    context.machines.hosts["n1"] = SilentHost("n1")
    await observe(context)
    assert context.absent == {"n1": "n1: no answer"}
    assert context.cluster.node("n1").address == "192.0.2.11"
    assert context.first.name == "n2"
    assert context.servers[-1] == "https://192.0.2.11:6443"
    assert [node.name for node in context.present(context.cluster.nodes)] == ["n2", "n3", "n4"]


async def test_the_kubeconfig_may_name_any_of_the_servers_and_has_them_all(make_context, notes):
    context = make_context(THREE)
    await WriteKubeconfig().run(context, notes)
    path = context.directory / "kubeconfig"
    assert b"192.0.2.13:6443" in path.read_bytes()
    text = path.read_text()
    path.write_text(text.replace('"server": "https://192.0.2.11:6443"', '"server": "https://192.0.2.12:6443"'))
    assert path.read_text() != text
    assert await WriteKubeconfig().plan(context) == []


async def test_an_endpoint_of_the_users_own_is_the_only_server(make_context, notes):
    context = make_context(replace(THREE, control_plane_endpoint="api.example.org:443"))
    await WriteKubeconfig().run(context, notes)
    content = json.loads((context.directory / "kubeconfig").read_text())["clusters"][0]["cluster"]
    assert content["server"] == "https://api.example.org:443"
    assert "extensions" not in content


async def changes(context):
    return [finding for finding in await CheckHosts().plan(context) if isinstance(finding, Change)]


async def test_a_cluster_that_is_up_is_worked_on_without_a_host_that_does_not_answer(make_context, notes):
    context = make_context(THREE)
    context.machines.hosts["n1"] = SilentHost("n1")
    assert await changes(context) == []


async def test_a_cluster_that_is_not_up_needs_all_of_its_hosts(make_context):
    context = make_context(THREE, kube=FakeKube(unhealthy="connection refused"))
    context.machines.hosts["n1"] = SilentHost("n1")
    with pytest.raises(Unreachable, match="n1: no answer"):
        await CheckHosts().plan(context)


async def test_a_host_that_could_be_made_is_waited_for_and_missed_only_then(make_context, notes):
    context = make_context(THREE, kube=FakeKube(unhealthy="connection refused"))
    del context.machines.hosts["n1"]
    assert await changes(context) == [Change("check host n1 once it runs")]
    with pytest.raises(Problems, match="host n1: its machine does not run"):
        await CheckHosts().run(context, notes)


async def test_warnings_are_told_by_every_plan_and_those_of_hosts_that_were_made_since_by_the_run(make_context, notes):
    short = replace(THREE, certificates=replace(THREE.certificates, leaf_seconds=360))
    context = make_context(short)
    for _ in range(2):
        [reported] = [
            one for one in await CheckHosts().plan(context) if isinstance(one, Warn) and "leafLifetime" in one.sentence
        ]
        assert reported.sentence.startswith("[lifetimes] cluster file: spec.certificates.leafLifetime is 6m")
    context.machines.hosts["n1"].host_facts = replace(context.facts["n1"], swap_total=1)
    await CheckHosts().run(context, notes)
    [noted] = [note for note in notes.notes if note.startswith("warning: ")]
    assert noted.startswith("warning: [swap] n1: ")


async def test_what_is_the_same_on_all_hosts_is_one_warning(make_context):
    facts = facts_of(THREE).items()
    old = {name: FakeHost(name, replace(seen, cgroup_version=1)) for name, seen in facts}
    found = [one.sentence for one in await CheckHosts().plan(make_context(THREE, hosts=old)) if isinstance(one, Warn)]
    assert [sentence.partition(": ")[0] for sentence in found] == ["[cgroup] n1, n2, n3, n4"]


# --- nodes that the file does not have -----------------------------------------------------------------


async def test_a_node_that_was_taken_out_of_the_file_is_told_and_stays_in_what_is_rendered(make_context, notes):
    kube = FakeKube()
    kube.put(node_object("n4", "192.0.2.14"))
    context = make_context(THREE, kube=kube)
    await WriteKubeconfig().run(context, notes)
    context.cluster = replace(THREE, nodes=THREE.nodes[:3])
    del context.facts["n4"]
    [reported] = [finding for finding in await CheckHosts().plan(context) if isinstance(finding, Kept)]
    assert reported.subject == "node n4"
    assert "autarky node remove n4" in reported.live
    assert [node.name for node in context.inputs().cluster.nodes] == ["n1", "n2", "n3", "n4"]
    assert [node.name for node in context.cluster.nodes] == ["n1", "n2", "n3"]


async def test_a_control_node_that_was_taken_out_stays_in_certificates_and_load_balancers(make_context, notes):
    context = make_context(THREE)
    await WriteKubeconfig().run(context, notes)
    context.kube().put(node_object("n3", "192.0.2.13", **{"node-restriction.kubernetes.io/autarky-control-plane": ""}))
    context.cluster = replace(THREE, nodes=(*THREE.nodes[:2], THREE.nodes[3]))
    await observe(context)
    assert [node.name for node in context.complete.control_nodes] == ["n1", "n2", "n3"]
    assert "https://192.0.2.13:6443" in context.servers


async def test_a_node_that_somebody_else_joined_is_told(make_context):
    kube = FakeKube()
    kube.put(node_object("n9", "192.0.2.19"))
    context = make_context(THREE, kube=kube)
    await observe(context)
    assert [(node.name, node.address) for node in context.unlisted] == [("n9", "192.0.2.19")]


async def test_what_a_node_says_of_its_address_does_not_get_into_the_inventory(make_context):
    """The inventory is written with the nodes that the file lacks: by their word, each could be any other."""
    kube = FakeKube()
    kube.put(access.inventory(a_cluster(controls=3, workers=6)))
    kube.put(node_object("n9", "192.0.2.11"))
    kube.put(node_object("n99", "192.0.2.12"))
    context = make_context(THREE, kube=kube)
    await observe(context)
    assert {node.name: node.address for node in context.unlisted} == {"n9": "192.0.2.19", "n99": None}
    assert "n99" not in {node.name for node in context.complete.nodes}


# --- initial members -------------------------------------------------------------------------------------


async def test_a_control_node_that_is_added_later_is_prepared_as_a_worker(make_context):
    context = make_context(a_cluster(controls=3))
    found_cluster(context, "n1", "n2")
    await observe(context)
    assert [node.name for node in context.cluster.initial_members] == ["n1", "n2"]
    assert not members.as_it_joins(context.cluster.node("n3")).control_plane
    work = await look(context, members.as_it_joins(context.cluster.node("n3")))
    assert not [file.path for file in work.files if file.path.endswith("ca.key")]
    [marker] = [file for file in work.files if file.path == NODE_MARKER]
    assert json.loads(marker.content)["founders"] == []


async def test_a_host_of_a_time_when_there_was_one_control_node_is_the_only_initial_member(make_context):
    context = make_context(a_cluster(controls=3))
    host = context.machines.hosts["n1"]
    host.files[NODE_MARKER] = (b'{"cluster": "demo", "node": "n1"}', 0o644)
    host.files[f"{places.STANDBY}/kube-apiserver/current/pod.json"] = (b"{}", 0o600)
    await observe(context)
    assert [node.name for node in context.cluster.initial_members] == ["n1"]


def test_a_member_of_etcd_keeps_what_it_was_told_when_members_come_and_go(make_context):
    context = make_context(THREE)
    before = etcd.member_pod(context.inputs(), THREE.nodes[0])
    reported = etcd.founding_of(before)
    assert reported is not None
    assert reported.cluster.count("https://") == 3
    context.cluster = replace(THREE, nodes=(*THREE.nodes[:2], THREE.nodes[3]))
    assert etcd.member_pod(context.inputs(), THREE.nodes[0]) != before
    assert etcd.member_pod(context.inputs(), THREE.nodes[0], reported) == before


@pytest.mark.parametrize("text", ["local", "lab:n1", "ssh://root@192.0.2.1:22"])
def test_a_host_is_read_as_it_is_written(text):
    assert str(HostRef.parse(text)) == text


def test_what_is_no_host_is_refused():
    with pytest.raises(ValueError, match="is not a host"):
        HostRef.parse("telnet://n1")


async def test_who_has_joined_before_is_known_by_the_api_and_by_nothing_else(make_context):
    context = make_context(THREE)
    context.kube().put(node_object("n4", "192.0.2.14"))
    await observe(context)
    assert context.joined == {"n4"}
    context.kube().unhealthy = "connection refused"
    await observe(context)
    assert context.joined == frozenset()
