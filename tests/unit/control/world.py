"""A small cluster in memory: what its controllers and kubelets would write, and an operator that looks at it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from autarky.control.base.operator_view import View
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.ports import Object
from autarky.render import crds
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM, content_hash, immutable_secret
from fakes.clock import LoopClock
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

SCHEDULER = "kube-scheduler"
SECRET = immutable_secret(SCHEDULER, {"kubeconfig": "PRIVATE"})


def template(component: str, image: str, *flags: str, secret: str = SECRET["metadata"]["name"]) -> Object:
    return {
        "metadata": {"labels": {"k8s-app": component, "autarky.dev/slot": "hosted"}},
        "spec": {
            "nodeSelector": {CONTROL_PLANE_ACTIVE: ""},
            "containers": [{"name": component, "image": image, "command": [component, *flags]}],
            "volumes": [{"name": "files", "secret": {"secretName": secret}}],
        },
    }


GOOD = template(SCHEDULER, "registry.example/kube-scheduler:v1.36.4")
BAD = template(SCHEDULER, "registry.example/kube-scheduler:v1.36.5", "--no-such-flag")


@dataclass
class World:
    """Methods write what a component of Kubernetes would write."""

    kube: FakeKube = field(default_factory=FakeKube)
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    etcd_up: bool = True
    _numbers: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.kube.put(crds.control_plane_crd())
        plane = crds.control_plane(a_cluster())
        self.kube.put(plane)
        self.kube.put(SECRET)

    def say(self, sentence: str, **values: Any) -> None:
        self.said.append((sentence, values))

    # --- kubelets ---

    def node(self, name: str, ready: str = "True", *, control: bool = True, **annotations: str) -> Object:
        number = name.removeprefix("n")
        return self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {CONTROL_PLANE_ACTIVE: ""} if control else {},
                    "annotations": {key.replace("_", "."): value for key, value in annotations.items()},
                },
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "addresses": [{"type": "InternalIP", "address": f"192.0.2.1{number}"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.4"},
                },
            }
        )

    def pod(
        self,
        component: str,
        node: str,
        labels: dict[str, str],
        *,
        ready: bool = True,
        status: Object | None = None,
        owner: Object | None = None,
        image: str = "registry.example/x:v1.36.4",
        ends: bool = False,
        mirror: bool = False,
    ) -> Object:
        """`mirror`: a kubelet's, of a static pod, as every standby is. What has the hash of a ReplicaSet is its."""
        meta: Object = {
            "name": f"{component}-{next(self._numbers)}",
            "namespace": SYSTEM,
            "labels": {"k8s-app": component, **labels},
        }
        owner = owner or self._replica_set(component, labels)
        if mirror or labels.get("autarky.dev/slot") == "standby":
            meta["annotations"] = {"kubernetes.io/config.mirror": "0f3a"}
            meta["ownerReferences"] = [{"kind": "Node", "uid": f"uid-of-{node}", "controller": True}]
        elif owner is not None:
            meta["ownerReferences"] = [{"kind": owner["kind"], "uid": owner["metadata"]["uid"], "controller": True}]
        if ends:
            meta |= {"deletionTimestamp": "2026-11-21T10:00:00Z", "finalizers": ["still/there"]}
        return self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {"nodeName": node, "containers": [{"name": component, "image": image}]},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": str(ready)}],
                    **(status or {}),
                },
            }
        )

    def _replica_set(self, component: str, labels: dict[str, str]) -> Object | None:
        name = f"{component}-{labels.get('pod-template-hash')}"
        return self.kube._objects.get(("apps/v1", "ReplicaSet", SYSTEM, name))  # it is ours

    def ready(self, pod: Object, *, ready: bool) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.kube.put({**pod, "status": {**pod["status"], "conditions": conditions}})

    def held(self, pod: Object) -> Object:
        """So that it is there after its deletion, as it is while its kubelet ends it."""
        return self.kube.put({**pod, "metadata": {**pod["metadata"], "finalizers": ["still/there"]}})

    def warning(self, pod: Object, when: str, message: str) -> None:
        meta = {"name": f"event-{next(self._numbers)}", "namespace": SYSTEM}
        about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about, "type": "Warning"}
        self.kube.put({**event, "lastTimestamp": when, "message": message})

    # --- controllers ---

    def deployment(self, component: str, wanted: Object) -> Object:
        """The user's `apply`, and what the Deployment controller makes of it; its pods are the test's matter."""
        live = self.kube.put(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": self._meta("Deployment", component),
                "spec": {"replicas": 1, "template": deepcopy(wanted)},
            }
        )
        self.controllers_look(live)
        return live

    def daemon_set(self, component: str, wanted: Object) -> Object:
        live = self.kube.put(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": self._meta("DaemonSet", component),
                "spec": {"template": deepcopy(wanted)},
            }
        )
        self.controllers_look(live)
        return live

    def controllers_look(self, live: Object) -> str:
        """The ReplicaSet or ControllerRevision of the template; the name of the revision."""
        name = revision_label(live["spec"]["template"])
        meta: Object = {
            "name": f"{live['metadata']['name']}-{name}",
            "namespace": SYSTEM,
            "ownerReferences": [{"uid": live["metadata"]["uid"]}],
        }
        made = deepcopy(live["spec"]["template"])
        if live["kind"] == "Deployment":
            made["metadata"]["labels"]["pod-template-hash"] = name
            labels = {"pod-template-hash": name}
            meta = {**self._meta("ReplicaSet", meta["name"]), **meta, "labels": labels}
            self.kube.put({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"template": made}})
        else:
            labels = {"controller-revision-hash": name}
            made["metadata"]["creationTimestamp"] = None
            data = {"spec": {"template": {"$patch": "replace", **made}}}
            revision = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {**meta, "labels": labels}}
            self.kube.put({**revision, "data": data, "revision": 1})
        self.kube.put({**live, "status": {"observedGeneration": live["metadata"]["generation"]}})
        return name

    def lease(self, component: str, holder: str, renewed: int) -> None:
        spec = {"holderIdentity": holder, "renewTime": f"2026-11-21T10:{renewed // 60:02}:{renewed % 60:02}.0Z"}
        meta = {"name": component, "namespace": SYSTEM}
        self.kube.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    def _meta(self, kind: str, name: str) -> Object:
        live = self.kube._objects.get(("apps/v1", kind, SYSTEM, name))  # it is ours
        return dict(live["metadata"]) if live is not None else {"name": name, "namespace": SYSTEM}

    # --- the operator ---

    @asynccontextmanager
    async def operator(self, kube: FakeKube | None = None) -> AsyncIterator[Rollouts]:
        """The duty of rollouts, in a process of its own: what it remembers goes with it."""
        clock = LoopClock()
        view = View(self.kube, clock, lambda: None, print)
        watching = asyncio.create_task(view.run())
        await asyncio.sleep(1)
        duty = Rollouts(self.say, view, kube or self.kube, clock, lambda: self.etcd_up, self.counted.append)
        try:
            yield duty
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def image(self, kind: str, component: str) -> str:
        live = await self.kube.get("apps/v1", kind, component, SYSTEM)
        assert live is not None
        image: str = live["spec"]["template"]["spec"]["containers"][0]["image"]
        return image

    async def explanations(self) -> list[str]:
        """The operator's events."""
        found = await self.kube.list("v1", "Event", namespace=SYSTEM, fields="reason=RolledBack")
        return [event["message"] for event in found]


def revision_label(wanted: Object) -> str:
    return content_hash(wanted, 8)


async def rounds(duty: Rollouts, seconds: int) -> None:
    for _ in range(seconds):
        await duty.reconcile()
        await asyncio.sleep(1)


async def becomes_good(world: World, status: Object | None = None) -> None:
    """The good template's pod has led, and an operator has seen it."""
    world.deployment(SCHEDULER, GOOD)
    labels = {"autarky.dev/slot": "hosted", "pod-template-hash": revision_label(GOOD)}
    pod = world.pod(SCHEDULER, "n1", labels, status=status)
    async with world.operator() as duty:
        for second in range(4):
            world.lease(SCHEDULER, "n1_uuid", second)
            await rounds(duty, 1)
        assert duty.verdicts[SCHEDULER][0] is Verdict.HEALTHY
    await world.kube.delete("v1", "Pod", pod["metadata"]["name"], SYSTEM)
