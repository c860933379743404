"""Rollouts, from what Kubernetes writes to what the operator does about them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.manifests import secret_name
from autarky.errors import Unreachable
from autarky.ports import Object
from autarky.render.values import SYSTEM
from fakes.kube import FakeKube
from unit.control.world import (
    BAD,
    GOOD,
    SCHEDULER,
    SECRET,
    World,
    becomes_good,
    revision_label,
    rounds,
    template,
)

pytestmark = pytest.mark.looptime

API = "kube-apiserver"
CRASHED = {
    "containerStatuses": [
        {
            "name": SCHEDULER,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }
    ]
}
BLAME = "container kube-scheduler is waiting: CrashLoopBackOff, it last exited with code 1 (Error)"


def goes_bad(world: World) -> Object:
    world.deployment(SCHEDULER, BAD)
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(BAD)}
    pod = world.pod(SCHEDULER, "n1", labels, ready=False, status=CRASHED)
    world.kube.pod_logs[SYSTEM, pod["metadata"]["name"]] = "first\n\nError: unknown flag:   --no-such-flag\n"
    return pod


async def scheduler(world: World) -> Object:
    live = await world.kube.get("apps/v1", "Deployment", SCHEDULER, SYSTEM)
    assert live is not None
    return live


# --- all of it -----------------------------------------------------------------------------------------


async def test_a_bad_rollout_goes_back_with_an_event_that_says_why(world):
    await becomes_good(world)
    pod = goes_bad(world)
    async with world.operator() as duty:
        await rounds(duty, 88)
        assert (await scheduler(world))["spec"]["template"] == BAD
        await rounds(duty, 5)
    assert (await scheduler(world))["spec"]["template"] == GOOD
    blamed = f"pod {pod['metadata']['name']} on n1 was not healthy within 90 s: {BLAME}"
    words = "Its last words: first | Error: unknown flag: --no-such-flag"
    assert await world.explanations() == [f"Rolling back to the last healthy revision: {blamed}. {words}"]
    assert world.counted == [SCHEDULER]
    assert duty.kept[SCHEDULER].record.current is not None


async def test_where_the_good_revision_was_slow_to_start_the_next_one_has_its_time(world):
    """Also by the word of an operator that comes later."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:02:00Z"}
    runs = {"name": SCHEDULER, "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}}}
    await becomes_good(world, {"conditions": [ready], "containerStatuses": [runs]})
    goes_bad(world)
    async with world.operator() as duty:
        await rounds(duty, 238)
        assert (await scheduler(world))["spec"]["template"] == BAD
        await rounds(duty, 5)
    assert (await scheduler(world))["spec"]["template"] == GOOD
    [reported] = await world.explanations()
    assert "was not healthy within 240 s" in reported


async def test_everything_else_of_the_workload_stays_as_the_user_left_it(world):
    await becomes_good(world)
    goes_bad(world)
    live = await scheduler(world)
    world.kube.put({**live, "spec": {**live["spec"], "replicas": 2, "paused": False}})
    world.controllers_look(await scheduler(world))
    async with world.operator() as duty:
        await rounds(duty, 95)
    spec = (await scheduler(world))["spec"]
    assert (spec["replicas"], spec["paused"], spec["template"]) == (2, False, GOOD)


async def test_a_secret_that_was_deleted_meanwhile_is_made_again_before_going_back(world):
    await becomes_good(world)
    goes_bad(world)
    await world.kube.delete("v1", "Secret", SECRET["metadata"]["name"], SYSTEM)
    async with world.operator() as duty:
        await rounds(duty, 95)
    restored = await world.kube.get("v1", "Secret", SECRET["metadata"]["name"], SYSTEM)
    assert restored is not None
    assert restored["data"] == SECRET["data"]
    assert restored["immutable"] is True


async def test_a_revision_whose_secret_is_gone_is_not_kept_as_good(world):
    await world.kube.delete("v1", "Secret", SECRET["metadata"]["name"], SYSTEM)
    world.deployment(SCHEDULER, GOOD)
    world.pod(SCHEDULER, "n1", {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(GOOD)})
    async with world.operator() as duty:
        for second in range(10):
            world.lease(SCHEDULER, "n1_uuid", second)
            await rounds(duty, 1)
    assert await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM) is None
    assert any("is missing, and its next start needs it" in sentence for sentence, _ in world.said)


async def test_the_limit_and_the_switch_are_those_of_the_control_plane_object(world):
    await becomes_good(world)
    goes_bad(world)
    patch = {"spec": {"rollback": {"enabled": False, "limitSeconds": 20}}}
    await world.kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", patch)
    async with world.operator() as duty:
        await rounds(duty, 25)
        assert duty.verdicts[SCHEDULER][0] is Verdict.FAILED
    assert (await scheduler(world))["spec"]["template"] == BAD


