"""Complete reconciles of the agent on a control node: real parts, live copies; API and runtime in memory."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autarky.agents.node import agent as node_agent
from autarky.agents.node.agent import NodeAgent
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.base.decision_log import DecisionLog
from autarky.control.base.node_view import LEASE, ApiView
from autarky.control.base.pending_events import PendingEvents
from autarky.control.base.reconciler import Reconciler
from autarky.control.base.shield import LONGEST_PAUSE
from autarky.control.checkpoint.decide.following import FOLLOW_SECONDS
from autarky.control.checkpoint.decide.revisions import PROVEN_SECONDS
from autarky.control.checkpoint.node.images import ImageKeeping
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.leadership.decide import leader as leadership
from autarky.control.leadership.decide import reported as level_3_reported
from autarky.control.rollout.decide.good_revision import content_of, revision_of
from autarky.control.slots.decide import pivot as slots
from autarky.control.slots.decide import report as node_slots
from autarky.control.slots.decide.pivot import Health
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node import ports as ports_seen
from autarky.control.slots.node.hand_over import HandOver
from autarky.control.slots.node.running_here import SILENT_SECONDS, RunningHere
from autarky.control.status import decide as plane_status
from autarky.model import patience
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, NODE_AGENT, SCHEDULER, WITH_STANDBY
from autarky.ports import Object
from autarky.render.crds import API_VERSION, control_plane_crd
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import IMAGES, a_cluster, inputs_of
from fakes.cri import FakeCri
from fakes.hosted_pods import completed, hosted_objects, pod_of_template
from fakes.kept_images import FakeKeptImages
from fakes.kube import FakeKube
from unit.control.disks import Disk, a_disk

pytestmark = pytest.mark.looptime

NODE = "n1"
INPUTS = inputs_of(a_cluster())
MADE, START = "2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z"
PARTS = ("level", API_SERVER, CONTROLLER_MANAGER, SCHEDULER, NODE_AGENT, "annotation")
CHECKPOINT = "checkpoint-1"
SOON = 3 * node_agent.LOOK_SECONDS
LONG = 3 * max(slots.WATCH_SECONDS, leadership.SETTLE_SECONDS)


class Quorum:
    async def is_up(self) -> bool:
        return True


class OwnPort:
    health = Health.READY

    async def hosted_api_server(self) -> Health:
        return self.health


class SlowKube(FakeKube):
    """Who asks it for a lease (which live copies do not do) has the answer after so many seconds."""

    lease_seconds = 0.0

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        if kind == LEASE[1]:
            await asyncio.sleep(self.lease_seconds)
        return await FakeKube.get(self, api_version, kind, name, namespace)


class Scene:
    """A control node whose hosted API server serves and whose agent is the hosted one."""

    def __init__(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk, self.cri, self.clock, self.port = disk, FakeCri(), LoopClock(), OwnPort()
        self.kube = SlowKube()
        self.ran: list[tuple[str, ...]] = []
        self.when: dict[tuple[str, str], float] = {}
        self.others_serve = False
        self.said: list[str] = []
        monkeypatch.setattr(slots_on_disk, "WANTED", disk.root / "wanted.json")
        monkeypatch.setattr(role_on_disk, "FILE", disk.root / "role.json")
        monkeypatch.setattr(slots_on_disk, "run_script", self.run_script)
        monkeypatch.setattr(ports_seen, "plain_status", self.status)
        monkeypatch.setattr(node_agent, "PendingEvents", partial(PendingEvents, file=disk.root / "pending.json"))
        for component in WITH_STANDBY:
            disk.revision(component, "r1", "image")
        (disk.root / "standby" / NODE_AGENT).mkdir()
        self.cri.put_image("image")
        self.kube.put(control_plane_crd())
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        reported = DecisionLog(lambda sentence, **_: self.said.append(sentence))
        self.images = ImageKeeping(FakeKeptImages({"image", *IMAGES.values()}), self.clock, reported.tell)
        self.api = ApiView(self.kube, self.clock, NODE, self.heard, print)  # type: ignore[arg-type]
        self.agent = NodeAgent(
            NODE,
            self.kube,  # type: ignore[arg-type]
            self.api,
            self.port,  # type: ignore[arg-type]
            self.clock,
            reported,
            Quorum(),  # type: ignore[arg-type]
            self.images,
            hosted=True,
            hand_over=HandOver(self.clock),
            running=RunningHere(self.cri, self.clock),
            others_serve=self.another_node_serves,
        )

    def heard(self) -> None:
        self.agent.heard()

    async def run_script(self, verb: str, component: str, revision: str = "") -> None:
        """As the standby script: a manifest appears or goes, or a revision becomes the current one."""
        self.ran.append((verb, component))
        self.when[verb, component] = self.clock.monotonic()
        name = f"standby-{component}-0123abcd"
        if verb == "activate":
            self.disk.manifest(name, f"of {component}")
        if verb == "withdraw":
            (self.disk.manifests / f"{name}.json").unlink()
        if verb == "switch":
            link = self.disk.root / "standby" / component / "current"
            link.unlink(missing_ok=True)
            link.symlink_to(revision)

    async def status(self, _port: int, _path: str) -> int:
        return 200

    async def another_node_serves(self) -> bool:
        return self.others_serve

    def wants(self, level: str, **more: Any) -> None:
        spec = {"version": "v1.36.4", "selfHosted": level, **more}
        self.kube.put(
            {"apiVersion": API_VERSION, "kind": "ControlPlane", "metadata": {"name": "cluster"}, "spec": spec}
        )

    def hosted_pod(self, component: str, *, runs: bool) -> None:
        """Ready, as the API shows it; by the runtime its container runs, or has ended with the last boot."""
        container = self.cri.create_container(self.cri.run_sandbox(component, SYSTEM, component), component, "image")
        self.cri.start_container(container)
        if not runs:
            self.cri.exit_container(container)
        objects = agent.objects(INPUTS) if component == NODE_AGENT else hosted_objects(INPUTS, component)
        for obj in objects:
            if obj["kind"] in ("Secret", "ConfigMap"):
                self.kube.put({**obj, "metadata": {**obj["metadata"], "creationTimestamp": MADE}})
        pod = completed(pod_of_template(objects, node=NODE))
        state = {"name": component, "restartCount": 0, "containerID": f"containerd://{container}"}
        pod["status"] |= {
            "startTime": START,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{**state, "state": {"running": {"startedAt": START}}}],
        }
        self.kube.put(pod)

    async def leads(self) -> None:
        """Somebody on this node, who renews both leases every other second."""
        for turn in range(1_000_000):
            for name in (CONTROLLER_MANAGER, SCHEDULER):
                spec = {
                    "holderIdentity": f"{socket.gethostname()}_x",
                    "leaseDurationSeconds": 15,
                    "renewTime": f"{turn}",
                }
                meta = {"name": name, "namespace": SYSTEM}
                self.kube.put({"apiVersion": LEASE[0], "kind": LEASE[1], "metadata": meta, "spec": spec})
            await asyncio.sleep(2)

    async def passes(self, seconds: float) -> None:
        """Rounds, with the live copies beside them."""
        images, agent = (Reconciler(one, one.clock, self.agent.log.tell).run() for one in (self.images, self.agent))
        beside = [asyncio.create_task(one) for one in (self.api.run(), images, self.leads())]
        rounds = asyncio.create_task(agent)
        await asyncio.sleep(seconds)
        over = rounds.done()
        for task in (*beside, rounds):
            task.cancel()
        await asyncio.gather(*beside, rounds, return_exceptions=True)
        assert not over, "rounds go on, whatever happens"


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(a_disk(tmp_path, monkeypatch), monkeypatch)


# --- one part fails --------------------------------------------------------------------------------------------


class Fails:
    """Takes the place of something that a part uses."""

    def __init__(self, instead_of: Any, name: str) -> None:
        self.well, self.name, self.repaired = instead_of, name, False

    def __getattr__(self, name: str) -> Any:
        if self.repaired or name != self.name:
            return getattr(self.well, name)
        raise ZeroDivisionError(f"{name}: nobody has foreseen that")


def break_part(agent: NodeAgent, part: str) -> Fails:
    match part:
        case "level":
            agent.api = broken = Fails(agent.api, "lowest_hosted_level")  # type: ignore[assignment]
        case "annotation":
            agent.announcer = broken = Fails(agent.announcer, "wants")  # type: ignore[assignment]
        case "node-agent":
            agent.own_checkpointer = broken = Fails(agent.own_checkpointer, "reconcile")  # type: ignore[assignment]
        case _:
            broken = Fails(agent.checkpointers[part], "reconcile")
            agent.checkpointers = {**agent.checkpointers, part: broken}  # type: ignore[dict-item]
    return broken


def done_by(scene: Scene) -> set[str]:
    """The parts whose work of this scene is done: copies of what runs, the level on the disk, the word on the Node."""
    found = {component for verb, component in scene.ran if verb == "switch"}
    found |= {"level"} if slots_on_disk.wanted_level() == 1 else set()
    return found | ({"annotation"} if scene.agent.announcer._wanted is not None else set())


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_that_fails_unexpectedly_stops_no_other(scene: Scene, part: str) -> None:
    scene.wants("1-4")
    slots_on_disk.remember_wanted_level(2)
    for component in (*WITH_STANDBY, NODE_AGENT):
        scene.hosted_pod(component, runs=True)
    broken = break_part(scene.agent, part)
    await scene.passes(PROVEN_SECONDS + LONG)
    assert done_by(scene) == set(PARTS) - {part}
    assert any("ZeroDivisionError" in sentence for sentence in scene.said)
    broken.repaired = True
    await scene.passes(LONGEST_PAUSE + PROVEN_SECONDS + LONG)
    assert done_by(scene) == set(PARTS), "it is tried again"


async def test_a_round_of_which_a_part_failed_is_followed_by_another_one_at_once(scene: Scene) -> None:
    """A node rests only when all of it is as it should be."""
    slots_on_disk.remember_wanted_level(2)
    broken = break_part(scene.agent, API_SERVER)
    await scene.passes(SOON)
    assert scene.agent._rests_until == 0.0
    broken.repaired = True
    await scene.passes(LONGEST_PAUSE)
    assert scene.agent._rests_until > 0.0


@pytest.mark.parametrize("odd", [{"level": "banana"}, {"level": "1-4", "rollback": "banana"}])
async def test_a_control_plane_that_means_nothing_changes_no_level_and_fails_no_part(
    scene: Scene, odd: dict[str, Any]
) -> None:
    slots_on_disk.remember_wanted_level(2)
    scene.wants(**odd)
    await scene.passes(SOON)
    assert slots_on_disk.wanted_level() == 2
    assert not any("failed" in sentence for sentence in scene.said)
    scene.wants("1-4")
    await scene.passes(SOON)
    assert slots_on_disk.wanted_level() == 1


@pytest.mark.parametrize(("levels", "lowest"), [("0-4", 1), ("02-4", 2)])
@pytest.mark.parametrize("before", [1, 2, 4])
async def test_a_hosted_kubelet_is_not_the_lowest_level(scene: Scene, before: int, levels: str, lowest: int) -> None:
    """Above all, it does not say whether this node's etcd follows its EtcdMember."""
    slots_on_disk.remember_wanted_level(before)
    scene.wants(levels)
    await scene.passes(SOON)
    assert slots_on_disk.wanted_level() == lowest
    assert not any("failed" in sentence for sentence in scene.said)


