"""Rollouts of the kubelet's DaemonSet: what a kubelet says that waits for its turn, is refused, or has failed."""

from __future__ import annotations

import pytest

from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.rollout.decide.verdict import PROVEN_SECONDS, SETTLE_SECONDS, Verdict
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.model.components import API_SERVER, KUBELET
from autarky.model.versions import Version
from autarky.ports import Object
from unit.control.world import World, revision_label, rounds

pytestmark = pytest.mark.looptime
V36, V37 = Version(1, 36, 4), Version(1, 36, 5)
LIMIT, PROVEN = 95, int(PROVEN_SECONDS) + 5


def template(version: Version, tag: str = "") -> Object:
    container = {"name": KUBELET, "image": f"autarky.dev/kubelet:{tag or version}"}
    return {
        "metadata": {"labels": {"k8s-app": KUBELET, "autarky.dev/slot": "hosted"}},
        "spec": {"containers": [container]},
    }


def says(world: World, node: str, state: State, pod: Object, why: str = "", *, control: bool) -> None:
    said = hosted_report.text(Report(pod["metadata"]["uid"], V37, state, why))
    world.node(node, control=control, **{hosted_report.ANNOTATION: said})


def pod_on(world: World, node: str, wanted: Object, *, ready: bool) -> Object:
    live = world.kube._objects["apps/v1", "DaemonSet", "kube-system", KUBELET]  # it is ours
    labels = {**wanted["metadata"]["labels"], "controller-revision-hash": revision_label(wanted)}
    return world.pod(KUBELET, node, labels, ready=ready, owner=live)


async def rolls_out(world: World, wanted: Object, **states: State | None) -> dict[str, Object]:
    """The DaemonSet has another template, and each node a pod of it, with that to say. Control nodes are named n."""
    for pod in await world.kube.list("v1", "Pod", labels=f"k8s-app={KUBELET}"):
        await world.kube.delete("v1", "Pod", pod["metadata"]["name"], "kube-system")
    world.daemon_set(KUBELET, wanted)
    made = dict[str, Object]()
    for name, state in states.items():
        world.node(name, control=name.startswith("n"))
        made[name] = pod_on(world, name, wanted, ready=state is State.IN_FORCE)
        if state is not None:
            says(world, name, state, made[name], "it exits again and again", control=name.startswith("n"))
    return made


async def with_good(world: World, *names: str) -> None:
    await rolls_out(world, template(V36), **dict.fromkeys(names, State.IN_FORCE))
    async with world.operator() as duty:
        await rounds(duty, int(SETTLE_SECONDS) + 3)
        assert verdict(duty) is Verdict.HEALTHY


def verdict(duty: Rollouts) -> Verdict:
    return duty.verdicts[KUBELET][0]


async def image(world: World) -> str:
    return (await world.image("DaemonSet", KUBELET)).rpartition(":")[2]


@pytest.mark.parametrize("state", [State.FAILED, State.PROVING, None])
async def test_one_that_does_not_come_into_force_on_a_control_node_goes_back(world: World, state: State | None) -> None:
    await with_good(world, "n1", "n2")
    await rolls_out(world, template(V37), n1=State.IN_FORCE, n2=state)
    async with world.operator() as duty:
        await rounds(duty, LIMIT)
        assert await image(world) == str(V36)
        [event] = await world.explanations()
        assert ("it exits again and again" in event) is (state is State.FAILED)


async def test_that_one_has_failed_counts_though_its_pod_is_called_ready(world: World) -> None:
    await with_good(world, "n1")
    made = await rolls_out(world, template(V37), n1=State.FAILED)
    world.ready(made["n1"], ready=True)
    async with world.operator() as duty:
        await rounds(duty, LIMIT)
    assert await image(world) == str(V36)


async def test_what_waits_for_its_turn_goes_back_never_and_what_workers_say_makes_it_no_good_one(world: World) -> None:
    await with_good(world, "n1", "n2", "w1", "w2")
    made = await rolls_out(
        world, template(V37), n1=State.IN_FORCE, n2=State.WAITING, w1=State.IN_FORCE, w2=State.WAITING
    )
    async with world.operator() as duty:
        await rounds(duty, 3 * LIMIT)
        assert duty.verdicts[KUBELET] == (Verdict.WAIT, "its pod on n2 waits for its turn")
        assert await image(world) == str(V37)
        says(world, "n2", State.IN_FORCE, made["n2"], control=True)
        world.ready(made["n2"], ready=True)
        await rounds(duty, PROVEN)
        assert verdict(duty) is Verdict.HEALTHY, "w2 holds up nobody"