async def test_rule_4_a_scheduler_newer_than_the_api_servers_goes_back_at_once(world):
    await becomes_good(world)
    world.pod(API, "n1", {"autarky.dev/slot": "standby"}, image="registry.example/kube-apiserver:v1.36.4")
    world.deployment(SCHEDULER, template(SCHEDULER, "registry.example/kube-scheduler:v1.37.1"))
    async with world.operator() as duty:
        await rounds(duty, 2)
    assert await world.image("Deployment", SCHEDULER) == "registry.example/kube-scheduler:v1.36.4"
    assert "is newer than the oldest API server that runs (v1.36.4) (rule 4)" in (await world.explanations())[0]


async def test_rule_9_nothing_goes_back_while_etcd_is_down(world):
    await becomes_good(world)
    goes_bad(world)
    world.etcd_up = False
    async with world.operator() as duty:
        await rounds(duty, 300)
    assert (await scheduler(world))["spec"]["template"] == BAD


async def test_a_deleted_workload_is_left_alone(world):
    async with world.operator() as duty:
        assert await duty.reconcile() is None
        assert duty.verdicts == {}


@pytest.mark.parametrize("component", [API, "kube-proxy"])
async def test_a_bad_daemon_set_goes_back_when_no_node_gets_it_to_run(world, component):
    good = template(component, f"registry.example/{component}:v1.36.4")
    live = world.daemon_set(component, good)
    labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(good)}
    pod = world.pod(component, "n1", labels, owner=live)
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts[component][0] is Verdict.HEALTHY
        await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
        bad = template(component, f"registry.example/{component}:v1.36.99")
        live = world.daemon_set(component, bad)
        waiting = {"name": component, "image": f"registry.example/{component}:v1.36.99", "state": {}}
        waiting["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
        labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(bad)}
        status = {"containerStatuses": [waiting]}
        failed = world.held(world.pod(component, "n1", labels, ready=False, owner=live, status=status))
        await rounds(duty, 95)
    left = await world.kube.get("v1", "Pod", failed["metadata"]["name"], SYSTEM)
    assert left["metadata"]["deletionGracePeriodSeconds"] == 0, "nothing of it ever ran"
    assert await world.image("DaemonSet", component) == f"registry.example/{component}:v1.36.4"
    assert f"container {component} is waiting: ImagePullBackOff (not found)" in (await world.explanations())[0]


@pytest.mark.parametrize(("ill", "goes_back"), [("w1", False), ("n1", True)])
async def test_a_worker_alone_takes_no_kube_proxy_back_and_a_control_node_does(world, ill, goes_back):
    """Its kubelet keeps the pod there from being Ready, and it may be somebody's who wants no rollout."""
    for name in ("w1", "w2"):
        world.node(name, control=False)

    def anywhere(version: str) -> Object:
        made = template("kube-proxy", f"registry.example/kube-proxy:{version}")
        return {**made, "spec": {**made["spec"], "nodeSelector": {}}}

    async def rolls_out(version: str, *, unready: str = "") -> None:
        for pod in await world.kube.list("v1", "Pod", namespace=SYSTEM):
            await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
        live = world.daemon_set("kube-proxy", anywhere(version))
        labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(anywhere(version))}
        for node in ("n1", "w1", "w2"):
            world.pod("kube-proxy", node, labels, owner=live, ready=node != unready)

    await rolls_out("v1.36.4")
    async with world.operator() as duty:
        await rounds(duty, 14)
        assert duty.verdicts["kube-proxy"][0] is Verdict.HEALTHY
        await rolls_out("v1.36.5", unready=ill)
        await rounds(duty, 95)
    image = await world.image("DaemonSet", "kube-proxy")
    assert image.endswith("v1.36.4" if goes_back else "v1.36.5")
    good = (duty.kept["kube-proxy"].template or {})["spec"]["containers"][0]["image"]
    assert good == image, "what is well elsewhere is what a later one goes back to"


async def failed_api_server(world: World, *, served: bool) -> Object:
    """What is left of a bad API server after 90 s, when its DaemonSet went back."""
    good = template(API, "registry.example/kube-apiserver:v1.36.4")
    live = world.daemon_set(API, good)
    labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(good)}
    first = world.pod(API, "n1", labels, owner=live)
    async with world.operator() as duty:
        await rounds(duty, 14)
        await world.kube.delete("v1", "Pod", first["metadata"]["name"], SYSTEM)
        bad = template(API, "registry.example/kube-apiserver:v1.36.4", "--runtime-config=too-little")
        live = world.daemon_set(API, bad)
        labels = {"autarky.dev/slot": "hosted", "controller-revision-hash": revision_label(bad)}
        pod = world.held(world.pod(API, "n1", labels, ready=served, owner=live))
        await rounds(duty, 3)
        world.ready(pod, ready=False)
        await rounds(duty, 92)
    assert (await world.kube.get("apps/v1", "DaemonSet", API, SYSTEM))["spec"]["template"] == good
    return await world.kube.get("v1", "Pod", pod["metadata"]["name"], SYSTEM)


