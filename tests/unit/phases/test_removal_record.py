"""A removal takes its node out of what control nodes keep, and nothing else; whatever cuts it, it can be run again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autarky import places
from autarky.cli.node import prepare_removal
from autarky.config import default_cluster, dump, loads
from autarky.control.cluster_file.decide.records import API, without
from autarky.errors import Conflict
from autarky.model.cluster import HostRef
from autarky.payload import default_version, known_versions
from autarky.phases import kept_file, records
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.hosts import FOUNDED, observe
from autarky.phases.members import with_remembered
from autarky.phases.record import KeepRecord
from autarky.phases.removal import known_node
from autarky.render import cluster_record
from autarky.render.values import pretty_json
from autarky.workflows.remove import phases
from fakes.clusters import facts_of
from fakes.host import CleanableHost
from fakes.kube import FakeKube

VERSIONS: Any = {"default_version": default_version(), "known_versions": known_versions()}
NODES = [
    *({"name": f"n{n}", "host": f"ssh://n{n}", "roles": ["control-plane", "worker"]} for n in (1, 2, 3)),
    {"name": "n4", "host": "ssh://n4", "roles": ["worker"]},
]


def cluster_file(**spec):
    made = dump(replace(default_cluster(**VERSIONS), name="demo"))
    document = {**made, "spec": {**made["spec"], "nodes": NODES, **spec}}
    return loads(json.dumps(document), "the test", **VERSIONS)


COMPLETE = cluster_file()


def with_addresses(cluster):
    names = {f"n{n}": f"192.0.2.{10 + n}" for n in range(1, 10)}
    return cluster.with_addresses({node.name: names[node.name] for node in cluster.nodes})


@pytest.fixture
def hosts():
    facts = facts_of(with_addresses(COMPLETE))
    return {name: CleanableHost(name, facts[name]) for name in facts}


@pytest.fixture
def kube():
    api = FakeKube()
    for node in with_addresses(COMPLETE).nodes:
        status = {"addresses": [{"type": "InternalIP", "address": node.address}]}
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "spec": {}, "status": status})
    return api


@pytest.fixture
async def begin(make_context, pki_of, hosts, kube, notes, tmp_path):
    """What each command begins with, on a cluster whose file was applied, and is kept here."""

    def context_of(cluster):
        context = make_context(with_addresses(cluster), kube=kube, hosts=hosts)
        context.directory, context.pki = tmp_path / "demo", pki_of(COMPLETE)
        return context

    context = context_of(COMPLETE)
    context.document = dump(COMPLETE)
    for name, host in hosts.items():
        said = {"cluster": "demo", "node": name, "founders": ["n1", "n2", "n3"], "ca": context.ours.ca}
        host.files |= {places.NODE_MARKER: (json.dumps(said).encode(), 0o644), FOUNDED: (b"", 0o644)}
    await observe(context)
    await WriteKubeconfig().run(context, notes)
    kept_file.write(context.directory, pretty_json(dump(COMPLETE)))
    leave_record(context, hosts, kube, cluster_record.read(context.inputs().record))
    return context_of


def leave_record(context, hosts, kube, record):
    content = cluster_record.written(record)
    for name in ("n1", "n2", "n3"):
        hosts[name].files[places.CLUSTER_RECORD] = (content, 0o600)
    kube.put(cluster_record.config_map(content, context.ours.ca))


def removal(begin, name="n4", *, file=None):
    """(the context, the phases) as the command line makes them for each run."""
    directory = begin(COMPLETE).directory
    found = file or loads((directory / "cluster.json").read_text(), "kept", **VERSIONS)
    context = begin(with_remembered(found, directory))
    gone = known_node(context, name)
    write = prepare_removal(context, found, gone, by_file=file is not None)
    return context, phases(gone, dead=False, drain=False, purge=False, write=write)


async def carried_out(context, some, notes):
    for phase in some:
        if await phase.plan(context):
            await phase.run(context, notes)


async def records_left(context, kube):
    found = {name: cluster_record.read(context.machines.hosts[name].files[places.CLUSTER_RECORD][0]) for name in
             ("n1", "n2", "n3")}  # fmt: skip
    return found | {API: await records.of_the_api(kube)}


async def test_the_record_loses_the_node_before_anything_else_of_it_goes():
    names = [phase.name for phase in phases(COMPLETE.nodes[3], dead=False, drain=True, purge=False, write=None)]
    assert names.index("take-out-of-the-file") < names.index("keep-record") < names.index("take-label-away")
    assert names[-1] == "forget-node"


@pytest.mark.parametrize("cut", range(9))
async def test_a_removal_that_is_killed_after_any_phase_ends_well_when_it_is_run_again(begin, kube, notes, cut):
    context, all_of_it = removal(begin)
    await carried_out(context, all_of_it[:cut], notes)
    if cut < len(all_of_it):
        context, all_of_it = removal(begin)
        await carried_out(context, all_of_it, notes)
    assert await kube.get("v1", "Node", "n4") is None
    for record in (await records_left(context, kube)).values():
        assert not record.has("n4")
        assert (record.number, list(record.nodes)) == (2, ["n1", "n2", "n3"])
    await no_refusal(begin, context)


async def no_refusal(begin, context):
    """The machine that removed it works on with what it keeps."""
    kept = loads((context.directory / "cluster.json").read_text(), "kept", **VERSIONS)
    later = begin(kept)
    later.document = dump(kept)
    later.known = kept_file.known(later)
    await observe(later)
    records.refuse_old_file(later)
    assert cluster_record.read(later.inputs().record).number == 2


@pytest.mark.parametrize("lost", ["n2", API])
async def test_a_record_that_was_not_written_everywhere_is_completed(begin, hosts, kube, notes, lost):
    context, all_of_it = removal(begin)
    before = await records_left(context, kube)
    await carried_out(context, all_of_it[:4], notes)
    content = cluster_record.written(before[lost])
    if lost == API:
        kube.put(cluster_record.config_map(content, context.ours.ca))
    else:
        hosts[lost].files[places.CLUSTER_RECORD] = (content, 0o600)
    context, all_of_it = removal(begin)
    await carried_out(context, all_of_it, notes)
    assert {record.number for record in (await records_left(context, kube)).values()} == {2}


async def test_with_an_old_kept_file_nothing_is_removed(begin, hosts, kube, notes):
    context, all_of_it = removal(begin)
    other = cluster_file(selfHosted="4")
    newer = replace(await records.of_the_api(kube), file=cluster_record.portable(dump(other)), number=2)
    leave_record(context, hosts, kube, newer)
    with pytest.raises(Conflict, match="another machine has applied another file"):
        await carried_out(context, all_of_it, notes)
    assert all(host.log == [] for host in hosts.values())
    assert await records.of_the_api(kube) == newer


async def test_by_a_file_of_ones_own_only_the_node_goes_out_of_what_another_machine_has_applied(
    begin, hosts, kube, notes
):
    other = cluster_file(selfHosted="4")
    file = cluster_record.portable(dump(other))
    context = begin(COMPLETE)
    leave_record(context, hosts, kube, replace(await records.of_the_api(kube), file=file, number=5))
    context, all_of_it = removal(begin, file=cluster_file(extraArgs={"kubelet": {"v": "3"}}))
    await carried_out(context, all_of_it, notes)
    for record in (await records_left(context, kube)).values():
        assert (record.file, record.number) == (without(file, "n4"), 6)
    kept = json.loads((context.directory / "cluster.json").read_text())
    assert kept == dump(cluster_file(nodes=NODES[:3]))


async def test_a_record_that_has_no_such_node_stays_as_it_is(begin, kube, notes):
    context, all_of_it = removal(begin)
    await carried_out(context, all_of_it, notes)
    again = begin(with_remembered(COMPLETE, context.directory))
    await observe(again)
    assert await KeepRecord(replace(COMPLETE.nodes[3], name="n9", host=HostRef("ssh", "n9"))).plan(again) == []


async def test_a_change_that_was_cut_before_the_removal_is_still_known_after_it(begin, kube, notes):
    """The cluster may have either of two files, and has neither of them with the node."""
    context = begin(COMPLETE)
    kept_file.write(context.directory, pretty_json(dump(cluster_file(selfHosted="4"))))
    context, all_of_it = removal(begin)
    await carried_out(context, all_of_it, notes)
    assert (await records.of_the_api(kube)).file["spec"]["selfHosted"] == dump(COMPLETE)["spec"]["selfHosted"]
    kept = loads((context.directory / "cluster.json").read_text(), "kept", **VERSIONS)
    later = begin(kept)
    later.document = dump(kept)
    later.known = kept_file.known(later)
    await observe(later)
    records.refuse_old_file(later)
