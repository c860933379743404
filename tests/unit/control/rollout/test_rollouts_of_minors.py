"""Rule 4 in rollouts: minors go up with the API server first, down with level 3 first, and never get stuck between."""

from __future__ import annotations

import pytest

from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.operator import last_good
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.ports import Object
from autarky.render.values import SYSTEM
from unit.control.world import SCHEDULER, World, revision_label, rounds, template

pytestmark = pytest.mark.looptime

API = "kube-apiserver"
OLD, NEW = "v1.36.4", "v1.37.1"


def image(component: str, version: str) -> str:
    return f"registry.example/{component}:{version}"


class Plane:
    """One API server and one scheduler; a pod is there as soon as its template is applied, and leads if it may."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.renewed = 0
        self.pods: dict[str, Object] = {}

    async def moves(self, component: str, version: str, *flags: str, healthy: bool = True) -> None:
        """The user applies it, and its pod takes the place of the one before."""
        wanted = template(component, image(component, version), *flags)
        live = self.daemon_set(wanted) if component == API else self.world.deployment(component, wanted)
        await self.replaces_pod(component, live, healthy=healthy)

    def daemon_set(self, wanted: Object) -> Object:
        return self.world.daemon_set(API, wanted)

    async def replaces_pod(self, component: str, live: Object, *, healthy: bool = True) -> None:
        if component in self.pods:
            await self.world.kube.delete("v1", "Pod", self.pods[component]["metadata"]["name"], SYSTEM)
        wanted = live["spec"]["template"]
        label = "controller-revision-hash" if component == API else "pod-template-hash"
        labels = {"autarky.dev/slot": "hosted", label: revision_label(wanted)}
        owner = live if component == API else None
        runs = wanted["spec"]["containers"][0]["image"]
        self.pods[component] = self.world.pod(component, "n1", labels, ready=healthy, owner=owner, image=runs)

    async def passes(self, duty: Rollouts, seconds: int, *, leads: bool = True) -> None:
        """The scheduler's lease is renewed meanwhile, if it leads."""
        for _ in range(seconds):
            self.renewed += leads
            self.world.lease(SCHEDULER, "n1_uuid", self.renewed)
            await rounds(duty, 1)

    async def version(self, component: str) -> str:
        kind = "DaemonSet" if component == API else "Deployment"
        return (await self.world.image(kind, component)).rpartition(":")[2]

    async def good(self, component: str) -> str:
        """The version that it would go back to."""
        kept = (await last_good.load(self.world.kube, component)).template
        return "" if kept is None else str(kept["spec"]["containers"][0]["image"].rpartition(":")[2])


@pytest.fixture
def plane(world: World) -> Plane:
    return Plane(world)


async def settled(plane: Plane, duty: Rollouts, version: str) -> None:
    """Everything of one version, and good."""
    await plane.moves(API, version)
    await plane.moves(SCHEDULER, version)
    await plane.passes(duty, 30)
    assert [await plane.good(API), await plane.good(SCHEDULER)] == [version, version]


async def test_rule_4_an_api_server_that_moves_below_level_3_goes_back_at_once_and_names_it(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, NEW)
        await plane.moves(API, OLD)
        await plane.passes(duty, 2)
    assert await plane.version(API) == NEW
    assert await plane.version(SCHEDULER) == NEW
    sentence = "API server v1.36.4 is older than kube-scheduler v1.37.1: move kube-scheduler down first (rule 4)"
    assert await world.explanations() == [f"Rolling back to the last healthy revision: {sentence}."]


async def test_level_3_first_and_then_the_api_server_go_down(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, NEW)
        await plane.moves(SCHEDULER, OLD)  # the next one does not wait until this has led
        await plane.moves(API, OLD)
        await plane.passes(duty, 90)
    assert [await plane.good(API), await plane.good(SCHEDULER)] == [OLD, OLD]
    assert await world.explanations() == []


async def test_the_api_server_first_and_then_level_3_go_up(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, OLD)
        await plane.moves(API, NEW)
        await plane.passes(duty, 3)
        await plane.moves(SCHEDULER, NEW)
        await plane.passes(duty, 60)
    assert [await plane.good(API), await plane.good(SCHEDULER)] == [NEW, NEW]
    assert await world.explanations() == []


