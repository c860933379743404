"""The ControlPlane's status: what cannot be observed keeps nothing else from being reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from autarky.control.backup.manifests import definitions
from autarky.control.backup.operator import Schedules
from autarky.control.certificates import decide as certificates
from autarky.control.control_nodes.operator.roles import ControlNodes
from autarky.control.drift.decide import applied
from autarky.control.etcd.operator.members import EtcdMembers
from autarky.control.etcd.operator.template import EtcdTemplate
from autarky.control.kubelet.operator.kubelets import Kubelets
from autarky.control.leadership.decide import reported as level_3_reported
from autarky.control.levels.operator import Spec
from autarky.control.rollout.operator import rollouts as rollouts_module
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.status import decide as plane_status
from autarky.control.status import operator as module
from autarky.control.status.operator import PlaneStatus
from autarky.control.upgrade.operator.upgrade import Upgrade
from autarky.doctor import evidence
from autarky.doctor.diagnosis import ClusterEvidence, diagnose
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.clock import LoopClock
from fakes.editions import TOLD, a_later_release, the_first_release
from unit.control.world import GOOD, SCHEDULER, World, becomes_good, revision_label, rounds

pytestmark = pytest.mark.looptime
SOON = "2098-01-01T00:00:00Z"
PARTS = {
    "_layers": {"Ready"},
    "_node_slots": {"Ready", "StandbysCurrent"},
    "_on_trial": {"RolloutsSettled"},
    "_failures": {"RolledBack", "RolloutFailed"},
    "_drift": {"Drifted"},
    "_certificates": {"CertificatesCurrent"},
    "_old_defaults": {"DefaultsCurrent"},
    "reported_of_level_3": set(),
}
"""What looks at one thing → the conditions that tell of it."""


@pytest.fixture
async def good(world: World) -> World:
    await becomes_good(world)
    reported = json.dumps({"ends": {"apiserver": SOON}})
    live = await world.kube.get("v1", "Node", "n1")
    assert live is not None
    world.kube.put({**live, "metadata": {**live["metadata"], "annotations": {certificates.ANNOTATION: reported}}})
    return world


async def _serves(_url: str) -> None:
    """Nobody is asked here."""


@asynccontextmanager
async def duty_of(world: World, *, etcd_looked: bool = True) -> AsyncIterator[PlaneStatus]:
    async with world.operator() as rollouts:
        await rounds(rollouts, 1)
        duty = _duty(world, rollouts)
        if etcd_looked:
            duty.etcd.seen = None  # as of an etcd that is not described by EtcdMembers
        yield duty


def _duty(world: World, rollouts: Rollouts) -> PlaneStatus:
    view, clock = rollouts.view, LoopClock()
    spec = Spec(world.say, view, world.kube, clock, rollouts)
    etcd = EtcdMembers(world.say, view, world.kube, dict)
    control_nodes = ControlNodes(world.say, view, world.kube, clock, dict, _serves)
    schedules = Schedules(world.say, view, world.kube, clock)
    template = EtcdTemplate(world.say, view, world.kube)
    upgrade = Upgrade(world.say, view, world.kube, clock, rollouts)
    return PlaneStatus(
        *(world.say, view, world.kube, clock, rollouts, spec, etcd, template, control_nodes, schedules, upgrade),
        Kubelets(world.say, view, world.kube, clock, lambda _: ""),
    )


async def status(world: World) -> Object:
    plane = await world.kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    assert plane is not None
    found: Object = plane["status"]
    return found


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["message"]) for one in found["conditions"]}


async def test_the_condition_of_certificates_says_what_the_nodes_tell(good: World) -> None:
    async with duty_of(good) as duty:
        await duty.reconcile()
        truth, message = conditions(await status(good))["CertificatesCurrent"]
        assert (truth, message[-len(SOON) - 20 :]) == ("True", f"apiserver on n1, at {SOON}")
        live = await good.kube.get("v1", "Node", "n1")
        assert live is not None
        reported = json.dumps({"ends": {"apiserver": SOON}, "trouble": {"apiserver": "disk full"}})
        good.kube.put({**live, "metadata": {**live["metadata"], "annotations": {certificates.ANNOTATION: reported}}})
        await asyncio.sleep(1)
        await duty.reconcile()
        expected = ("False", f"apiserver on n1 expires at {SOON}: disk full")
        assert conditions(await status(good))["CertificatesCurrent"] == expected


async def test_the_condition_of_backups_is_there_with_a_schedule_and_false_when_they_are_overdue(good: World) -> None:
    """And `doctor` names it then."""
    for definition in definitions.objects():
        good.kube.put(definition)
    template = {"target": {"directory": "/srv"}, "encryption": {"recipients": ["age1x"]}}
    hours = {"created": 9.0, "made": 1.0}

    def put() -> None:
        stamps = {
            what: f"{datetime.fromtimestamp(LoopClock().time() - 3600 * ago, UTC):%Y-%m-%dT%H:%M:%SZ}"
            for what, ago in hours.items()
        }
        schedule = {"apiVersion": API_VERSION, "kind": definitions.SCHEDULE}
        spec = {"every": "2h", "paused": False, "template": template}
        meta = {"name": "s", "creationTimestamp": stamps["created"]}
        good.kube.put({**schedule, "metadata": meta, "spec": spec})
        made: Any = definitions.backup("s-1", template, "s")
        made["metadata"]["creationTimestamp"] = stamps["made"]
        good.kube.put({**made, "status": {"phase": "Complete", "verified": stamps["made"]}})

    async with duty_of(good) as duty:

        async def said() -> tuple[str, str] | None:
            await asyncio.sleep(1)
            await duty.backups.reconcile()
            await duty.reconcile()
            return conditions(await status(good)).get("BackupsCurrent")

        assert await said() is None
        put()
        assert await said() == ("True", "the last verified backup of every schedule is recent")
        hours["made"] = 5.1
        put()
        found = await said()
        assert found == ("False", "s: backups are overdue: the last one is s-1")
        wrong = evidence._conditions({"status": await status(good)})
        assert wrong == {"BackupsCurrent": found[1]}
        assert [one.what for one in diagnose(ClusterEvidence((), conditions=wrong))] == ["backups are overdue"]
        await good.kube.delete(API_VERSION, definitions.SCHEDULE, "s")
        assert await said() is None


async def test_the_condition_of_defaults_names_those_of_a_later_release_until_they_are_applied(
    good: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_first_release(monkeypatch)
    made = await plane(good)
    old = {**made, "spec": {**made["spec"], "defaults": 1}}
    good.kube.put(applied.with_record(old, old))
    async with duty_of(good) as duty:
        await duty.reconcile()
        assert conditions(await status(good))["DefaultsCurrent"][0] == "True"
        a_later_release(monkeypatch)
        await duty.reconcile()
        assert conditions(await status(good))["DefaultsCurrent"] == ("False", TOLD)
        live = await plane(good)
        asked = {**live, "spec": {**live["spec"], "defaults": 2}}
        good.kube.put(applied.with_record(asked, live))
        await asyncio.sleep(1)
        await duty.reconcile()
        assert conditions(await status(good))["DefaultsCurrent"] == ("False", TOLD), "an edit takes nothing"
        good.kube.put(applied.with_record(asked, asked))
        await asyncio.sleep(1)
        await duty.reconcile()
        assert conditions(await status(good))["DefaultsCurrent"][0] == "True"


@pytest.mark.parametrize("part", PARTS)
async def test_what_cannot_be_told_keeps_nothing_else_from_being_told(
    good: World, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with duty_of(good) as duty:
        await duty.reconcile()
        before = await status(good)
        good.kube.put({**(await plane(good)), "status": {}})
        await asyncio.sleep(1)

        def fails(*_: Any) -> Any:
            raise ValueError("odd content")

        monkeypatch.setattr(module, part, fails)
        with pytest.raises(ValueError, match="odd content"):
            await duty.reconcile()
        after = await status(good)
    unseen = {name for name, (truth, _) in conditions(after).items() if truth == "Unknown"}
    assert unseen == PARTS[part]
    assert all("odd content" in conditions(after)[name][1] for name in unseen)
    others = conditions(before).keys() - unseen
    assert {name: conditions(after)[name] for name in others} == {name: conditions(before)[name] for name in others}
    assert ("layers" in after and after["layers"] == before["layers"]) == (part != "_layers")
    assert (after.get(level_3_reported.FIELD) == before[level_3_reported.FIELD]) == (part != "reported_of_level_3")


async def test_agents_are_told_of_new_candidates_while_something_else_cannot_be_told(
    good: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with duty_of(good) as duty:
        await duty.reconcile()
        good.node("n2")
        pod = good.pod(SCHEDULER, "n2", {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(GOOD)})
        await asyncio.sleep(1)
        monkeypatch.setattr(module, "_drift", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await duty.reconcile()
    reported = level_3_reported.read(await plane(good), SCHEDULER)
    assert pod["metadata"]["uid"] in {one.uid for one in reported.candidates}


async def test_what_was_told_before_stays_while_it_cannot_be_seen(good: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of members that is in force, too: a new leader's first look may not have been made yet."""
    async with duty_of(good, etcd_looked=False) as duty:
        await duty.reconcile()
        before = {**(await status(good)), "etcd": {"members": ["n1"]}}
        good.kube.put({**(await plane(good)), "status": before})
        await asyncio.sleep(1)
        for part in ("reported_of_level_3", "_layers", "_node_slots"):
            monkeypatch.setattr(module, part, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await duty.reconcile()
        after = await status(good)
    kept = ("etcd", "layers", "nodes", level_3_reported.FIELD)
    assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}


