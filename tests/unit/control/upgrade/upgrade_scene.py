"""A cluster with everything hosted on one node, as the operator's controller for upgrades sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from autarky.control.base.operator_view import View
from autarky.control.common import emulation
from autarky.control.common.shapes import image_of
from autarky.control.common.skew import image_version
from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import at_work, order
from autarky.control.kubelet.decide.turns import Node
from autarky.control.kubelet.operator.kubelets import Kubelets
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.slots.decide import report as node_slots
from autarky.control.upgrade.decide.checks_of_plane import REQUIRED
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.decide.templates import with_tag
from autarky.control.upgrade.operator.upgrade import Upgrade
from autarky.model.components import COMPONENTS, WITH_STANDBY
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.crds import control_plane_crd
from autarky.render.objects import parts
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from fakes.kube import FakeKube

PLANE = ("autarky.dev/v1alpha1", "ControlPlane", "cluster")
CLUSTER = a_cluster()
OLD = CLUSTER.kubernetes_version
NEW = Version(OLD.major, OLD.minor + 1, 1)


def ignored(*_: object, **__: object) -> None:
    """What is said and counted is tested elsewhere."""


def of_version(obj: Object, version: Version) -> Object:
    """The fakes' images have no tags."""
    name = obj["metadata"]["name"]
    if name not in ORDER:
        return obj
    return {**obj, "spec": {**obj["spec"], "template": with_tag(obj["spec"]["template"], name, version)}}