# --- the first pivot -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", WITH_STANDBY)
async def test_the_standby_that_up_wrote_goes_after_a_second_and_a_later_one_is_watched(
    scene: Scene, component: str
) -> None:
    """What `up` starts in both slots is the same; later the hosted slot may be a new version, which crashes soon."""
    scene.wants("2-4")
    slots_on_disk.remember_wanted_level(2)
    for one in (*WITH_STANDBY, NODE_AGENT):
        scene.hosted_pod(one, runs=True)
    await scene.run_script("activate", component)
    began = scene.clock.monotonic()
    await scene.passes(slots.WATCH_SECONDS / 2)
    assert slots.SETTLE_SECONDS <= scene.when["withdraw", component] - began < slots.WATCH_SECONDS / 2
    assert scene.agent._is_first(component) is False


async def test_a_standby_that_took_over_later_is_watched(scene: Scene) -> None:
    scene.wants("2-4")
    slots_on_disk.remember_wanted_level(2)
    for one in (*WITH_STANDBY, NODE_AGENT):
        scene.hosted_pod(one, runs=True)
    await scene.run_script("activate", API_SERVER)
    await scene.passes(slots.WATCH_SECONDS / 2)
    began = scene.clock.monotonic()
    scene.port.health = Health.NOT_READY
    await scene.passes(SOON)
    assert scene.when["activate", API_SERVER] >= began
    scene.port.health, began = Health.READY, scene.clock.monotonic()
    await scene.passes(LONG)
    assert scene.when["withdraw", API_SERVER] - began >= slots.WATCH_SECONDS


