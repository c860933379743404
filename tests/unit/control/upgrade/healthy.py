"""A cluster that may be upgraded, and how one sight of it is changed."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

from autarky.control.slots.decide.report import ANNOTATION
from autarky.control.upgrade.decide.checks import Finding, Seen, findings
from autarky.control.upgrade.decide.checks_of_plane import NOT_FALSE, REQUIRED
from autarky.control.upgrade.decide.steps import ORDER
from autarky.model.components import COMPONENTS, KUBE_PROXY, NAME_LABEL, WITH_STANDBY
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE, MANAGED_BY

Object = dict[str, Any]
RUNS, WANTED, PATCH = Version(1, 36, 4), Version(1, 37, 1), Version(1, 36, 5)
CONDITIONS = (*REQUIRED, *NOT_FALSE, "CertificatesCurrent", "BackupsCurrent")
REGISTRY = "registry.k8s.io"


def condition(kind: str, status: str, message: str = "as it should be", generation: int = 7) -> Object:
    return {"type": kind, "status": status, "message": message, "observedGeneration": generation}


def a_plane(*changed: Object, without: tuple[str, ...] = (), layers: tuple[Object, ...] = ()) -> Object:
    """Not yet asked for the wanted version."""
    conditions = {kind: condition(kind, "True") for kind in CONDITIONS if kind not in without}
    conditions |= {one["type"]: one for one in changed}
    return {
        "metadata": {"name": "cluster", "generation": 7},
        "spec": {"version": str(RUNS)},
        "status": {"conditions": list(conditions.values()), "layers": list(layers)},
    }


def image(component: str, version: Version, registry: str = REGISTRY) -> str:
    return f"{registry}/{component}:{version}"


def a_node(name: str, *, control: bool = True, ready: str = "True", versions: tuple[Version, ...] = (RUNS,)) -> Object:
    """Images of both versions, standbys of the one that runs."""
    slots = {component: {"slot": "hosted", "version": str(RUNS)} for component in WITH_STANDBY}
    return {
        "metadata": {
            "name": name,
            "labels": {CONTROL_PLANE_ACTIVE: ""} if control else {},
            "annotations": {ANNOTATION: json.dumps({"level": 2, "slots": slots})} if control else {},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "False"}],
            "images": [
                {"names": [f"{REGISTRY}/{component}@sha256:{version}", image(component, version)]}
                for version in (*versions, WANTED)
                for component in (ORDER if control else (KUBE_PROXY,))
            ],
        },
    }


def a_workload(component: str, reference: str = "", policy: str = "IfNotPresent") -> Object:
    container = {"name": component, "image": reference or image(component, RUNS), "imagePullPolicy": policy}
    return {
        "kind": COMPONENTS[component].kind,
        "metadata": {"name": component, "labels": {**MANAGED_BY, NAME_LABEL: component}},
        "spec": {"template": {"metadata": {"labels": {NAME_LABEL: component}}, "spec": {"containers": [container]}}},
    }


HEALTHY = Seen(
    runs=RUNS,
    wanted=WANTED,
    plane=a_plane(),
    nodes=[a_node("n1"), a_node("n2"), a_node("w1", control=False)],
    workloads={component: a_workload(component) for component in ORDER},
    system_labels={"kubernetes.io/metadata.name": "kube-system"},
)


def seen(**changes: Any) -> Seen:
    return replace(deepcopy(HEALTHY), **changes)


def without_images(node: Object, version: Version, *components: str) -> Object:
    lacking = {image(component, version) for component in components}
    kept = [one for one in node["status"]["images"] if not lacking & set(one["names"])]
    return {**node, "status": {**node["status"], "images": kept}}


def with_slots(node: Object, **changes: Object) -> Object:
    """changes: component with _ for - → what its agent reports."""
    said = json.loads(node["metadata"]["annotations"][ANNOTATION])
    said["slots"] |= {name.replace("_", "-"): slot for name, slot in changes.items()}
    return {**node, "metadata": {**node["metadata"], "annotations": {ANNOTATION: json.dumps(said)}}}


def with_condition(node: Object, kind: str, status: str) -> Object:
    others = [one for one in node["status"]["conditions"] if one["type"] != kind]
    return {**node, "status": {**node["status"], "conditions": [*others, {"type": kind, "status": status}]}}


def found(**changes: Any) -> list[Finding]:
    return findings(seen(**changes))


def only(**changes: Any) -> Finding:
    """The one finding that a change makes."""
    [finding] = found(**changes)
    return finding


def short(finding: Finding) -> tuple[str, str, bool]:
    return finding.name, finding.sentence, finding.warning
