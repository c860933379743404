"""Control nodes that come later: labelled, and waited for with the name of what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.engine.phase import Change
from autarky.errors import TimedOut
from autarky.phases.promote import MakeControlNodes
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED
from fakes.clusters import a_cluster
from fakes.kube import FakeKube


def grown():
    cluster = a_cluster(controls=3)
    return replace(cluster, nodes=(*cluster.nodes[:2], replace(cluster.nodes[2], initial_member=False)))


def put_node(kube: FakeKube, labels: dict[str, str], **annotations: str) -> None:
    meta = {"name": "n3", "labels": labels, "annotations": annotations}
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": {}})


async def test_initial_members_need_no_label_of_this_phase(make_context):
    assert await MakeControlNodes().plan(make_context(a_cluster(controls=3))) == []


@pytest.mark.looptime
async def test_the_label_is_set_and_what_is_missing_then_is_named(make_context, notes):
    context = make_context(grown())
    put_node(context.kube(), {})
    [change] = await MakeControlNodes().plan(context)
    assert change == Change("label node n3 as a control node, and wait until it is one")
    with pytest.raises(TimedOut, match="the node agent of n3 has not prepared it"):
        await MakeControlNodes().run(context, notes)
    live = await context.kube().get("v1", "Node", "n3")
    assert live is not None
    assert CONTROL_PLANE_REQUESTED in live["metadata"]["labels"]
    [change] = await MakeControlNodes().plan(context)
    assert "wait until n3 is a control node" in change.sentence


async def test_a_node_that_has_become_one_is_left_alone(make_context):
    cluster = grown()
    context = make_context(replace(cluster, self_hosted=cluster.self_hosted.ADD_ONS))
    kube = context.kube()
    put_node(
        kube, {CONTROL_PLANE_REQUESTED: "", CONTROL_PLANE_ACTIVE: ""}, **{"autarky.dev/control-node": "ready-1a2b"}
    )
    [change] = await MakeControlNodes().plan(context)
    assert "no EtcdMember n3" in change.sentence
