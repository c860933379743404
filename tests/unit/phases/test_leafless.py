"""A cluster of an earlier release, whose API servers had their certificates in Secrets: control nodes that cannot be
given theirs are refused before anything is written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.certificates import decide as certificates
from autarky.control.certificates.manifests import leaves
from autarky.engine.phase import Change
from autarky.errors import Problems, Unreachable
from autarky.model.components import API_SERVER
from autarky.phases.hosts import CheckHosts
from autarky.phases.leafless import refuse_leafless
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

THREE = a_cluster(controls=3, workers=1)
WHY = "connection refused"


class Silent(FakeHost):
    """Its sshd does not answer; its kubelet may."""

    async def facts(self):
        raise Unreachable(WHY)


def daemon_set(*volumes: str):
    spec = {"template": {"metadata": {}, "spec": {"volumes": [{"name": name} for name in ("secrets", *volumes)]}}}
    meta = {"name": API_SERVER, "namespace": "kube-system"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}


def live_node(name: str, *, ready: bool = True, annotations=None, labels=None):
    meta = {"name": name, "labels": {CONTROL_PLANE_ACTIVE: ""} if labels is None else labels}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**meta, "annotations": annotations or {}},
        "status": status,
    }


def reported(*names: str):
    return {certificates.ANNOTATION: json.dumps({"ends": dict.fromkeys(names, "2030-01-01T00:00:00Z")})}


@pytest.fixture
def a_live(make_context):
    """A context of a cluster that serves, as its file has it."""

    def make(cluster=THREE, *, volumes=(), silent=(), in_file=None):
        kube = FakeKube()
        kube.put(daemon_set(*volumes))
        for node in cluster.nodes:
            kube.put(live_node(node.name, labels=None if node.control_plane else {}))
        facts = facts_of(cluster)
        hosts = {name: (Silent if name in silent else FakeHost)(name, facts[name]) for name in facts}
        context = make_context(cluster, kube=kube, hosts=hosts)
        if in_file is not None:
            context.cluster = replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name in in_file))
            context.facts = {name: facts[name] for name in in_file}
        return context, kube

    return make


async def refused(context) -> str:
    with pytest.raises(Problems, match="cannot be given their certificates") as caught:
        await CheckHosts().plan(context)
    assert all(host.log == [] for host in context.machines.hosts.values())
    return str(caught.value)


async def test_a_ready_control_node_whose_host_cannot_be_reached_is_refused_by_name(a_live):
    context, _ = a_live(silent=("n2",))
    said = await refused(context)
    assert f"the host of control node n2 cannot be reached ({WHY})" in said
    assert "n1" not in said
    assert "n3" not in said


async def test_a_control_node_that_is_not_in_the_file_is_refused_by_name(a_live):
    context, _ = a_live(in_file=("n1", "n2", "n4"))
    said = await refused(context)
    assert "control node n3 is not in the file" in said
    assert "autarky node remove n3" in said


async def test_a_control_node_made_by_label_whose_host_cannot_be_reached_is_refused(a_live):
    context, kube = a_live(silent=("n4",))
    kube.put(live_node("n4"))
    assert "the host of control node n4 cannot be reached" in await refused(context)


async def test_a_control_node_made_by_label_is_given_its_certificates_though_its_host_knows_nothing(a_live):
    context, kube = a_live()
    kube.put(live_node("n4"))
    await CheckHosts().plan(context)
    assert "n4" in context.active_in_api


async def test_one_that_has_become_one_since_the_hosts_were_looked_at_is_refused(a_live):
    """Whatever its host says: it would be given nothing by this run."""
    context, kube = a_live()
    await CheckHosts().plan(context)
    kube.put(live_node("n4"))
    context.machines.hosts["n4"].files[places.CONTROL_NODE_STATE] = (b'{"state": "ready"}', 0o600)
    with pytest.raises(Problems, match="n4 is a control node of the cluster, and was none when the hosts were looked"):
        await refuse_leafless(context)


@pytest.mark.parametrize("kind", ["kube-controller-manager", "kube-scheduler"])
async def test_controllers_without_leaves_count_as_well(a_live, kind):
    context, kube = a_live(silent=("n2",), volumes=(leaves.VOLUME,))
    await CheckHosts().plan(context)
    old = daemon_set()
    kube.put({**old, "kind": "Deployment", "metadata": {**old["metadata"], "name": kind}})
    await refused(context)


async def test_what_would_not_go_back_is_not_refused(a_live):
    all_reached, _ = a_live()
    await CheckHosts().plan(all_reached)
    this_release, _ = a_live(silent=("n2",), volumes=(leaves.VOLUME,))
    await CheckHosts().plan(this_release)
    passed_over, kube = a_live(silent=("n2",))
    kube.put(live_node("n2", ready=False))
    await CheckHosts().plan(passed_over)
    has_some, kube = a_live(silent=("n2",))
    kube.put(live_node("n2", annotations=reported("apiserver", "kubelet-client")))
    await CheckHosts().plan(has_some)
    a_worker, _ = a_live(silent=("n4",))
    await CheckHosts().plan(a_worker)


async def test_an_agent_that_tells_of_its_kubelet_only_keeps_no_leaves(a_live):
    context, kube = a_live(silent=("n2",))
    kube.put(live_node("n2", annotations=reported("kubelet-client")))
    await refused(context)


async def test_a_machine_that_is_to_be_powered_on_is_asked_when_it_was(a_live, notes):
    context, _ = a_live()
    del context.machines.hosts["n2"]
    planned = await CheckHosts().plan(context)
    assert "check host n2 once it runs" in {one.sentence for one in planned if isinstance(one, Change)}
    with pytest.raises(Problems, match="the host of control node n2 cannot be reached"):
        await CheckHosts().run(context, notes)
