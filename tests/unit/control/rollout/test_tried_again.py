"""What was rolled back and is applied again: when it never ran, and when the user asks for it. One invalid object."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from autarky.control.rollout.decide.failures import TRY_AGAIN
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.manifests import secret_name
from autarky.control.rollout.operator import last_good
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.trouble import has_never_run
from autarky.control.status.operator import _failures
from autarky.ports import Object
from autarky.render.values import SYSTEM
from unit.control.world import BAD, GOOD, SCHEDULER, SECRET, World, becomes_good, revision_label, rounds

pytestmark = pytest.mark.looptime

WAITS = {"name": SCHEDULER, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}}
CRASHED = {
    **WAITS,
    "containerID": "containerd://1",
    "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
}


def applied(world: World, container: Object) -> Object:
    """The bad template, and its pod."""
    world.deployment(SCHEDULER, BAD)
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(BAD)}
    return world.pod(SCHEDULER, "n1", labels, ready=False, status={"containerStatuses": [container]})


async def live(world: World) -> Object:
    found = await world.kube.get("apps/v1", "Deployment", SCHEDULER, SYSTEM)
    assert found is not None
    return found


async def wanted(world: World) -> Object:
    template: Object = (await live(world))["spec"]["template"]
    return template


async def taken_back(world: World, duty: Rollouts, seconds: int) -> None:
    await rounds(duty, seconds)
    assert await wanted(world) == GOOD
    world.controllers_look(await live(world))
    await rounds(duty, 2)


async def test_a_template_whose_image_could_not_be_pulled_succeeds_when_it_is_applied_again(world):
    await becomes_good(world)
    pod = applied(world, WAITS)
    async with world.operator() as duty:
        await taken_back(world, duty, 95)
        assert _failures(duty)[0].sentence.endswith("nothing of it ever ran: to try it again, apply it again")
        await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
        world.deployment(SCHEDULER, BAD)  # whose image is there now
        labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(BAD)}
        world.pod(SCHEDULER, "n1", labels)
        for second in range(5):
            world.lease(SCHEDULER, "n1_uuid", second)
            await rounds(duty, 1)
        assert duty.verdicts[SCHEDULER][0] is Verdict.HEALTHY
    assert await wanted(world) == BAD


async def test_the_annotation_of_the_condition_gives_what_was_condemned_its_full_chance(world):
    await becomes_good(world)
    applied(world, CRASHED)
    async with world.operator() as duty:
        await taken_back(world, duty, 95)
        [failure] = _failures(duty)
        assert "applied again within the hour, it goes back at once" in failure.sentence
        assert f"`kubectl -n kube-system annotate deploy/kube-scheduler {TRY_AGAIN}=now`" in failure.sentence
        world.deployment(SCHEDULER, BAD)
        await taken_back(world, duty, 2)
        found = await live(world)
        world.kube.put({**found, "metadata": {**found["metadata"], "annotations": {TRY_AGAIN: "now", "mine": "stays"}}})
        await rounds(duty, 2)
        assert _failures(duty) == []
        assert (await live(world))["metadata"]["annotations"] == {"mine": "stays"}
        world.deployment(SCHEDULER, BAD)
        await rounds(duty, 80)
        assert await wanted(world) == BAD, "it has the full limit"
        assert (await last_good.load(world.kube, SCHEDULER)).record.failures == ()
        assert len(await world.explanations()) == 2
        await taken_back(world, duty, 15)
        assert len(await world.explanations()) == 3, "each time is reported"
        assert [one.count for one in (await last_good.load(world.kube, SCHEDULER)).record.failures] == [1]


async def test_an_init_container_that_ran_has_run(world):
    never = {"containerStatuses": [WAITS]}
    assert has_never_run({"status": never})
    assert not has_never_run({"status": {**never, "initContainerStatuses": [CRASHED]}})


async def test_a_record_with_more_in_it_is_read_as_far_as_it_is_known(world):
    await becomes_good(world)
    secret = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    assert secret is not None
    reported = [{"revision": "x", "count": 2, "sentence": "crashed", "of_a_later_release": True}]
    failures = base64.b64encode(json.dumps(reported).encode()).decode()
    world.kube.put({**secret, "data": {**secret["data"], "failures.json": failures}})
    kept = await last_good.load(world.kube, SCHEDULER)
    assert kept.record.failure("x").count == 2
    assert kept.template == GOOD


# --- one of many -----------------------------------------------------------------------------------------


async def test_one_component_that_cannot_be_judged_holds_up_no_other(world):
    """The API server is the first that is judged."""
    await becomes_good(world)
    applied(world, CRASHED)
    odd = world.daemon_set("kube-apiserver", GOOD)
    world.kube.put({**odd, "spec": {"template": {**GOOD, "spec": None}}})
    async with world.operator() as duty:
        for _ in range(95):
            with pytest.raises(AttributeError):
                await duty.reconcile()
            await asyncio.sleep(1)
    assert await wanted(world) == GOOD


# --- too large to be kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kibibytes", "kept"), [(500, True), (790, False)])
async def test_what_is_too_large_to_be_kept_is_refused_with_a_condition_and_a_remedy(world, kibibytes, kept):
    """In an API that admits 1 MiB. A Secret's content is one third longer in its copy."""
    large = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "large", "namespace": SYSTEM}}
    world.kube.put({**large, "data": {"file": base64.b64encode(bytes(kibibytes << 10)).decode()}})
    volumes = [*GOOD["spec"]["volumes"], {"name": "large", "secret": {"secretName": "large"}}]
    template = {**GOOD, "spec": {**GOOD["spec"], "volumes": volumes}}
    world.deployment(SCHEDULER, template)
    world.pod(SCHEDULER, "n1", {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(template)})
    async with world.operator() as duty:
        for second in range(20):
            world.lease(SCHEDULER, "n1_uuid", second)
            await rounds(duty, 1)
        reported = [failure.sentence for failure in _failures(duty)]
    secret = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    if kept:
        assert secret is not None
        assert sum(len(base64.b64decode(value)) for value in secret["data"].values()) < 1 << 20
        assert reported == []
    else:
        assert secret is None
        expected = (
            "healthy, but it cannot be kept as the last good revision: with the Secrets and ConfigMaps that it"
            " references it has 1054 KiB, and a Secret holds at most 1008 KiB: Secret large has 1053 KiB, Secret"
            f" {SECRET['metadata']['name']} has 0 KiB; mark large ones as optional (optional: true), or mount their"
            " content from the host"
        )
        assert reported == [expected]
