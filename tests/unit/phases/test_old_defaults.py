"""`up` of a release with other defaults on a cluster that is there: it keeps its own, and the new ones are reported."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.cli import render_files
from autarky.config import dump
from autarky.control.drift.decide import applied
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.phase import Change, Warn
from autarky.errors import Conflict
from autarky.phases import kept_file
from autarky.phases.check_file import CheckFile, CheckFileAgain
from autarky.phases.hosts import FOUNDED, CheckHosts
from autarky.phases.objects import ApplyObjects, ApplyParts
from autarky.render import cluster_record
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION
from autarky.render.objects import agent_parts
from autarky.render.values import SYSTEM, pretty_json
from fakes.clusters import a_cluster
from fakes.editions import TOLD, a_later_release, the_first_release
from fakes.kube import FakeKube

OLD = a_cluster(defaults=1)
DOWN = "connection refused"


def with_file(context, cluster):
    """The context applies this cluster's file."""
    context.cluster = cluster
    context.document = dump(cluster)
    context.file_content = pretty_json(context.document)
    return context


AGENTS = ApplyParts(agent_parts)
"""What is applied last: the template of etcd's members is among it."""


async def planned(context) -> list[str]:
    found = [*await ApplyObjects().plan(context), *await AGENTS.plan(context)]
    return [change.sentence for change in found if isinstance(change, Change)]


async def apply_all(context, notes) -> None:
    await ApplyObjects().run(context, notes)
    await AGENTS.run(context, notes)


# --- what reaches the cluster ----------------------------------------------------------------------------------


async def test_a_later_release_changes_nothing_of_a_cluster_that_keeps_its_defaults(make_context, notes, monkeypatch):
    kube = FakeKube()
    await apply_all(with_file(make_context(OLD, kube=kube), OLD), notes)
    a_later_release(monkeypatch)
    assert await planned(with_file(make_context(OLD, kube=kube), OLD)) == []


async def test_a_file_that_takes_them_changes_what_they_are_about_and_nothing_else(make_context, notes, monkeypatch):
    kube = FakeKube()
    await apply_all(make_context(OLD, kube=kube), notes)
    a_later_release(monkeypatch)
    assert await planned(make_context(replace(OLD, defaults=2), kube=kube)) == [
        "apply ControlPlane cluster",
        "apply DaemonSet kube-system/kube-apiserver",
        "apply Deployment kube-system/kube-controller-manager",
        "apply Deployment kube-system/kube-scheduler",
        "apply ConfigMap kube-system/etcd-member-template",
    ]


def on_the_host(context, directory) -> dict[str, bytes]:
    """Each file that a control node has, but for its leaf certificates: each rendering issues others."""
    node = context.cluster.nodes[0]
    leaves = {*render_node.leaf_paths(context.cluster, node), kubelet_credentials.FIRST_CERTIFICATE} - {
        places.LEAVES_PLAN
    }
    render_files.write_all(context.inputs(), directory)
    root = directory / "hosts" / node.name
    found = {f"/{path.relative_to(root)}": path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in leaves}


def test_nor_does_it_change_a_file_of_its_hosts(make_context, monkeypatch, tmp_path):
    before = on_the_host(make_context(OLD), tmp_path / "before")
    a_later_release(monkeypatch)
    assert on_the_host(make_context(OLD), tmp_path / "after") == before


def test_files_of_hosts_have_the_flags_of_the_edition_that_is_taken(make_context, monkeypatch, tmp_path):
    a_later_release(monkeypatch)
    found = on_the_host(make_context(replace(OLD, defaults=2)), tmp_path / "second")
    [static_etcd] = [content for name, content in found.items() if "/manifests/etcd-" in name]
    assert b"--snapshot-count=20000" in static_etcd
    controllers = b"".join(content for name, content in found.items() if "/standby/kube-controller-manager/" in name)
    assert b"--kube-api-qps=150" in controllers


async def test_a_cluster_of_a_release_without_editions_gets_the_number_of_the_first_and_nothing_else(
    make_context, notes
):
    kube = FakeKube()
    await apply_all(with_file(make_context(OLD, kube=kube), OLD), notes)
    await forget_editions(kube)
    context = with_file(make_context(OLD, kube=kube), OLD)
    assert await planned(context) == ["apply ControlPlane cluster", "apply ConfigMap kube-system/autarky-cluster"]
    await apply_all(context, notes)
    assert await planned(context) == []