async def test_the_time_of_one_begins_when_it_has_its_turn(world: World) -> None:
    await with_good(world, "n1", "n2")
    made = await rolls_out(world, template(V37), n1=State.IN_FORCE, n2=State.WAITING)
    async with world.operator() as duty:
        await rounds(duty, 2 * LIMIT)
        says(world, "n2", State.PROVING, made["n2"], control=True)
        await rounds(duty, 80)
        assert verdict(duty) is Verdict.WAIT
        await rounds(duty, 20)
        assert await image(world) == str(V36)


@pytest.mark.parametrize("refused", ["n2", "w1"])
async def test_where_it_may_not_be_in_force_it_proves_nothing_and_holds_up_nothing(world: World, refused: str) -> None:
    await with_good(world, "n1", refused)
    await rolls_out(world, template(V37), **{"n1": State.IN_FORCE, refused: State.REFUSED})
    async with world.operator() as duty:
        await rounds(duty, PROVEN)
        assert verdict(duty) is Verdict.HEALTHY


async def test_where_it_may_be_in_force_nowhere_it_is_never_good(world: World) -> None:
    await with_good(world, "n1", "w1")
    await rolls_out(world, template(V37), n1=State.REFUSED, w1=State.WAITING)
    async with world.operator() as duty:
        await rounds(duty, 2 * LIMIT)
        assert (verdict(duty), await image(world)) == (Verdict.WAIT, str(V37))
        assert duty.verdicts[KUBELET][1].startswith("it may not be in force on n1, ")


@pytest.mark.parametrize("control", [State.REFUSED, "not Ready"])
async def test_where_no_control_node_may_have_it_one_worker_alone_makes_it_no_good_one(
    world: World, control: State | str
) -> None:
    await with_good(world, "n1", "w1", "w2")
    refused = State.REFUSED if control is State.REFUSED else State.WAITING
    made = await rolls_out(world, template(V37), n1=refused, w1=State.IN_FORCE, w2=State.WAITING)
    if control == "not Ready":
        world.node("n1", "False")
    async with world.operator() as duty:
        await rounds(duty, 3 * LIMIT)
        assert verdict(duty) is Verdict.WAIT
        says(world, "w2", State.IN_FORCE, made["w2"], control=False)
        world.ready(made["w2"], ready=True)
        await rounds(duty, PROVEN)
        assert verdict(duty) is Verdict.HEALTHY, "two are enough"


@pytest.mark.parametrize("others", [(), ("n2", "n3")])
async def test_one_that_looks_well_while_it_is_proving_and_then_fails_goes_back(
    world: World, others: tuple[str, ...]
) -> None:
    await with_good(world, "n1", *others)
    made = await rolls_out(world, template(V37), n1=State.PROVING, **dict.fromkeys(others, State.WAITING))
    world.ready(made["n1"], ready=True)
    async with world.operator() as duty:
        await rounds(duty, 60)
        assert verdict(duty) is Verdict.WAIT
        says(world, "n1", State.FAILED, made["n1"], "the sandbox of u1 is gone", control=True)
        await rounds(duty, 40)
        assert await image(world) == str(V36)
        [event] = await world.explanations()
        assert "the sandbox of u1 is gone" in event


async def test_what_is_said_of_another_pod_excuses_none(world: World) -> None:
    await with_good(world, "n1")
    made = await rolls_out(world, template(V37), n1=None)
    of_another = {**made["n1"], "metadata": {**made["n1"]["metadata"], "uid": "0" * 8}}
    says(world, "n1", State.WAITING, of_another, control=True)
    async with world.operator() as duty:
        await rounds(duty, LIMIT)
    assert await image(world) == str(V36)


@pytest.mark.parametrize(
    ("tag", "stays"), [("v1.37.0", False), ("v1.36.9", True), ("v1.33.0", True), ("v1.32.9", False)]
)
async def test_rule_4_none_is_newer_than_an_api_server_or_more_than_three_minors_older(
    world: World, tag: str, stays: bool
) -> None:
    await with_good(world, "n1")
    server = {"k8s-app": API_SERVER, "autarky.dev/slot": "hosted"}
    world.pod(
        API_SERVER, "n1", server, image="registry.example/x:v1.36.4", owner={"kind": "D", "metadata": {"uid": "u"}}
    )
    await rolls_out(world, template(V37, tag), n1=State.WAITING)
    async with world.operator() as duty:
        await rounds(duty, 3)
        assert (await image(world) == tag) is stays
