"""Live copies of API objects: every source of the operator, each with its own age. Nothing is polled.

Contract: reading is free; objects are shared and must not be changed. `changed` is called after each change except of
leases, which are renewed every 0.8 s and are only read together with something else, and of heartbeats of Nodes
(`found_once.is_news`). Of objects that kubelets create or write, in any number and size, only what is used is kept
(`control.common.slim`). An unexpected failure of one source affects no other: it is logged and retried, and the source
is not current meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from autarky.control.admission.act import CSR, inventory_of, renewals_of
from autarky.control.backup.manifests.definitions import BACKUP, SCHEDULE
from autarky.control.base import found_once
from autarky.control.base.found_once import FoundOnce
from autarky.control.base.shield import Tell, follow
from autarky.control.certificates.manifests import leaves
from autarky.control.common import understood
from autarky.control.common.slim import slim_node, slim_pod, slim_request
from autarky.control.control_nodes.manifests import RECORD
from autarky.control.etcd.manifests.members import GUARD
from autarky.control.etcd.manifests.pods import TEMPLATE
from autarky.kube import Lister, Reflector
from autarky.kube.elector import LEASE
from autarky.model.components import CONTROLLER_MANAGER, SCHEDULER
from autarky.model.levels import HostedLevels, Level
from autarky.ports import Clock, Object
from autarky.render.access import INVENTORY, RENEWALS
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import SYSTEM

KUBERNETES_SLICE = "kubernetes"
"""The EndpointSlice of default/kubernetes."""
ADMISSION = "admissionregistration.k8s.io/v1"
STALE_SECONDS = 120.0
"""A healthy reflector hears from its watch at least once in 80 s."""


class View:
    """Run it as a task; read it at any time."""

    def __init__(self, kube: Lister, clock: Clock, changed: Callable[[], None], tell: Tell) -> None:
        self._tell = tell

        def live(api_version: str, kind: str, namespace: str | None = None, name: str | None = None) -> Reflector:
            fields = f"metadata.name={name}" if name is not None else None
            return Reflector(kube, clock, api_version, kind, namespace, fields=fields, on_change=changed)

        self.nodes_found = FoundOnce(lambda: found_once.nodes(self.nodes.items.values()))
        self.nodes = Reflector(
            *(kube, clock, "v1", "Node"),
            on_change=self.nodes_found.forget,
            on_news=changed,
            is_news=found_once.is_news,
            slim=slim_node,
        )
        self.pods_found = FoundOnce(lambda: found_once.pods(self.pods.items.values()))
        self.pods = Reflector(
            *(kube, clock, "v1", "Pod", SYSTEM), on_change=self.pods_found.forget, on_news=changed, slim=slim_pod
        )
        self.daemon_sets = live("apps/v1", "DaemonSet", SYSTEM)
        self.daemon_set_revisions = live("apps/v1", "ControllerRevision", SYSTEM)
        self.deployments = live("apps/v1", "Deployment", SYSTEM)
        self.replica_sets = live("apps/v1", "ReplicaSet", SYSTEM)
        self.requests = Reflector(kube, clock, *CSR, on_change=changed, slim=slim_request)
        self.inventory = live("v1", "ConfigMap", SYSTEM, INVENTORY)
        self.renewals = live("v1", "ConfigMap", SYSTEM, RENEWALS)
        self.control_nodes = live("v1", "ConfigMap", SYSTEM, RECORD)
        self.leaves = live("v1", "ConfigMap", SYSTEM, leaves.CONFIG_MAP)
        self.slices = live("discovery.k8s.io/v1", "EndpointSlice", "default", KUBERNETES_SLICE)
        self.planes = live(API_VERSION, "ControlPlane")
        self.etcd_members = Reflector(
            kube, clock, API_VERSION, "EtcdMember", on_change=changed, accepts=understood.is_etcd_member
        )
        self.etcd_template = live("v1", "ConfigMap", SYSTEM, TEMPLATE)
        self.backups = live(API_VERSION, BACKUP)
        self.backup_schedules = live(API_VERSION, SCHEDULE)
        self.etcd_guards = live("policy/v1", "PodDisruptionBudget", SYSTEM, GUARD)
        self.policies = live(ADMISSION, "ValidatingAdmissionPolicy")
        self.policy_bindings = live(ADMISSION, "ValidatingAdmissionPolicyBinding")
        self.leases = {
            name: Reflector(kube, clock, *LEASE, SYSTEM, fields=f"metadata.name={name}")
            for name in (CONTROLLER_MANAGER, SCHEDULER)
        }

    @property
    def sources(self) -> list[Reflector]:
        return [
            self.nodes,
            self.pods,
            self.daemon_sets,
            self.daemon_set_revisions,
            self.deployments,
            self.replica_sets,
            self.requests,
            self.inventory,
            self.renewals,
            self.control_nodes,
            self.leaves,
            self.slices,
            self.planes,
            self.etcd_members,
            self.etcd_template,
            self.backups,
            self.backup_schedules,
            self.etcd_guards,
            self.policies,
            self.policy_bindings,
            *self.leases.values(),
        ]

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                group.create_task(follow(source, self._tell), name=f"watching {source.kind}")
        raise AssertionError("reflectors never end")

    @property
    def active_nodes(self) -> frozenset[str]:
        """Those with the active label."""
        return self.nodes_found().active

    @property
    def ready_nodes(self) -> Sequence[Object]:
        return self.nodes_found().ready

    def pods_named(self, label_value: str) -> Sequence[Object]:
        """Those of the component, as their labels say: anybody can label a pod."""
        return self.pods_found().named.get(label_value, ())

    def pods_owned_by(self, owner: Object) -> Sequence[Object]:
        return self.pods_found().owned.get(owner["metadata"]["uid"], ())

    @property
    def known_addresses(self) -> dict[str, frozenset[str]]:
        """Node → its addresses, as the join inventory has them."""
        return inventory_of(self.inventory.items.get((SYSTEM, INVENTORY)))

    @property
    def good_renewals(self) -> dict[str, str]:
        """Node → the fingerprint of its valid renewal credential."""
        return renewals_of(self.renewals.items.get((SYSTEM, RENEWALS)))

    @property
    def control_plane(self) -> Object | None:
        """None also where it is invalid: `odd_plane` says why."""
        return None if self.odd_plane is not None else self.plane_as_it_lies

    @property
    def odd_plane(self) -> str | None:
        """What is invalid in the ControlPlane's spec, as a clause."""
        plane = self.plane_as_it_lies
        return None if plane is None else understood.control_plane(plane)

    @property
    def plane_as_it_lies(self) -> Object | None:
        """The object even if its spec is invalid; its status can be read."""
        plane = self.planes.items.get((None, CONTROL_PLANE))
        return None if plane is None else understood.without_odd_status(plane)

    def hosts_etcd(self, plane: Object) -> bool:
        """Whether level 1 is hosted."""
        return HostedLevels.parse(plane["spec"]["selfHosted"]).hosts(Level.ETCD)

    @property
    def odd_etcd_members(self) -> dict[str, str]:
        """Name → what is invalid in that EtcdMember, as a clause."""
        odd = self.etcd_members.refused.values()
        return {obj["metadata"]["name"]: clause for obj in odd if (clause := understood.etcd_member(obj)) is not None}


def current(sources: Iterable[Reflector]) -> bool:
    """Whether all of them are current, as far as can be known."""
    return all(source.synced and source.error is None and source.age < STALE_SECONDS for source in sources)