class Scene:
    """One node with everything hosted. What kubelet, controllers and agent would do is done by `settles`."""

    def __init__(self) -> None:
        self.conditions = dict.fromkeys(REQUIRED, "True")
        self.kubelet, self.said_of_kubelet = OLD, dict[str, str]()
        self.kube = FakeKube()
        self.kube.put(control_plane_crd())
        for part in parts(inputs_of(CLUSTER)):
            for obj in part.objects:
                if applied.is_recorded(obj):
                    tagged = of_version(obj, OLD)
                    healthy = {"status": {"conditions": self.said(1)}} if obj["kind"] == "ControlPlane" else {}
                    self.kube.put({**applied.with_record(tagged, tagged), **healthy})
                elif obj["kind"] == "ConfigMap":  # what they are started with
                    self.kube.put(obj)
        self.node(dict.fromkeys(WITH_STANDBY, OLD))
        self.begins()

    def begins(self) -> None:
        """Another operator leads."""
        self.view = View(self.kube, LoopClock(), lambda: None, print)
        self.rollouts = Rollouts(ignored, self.view, self.kube, LoopClock(), lambda: True, ignored)
        self.kubelets = Kubelets(ignored, self.view, self.kube, LoopClock(), self.at_work)
        self.upgrade = Upgrade(ignored, self.view, self.kube, LoopClock(), self.rollouts, self.kubelets.down)

    def at_work(self, _: Sequence[Node]) -> str:
        return at_work.clause(None, {}, self.rollouts.verdicts)

    def node(
        self, standbys: dict[str, Version], emulate: dict[str, str] | None = None, ordered: Object | None = None
    ) -> None:
        """emulate: component → what its standby emulates. ordered: the annotations with an order about its kubelet,
        which is of the version `kubelet`."""
        slots = {
            name: node_slots.Slots("standby", version=str(version), emulates=(emulate or {}).get(name, ""))
            for name, version in standbys.items()
        }
        meta = {
            "name": "n1",
            "labels": {CONTROL_PLANE_ACTIVE: ""},
            "annotations": {
                node_slots.ANNOTATION: node_slots.text(2, slots),
                **self.said_of_kubelet,
                **(ordered or {}),
            },
        }
        self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": meta,
                "status": {
                    "nodeInfo": {"kubeletVersion": str(self.kubelet)},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )

    def worker(
        self, name: str, *, ready: bool = True, kubelet: str = str(OLD), annotations: dict[str, str] | None = None
    ) -> None:
        """Without a pod of anything."""
        said = {
            "nodeInfo": {"kubeletVersion": kubelet},
            "conditions": [{"type": "Ready", "status": str(ready) if ready else "Unknown"}],
        }
        meta = {"name": name, "labels": {}, "annotations": annotations or {}}
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": said})

    async def second_control_node(self, *, ready: bool = True) -> None:
        """As the first one, as far as its Node says."""
        one = await self.kube.get("v1", "Node", "n1")
        assert one is not None
        said = {**one["status"], "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
        self.kube.put({**one, "metadata": {**one["metadata"], "name": "n2"}, "status": said})

    def said(self, generation: int) -> list[Object]:
        """The conditions of the ControlPlane."""
        return [
            {
                "type": kind,
                "status": status,
                "reason": "Because",
                "message": "as it is",
                "observedGeneration": generation,
                "lastTransitionTime": "2026-11-01T00:00:00Z",
            }
            for kind, status in self.conditions.items()
        ]

    async def live(self, name: str) -> Object:
        found = await self.kube.get("apps/v1", COMPONENTS[name].kind, name, "kube-system")
        assert found is not None
        return found

    async def versions(self) -> dict[str, Version | None]:
        return {name: image_version(image_of((await self.live(name))["spec"]["template"], name)) for name in ORDER}

    async def emulated(self) -> dict[str, str]:
        """Component → what its template emulates, where it does."""
        found = {name: emulation.given((await self.live(name))["spec"]["template"], name) for name in ORDER}
        return {name: ",".join(values) for name, values in found.items() if values}

    async def wants(self, version: Version) -> None:
        await self.kube.patch(*PLANE, {"spec": {"version": str(version)}})

    async def plane(self) -> Object:
        found = await self.kube.get(*PLANE)
        assert found is not None
        return found

    async def one_pass(self) -> None:
        """And the status is written, as its controller does it at the end of each pass."""
        await asyncio.sleep(1)
        self.kubelets.begin_pass()
        await self.kubelets.reconcile()
        await self.upgrade.reconcile()
        shown: Object = {"version": str(self.upgrade.version)}
        shown["conditions"] = self.said((await self.plane())["metadata"].get("generation", 0))
        shown |= {} if self.upgrade.former is None else {"formerVersion": str(self.upgrade.former)}
        shown |= {"upgrade": said} if (said := self.upgrade.of_status) else {}
        await self.kube.replace({**await self.plane(), "status": shown}, subresource="status")

    async def settles(
        self,
        *,
        lacking: dict[str, int] | None = None,
        watched: Collection[str] = (),
        unready: Collection[str] = (),
    ) -> None:
        """Everything that is wanted runs, is good, and has its standby. lacking: of a DaemonSet so many nodes have no
        pod of it, which its revision is good without. watched: of these what is wanted is not found good yet, and the
        standby stays as it is. unready: the pod of these DaemonSets is not Ready."""
        before = await self.kube.get("v1", "Node", "n1")
        assert before is not None
        for name in ORDER:
            live = await self.live(name)
            replicas = live["spec"].get("replicas", 1)
            status = {
                "observedGeneration": live["metadata"].get("generation", 0),
                "updatedNumberScheduled": 1,
                "numberReady": int(name not in unready),
                "desiredNumberScheduled": 1 + (lacking or {}).get(name, 0),
                **dict.fromkeys(("replicas", "updatedReplicas"), replicas),
            }
            self.kube.put({**live, "status": status})
            if live["kind"] == "DaemonSet":
                self._runs_on_the_control_node(live)
            self.rollouts.verdicts[name] = (Verdict.WAIT if name in watched else Verdict.HEALTHY, "")
            if name not in watched:
                good = revision_of(live["spec"]["template"])
                self.rollouts.kept[name] = LastGood(Record(good=good), live["spec"]["template"])
        found = await self.versions()
        slots = node_slots.read(before)["slots"]
        found |= {name: Version.parse(slots[name]["version"]) for name in watched if name in slots}
        given = {key: text for key, text in before["metadata"]["annotations"].items() if key == order.ANNOTATION}
        standbys = {name: found[name] or OLD for name in WITH_STANDBY}
        self.node(standbys, emulate=await self.emulated(), ordered=given)

    def _runs_on_the_control_node(self, live: Object) -> None:
        name, template = live["metadata"]["name"], live["spec"]["template"]
        owner = [{"uid": live["metadata"]["uid"]}]
        labels = {"controller-revision-hash": revision_of(template)[:10]}
        meta: Object = {"name": f"{name}-{labels['controller-revision-hash']}", "namespace": "kube-system"}
        meta |= {"labels": labels, "ownerReferences": owner}
        kind = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "revision": 1}
        self.kube.put({**kind, "data": {"spec": {"template": {"$patch": "replace", **template}}}})
        pod: Object = {"name": f"{name}-n1", "namespace": "kube-system", "ownerReferences": owner}
        pod["labels"] = {**template["metadata"]["labels"], **labels}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        kind = {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"nodeName": "n1"}}
        self.kube.put({**kind, "status": ready})


class watched:  # noqa: N801 # used as a statement
    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def __aenter__(self) -> None:
        self.task = asyncio.create_task(self.scene.view.run())
        await asyncio.sleep(1)

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until_complete(scene: Scene, lacking: dict[str, int] | None = None) -> list[dict[str, Version | None]]:
    """What was seen on the way, without repetitions."""
    seen: list[dict[str, Version | None]] = []
    for _ in range(200 if lacking is None else 800):
        await scene.one_pass()
        if (found := await scene.versions()) not in seen:
            seen.append(found)
        await scene.settles(lacking=lacking)
        if not (await scene.plane())["status"].get("upgrade") and len(seen) > 1:
            return seen
    raise AssertionError(f"it does not end: {scene.upgrade.unapplied}")