@pytest.mark.parametrize("component", WITH_STANDBY)
async def test_a_node_of_which_the_disk_has_a_checkpoint_has_pivoted_before(scene: Scene, component: str) -> None:
    scene.wants("2-4")
    slots_on_disk.remember_wanted_level(2)
    for one in (*WITH_STANDBY, NODE_AGENT):
        scene.hosted_pod(one, runs=True)
    scene.disk.revision(component, CHECKPOINT, "image")
    await scene.run_script("activate", component)
    began = scene.clock.monotonic()
    await scene.passes(LONG)
    assert scene.when["withdraw", component] - began >= slots.WATCH_SECONDS


async def test_the_standby_of_a_node_that_has_pivoted_comes_though_others_serve(scene: Scene) -> None:
    """Its agent has restarted, and has not seen its hosted server serve."""
    scene.wants("2-4")
    slots_on_disk.remember_wanted_level(2)
    scene.disk.revision(API_SERVER, CHECKPOINT, "image")
    scene.port.health, scene.others_serve = Health.NOT_READY, True
    await scene.passes(SOON)
    assert ("activate", API_SERVER) in scene.ran


async def test_until_its_first_hosted_server_has_served_a_node_leaves_serving_to_others(scene: Scene) -> None:
    """With `up` one temporary control plane is enough; a second one takes half a minute of a processor."""
    scene.wants("2-4")
    slots_on_disk.remember_wanted_level(2)
    scene.port.health, scene.others_serve = Health.ABSENT, True
    await scene.passes(LONG)
    assert ("activate", API_SERVER) not in scene.ran
    scene.others_serve = False
    await scene.passes(SOON)
    assert ("activate", API_SERVER) in scene.ran


