"""Waiting for hosted kubelets after an upgrade; the operator and the agents are what the test writes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.wanted import PIN
from autarky.control.kubelet.manifests import daemon_set, files
from autarky.control.rollout.decide.failures import Failure
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.manifests import FAILURES, TYPE, secret_name
from autarky.control.upgrade.decide.templates import with_tag
from autarky.errors import TimedOut, UserError
from autarky.model.components import KUBELET
from autarky.model.versions import Version
from autarky.phases import hosted_kubelets, kubelets
from autarky.phases import upgrade as upgrade_phase
from autarky.phases.context import Context
from autarky.phases.hosted_kubelets import REFUSED_SECONDS, TRY, until_followed
from autarky.phases.kubelets import ChangeKubelets
from autarky.phases.upgrade import UpgradeControlPlane
from autarky.ports import Object
from autarky.render import crds
from autarky.render.values import CONTROL_PLANE_ACTIVE, MANAGED_BY, SYSTEM
from fakes.clusters import a_cluster
from fakes.kube import FakeKube
from unit.phases.conftest import Notes

pytestmark = pytest.mark.looptime
V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
TIMEOUT, STILL = 300.0, 100.0
WHY = "it has exited: no such flag"
PODS = {"n1": "0f3a-1", "n2": "0f3a-2", "n3": "0f3a-3"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_kubelets, "TIMEOUT", TIMEOUT)
    monkeypatch.setattr(hosted_kubelets, "STILL", STILL)


@dataclass(slots=True)
class Kube(FakeKube):
    """later: what happens before each look at the DaemonSet, one of them at a time."""

    later: Iterator[Callable[[], object]] = field(default_factory=lambda: iter(()))

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        if kind == "DaemonSet":
            next(self.later, lambda: None)()
        return await FakeKube.get(self, api_version, kind, name, namespace)


@dataclass
class Scene:
    context: Context
    kube: Kube

    def plane(self, levels: str = "0-4", *, follow: bool = True, version: Version = V37) -> None:
        made = crds.control_plane(self.context.cluster)
        spec = {**made["spec"], "selfHosted": levels, "version": str(version), "kubelets": {"follow": follow}}
        self.kube.put({**made, "spec": spec, "status": {"version": str(version)}})

    def image(self, version: Version | None = V37, text: str = "") -> None:
        [obj] = daemon_set.objects(self.context.inputs())
        image = text or f"{files.IMAGE}:{version}"
        container = {**obj["spec"]["template"]["spec"]["containers"][0], "image": image}
        template = {**obj["spec"]["template"], "spec": {**obj["spec"]["template"]["spec"], "containers": [container]}}
        self.kube.put({**obj, "spec": {**obj["spec"], "template": template}})

    def goes_back(self, **how: Any) -> None:
        self.image(V36)
        template = self.kube._objects[("apps/v1", "DaemonSet", SYSTEM, KUBELET)]["spec"]["template"]
        failure = Failure(revision_of(with_tag(template, KUBELET, V37)), 1, "n1 has no pod that is Ready", **how)
        content = base64.b64encode(json.dumps([asdict(failure)]).encode()).decode()
        meta = {"name": secret_name(KUBELET), "namespace": SYSTEM, "labels": {**MANAGED_BY}}
        self.kube.put(
            {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": TYPE, "data": {FAILURES: content}}
        )

    def says(self, name: str, state: State | None, why: str = "", *, version: Version = V37, pin: str = "") -> None:
        """Its pod is Ready where its kubelet is in force."""
        annotations = {PIN: pin} if pin else {}
        if state is not None:
            annotations[hosted_report.ANNOTATION] = hosted_report.text(Report(PODS[name], version, state, why))
        labels = {CONTROL_PLANE_ACTIVE: ""} if self.context.cluster.node(name).control_plane else {}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        status = {"nodeInfo": {"kubeletVersion": str(version)}}
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
        self.pod(name, ready=state is State.IN_FORCE)

    def pod(self, name: str, *, ready: bool, uid: str = "") -> None:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": KUBELET, "uid": "u"}
        meta = {"name": f"kubelet-{name}", "namespace": SYSTEM, "uid": uid or PODS[name], "ownerReferences": [owner]}
        conditions = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        labelled = {**meta, "labels": {"k8s-app": KUBELET}}
        spec = {"nodeName": name}
        self.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": labelled, "spec": spec, "status": conditions})

    def happens(self, *steps: Callable[[], object]) -> None:
        self.kube.later = iter(steps)


@pytest.fixture
def scene(make_context: Callable[..., Context]) -> Scene:
    """n1, a control node, and the workers n2 and n3; all are in force with what is wanted."""
    kube = Kube()
    made = Scene(make_context(a_cluster(controls=1, workers=2, hosts_kubelet=True), kube=kube), kube)
    kube.put(crds.control_plane_crd())
    made.plane()
    made.image()
    for name in PODS:
        made.says(name, State.IN_FORCE)
    return made


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def test_where_all_are_in_force_nothing_is_waited_for(scene: Scene, notes: Notes) -> None:
    await until_followed(scene.context, notes)
    assert (seconds(), notes.notes, scene.context.absent) == (0, [], {})


async def test_it_waits_for_the_daemon_set_and_then_for_each_node(scene: Scene, notes: Notes) -> None:
    scene.image(V36)
    for name in PODS:
        scene.says(name, State.REFUSED, "the node's kubelet is to be v1.37.1", version=V36)
    steps: list[Callable[[], object]] = [lambda: None, lambda: None, scene.image]
    for name in ("n2", "n3", "n1"):
        steps += [lambda name=name, state=state: scene.says(name, state) for state in (State.WAITING, State.PROVING)]  # type: ignore[misc]
        steps.append(lambda name=name: scene.says(name, State.IN_FORCE))  # type: ignore[misc]
    scene.happens(*steps)
    await until_followed(scene.context, notes)
    assert next(scene.kube.later, None) is None, "it has looked as often"
    assert (notes.notes, scene.context.absent) == ([], {})


@pytest.mark.parametrize("other", ["levels", "follow", "image", "gone"])
async def test_where_they_do_not_follow_or_there_are_none_nothing_is_waited_for(
    scene: Scene, notes: Notes, other: str
) -> None:
    scene.says("n1", State.FAILED, WHY)
    match other:
        case "levels":
            scene.plane("1-4")
        case "follow":
            scene.plane(follow=False)
        case "image":
            scene.image(text="registry.example/kubelet:mine")
        case _:
            await scene.kube.delete("apps/v1", "DaemonSet", KUBELET, SYSTEM)
    await until_followed(scene.context, notes)
    assert seconds() == 0
    assert any("`autarky up` applies again" in one for one in notes.notes) is (other == "gone")


async def test_a_node_that_is_to_have_another_version_or_does_not_answer_is_not_waited_for(
    scene: Scene, notes: Notes
) -> None:
    scene.says("n1", State.REFUSED, "it is to be v1.36.4", pin=str(V36))
    scene.says("n2", State.FAILED, WHY)
    scene.context.absent["n2"] = "it is off"
    await until_followed(scene.context, notes)
    assert (seconds(), scene.context.absent) == (0, {"n2": "it is off"})


async def test_a_daemon_set_that_was_rolled_back_ends_it_with_the_reason_and_the_way_on(
    scene: Scene, notes: Notes
) -> None:
    scene.image(V36)
    scene.happens(lambda: None, lambda: None, scene.goes_back)
    with pytest.raises(
        UserError, match=r"do not get v1\.37\.1: the DaemonSet was rolled back \(n1 has no pod"
    ) as caught:
        await until_followed(scene.context, notes)
    assert TRY in caught.value.fix
    assert TRY == "kubectl -n kube-system annotate ds/kubelet autarky.dev/try-again=now"
    assert seconds() < STILL


async def test_what_the_operator_judges_again_is_waited_for(scene: Scene, notes: Notes) -> None:
    scene.goes_back(by_skew=True)
    scene.happens(lambda: None, lambda: None, scene.image)
    await until_followed(scene.context, notes)


async def test_what_went_back_by_the_word_of_workers_fails_nothing(scene: Scene, notes: Notes) -> None:
    scene.goes_back(by_workers=True)
    await until_followed(scene.context, notes)
    assert "was rolled back" in notes.notes[0]
    assert TRY in notes.notes[0]


async def test_a_daemon_set_that_never_follows_ends_it(scene: Scene, notes: Notes) -> None:
    scene.image(V36)
    with pytest.raises(TimedOut, match=r"the DaemonSet does not have v1\.37\.1 yet"):
        await until_followed(scene.context, notes)


@pytest.mark.parametrize("state", [State.FAILED, State.REFUSED])
async def test_a_control_node_on_which_it_failed_ends_it_with_the_reason(
    scene: Scene, notes: Notes, state: State
) -> None:
    scene.says("n2", State.PROVING)
    scene.says("n1", State.WAITING)
    scene.happens(lambda: None, lambda: scene.says("n1", state, WHY))
    with pytest.raises(UserError, match=rf"node n1: .* v1\.37\.1, and the host's is in force: {WHY}") as caught:
        await until_followed(scene.context, notes)
    assert TRY in caught.value.fix
    assert "delete pod -l k8s-app=kubelet --field-selector spec.nodeName=n1" in caught.value.fix
    assert seconds() < REFUSED_SECONDS + 10


async def test_an_agent_that_has_not_seen_yet_that_it_may_is_given_time(scene: Scene, notes: Notes) -> None:
    scene.says("n1", State.REFUSED, "the node's kubelet is to be v1.36.4")
    scene.happens(*[lambda: None] * 5, lambda: scene.says("n1", State.IN_FORCE))
    await until_followed(scene.context, notes)


async def test_one_that_is_in_force_with_the_former_version_is_waited_for(scene: Scene, notes: Notes) -> None:
    scene.says("n1", State.IN_FORCE, version=V36)
    scene.happens(*[lambda: None] * 3, lambda: scene.says("n1", State.IN_FORCE))
    await until_followed(scene.context, notes)
    assert seconds() > 0


async def test_what_is_said_of_a_pod_that_is_gone_is_no_failure(scene: Scene, notes: Notes) -> None:
    scene.says("n1", State.FAILED, WHY)
    scene.pod("n1", ready=False, uid="0f3a-9")
    scene.happens(*[lambda: None] * 3, lambda: scene.says("n1", State.IN_FORCE))
    await until_followed(scene.context, notes)


async def test_a_worker_on_which_it_failed_is_left_out_once_all_others_have_it(scene: Scene, notes: Notes) -> None:
    scene.says("n2", State.FAILED, WHY)
    scene.says("n1", State.WAITING)
    scene.happens(lambda: None, lambda: None, lambda: scene.says("n1", State.IN_FORCE))
    await until_followed(scene.context, notes)
    assert scene.context.absent == {"n2": f"its hosted kubelet does not get {V37}: {WHY}"}


@pytest.mark.parametrize(("state", "why"), [(None, "its node does not say why"), (State.WAITING, "its turn")])
async def test_a_worker_that_never_comes_to_an_end_is_noted_and_fails_nothing(
    scene: Scene, notes: Notes, state: State | None, why: str
) -> None:
    scene.says("n2", state, why)
    scene.says("n3", State.FAILED, WHY)
    await until_followed(scene.context, notes)
    assert notes.notes == [f"the hosted kubelet of n2 does not get {V37}: {why}"]
    assert list(scene.context.absent) == ["n3"]
    assert seconds() <= TIMEOUT + STILL


async def test_a_control_node_that_says_nothing_fails_it(scene: Scene, notes: Notes) -> None:
    scene.says("n1", None)
    with pytest.raises(TimedOut, match="n1: says nothing"):
        await until_followed(scene.context, notes)


@pytest.mark.parametrize("by_name", [True, False])
async def test_an_upgrade_by_name_waits_for_them_after_the_hosts_and_up_in_its_end(
    scene: Scene, notes: Notes, monkeypatch: pytest.MonkeyPatch, by_name: bool
) -> None:
    done = []

    def does(name: str) -> Callable[..., Any]:
        async def it(*_: Any, **__: Any) -> Any:
            done.append(name)

        return it

    for name in ("_bring_images", "ask_for", "_have_it_tried_again", "follow", "_tell_of_kubelets"):
        monkeypatch.setattr(upgrade_phase, name, does(name))
    monkeypatch.setattr(kubelets, "until_current", does("hosts"))
    monkeypatch.setattr(hosted_kubelets, "until_followed", does("hosted"))
    scene.context.upgrade_from = V36
    await UpgradeControlPlane(V37 if by_name else None).run(scene.context, notes)
    assert done[3:] == (["follow", "hosts", "hosted", "_tell_of_kubelets"] if by_name else ["follow"])


async def test_the_plan_of_up_says_that_they_stay_where_the_daemon_set_was_rolled_back(scene: Scene) -> None:
    scene.context.cluster = replace(scene.context.cluster, kubernetes_version=V37)
    assert [one.sentence for one in await ChangeKubelets().plan(scene.context) if "hosted" in one.sentence] == []
    scene.goes_back()
    [one] = [one for one in await ChangeKubelets().plan(scene.context) if "hosted" in one.sentence]
    assert "rolled back (n1 has no pod that is Ready)" in one.sentence
    assert TRY in one.sentence
    for levels, follow in (("1-4", True), ("0-4", False)):
        scene.plane(levels, follow=follow)
        assert [one for one in await ChangeKubelets().plan(scene.context) if "hosted" in one.sentence] == []
