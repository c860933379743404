"""Looking at a cluster before an upgrade of its control plane: what `decide.checks` judges.

Contract: it only reads, through whatever identity the Kube has: the operator's rights are in its manifests, each with
its reason. A source that cannot be read fails nothing here: it is in `unseen`, and the checks make a finding of that.
All sources are read at the same time. Kinds that tenants can create in any number are read one object at a time, for no
longer than SECONDS.

Danger: each look reads some megabytes of metrics from an API server: no more often than every few seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

from autarky.control.common.shapes import labels_of, within
from autarky.control.control_nodes.decide import recorded
from autarky.control.control_nodes.manifests import RECORD
from autarky.control.etcd.manifests.members import KIND as ETCD_MEMBER
from autarky.control.upgrade.decide import checks_of_apis, checks_of_webhooks, commands, configuration_files
from autarky.control.upgrade.decide.checks import Requested, Seen, Source, Stored
from autarky.control.upgrade.decide.observed import File, Service
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.decide.surface import Resource
from autarky.errors import ApiError, AutarkyError
from autarky.model.components import COMPONENTS
from autarky.model.versions import Version
from autarky.ports import Kube, Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import SYSTEM

SECONDS = 30.0
BUDGETS_SECONDS = 5.0
"""Tenants make them, and they are only warned of: nobody is to wait for how large theirs are."""
METRICS_PATH = "/metrics"
_ADMISSION = "admissionregistration.k8s.io/v1"
_KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of Services and namespaces. A webhook's reference may be anything."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Webhooks:
    configurations: list[Object] = field(default_factory=list)
    services: Mapping[Service, str | None] = field(default_factory=dict)
    system_labels: Mapping[str, str] = field(default_factory=dict)


async def observe(kube: Kube, runs: Version, wanted: Version) -> Seen:
    unseen: dict[Source, str] = {}
    async with asyncio.TaskGroup() as group:

        def look(source: Source, work: Awaitable[T], otherwise: T, seconds: float = SECONDS) -> asyncio.Task[T]:
            return group.create_task(_look(unseen, source, work, otherwise, seconds))

        plane = look(Source.PLANE, kube.get(API_VERSION, "ControlPlane", CONTROL_PLANE), None)
        nodes = look(Source.NODES, kube.list("v1", "Node"), [])
        control_nodes = look(Source.CONTROL_NODES, _control_nodes(kube), frozenset[str]())
        workloads = look(Source.WORKLOADS, _workloads(kube), dict[str, Object]())
        files = look(Source.FILES, _files(kube, workloads, runs), [])
        webhooks = look(Source.WEBHOOKS, _webhooks(kube), _Webhooks())
        budgets = look(Source.BUDGETS, _budgets(kube), [], BUDGETS_SECONDS)
        metrics = look(Source.METRICS, _metrics(kube, commands.resources_lost(runs, wanted)), ([], []))
        api_services = look(Source.API_SERVICES, kube.list("apiregistration.k8s.io/v1", "APIService"), [])
    hooks, (requested, stored) = webhooks.result(), metrics.result()
    return Seen(
        runs=runs,
        wanted=wanted,
        plane=plane.result(),
        nodes=nodes.result(),
        workloads=workloads.result(),
        control_nodes=control_nodes.result(),
        files=files.result(),
        webhooks=hooks.configurations,
        services=hooks.services,
        system_labels=hooks.system_labels,
        budgets=budgets.result(),
        requested=requested,
        stored=stored,
        api_services=api_services.result(),
        unseen=unseen,
    )


async def _look(unseen: dict[Source, str], source: Source, work: Awaitable[T], otherwise: T, seconds: float) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        unseen[source] = f"not read within {seconds:g} s"
    except AutarkyError as error:
        unseen[source] = str(error)
    return otherwise


async def _control_nodes(kube: Kube) -> frozenset[str]:
    records = recorded.records(await kube.get("v1", "ConfigMap", RECORD, SYSTEM))
    try:
        members = await kube.list(API_VERSION, ETCD_MEMBER)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        members = []  # the API serves none
    return recorded.control_nodes(records, members)


async def _workloads(kube: Kube) -> dict[str, Object]:
    """Component → what it is hosted by; the others are left out."""
    found = {name: await kube.get("apps/v1", COMPONENTS[name].kind, name, SYSTEM) for name in ORDER}
    return {name: obj for name, obj in found.items() if obj is not None}


async def _files(kube: Kube, workloads: asyncio.Task[dict[str, Object]], runs: Version) -> list[File]:
    """Those that the command lines name. What is in them stays here (rule 7)."""
    named = configuration_files.named(await asyncio.shield(workloads), runs)  # others have use for it, too
    wanted = configuration_files.references(named)
    objects = {(kind, name): await kube.get("v1", kind, name, SYSTEM) for kind, name in wanted}
    return [configuration_files.read(one, objects) for one in named]


async def _webhooks(kube: Kube) -> _Webhooks:
    configurations = [obj for kind in _KINDS for obj in await kube.list(_ADMISSION, kind)]
    services = {one: await _trouble_of(kube, one) for one in sorted(checks_of_webhooks.services_of(configurations))}
    namespace = await kube.get("v1", "Namespace", SYSTEM)
    return _Webhooks(configurations, services, labels_of(namespace))


async def _trouble_of(kube: Kube, service: Service) -> str | None:
    """Why nothing answers for it, a clause; None where something may."""
    namespace, name = service
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        return "does not exist"
    label = f"kubernetes.io/service-name={name}"
    slices = kube.each("discovery.k8s.io/v1", "EndpointSlice", namespace=namespace, labels=label)
    async with aclosing(slices) as found:
        async for one in found:
            if checks_of_webhooks.has_ready_endpoint(one):
                return None
    live = await kube.get("v1", "Service", name, namespace)
    if live is None:
        return "does not exist"
    if within(live, "spec", "type") == "ExternalName":
        return None  # it has no endpoints, and may answer
    return "has no ready endpoint"


async def _budgets(kube: Kube) -> list[str]:
    async with aclosing(kube.each("policy/v1", "PodDisruptionBudget")) as budgets:
        return [name async for budget in budgets if (name := checks_of_apis.blocks_drains(budget)) is not None]


async def _metrics(kube: Kube, lost: Mapping[Resource, tuple[str, ...]]) -> tuple[list[Requested], list[Stored]]:
    lines = await kube.lines(METRICS_PATH, checks_of_apis.METRICS)
    resources = {(one.group, one.version, one.name): others for one, others in lost.items()}
    return checks_of_apis.requested(lines), checks_of_apis.stored(lines, resources)