async def test_a_hosted_server_that_has_served_is_replaced_by_its_own_standby(scene: Scene) -> None:
    scene.wants("2-4")
    slots_on_disk.remember_wanted_level(2)
    scene.others_serve = True
    await scene.passes(SOON)
    scene.port.health = Health.NOT_READY
    await scene.passes(SOON)
    assert ("activate", API_SERVER) in scene.ran


# --- what the API says to run, and the runtime knows nothing of ---------------------------------------------------


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("component", [CONTROLLER_MANAGER, SCHEDULER])
async def test_a_standby_goes_for_a_ready_pod_only_if_that_runs(scene: Scene, component: str, *, runs: bool) -> None:
    """After a power cut the API shows the pods of the boot before as Ready."""
    scene.wants("2-4")
    await scene.run_script("activate", component)
    scene.hosted_pod(component, runs=runs)
    await scene.passes(LONG)
    assert (("withdraw", component) in scene.ran) is runs


async def test_while_the_runtime_does_not_answer_no_standby_goes(scene: Scene) -> None:
    scene.wants("2-4")
    await scene.run_script("activate", SCHEDULER)
    scene.hosted_pod(SCHEDULER, runs=True)
    scene.cri.set_outage("it starts")
    await scene.passes(LONG)
    assert ("withdraw", SCHEDULER) not in scene.ran
    scene.cri.set_outage(None)
    await scene.passes(SILENT_SECONDS + LONG)
    assert ("withdraw", SCHEDULER) in scene.ran


@pytest.mark.parametrize("runs", [True, False])
async def test_the_agents_own_pod_is_worth_a_copy_only_if_it_runs(scene: Scene, *, runs: bool) -> None:
    scene.wants("2-4")
    scene.hosted_pod(NODE_AGENT, runs=runs)
    await scene.passes(PROVEN_SECONDS + LONG)
    assert (("switch", NODE_AGENT) in scene.ran) is runs