async def test_an_old_level_3_pod_that_still_runs_counts(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, NEW)
        world.deployment(SCHEDULER, template(SCHEDULER, image(SCHEDULER, OLD)))
        await plane.moves(API, OLD)
        await plane.passes(duty, 2)
    assert [await plane.version(API), await plane.version(SCHEDULER)] == [NEW, OLD]


async def test_no_api_server_is_blamed_for_a_level_3_that_moves_too_early(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, OLD)
        await plane.moves(API, OLD, "--v=1")
        await plane.moves(SCHEDULER, NEW)
        await plane.passes(duty, 2)
        assert await plane.version(SCHEDULER) == OLD
        assert len(await world.explanations()) == 1
        await plane.replaces_pod(SCHEDULER, await live(world, "Deployment", SCHEDULER))
        await plane.passes(duty, 60)
    kept = await last_good.load(world.kube, API)
    assert kept.record.good == revision_of(template(API, image(API, OLD), "--v=1"))


async def test_level_3_is_not_kept_before_the_api_server_is_and_goes_back_with_it(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, OLD)
        await plane.moves(API, NEW)
        await plane.moves(SCHEDULER, NEW)
        await plane.passes(duty, 5)
        assert [await plane.good(API), await plane.good(SCHEDULER)] == [OLD, OLD]
        world.ready(plane.pods[API], ready=False)
        await plane.passes(duty, 95)
        assert await plane.version(API) == OLD
        await plane.replaces_pod(API, await live(world, "DaemonSet", API))
        await plane.passes(duty, 3)
    assert await plane.version(SCHEDULER) == OLD


async def test_an_api_server_is_not_kept_before_level_3_is_and_goes_back_with_it(plane, world):
    async with world.operator() as duty:
        await settled(plane, duty, NEW)
        await plane.moves(SCHEDULER, OLD, "--no-such-flag", healthy=False)
        await plane.moves(API, OLD)
        await plane.passes(duty, 60, leads=False)
        assert [await plane.version(API), await plane.good(API)] == [OLD, NEW]
        await plane.passes(duty, 35, leads=False)
    assert [await plane.version(API), await plane.version(SCHEDULER)] == [NEW, NEW]


async def live(world: World, kind: str, name: str) -> Object:
    found = await world.kube.get("apps/v1", kind, name, SYSTEM)
    assert found is not None
    world.controllers_look(found)
    return found


# --- kube-proxy, which API servers wait for on the way down ----------------------------------------------------------

PROXY = "kube-proxy"


async def proxies(world: World, version: str, *, unready: tuple[str, ...] = ()) -> None:
    """Rolled out to every node."""
    wanted = template(PROXY, image(PROXY, version))
    wanted["spec"]["nodeSelector"] = {}
    for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM, labels=f"k8s-app={PROXY}"):
        await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
    live = world.daemon_set(PROXY, wanted)
    labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(wanted)}
    for node in ("n1", "w1", "w2"):
        world.pod(PROXY, node, labels, owner=live, ready=node not in unready)


@pytest.mark.parametrize(
    ("asked_for", "ill", "stays"),
    [(OLD, ("w1", "w2"), True), (NEW, ("w1", "w2"), False), (OLD, ("n1",), False)],
)
async def test_workers_take_back_no_kube_proxy_with_which_the_control_plane_goes_down(
    plane, world, asked_for, ill, stays
):
    """Else two of them would keep it from going back. By itself, and on a control node, it goes back."""
    for name in ("w1", "w2"):
        world.node(name, control=False)
    async with world.operator() as duty:
        await settled(plane, duty, NEW)
        await proxies(world, NEW)
        await plane.passes(duty, 15)
        assert duty.verdicts[PROXY][0] is Verdict.HEALTHY
        found = await world.kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
        world.kube.put({**found, "spec": {**found["spec"], "version": asked_for}})
        await proxies(world, OLD, unready=ill)
        await plane.passes(duty, 95)
    assert (await world.image("DaemonSet", PROXY)).endswith(OLD if stays else NEW)
    assert await plane.good(PROXY) == (OLD if stays else NEW)
    failures = (await last_good.load(world.kube, PROXY)).record.failures
    assert [one.by_workers for one in failures] == ([] if stays else [ill == ("w1", "w2")])
