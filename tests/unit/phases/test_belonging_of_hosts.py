"""Hosts of another cluster, and our own seen from an empty state directory: refused before anything is written."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.errors import Problems, UserError
from autarky.model.cluster import HostRef
from autarky.model.fingerprint import fingerprint
from autarky.phases.belonging import CA
from autarky.phases.clean_node import CleanNode
from autarky.phases.hosts import FOUNDED, CheckHosts, observe
from autarky.phases.prepare import PrepareHosts, look
from autarky.phases.removal import CheckRemoval
from autarky.phases.supply import IssueCertificates
from autarky.phases.teardown import CleanHosts, hosts_to_clean
from autarky.phases.upgrade import FindCluster
from autarky.pki import PkiStore
from autarky.places import NODE_MARKER, PKI
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

THREE = a_cluster(controls=3, workers=1)


def mark(context, *names, ca=None, disk=None, cluster="demo"):
    for name in names:
        said = {"cluster": cluster, "node": name, "founders": list(names)} | ({"ca": ca} if ca else {})
        files = context.machines.hosts[name].files
        files[NODE_MARKER] = (json.dumps(said).encode(), 0o644)
        files[FOUNDED] = (b"", 0o644)
        if disk is not None:
            files[CA] = (disk, 0o644)


def foreign_ca(tmp_path):
    store = PkiStore(tmp_path / "theirs")
    store.ensure(certificate_specs(a_cluster()), a_cluster().certificates, datetime.now(UTC))
    return store.files()["ca.crt"]


def with_nothing(context, tmp_path):
    context.pki = PkiStore(tmp_path / "nothing")
    return context


async def test_the_marker_carries_the_fingerprint_of_the_ca(make_context, notes):
    context = make_context(THREE)
    [marker] = [file for file in (await look(context, THREE.nodes[0])).files if file.path == NODE_MARKER]
    assert json.loads(marker.content)["ca"] == fingerprint(context.pki.files()["ca.crt"])


async def test_a_second_workstation_is_refused_before_it_has_a_ca_of_its_own(make_context, tmp_path):
    context = with_nothing(make_context(THREE), tmp_path)
    mark(context, "n1", "n2", "n3", ca="a" * 64)
    with pytest.raises(Problems, match="of which this state directory has nothing"):
        await CheckHosts().plan(context)
    with pytest.raises(Problems, match="autarky login"):
        await IssueCertificates().plan(context)
    assert not (tmp_path / "nothing").exists()
    assert all(host.log == [] for host in context.machines.hosts.values())


async def test_leaving_the_check_of_the_hosts_out_does_not_leave_the_refusal_out(make_context, tmp_path):
    context = with_nothing(make_context(THREE), tmp_path)
    mark(context, "n1", ca="a" * 64)
    context.facts = {}
    with pytest.raises(Problems, match="of which this state directory has nothing"):
        await IssueCertificates().plan(context)


async def test_one_marker_among_free_hosts_is_enough_to_refuse(make_context, tmp_path):
    context = with_nothing(make_context(THREE), tmp_path)
    mark(context, "n3", ca="a" * 64)
    with pytest.raises(Problems, match="host n3 belongs to"):
        await CheckHosts().plan(context)


async def test_two_clusters_of_one_name_are_told_apart_by_their_cas(make_context, tmp_path):
    context = make_context(THREE)
    theirs = foreign_ca(tmp_path)
    mark(context, "n1", "n2", "n3", ca=fingerprint(theirs), disk=theirs)
    with pytest.raises(Problems, match="another cluster of the same name"):
        await CheckHosts().plan(context)


async def test_a_worker_that_says_it_is_another_clusters_keeps_no_upgrade_from_beginning(make_context, tmp_path):
    """Whoever is root there writes that. A control node is believed."""
    worker = THREE.nodes[-1].name
    ours = fingerprint(make_context(THREE).pki.files()["ca.crt"])
    context = make_context(THREE, kube=FakeKube())
    mark(context, "n1", "n2", "n3", ca=ours)
    mark(context, worker, ca="a" * 64)
    [left_out] = await FindCluster().plan(context)
    assert worker in left_out.sentence
    assert context.absent.keys() == {worker}
    mark(context, "n3", ca="a" * 64)
    with pytest.raises(Problems, match="another cluster of the same name"):
        await FindCluster().plan(context)


async def test_an_older_marker_is_taken_over_when_the_ca_on_the_disk_is_ours(make_context, notes):
    context = make_context(THREE)
    mark(context, "n1", "n2", "n3", disk=context.pki.files()["ca.crt"])
    await observe(context)
    await CheckHosts().plan(context)
    assert f"write {NODE_MARKER} on n1" in [change.sentence for change in await PrepareHosts().plan(context)]


async def test_an_older_marker_without_a_ca_on_the_disk_needs_the_word_of_the_api(make_context):
    kube = FakeKube()
    context = make_context(THREE, kube=kube)
    mark(context, "n1")
    with pytest.raises(Problems, match="names no CA"):
        await CheckHosts().plan(context)
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}, "status": {}})
    await CheckHosts().plan(context)


async def test_a_torn_marker_is_taken_over_by_the_ca_on_the_disk_and_forgets_no_initial_member(make_context):
    context = make_context(THREE)
    ca = context.pki.files()["ca.crt"]
    mark(context, "n1", "n2", "n3", ca=fingerprint(ca), disk=ca)
    context.machines.hosts["n1"].files[NODE_MARKER] = (b'{"cluster": "de', 0o644)
    await CheckHosts().plan(context)
    assert [node.name for node in context.cluster.initial_members] == ["n1", "n2", "n3"]
    context.machines.hosts["n1"].files[CA] = (foreign_ca(context.directory), 0o644)
    with pytest.raises(Problems, match="host n1 belongs to another cluster"):
        await CheckHosts().plan(context)


async def test_an_up_that_was_killed_after_the_marker_goes_on(make_context):
    context = make_context(THREE)
    mark(context, "n1", ca=context.ours.ca)
    await CheckHosts().plan(context)


async def test_no_new_ca_is_made_for_a_cluster_that_is_there(make_context, tmp_path):
    context = make_context(THREE)
    partial = PkiStore(tmp_path / "partial")
    partial.directory.mkdir()
    for name, content in context.pki.files().items():
        if "/" not in name and not name.startswith(("sa.", "front")):
            (partial.directory / name).write_bytes(content)
    context.pki = partial
    mark(context, "n1", ca=context.ours.ca)
    await observe(context)
    with pytest.raises(UserError, match="lacks front-proxy-ca, etcd/ca, sa, which the cluster already has"):
        await IssueCertificates().plan(context)


async def test_only_etcds_ca_is_made_later_where_etcd_moves_into_the_cluster(make_context, tmp_path):
    """From an etcd with another CA, which was outside. Once a control node has it, it was made, and is lost here."""
    context = make_context()
    mark(context, "n1", ca=context.ours.ca)
    shutil.copytree(context.pki.directory, tmp_path / "without")
    for end in ("crt", "key"):
        (tmp_path / "without/etcd" / f"ca.{end}").unlink()
    context.pki = PkiStore(tmp_path / "without")
    await observe(context)
    with pytest.raises(UserError, match="lacks etcd/ca, which the cluster already has"):
        await IssueCertificates().plan(context)
    context.moves_etcd = True
    assert any("etcd/ca" in one.sentence for one in await IssueCertificates().plan(context))
    context.machines.hosts["n1"].files[f"{PKI}/etcd/ca.crt"] = (b"CA", 0o600)
    with pytest.raises(UserError, match="lacks etcd/ca, which the cluster already has"):
        await IssueCertificates().plan(context)


# --- taking away -------------------------------------------------------------------------------------------


def on_ssh(context):
    nodes = tuple(replace(node, host=HostRef("ssh", node.name)) for node in context.cluster.nodes)
    context.cluster = replace(context.cluster, nodes=nodes)
    return context


async def test_down_from_an_empty_state_directory_is_refused(make_context, tmp_path):
    context = on_ssh(with_nothing(make_context(THREE), tmp_path))
    mark(context, "n1", "n2", "n3", ca="a" * 64)
    with pytest.raises(Problems, match="autarky login ssh://n1"):
        await CleanHosts(purge=False).plan(context)
    assert all(host.log == [] for host in context.machines.hosts.values())


async def test_down_cleans_its_own_hosts_and_leaves_those_of_another_cluster_alone(make_context, tmp_path):
    context = on_ssh(make_context(THREE))
    mark(context, "n1", "n2", ca=context.ours.ca)
    mark(context, "n3", ca="b" * 64)
    ours, foreign = await hosts_to_clean(context)
    assert [node.name for node in ours] == ["n1", "n2"]
    assert len(foreign) == 1
    assert "host n3 belongs to another cluster of the same name" in foreign[0]
    assert [change.sentence for change in await CleanHosts(purge=False).plan(context)] == [
        "remove everything of autarky from host n1",
        "remove everything of autarky from host n2",
    ]


async def test_a_down_that_was_killed_when_the_keys_were_aside_already_is_taken_up(make_context):
    context = on_ssh(make_context(THREE))
    mark(context, "n1")
    assert [node.name for node in (await hosts_to_clean(context))[0]] == ["n1"]


async def test_node_remove_refuses_a_host_that_another_cluster_has_taken(make_context):
    context = on_ssh(make_context(THREE))
    mark(context, "n4", ca="b" * 64)
    node = context.cluster.node("n4")
    with pytest.raises(UserError, match="host n4 belongs to another cluster"):
        await CheckRemoval(node, dead=False).plan(context)
    assert await CleanNode(node, purge=False).plan(context) == []