# --- what a standby without a pod beside it becomes ---------------------------------------------------------------


@pytest.mark.parametrize("fit", [True, False])
async def test_that_a_standby_cannot_become_what_is_good_elsewhere_is_a_condition(scene: Scene, *, fit: bool) -> None:
    objects = hosted_objects(INPUTS, SCHEDULER)
    [deployment] = [obj for obj in objects if obj["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    if not fit:
        shown = {"name": "SHOWN", "valueFrom": {"secretKeyRef": {"name": "shown", "key": "k"}}}
        template["spec"]["containers"][0]["env"] = [shown]
        objects.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shown", "namespace": SYSTEM}})
    for obj in objects:
        scene.kube.put(obj)
    reported = level_3_reported.Reported((), revision_of(template), content_of(template, objects))
    scene.kube.put(
        {
            "apiVersion": API_VERSION,
            "kind": "ControlPlane",
            "metadata": {"name": "cluster"},
            "spec": {"version": "v1.36.4", "selfHosted": "1-4"},
            "status": {level_3_reported.FIELD: level_3_reported.text({SCHEDULER: reported})},
        }
    )
    await scene.passes(FOLLOW_SECONDS + LONG)
    node = {"metadata": {"name": NODE, "annotations": {node_slots.ANNOTATION: scene.agent.announcer._wanted}}}
    said = node_slots.read(node)
    slots = plane_status.NodeSlots(NODE, ready=True, level=said["level"], slots=said["slots"])
    status = plane_status.status([], [slots], [], [], [], [], generation=1, before={}, now=START)
    [current] = [one for one in status["conditions"] if one["type"] == "StandbysCurrent"]
    assert current["status"] == str(fit)
    assert fit or "kube-scheduler on n1: no standby can be made of the last good revision" in current["message"]
    assert (("switch", SCHEDULER) in scene.ran) is fit


# --- an API that is slow ------------------------------------------------------------------------------------------


async def nobody_leads(self: Scene) -> None:
    spec = {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "before"}
    for name in (CONTROLLER_MANAGER, SCHEDULER):
        meta = {"name": name, "namespace": SYSTEM}
        self.kube.put({"apiVersion": LEASE[0], "kind": LEASE[1], "metadata": meta, "spec": spec})


ACTIVATED = leadership.RELEASED_SECONDS + 2 * patience.LEASE_LOOK + SOON


@pytest.mark.parametrize("seconds", [0.0, 2.5, patience.SLOWEST_ANSWER])
async def test_an_api_that_answers_slowly_does_not_keep_level_3_without_a_leader(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    scene.wants("2-4")
    monkeypatch.setattr(Scene, "leads", nobody_leads)
    scene.kube.lease_seconds = seconds
    await scene.passes(ACTIVATED)
    assert {("activate", SCHEDULER), ("activate", CONTROLLER_MANAGER)} <= set(scene.ran)


async def test_one_that_does_not_answer_in_time_has_nothing_activated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.wants("2-4")
    monkeypatch.setattr(Scene, "leads", nobody_leads)
    scene.kube.lease_seconds = patience.LEASE_LOOK + 1
    await scene.passes(3 * ACTIVATED)
    assert ("activate", SCHEDULER) not in scene.ran


async def test_a_slow_answer_on_a_lease_holds_up_no_other_slot(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.wants("2-4")
    monkeypatch.setattr(Scene, "leads", nobody_leads)
    scene.kube.lease_seconds = patience.LEASE_LOOK - 1
    await scene.passes(leadership.RELEASED_SECONDS + 1.0)
    assert not scene.ran, "both leases are asked for"
    scene.port.health = Health.ABSENT
    await scene.passes(SOON)
    assert scene.ran == [("activate", API_SERVER)]


async def test_a_lease_that_was_taken_while_the_api_was_asked_has_nothing_activated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.wants("2-4")

    async def taken_late(self: Scene) -> None:
        await nobody_leads(self)
        await asyncio.sleep(leadership.RELEASED_SECONDS + 2)
        await leads(self)

    leads = Scene.leads
    monkeypatch.setattr(Scene, "leads", taken_late)
    scene.kube.lease_seconds = 2.5
    await scene.passes(3 * ACTIVATED)
    assert scene.ran == []
