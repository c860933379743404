"""Live copies of what the API says of this node: its pods, the two leases of level 3, the wanted level.

Contract: watches only what the node's identity may read. In an outage the copies stay as they were; `leases_readable`
says whether they are current. An unexpected failure of one copy affects no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from autarky.control.base.shield import Tell, follow
from autarky.control.checkpoint.decide.evidence import version_unstarted
from autarky.control.common import understood
from autarky.control.common.pods import is_mirror, is_ready
from autarky.control.leadership.decide.leader import Lease, lease_of
from autarky.control.leadership.decide.reported import Reported, read
from autarky.kube import KubeClient, Reflector
from autarky.model.components import CONTROLLER_MANAGER, NAME_LABEL, SCHEDULER, SLOT_LABEL
from autarky.model.levels import HostedLevels
from autarky.ports import Clock, Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import SYSTEM

LEASE = ("coordination.k8s.io/v1", "Lease")
MOST_PODS = 200
"""For how many pods their first version is remembered: more than run in kube-system on one node."""


class ApiView:
    """Run it as a task; read it at any time. control_node: watch everything; else the Node only."""

    def __init__(
        self,
        kube: KubeClient,
        clock: Clock,
        node: str,
        on_change: Callable[[], None],
        tell: Tell,
        *,
        control_node: bool = True,
    ) -> None:
        self._tell = tell
        self._node = node
        self._control_node = control_node
        of_node = f"spec.nodeName={node}"
        self._unstarted: dict[str, int | None] = {}
        self._pods = Reflector(
            kube,
            clock,
            "v1",
            "Pod",
            namespace=SYSTEM,
            fields=of_node,
            on_change=on_change,
            on_object=self._first_seen,
        )
        self._plane = Reflector(
            kube, clock, API_VERSION, "ControlPlane", on_change=on_change, accepts=understood.is_control_plane
        )
        self._node_object = Reflector(kube, clock, "v1", "Node", fields=f"metadata.name={node}", on_change=on_change)
        self._leases = {
            name: Reflector(kube, clock, *LEASE, namespace=SYSTEM, fields=f"metadata.name={name}")
            for name in (CONTROLLER_MANAGER, SCHEDULER)
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._node_object, self._tell))
            if self._control_node:
                for reflector in (self._pods, self._plane, *self._leases.values()):
                    group.create_task(follow(reflector, self._tell))

    @property
    def reachable(self) -> bool:
        """Whether the last request to the API succeeded."""
        return self._pods.synced and self._pods.error is None

    @property
    def own_node(self) -> Object | None:
        """The Node object; None when it is absent or was never seen."""
        return self._node_object.items.get((None, self._node))

    # --- level ---

    @property
    def lowest_hosted_level(self) -> int | None:
        """Apart from the kubelet. None when the ControlPlane object is absent, was never seen, or is invalid: then
        nothing changes."""
        for obj in self._plane.items.values():
            if obj["metadata"]["name"] == CONTROL_PLANE:
                return HostedLevels.parse(obj["spec"]["selfHosted"]).lowest
        return None

    @property
    def etcd_wanted(self) -> Object | None:
        """`spec.etcd` of the ControlPlane object; None when it is absent or was never seen."""
        plane = self._plane.items.get((None, CONTROL_PLANE))
        return None if plane is None else plane["spec"].get("etcd") or {}

    def reported_of(self, component: str) -> Reported:
        """What the operator reports of a component of level 3; empty while that may be outdated."""
        current = self._plane.synced and self._plane.error is None
        return read(self._plane.items.get((None, CONTROL_PLANE)), component) if current else Reported()

    # --- pods ---

    def hosted_pod(self, component: str) -> Object | None:
        """This node's hosted pod of the component: a Ready one before others, then the newest."""
        return self._pod(component, "hosted")

    def standby_pod(self, component: str) -> Object | None:
        """The same of its standby, by the mirror pod that the kubelet keeps in the API."""
        return self._pod(component, "standby")

    def hosted_pods(self, component: str) -> list[Object]:
        """All of them: while one terminates, its successor may exist already."""
        return self._pods_of(component, "hosted")

    def version_unstarted(self, pod: Object) -> int | None:
        """The first version of the pod that was seen, if the kubelet did not know the pod yet by then."""
        return self._unstarted.get(pod["metadata"]["uid"])

    def _first_seen(self, pod: Object) -> None:
        self._unstarted.setdefault(pod["metadata"]["uid"], version_unstarted(pod))
        if len(self._unstarted) > MOST_PODS:
            del self._unstarted[next(iter(self._unstarted))]

    def _pod(self, component: str, slot: str) -> Object | None:
        pods = self._pods_of(component, slot)
        return max(pods, key=lambda p: (is_ready(p), p["metadata"]["creationTimestamp"]), default=None)

    def _pods_of(self, component: str, slot: str) -> list[Object]:
        return [
            pod
            for pod in self._pods.items.values()
            if pod["metadata"].get("labels", {}).get(NAME_LABEL) == component
            and pod["metadata"]["labels"].get(SLOT_LABEL) == slot
            and not (slot == "hosted" and is_mirror(pod))
        ]

    @property
    def pods_readable(self) -> bool:
        """Whether what `hosted_pod` shows is current."""
        return self._pods.synced and self._pods.error is None

    # --- leases ---

    def leases_readable(self, component: str) -> bool:
        reflector = self._leases[component]
        return reflector.synced and reflector.error is None and self.pods_readable

    def lease_object(self, component: str) -> Object | None:
        return self._leases[component].items.get((SYSTEM, component))

    def lease(self, component: str) -> Lease | None:
        obj = self.lease_object(component)
        return None if obj is None else lease_of(obj)
