"""The pods of this node, as its agent needs them: which of them a drain evicts, and which are evidence when its kubelet
is changed.

Contract: asked of the API each time, one pod at a time: tenants create any number of them, of any size. The API leaves
out those that have ended, of which a node has as many as it likes; of the others its kubelet rejects what is too much.
Evictions go through the API, which keeps to the disruption budgets; a refused one is tried again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autarky.control.common.pods import MIRROR, has_ended, is_mirror
from autarky.control.common.shapes import items, labels_of, mapping, plain, text
from autarky.control.etcd.manifests.members import GUARD
from autarky.control.kubelet.decide.observed import Pods
from autarky.errors import ApiError, Conflict
from autarky.model.components import NAME_LABEL
from autarky.ports import Clock, Kube, Object
from autarky.render.values import SYSTEM

EVICT_SECONDS = 5.0
"""Between two attempts, as of `kubectl drain`."""
_SHOWN = 3
CORDON = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node."""
_OF_A_CORDON = (None, "", "NoSchedule")
_REJECTS = ("NodeAffinity", "UnexpectedAdmissionError")
_PRESSURE = "The node was low on resource"
"""Reasons of the kubelet's admission (Kubernetes pkg/kubelet/lifecycle/predicate.go), and how its eviction manager's
message begins where the node is the reason (pkg/kubelet/eviction/helpers.go)."""
_LARGE = 256 * 2**10
"""Characters. Of a larger pod there may be no room for a status in what etcd takes at once (1.5 MiB)."""


@dataclass(frozen=True, slots=True)
class OwnPod:
    """uid: as the API has it; runtime_uid: as the container runtime does, which for a static pod is that of its
    manifest. living: it has not ended, and is not being deleted, as the API has it. ends_itself: it can end, or end its
    own sandbox, with no kubelet to blame, and perhaps without the API's knowing. moves: a drain evicts it: somebody
    makes another one, and not on this node. rejected: it has failed since a kubelet would not have it; evicted: since
    its node was low on something."""

    namespace: str
    name: str
    uid: str
    runtime_uid: str
    living: bool
    ends_itself: bool
    moves: bool
    going: bool
    rejected: bool = False
    evicted: bool = False

    @property
    def is_evidence(self) -> bool:
        """Whether a kubelet is to blame where its sandbox is gone."""
        return self.living and not self.ends_itself


async def own_pods(kube: Kube, node: str) -> list[OwnPod]:
    """Those that have not ended."""
    fields = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    return [_own(pod) async for pod in kube.each("v1", "Pod", fields=fields)]


async def own_pod(kube: Kube, node: str, namespace: str, name: str) -> OwnPod | None:
    """That one, ended or not. (A node may not get by its name what is not there: it would be refused.)"""
    fields = f"metadata.name={name},spec.nodeName={node}"
    return next(iter([_own(pod) async for pod in kube.each("v1", "Pod", namespace=namespace, fields=fields)]), None)


def _own(pod: Object) -> OwnPod:
    meta, spec, uid = pod["metadata"], pod["spec"], text(pod["metadata"].get("uid"))
    static, going = is_mirror(pod), "deletionTimestamp" in meta
    owner = next((one for one in map(mapping, items(meta.get("ownerReferences"))) if one.get("controller") is True), {})
    replaced = text(owner.get("kind")) not in ("", "DaemonSet")
    return OwnPod(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=uid,
        runtime_uid=text(mapping(meta.get("annotations")).get(MIRROR)) if static else uid,
        living=not going and not has_ended(pod),
        ends_itself=_ends_itself(spec) or len(json.dumps(pod)) > _LARGE,
        moves=replaced and not static and not has_ended(pod) and not _comes_back(spec) and not _guards_etcd(pod),
        going=going,
        rejected=_is_rejected(mapping(pod.get("status"))),
        evicted=_is_evicted(mapping(pod.get("status"))),
    )


def _ends_itself(spec: Object) -> bool:
    """Its containers share a process namespace with its sandbox, or that is a machine of its own (a runtime class); or
    it ends in time, or since something in it is not always started again."""
    containers = [*items(spec.get("containers")), *items(spec.get("initContainers"))]
    policies = {text(one.get("restartPolicy")) for one in (spec, *map(mapping, containers))}
    how = ("hostPID", "shareProcessNamespace", "runtimeClassName", "activeDeadlineSeconds")
    return any(spec.get(key) for key in how) or not policies <= {"", "Always"}


def _guards_etcd(pod: Object) -> bool:
    """Whether it is there to keep people from taking a member of etcd down with its node. No change of a kubelet does
    that; and while another member is away, its budget would let none go."""
    return text(pod["metadata"].get("namespace")) == SYSTEM and labels_of(pod).get(NAME_LABEL) == GUARD


def _comes_back(spec: Object) -> bool:
    """Whether its replacement may be put on a cordoned node: the hosted control plane's is at once, where each node has
    one of it."""
    return any(
        _tolerates_its_taint(one) and one.get("effect") in _OF_A_CORDON
        for one in map(mapping, items(spec.get("tolerations")))
    )


def _tolerates_its_taint(one: Mapping[str, Any]) -> bool:
    """Of which the value is empty. The default operator is Equal."""
    key = one.get("key")
    if one.get("operator") == "Exists":
        return key in (None, "", CORDON)
    return one.get("operator") in (None, "", "Equal") and key == CORDON and not one.get("value")


def _is_rejected(status: Mapping[str, Any]) -> bool:
    why = text(status.get("reason"))
    return text(status.get("phase")) == "Failed" and (why.startswith("OutOf") or why in _REJECTS)


def _is_evicted(status: Mapping[str, Any]) -> bool:
    """By what its node has too little of. Its own limits are its own."""
    why, said = text(status.get("reason")), text(status.get("message"))
    return text(status.get("phase")) == "Failed" and why == "Evicted" and said.startswith(_PRESSURE)


@dataclass(slots=True)
class Draining:
    kube: Kube
    node: str
    clock: Clock
    _blocked: dict[str, str] = field(default_factory=dict)
    """Pod → why it stays for now."""
    _not_before: float = 0.0

    async def left(self) -> Pods:
        """What has yet to go, and what does not let it."""
        return self._seen([pod for pod in await own_pods(self.kube, self.node) if pod.moves])

    async def evict(self) -> None:
        if self.clock.monotonic() < self._not_before:
            return
        self._not_before = self.clock.monotonic() + EVICT_SECONDS
        self._blocked.clear()
        for pod in await own_pods(self.kube, self.node):
            if pod.moves and not pod.going:
                await self._evict(pod)

    async def _evict(self, pod: OwnPod) -> None:
        """One that the API refuses (a budget forbids it, or it has several) must not keep the others. Which budget that
        is, a node may not read."""
        try:
            await self.kube.evict(pod.namespace, pod.name)
        except (ApiError, Conflict) as error:
            self._blocked[_name(pod)] = plain(f"{_name(pod)}: {error}")

    def _seen(self, pods: Sequence[OwnPod]) -> Pods:
        left = frozenset(_name(pod) for pod in pods)
        why = sorted({self._blocked[name] for name in left if name in self._blocked})
        return Pods(left, "; ".join(why[:_SHOWN]))


def _name(pod: OwnPod) -> str:
    return f"{pod.namespace}/{pod.name}"
