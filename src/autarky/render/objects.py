"""All API objects of a cluster, in the order in which they are applied.

Parts are applied one after another; within a part the order is free. Each part has its own field manager.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.addons import add_ons_of
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.agents.manifests import operator
from autarky.control.api_server import manifests as api_server
from autarky.control.backup.manifests import definitions as backups
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests import protection
from autarky.control.kubelet.manifests import daemon_set
from autarky.control.leadership import manifests as controllers
from autarky.control.load_balancer.manifests.endpoints import kubernetes_endpoints
from autarky.model.cluster import Cluster, Level
from autarky.model.components import API_SERVER, ETCD, KUBELET, LED_BY_LEASE, NODE_AGENT
from autarky.model.fingerprint import fingerprint
from autarky.render import access, cluster_record, crds
from autarky.render.values import Inputs, Object, with_rendered_hash


@dataclass(frozen=True, slots=True)
class Part:
    """Objects that belong together; `manager` owns their fields."""

    name: str
    objects: tuple[Object, ...]

    @property
    def manager(self) -> str:
        return f"autarky-{self.name}"


def parts(inputs: Inputs, wanted: Cluster | None = None) -> list[Part]:
    """Everything `up` applies. Levels that are not hosted have no objects.

    `wanted`: the cluster as in its file, where the inputs follow edits of the ControlPlane object. The ControlPlane
    comes before the workloads of its levels, so that the operator deletes none that has just been applied.
    """
    cluster = inputs.cluster
    result = [
        _access(cluster),
        Part("definitions", (crds.control_plane_crd(), etcd_members.crd(), *backups.objects())),
        Part("protection", (*protection.objects(), *admission.objects(add_ons_of(cluster)))),
        *(Part(addon.name, tuple(addon.objects(inputs))) for addon in add_ons_of(cluster)),
        Part("endpoints", (kubernetes_endpoints(cluster),)),
        Part("control-plane", (crds.control_plane(wanted or cluster),)),
    ]
    if inputs.record:
        result.append(_record(inputs.record, fingerprint(inputs.credentials["ca.crt"])))
    if cluster.hosts_level(Level.API_SERVER):
        result.append(Part(API_SERVER, tuple(api_server.hosted(inputs))))
    if cluster.hosts_level(Level.CONTROLLERS):
        result += [Part(name, tuple(controllers.hosted(inputs, name))) for name in LED_BY_LEASE]
    return [_hashed(part) for part in result]


def record_part(record: bytes, ca: str | None) -> Part:
    """The record of the cluster file in the API, as it is among `parts`."""
    return _hashed(_record(record, ca))


def access_part(inputs: Inputs) -> list[Part]:
    """The first of `parts`: without it no node can join."""
    return [_hashed(_access(inputs.cluster))]


def agent_parts(inputs: Inputs) -> list[Part]:
    """What is applied last, when the control plane runs in its wanted slots."""
    result = [
        *([Part(ETCD, tuple(etcd_members.objects(inputs)))] if inputs.cluster.external_etcd is None else []),
        Part(NODE_AGENT, tuple(agent.objects(inputs))),
        Part("operator", tuple(operator.objects(inputs))),
    ]
    if inputs.cluster.hosts_level(Level.KUBELET):  # after the agents, which let it be in force
        result.append(Part(KUBELET, tuple(daemon_set.objects(inputs))))
    return [_hashed(part) for part in result]


def _record(record: bytes, ca: str | None) -> Part:
    return Part("record", (cluster_record.config_map(record, ca),))


def _access(cluster: Cluster) -> Part:
    return Part("access", tuple(access.objects(cluster)))


def _hashed(part: Part) -> Part:
    return Part(part.name, tuple(with_rendered_hash(obj) for obj in part.objects))