async def forget_editions(kube) -> None:
    """What such a release had left in the API."""
    plane = await kube.get(API_VERSION, "ControlPlane", "cluster")
    del plane["spec"]["defaults"]
    await kube.replace(applied.with_record(plane, plane))
    record = await kube.get("v1", "ConfigMap", cluster_record.CONFIG_MAP, SYSTEM)
    found = json.loads(record["data"][cluster_record.FILE_KEY])
    del found["file"]["spec"]["defaults"]
    record["data"][cluster_record.FILE_KEY] = json.dumps(found)
    record["metadata"]["annotations"] = {}
    await kube.replace(record)


# --- what is reported ---------------------------------------------------------------------------------------------


async def warnings(context) -> list[Warn]:
    return [found for found in await CheckFile().plan(context) if isinstance(found, Warn)]


async def test_plan_and_up_tell_once_what_the_cluster_has_not(make_context, monkeypatch):
    the_first_release(monkeypatch)
    context = with_file(make_context(OLD, kube=FakeKube(unhealthy=DOWN)), OLD)
    assert await warnings(context) == []
    a_later_release(monkeypatch)
    assert await warnings(context) == [Warn(TOLD, in_plan=True)]
    assert await warnings(with_file(context, replace(OLD, defaults=2))) == []


# --- another machine has taken others --------------------------------------------------------------------------


@pytest.fixture
def context(make_context, monkeypatch):
    """Of a machine that has kept nothing yet; the cluster is there, and its API is down."""
    a_later_release(monkeypatch)
    made = make_context(OLD, kube=FakeKube(unhealthy=DOWN))
    for name, host in made.machines.hosts.items():
        said = {"cluster": "demo", "node": name, "founders": ["n1"], "ca": made.ours.ca}
        host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)
        host.files[FOUNDED] = (b"", 0o644)
    return made


def recorded(context, cluster, *, noted: bool = True) -> None:
    """What its control node keeps. noted: by a release that knows editions."""
    document = cluster_record.portable(dump(cluster))
    if not noted:
        del document["spec"]["defaults"]
    content = json.dumps({"number": 1, "file": document, "nodes": {}}).encode()
    context.machines.hosts["n1"].files[places.CLUSTER_RECORD] = (content, 0o600)


@pytest.mark.parametrize("phase", [CheckFile(), CheckHosts()])
async def test_a_machine_that_knows_nothing_of_the_cluster_imposes_no_new_defaults_on_it(context, phase):
    """A file that names no edition was read as that of a new cluster."""
    recorded(context, OLD, noted=False)
    seen = r"has the defaults of edition 1, as host n1 says.* with those of edition 2"
    with pytest.raises(Conflict, match=seen) as no:
        await phase.plan(with_file(context, replace(OLD, defaults=2)))
    assert "`autarky login -f FILE`" in str(no.value)


async def test_a_machine_that_has_not_heard_of_the_edition_that_was_taken_does_not_take_it_back(context):
    kept_file.write(context.directory, pretty_json(dump(OLD)))
    recorded(context, replace(OLD, defaults=2))
    with pytest.raises(Conflict, match="has the defaults of edition 2"):
        await CheckFile().plan(with_file(context, OLD))


async def test_an_api_that_answers_later_is_believed_as_well(context):
    kept_file.write(context.directory, pretty_json(dump(OLD)))
    recorded(context, OLD)
    await CheckFile().plan(with_file(context, OLD))
    record = cluster_record.record(dump(replace(OLD, defaults=2)), b"{}", None)
    context.kube().put(cluster_record.config_map(record, context.ours.ca))
    context.kube().unhealthy = None
    with pytest.raises(Conflict, match="as the API says"):
        await CheckFileAgain().plan(context)


async def test_a_file_takes_another_edition_and_an_up_that_was_stopped_on_its_way_goes_on(context, notes):
    kept_file.write(context.directory, pretty_json(dump(OLD)))
    kept_file.settle(context.directory)
    recorded(context, OLD, noted=False)
    for _ in range(2):  # the first one is stopped before the hosts have heard of it
        await CheckFile().plan(with_file(context, replace(OLD, defaults=2)))
        await CheckFile().run(context, notes)
    recorded(context, replace(OLD, defaults=2))
    await CheckFile().plan(context)


async def test_the_same_file_is_no_other_one_because_a_release_without_editions_has_recorded_it(context):
    recorded(context, OLD, noted=False)
    context.known = [cluster_record.portable(dump(OLD))]
    await CheckFile().plan(with_file(context, OLD))


async def test_a_record_that_means_nothing_stops_nobody(context):
    context.machines.hosts["n1"].files[places.CLUSTER_RECORD] = (b'{"file": {}, "nodes": {}}', 0o600)
    await CheckFile().plan(with_file(context, OLD))