async def plane(world: World) -> Object:
    found = await world.kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    assert found is not None
    return found


# --- what is on trial -----------------------------------------------------------------------------------------------


async def settled(world: World) -> tuple[str, str]:
    [found] = [one for one in (await status(world))["conditions"] if one["type"] == "RolloutsSettled"]
    return found["status"], found["reason"]


async def test_what_an_operator_has_not_judged_yet_is_on_trial(good: World) -> None:
    """It leads, perhaps again, and has looked at nothing: what it knew is of another time."""
    async with duty_of(good) as duty:
        await duty.reconcile()
        assert await settled(good) == ("True", "Judged")
        duty.rollouts.begin_term()
        await duty.reconcile()
        assert await settled(good) == ("False", "OnTrial")
        await rounds(duty.rollouts, 1)
        await duty.reconcile()
        assert await settled(good) == ("True", "Judged")


async def test_what_cannot_be_judged_any_more_is_on_trial_whatever_was_before(
    good: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with duty_of(good) as duty:
        monkeypatch.setattr(rollouts_module, "observe", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await duty.rollouts.reconcile()
        await duty.reconcile()
        assert await settled(good) == ("False", "OnTrial")


async def test_what_is_seen_of_the_workloads_is_not_known_to_be_settled_while_it_may_be_stale(
    good: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with duty_of(good) as duty:
        monkeypatch.setattr(module, "current", lambda sources: duty.view.deployments not in sources)
        await duty.reconcile()
        assert await settled(good) == ("Unknown", "NotSeen")


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_workload_that_is_being_deleted_is_not_on_trial(good: World, deleted: bool) -> None:
    async with duty_of(good) as duty:
        duty.rollouts.begin_term()
        if deleted:
            live = good.kube._objects["apps/v1", "Deployment", "kube-system", SCHEDULER]  # it is ours
            ending = {"deletionTimestamp": "2026-11-21T10:00:00Z", "finalizers": ["still/there"]}
            good.kube.put({**live, "metadata": {**live["metadata"], **ending}})
            await asyncio.sleep(1)
        await duty.reconcile()
        assert await settled(good) == (("True", "Judged") if deleted else ("False", "OnTrial"))


@pytest.mark.parametrize(
    ("on_trial", "reason"),
    [
        (["coredns"], "AddOnsOnTrial"),
        (["kube-flannel", "coredns"], "AddOnsOnTrial"),
        (["kubelet"], "AddOnsOnTrial"),  # it may wait forever, and the hosts' run
        (["kubelet", "coredns"], "AddOnsOnTrial"),
        (["kubelet", "kube-apiserver"], "OnTrial"),
        (["coredns", "kube-proxy"], "OnTrial"),
        (["node-agent"], "OnTrial"),
        (["autarky-operator"], "OnTrial"),
    ],
)
def test_add_ons_on_trial_have_a_reason_of_their_own(on_trial: list[str], reason: str) -> None:
    """Whoever uses them could keep them so. Of the agents no worker can, and they carry out an upgrade."""
    found = plane_status.status([], [], [], on_trial, [], [], generation=1, before={}, now="now")
    [one] = [one for one in found["conditions"] if one["type"] == "RolloutsSettled"]
    assert (one["status"], one["reason"]) == ("False", reason)
    assert all(name in one["message"] for name in on_trial)