async def test_a_failed_api_server_that_never_served_is_not_waited_for(world):
    pod = await failed_api_server(world, served=False)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_a_failed_api_server_that_was_ready_once_ends_in_its_own_time(world):
    pod = await failed_api_server(world, served=True)
    assert "deletionTimestamp" not in pod["metadata"]  # that is its controller's affair


async def test_a_pod_that_never_ran_is_explained_by_the_last_warning_about_it(world):
    await becomes_good(world)
    world.kube.pod_logs.clear()
    pod = goes_bad(world)
    world.kube.pod_logs.clear()
    world.warning(pod, "2026-11-21T10:00:01Z", 'secret "no-such" not found')
    world.warning(pod, "2026-11-21T10:00:00Z", "an older one")
    async with world.operator() as duty:
        await rounds(duty, 93)
    assert any(
        message.endswith('The last warning about it: secret "no-such" not found')
        for message in await world.explanations()
    )


class NoLog(FakeKube):
    async def logs(
        self, namespace: str, pod: str, *, container: str | None = None, previous: bool = False, tail: int | None = None
    ) -> str:
        await asyncio.Event().wait()
        return ""


async def test_a_kubelet_that_does_not_come_to_an_end_with_a_log_holds_up_no_rollback():
    world = World(NoLog())
    world.node("n1")
    await becomes_good(world)
    pod = goes_bad(world)
    world.warning(pod, "2026-11-21T10:00:01Z", "back-off")
    async with world.operator() as duty, asyncio.timeout(200):
        await rounds(duty, 95)
    assert (await scheduler(world))["spec"]["template"] == GOOD
    assert any(message.endswith("The last warning about it: back-off") for message in await world.explanations())


# --- cut anywhere --------------------------------------------------------------------------------------


@dataclass(slots=True)
class CutAt:
    """A connection to the API that breaks permanently before or after its Nth write."""

    api: FakeKube
    writes_left: int
    carried_out: bool

    def __getattr__(self, name: str):
        return getattr(self.api, name)

    async def create(self, obj):
        return await self._write(lambda: self.api.create(obj))

    async def replace(self, obj, *, subresource=None):
        return await self._write(lambda: self.api.replace(obj, subresource=subresource))

    async def _write(self, write):
        if self.writes_left == 0:
            if self.carried_out:
                await write()
            self.writes_left = -1
        if self.writes_left < 0:
            raise Unreachable("cut")
        self.writes_left -= 1
        return await write()


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("writes", [0, 1, 2, 3])
async def test_rule_5_an_operator_cut_at_any_write_is_followed_by_one_that_ends_it(world, writes, carried_out):
    await becomes_good(world)
    goes_bad(world)
    await world.kube.delete("v1", "Secret", SECRET["metadata"]["name"], SYSTEM)
    async with world.operator(CutAt(world.kube, writes, carried_out)) as duty:
        for _ in range(95):
            try:
                await duty.reconcile()
            except Unreachable:
                break
            await asyncio.sleep(1)
    async with world.operator() as duty:
        await rounds(duty, 95)
    assert (await scheduler(world))["spec"]["template"] == GOOD
    assert await world.kube.get("v1", "Secret", SECRET["metadata"]["name"], SYSTEM) is not None
    assert len(await world.explanations()) == 1


@dataclass(slots=True)
class Crowded:
    """Somebody else writes to the workload right before each of the first `changes` replacements of it."""

    api: FakeKube
    changes: int
    template: Object | None = None

    def __getattr__(self, name: str):
        return getattr(self.api, name)

    async def replace(self, obj, *, subresource=None):
        if obj["kind"] == "Deployment" and self.changes > 0:
            self.changes -= 1
            live = await self.api.get("apps/v1", "Deployment", SCHEDULER, SYSTEM)
            wanted = self.template or live["spec"]["template"]
            self.api.put({**live, "spec": {**live["spec"], "template": wanted, "minReadySeconds": self.changes}})
        return await self.api.replace(obj, subresource=subresource)


async def test_writes_of_controllers_do_not_keep_it_from_going_back(world):
    await becomes_good(world)
    goes_bad(world)
    async with world.operator(Crowded(world.kube, 3)) as duty:
        await rounds(duty, 92)
    assert (await scheduler(world))["spec"]["template"] == GOOD


async def test_the_users_next_edit_in_the_same_moment_is_not_overwritten(world):
    await becomes_good(world)
    goes_bad(world)
    edited = template(SCHEDULER, "registry.example/kube-scheduler:v1.36.6")
    async with world.operator(Crowded(world.kube, 1, edited)) as duty:
        await rounds(duty, 92)
    assert (await scheduler(world))["spec"]["template"] == edited
    assert world.counted == []


async def test_the_same_again_goes_back_at_once_also_after_a_restart(world):
    await becomes_good(world)
    goes_bad(world)
    async with world.operator() as duty:
        await rounds(duty, 95)
    goes_bad(world)
    async with world.operator() as duty:
        await rounds(duty, 2)
    assert (await scheduler(world))["spec"]["template"] == GOOD
    assert len(await world.explanations()) == 2
