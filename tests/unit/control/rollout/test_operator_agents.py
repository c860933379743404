"""Rollouts of autarky's own agents: what takes them back, and that no worker does."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from autarky.control.agents.manifests import operator
from autarky.control.drift.decide import applied as applied_last
from autarky.control.rollout.decide.failures import EXPIRES_SECONDS
from autarky.control.rollout.decide.verdict import PROVEN_SECONDS, Verdict
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.slots.decide.report import ANNOTATION
from autarky.control.status.operator import _failures
from autarky.model import patience
from autarky.model.components import NODE_AGENT, OPERATOR
from autarky.phases.ownership import judge
from autarky.ports import Object
from autarky.render.values import SYSTEM
from unit.control.rollout.test_operator_add_ons import applied, runs, template
from unit.control.world import World, rounds

pytestmark = pytest.mark.looptime


@pytest.fixture
def world() -> World:
    found = World()
    for node in ("n1", "n2"):
        found.node(node)
    for node in ("n3", "n4"):
        found.node(node, control=False)
    return found


def test_a_former_operator_stays_until_it_has_passed_its_verdict_on_the_next_one() -> None:
    """Which `up` waits for: two of them, one after the other."""
    assert PROVEN_SECONDS < operator.SETTLES
    assert 2 * operator.SETTLES < patience.WORKLOADS - patience.STILL


def says(world: World, node: str, agent: str | None, *, control: bool = True) -> None:
    """Which agent acts on the node; None: one of an earlier release, which does not say."""
    said: Object = {"level": 2, "slots": {}} | ({} if agent is None else {"agent": agent})
    live = world.node(node, control=control)
    world.kube.put({**live, "metadata": {**live["metadata"], "annotations": {ANNOTATION: json.dumps(said)}}})


async def agents(world: World, version: str, *, ready: tuple[str, ...], acts: tuple[str, ...] = ()) -> Object:
    """Rolled out to all nodes, in place of those that were there. acts: where the hosted agent does; elsewhere it is
    the standby agent. Returns the template."""
    wanted = template(NODE_AGENT, version)
    wanted["spec"]["volumes"] = []
    for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM):
        await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
    applied(world, NODE_AGENT, wanted)
    for node in ("n1", "n2", "n3", "n4"):
        pod = runs(world, NODE_AGENT, wanted, node, ready=node in ready)
        if node in ("n1", "n2"):
            says(world, node, pod["metadata"]["uid"] if node in acts else "its standby")
    return wanted


ALL, CONTROL = ("n1", "n2", "n3", "n4"), ("n1", "n2")


async def with_good_agents(world: World) -> Object:
    good = await agents(world, "v1", ready=ALL, acts=CONTROL)
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts[NODE_AGENT][0] is Verdict.HEALTHY
    return good


async def is_of(world: World, wanted: Object) -> bool:
    return bool(await world.image("DaemonSet", NODE_AGENT) == wanted["spec"]["containers"][0]["image"])


async def test_agents_that_the_standby_answers_for_go_back_though_they_are_ready(world: World) -> None:
    """One that hangs: whoever acts on the node answers the probes of both."""
    good = await with_good_agents(world)
    bad = await agents(world, "v2", ready=ALL, acts=("n1",))
    async with world.operator() as duty:
        await rounds(duty, 85)
        assert await is_of(world, bad)
        await rounds(duty, 10)
        assert await is_of(world, good)
        [failed] = _failures(duty)
    assert (failed.component, failed.rolled_back) == (NODE_AGENT, True)
    assert "on n2 was not healthy within 90 s: another agent acts on the node" in failed.sentence
    assert "kubectl -n kube-system annotate ds/node-agent" in failed.sentence, "and how it is tried again"


async def test_agents_that_act_on_all_control_nodes_are_good_whatever_workers_say(world: World) -> None:
    """Two workers are enough to take back what runs on all nodes, but not what keeps the control plane alive."""
    await with_good_agents(world)
    better = await agents(world, "v2", ready=CONTROL, acts=CONTROL)
    async with world.operator() as duty:
        await rounds(duty, 45)
        assert duty.verdicts[NODE_AGENT][0] is Verdict.HEALTHY
        await rounds(duty, 100)
        assert await is_of(world, better)


async def test_agents_whose_predecessors_do_not_say_who_acts_are_judged_by_their_pods(world: World) -> None:
    """A cluster of an earlier release is taken over: its standby agents act while the first new ones start."""
    await agents(world, "v1", ready=ALL)
    for node in CONTROL:
        says(world, node, None)
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts[NODE_AGENT][0] is Verdict.HEALTHY


# --- the operator ---------------------------------------------------------------------------------------------------


def operators(world: World, version: str, **more: Any) -> Object:
    wanted = template(OPERATOR, version)
    wanted["spec"]["volumes"] = []
    applied(world, OPERATOR, wanted, replicas=1)
    runs(world, OPERATOR, wanted, "n1", **more)
    return wanted


async def judged(duty: Rollouts, seconds: int) -> Verdict:
    await rounds(duty, seconds)
    return duty.verdicts[OPERATOR][0]


async def test_an_operator_that_is_never_ready_is_taken_back_by_the_one_before(world: World) -> None:
    good = operators(world, "v1")
    async with world.operator() as duty:
        assert await judged(duty, 14) is Verdict.HEALTHY
        operators(world, "v2", ready=False)
        await rounds(duty, 95)
        assert await world.image("Deployment", OPERATOR) == good["spec"]["containers"][0]["image"]
        [failed] = _failures(duty)
    assert (failed.component, failed.rolled_back) == (OPERATOR, True)


async def test_an_operator_finds_itself_good_once_it_has_been_ready_for_long_enough(world: World) -> None:
    operators(world, "v1")
    async with world.operator() as duty:
        assert await judged(duty, 14) is Verdict.HEALTHY
    operators(world, "v2")
    async with world.operator() as duty:
        assert await judged(duty, 30) is Verdict.WAIT
        assert await judged(duty, 15) is Verdict.HEALTHY


def as_up_applies_it(world: World, wanted: Object) -> None:
    """With the record of it."""
    live = world.kube._objects["apps/v1", "Deployment", SYSTEM, OPERATOR]  # it is ours
    world.kube.put(applied_last.with_record(live, {**live, "spec": {**live["spec"], "template": wanted}}))


@pytest.mark.parametrize("edited", [False, True])
async def test_after_a_way_back_the_next_release_is_applied_completely_beside_what_a_user_has_edited(
    world: World, edited: bool
) -> None:
    """Beside the record of the failed release, all that the former one has would pass for somebody's edit."""
    first = operators(world, "v1")
    first["spec"] |= {"priorityClassName": "ours", "terminationGracePeriodSeconds": 10}
    as_up_applies_it(world, first)
    applied(world, OPERATOR, first, replicas=1)
    runs(world, OPERATOR, first, "n1")
    if edited:
        first = deepcopy(first)
        first["spec"]["priorityClassName"] = "theirs"
        applied(world, OPERATOR, first, replicas=1)
        runs(world, OPERATOR, first, "n1")
    async with world.operator() as duty:
        assert await judged(duty, 14) is Verdict.HEALTHY
        second = deepcopy(first)
        second["spec"]["containers"][0]["image"] += "-bad"
        second["spec"]["terminationGracePeriodSeconds"] = 20
        applied(world, OPERATOR, second, replicas=1)
        runs(world, OPERATOR, second, "n1", ready=False)
        as_up_applies_it(world, {**second, "spec": {**second["spec"], "priorityClassName": "ours"}})
        applied(world, OPERATOR, second, replicas=1)
        await rounds(duty, 95)
    live = await world.kube.get("apps/v1", "Deployment", OPERATOR, SYSTEM)
    assert live is not None
    assert live["spec"]["template"] == first
    wanted = template(OPERATOR, "v3")
    wanted["spec"] |= {"volumes": [], "priorityClassName": "ours", "terminationGracePeriodSeconds": 20}
    found = judge({**live, "spec": {**live["spec"], "template": wanted}}, live, take_ownership=False)
    assert ["priorityClassName" in edit.sentence for edit in found.kept] == [True] * edited
    assert found.to_apply is not None
    to_apply = found.to_apply["spec"]["template"]["spec"]
    assert to_apply == {**wanted["spec"], "priorityClassName": "theirs" if edited else "ours"}


async def test_an_expired_verdict_is_forgotten_by_the_next_leader_too(world: World) -> None:
    """It has not watched for an hour, and takes the lease before the revision is proven: it would condemn itself."""
    operators(world, "v1")
    async with world.operator() as duty:
        assert await judged(duty, 14) is Verdict.HEALTHY
        operators(world, "v2", ready=False)
        await rounds(duty, 95)
        assert _failures(duty) != []
        await rounds(duty, int(EXPIRES_SECONDS) + 10)
        again = operators(world, "v2")
        for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM):
            world.ready(pod, ready=True)
        assert await judged(duty, 15) is Verdict.WAIT
    async with world.operator() as duty:
        assert await judged(duty, 45) is Verdict.HEALTHY
    assert await world.image("Deployment", OPERATOR) == again["spec"]["containers"][0]["image"]
