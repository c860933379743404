"""A control node without a hosted scheduler keeps its standby current, by what the operator has seen to lead."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.checkpoint.decide.following import FOLLOW_SECONDS
from autarky.control.checkpoint.manifests import references
from autarky.control.checkpoint.manifests.references import TOKEN_DIRECTORY
from autarky.control.checkpoint.node.follower import RETRY_SECONDS, Follower
from autarky.control.leadership.decide.reported import Reported
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import content_of, revision_of
from autarky.control.rollout.operator.last_good import collect
from autarky.control.slots.decide.pivot import Health, Slot
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.errors import ApiError
from autarky.ports import Object
from autarky.render.values import SYSTEM, immutable_secret
from fakes.clock import HandClock
from fakes.kube import FakeKube
from unit.control.disks import Disk, a_disk
from unit.render.checkpoints import SCHEDULER, a_pod

SECRET = immutable_secret(SCHEDULER, {"kubeconfig": "PRIVATE"})
VOLUME = {"name": "files", "secret": {"secretName": SECRET["metadata"]["name"]}}


class AllImages:
    there: bool | None = True

    def have(self, _owner: str, _images: object) -> bool | None:
        return self.there


@dataclass
class Watched(FakeKube):
    """forbidden: whether the operator has given no leave to read."""

    forbidden: bool = False
    read: list[str] = field(default_factory=list)

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Any:
        self.read.append(f"{kind} {name}")
        if self.forbidden and kind == "Secret":
            raise ApiError(403, "Forbidden", "the kubelet cannot get it")
        return await super().get(api_version, kind, name, namespace)


@dataclass
class Scene:
    disk: Disk
    kube: Watched = field(default_factory=Watched)
    clock: HandClock = field(default_factory=HandClock)
    images: AllImages = field(default_factory=AllImages)
    reported: Reported = field(default_factory=Reported)
    said: list[str] = field(default_factory=list)
    follower: Follower = field(init=False)

    def __post_init__(self) -> None:
        self.follower = Follower(
            SCHEDULER,
            self.kube,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.clock,
            self.images,  # type: ignore[arg-type]
            lambda _, sentence: self.said.append(sentence),
        )

    def reported_of(self, _component: str) -> Reported:
        return self.reported

    def deploys(self, image: str, *volumes: Object, **container: Any) -> Object:
        pod = a_pod(container={"image": image, **container}, volumes=[VOLUME, *volumes])
        template = {"metadata": {"labels": {}}, "spec": pod["spec"]}
        meta = {"name": SCHEDULER, "namespace": SYSTEM}
        self.kube.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"template": template}})
        return template

    async def was_seen_to_lead(self, template: Object) -> None:
        """As the operator keeps and tells it."""
        good = revision_of(template)
        kept = await collect(self.kube, Record(good=good), template)
        self.reported = Reported((), good, content_of(template, kept.objects))
        self.kube.read.clear()

    async def passes(self, seconds: float, hosted: Health = Health.ABSENT) -> None:
        """A round every ten seconds, the first at once."""
        end = self.clock.now + seconds
        while True:
            await self.follower.reconcile(Slot.HOSTED, hosted)
            if self.clock.now >= end:
                return
            self.clock.now += 10

    @property
    def current(self) -> str:
        return (self.disk.root / "standby" / SCHEDULER / "current").readlink().name

    @property
    def pod(self) -> str:
        return (self.disk.root / "standby" / SCHEDULER / "current" / "pod.json").read_text()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(a_disk(tmp_path, monkeypatch))
    made.disk.revision(SCHEDULER, "first", "old")
    made.kube.put(deepcopy(SECRET))

    async def switch(verb: str, component: str, revision: str) -> None:
        """As the script does it."""
        assert verb == "switch"
        directory = made.disk.root / "standby" / component
        (directory / "previous").unlink(missing_ok=True)
        (directory / "previous").symlink_to(made.current)
        (directory / "current").unlink()
        (directory / "current").symlink_to(revision)

    monkeypatch.setattr(slots_on_disk, "run_script", switch)
    return made


async def test_it_becomes_a_copy_of_the_last_good_revision_and_of_the_next(scene: Scene) -> None:
    for image in ("one", "two", "three"):
        await scene.was_seen_to_lead(scene.deploys(image))
        await scene.passes(FOLLOW_SECONDS)
        assert f'"{image}"' in scene.pod
    [key] = (scene.disk.root / "standby" / SCHEDULER / "current" / "files").rglob("kubeconfig")
    assert key.read_text() == "PRIVATE"
    assert key.stat().st_mode & 0o077 == 0
    await scene.passes(10)
    kept = {path.name for path in (scene.disk.root / "standby" / SCHEDULER).iterdir() if not path.is_symlink()}
    assert len(kept) == 2, "the current one and the one before"


async def test_it_is_read_once_for_each_good_revision(scene: Scene) -> None:
    await scene.was_seen_to_lead(scene.deploys("one"))
    await scene.passes(FOLLOW_SECONDS + 600)
    assert scene.kube.read == [f"Deployment {SCHEDULER}", f"Secret {SECRET['metadata']['name']}"]


async def test_what_is_on_trial_is_not_followed(scene: Scene) -> None:
    await scene.was_seen_to_lead(scene.deploys("one"))
    scene.deploys("on trial")
    await scene.passes(FOLLOW_SECONDS + 100)
    assert scene.current == "first"
    assert "not known to be good yet" in scene.said[-1]
    scene.deploys("one")  # it went back
    await scene.passes(RETRY_SECONDS)
    assert '"one"' in scene.pod


async def test_content_that_has_changed_since_is_not_followed(scene: Scene) -> None:
    await scene.was_seen_to_lead(scene.deploys("one"))
    scene.kube.put({**SECRET, "data": {"kubeconfig": "b3RoZXI="}})
    await scene.passes(FOLLOW_SECONDS + 100)
    assert scene.current == "first"
    assert "have changed since it led" in scene.said[-1]


async def test_without_the_operators_leave_it_waits(scene: Scene) -> None:
    await scene.was_seen_to_lead(scene.deploys("one"))
    scene.kube.forbidden = True
    await scene.passes(FOLLOW_SECONDS)
    assert scene.current == "first"
    assert "not granted the right to read it yet" in scene.said[-1]
    scene.kube.forbidden = False
    await scene.passes(RETRY_SECONDS)
    assert '"one"' in scene.pod


async def test_a_ready_hosted_pod_is_left_to_its_checkpoint(scene: Scene) -> None:
    await scene.was_seen_to_lead(scene.deploys("one"))
    await scene.passes(FOLLOW_SECONDS + 100, Health.READY)
    assert scene.kube.read == []
    assert scene.current == "first"


async def test_while_no_revision_is_known_to_be_good_nothing_is_read(scene: Scene) -> None:
    scene.deploys("one")
    await scene.passes(FOLLOW_SECONDS + 100)
    assert scene.kube.read == []


# --- what a template may go without ------------------------------------------------------------------------------


def mentions(place: str, kind: str, name: str, *, optional: bool | None) -> tuple[list[Object], Object]:
    """The volumes and what is more in the container of a template that mentions it there."""
    said = {} if optional is None else {"optional": optional}
    small = kind[0].lower() + kind[1:]
    named = {"name": name, **said}
    match place:
        case "volume":
            return [{"name": f"of-{name}", small: {"secretName": name, **said} if kind == "Secret" else named}], {}
        case "projected":
            return [{"name": f"in-{name}", "projected": {"sources": [{small: named}]}}], {}
        case "token":  # as a user may write down what admission adds to pods
            sources = [{"serviceAccountToken": {"path": "token"}}, {small: named}]
            mount = {"name": f"token-{name}", "mountPath": TOKEN_DIRECTORY}
            return [{"name": f"token-{name}", "projected": {"sources": sources}}], {"volumeMounts": [mount]}
        case "envFrom":
            return [], {"envFrom": [{f"{small}Ref": named}]}
        case _:
            return [], {"env": [{"name": "E", "valueFrom": {f"{small}KeyRef": {**named, "key": "k"}}}]}


MENTIONS = st.tuples(
    st.sampled_from(["volume", "projected", "token", "envFrom", "env"]),
    st.sampled_from(["Secret", "ConfigMap"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, False, True]),
)


@given(st.lists(MENTIONS, max_size=4), st.sets(st.sampled_from(["a", "b"])))
async def test_operator_and_follower_name_the_same_content_alike(
    mentioned: list[tuple[str, str, str, bool | None]], optional_there: set[str]
) -> None:
    """Whatever a template mentions, where and how often, and whether what it may go without is there."""
    kube = FakeKube()
    spec: Object = {"containers": [], "volumes": []}
    needed = {(kind, name) for _, kind, name, optional in mentioned if not optional}
    for number, (place, kind, name, optional) in enumerate(mentioned):
        volumes, more = mentions(place, kind, name, optional=optional)
        spec["volumes"] += [{**one, "name": f"{one['name']}-{number}"} for one in volumes]
        mounts = [{**one, "name": f"{one['name']}-{number}"} for one in more.pop("volumeMounts", [])]
        spec["containers"].append({"name": f"c{number}", "volumeMounts": mounts, **more})
        if (kind, name) in needed or name in optional_there:
            meta = {"name": name, "namespace": SYSTEM}
            kube.put({"apiVersion": "v1", "kind": kind, "metadata": meta, "data": {"k": "dg=="}})
    template = {"metadata": {}, "spec": spec}
    kept = await collect(kube, Record(), template)
    read = [await kube.get("v1", one.kind, one.name, SYSTEM) for one in references(template)]
    assert content_of(template, kept.objects) == content_of(template, [obj for obj in read if obj is not None])


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
async def test_a_template_that_may_go_without_something_that_is_there_is_followed(scene: Scene, kind: str) -> None:
    meta = {"name": "more", "namespace": SYSTEM}
    scene.kube.put({"apiVersion": "v1", "kind": kind, "metadata": meta, "data": {"k": "dg=="}})
    [volume], _ = mentions("volume", kind, "more", optional=True)
    await scene.was_seen_to_lead(scene.deploys("one", volume))
    await scene.passes(FOLLOW_SECONDS)
    assert '"one"' in scene.pod
    assert scene.follower.refused == ""


# --- what is refused ---------------------------------------------------------------------------------------------


async def test_that_a_good_revision_can_be_no_standby_is_told_until_it_can_be_one(scene: Scene) -> None:
    _, in_environment = mentions("env", "Secret", SECRET["metadata"]["name"], optional=False)
    await scene.was_seen_to_lead(scene.deploys("one", **in_environment))
    await scene.passes(FOLLOW_SECONDS - 10)
    assert scene.follower.refused == ""
    await scene.passes(10)
    assert "would show the Secret" in scene.follower.refused
    await scene.passes(50, Health.UNKNOWN)
    assert "would show the Secret" in scene.follower.refused, "an outage of the API changes nothing"
    await scene.was_seen_to_lead(scene.deploys("two"))
    await scene.passes(FOLLOW_SECONDS)
    assert scene.follower.refused == ""


async def test_content_that_has_changed_is_told_and_what_is_on_trial_is_not(scene: Scene) -> None:
    await scene.was_seen_to_lead(scene.deploys("one"))
    scene.deploys("on trial")
    await scene.passes(FOLLOW_SECONDS + 100)
    assert scene.follower.refused == ""
    scene.deploys("one")
    scene.kube.put({**SECRET, "data": {"kubeconfig": "b3RoZXI="}})
    await scene.passes(RETRY_SECONDS)
    assert "have changed since it led" in scene.follower.refused


@pytest.mark.parametrize(("wanted", "hosted"), [(Slot.HOSTED, Health.READY), (Slot.STANDBY, Health.ABSENT)])
async def test_where_nothing_is_followed_nothing_is_refused(scene: Scene, wanted: Slot, hosted: Health) -> None:
    scene.kube.forbidden = False
    await scene.was_seen_to_lead(scene.deploys("one"))
    scene.kube.forbidden = True
    await scene.passes(FOLLOW_SECONDS)
    assert "right to read it" in scene.follower.refused
    await scene.follower.reconcile(wanted, hosted)
    assert scene.follower.refused == ""
