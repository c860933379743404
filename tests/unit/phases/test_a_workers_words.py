"""What somebody who has a worker makes it say: `doctor` tells it of that worker, and judges no control node by it."""

from __future__ import annotations

import pytest

from autarky.phases.doctor import evidence
from autarky.render.values import WITHDRAWN
from unit.phases.seen import WITH_A_WORKER, MakeContext, a_context, a_kube, says, whats

pytestmark = pytest.mark.looptime


async def test_a_worker_that_calls_itself_withdrawn_is_not_told(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    for name in ("n1", "n2"):
        await kube.patch("v1", "Node", name, {"metadata": {"annotations": {WITHDRAWN: "send money"}}})
    assert whats(await evidence(a_context(make_context, WITH_A_WORKER, kube))) == [
        "n1: its API servers get no new connections"
    ]


async def test_a_worker_that_says_another_time_is_the_one_that_is_off(make_context: MakeContext):
    seen = await evidence(a_context(make_context, WITH_A_WORKER, a_kube(WITH_A_WORKER), {"n2": -3600.0}))
    assert whats(seen) == ["n2: its clock is -3600 s off the others'"]


async def test_a_worker_that_sees_a_server_which_nobody_has_hides_nothing_of_the_control_node(
    make_context: MakeContext,
):
    """That the control node were cut off explained all that is wrong with it."""
    kube = a_kube(WITH_A_WORKER)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no heartbeat"}]}}
    await kube.patch("v1", "Node", "n1", unready, subresource="status")
    context = a_context(make_context, WITH_A_WORKER, kube)
    says(context, "n1", "etcd 503", "balancer 200", "alive n1-hosted 200")
    says(context, "n2", "balancer 200", "alive n1-hosted -", "alive x-hosted 200")
    assert whats(await evidence(context)) == [
        "n2: it and the other nodes do not reach each other",
        "n1: etcd is not healthy",
        "n1: the node is not Ready",
    ]
