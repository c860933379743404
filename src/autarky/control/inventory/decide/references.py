"""What pods refer to by name and cannot do without: ConfigMaps, Secrets, their ServiceAccount. Pure.

Contract: whatever the API lets into a pod or a template is understood; optional references count, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Reference = tuple[str, str]
"""(kind, name)"""
KINDS = ("ConfigMap", "Secret", "ServiceAccount")
WORKLOADS = (("apps/v1", "DaemonSet"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "CronJob"))
"""Whose templates are looked at, besides the pods that there are."""


def of(obj: Mapping[str, Any]) -> frozenset[Reference]:
    """Of a pod, or of a workload's template."""
    spec = obj.get("spec") or {}
    if obj["kind"] == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    if obj["kind"] != "Pod":
        spec = (spec.get("template") or {}).get("spec") or {}
    return frozenset(_of_pod(spec))


def _of_pod(spec: Mapping[str, Any]) -> Iterator[Reference]:
    yield from _named("ServiceAccount", spec, "serviceAccountName")
    for secret in spec.get("imagePullSecrets") or ():
        yield from _named("Secret", secret)
    for volume in spec.get("volumes") or ():
        yield from _of_source(volume, "secretName")
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from _of_source(source, "name")
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for source in container.get("envFrom") or ():
            yield from _named("ConfigMap", source.get("configMapRef"))
            yield from _named("Secret", source.get("secretRef"))
        for variable in container.get("env") or ():
            value = variable.get("valueFrom") or {}
            yield from _named("ConfigMap", value.get("configMapKeyRef"))
            yield from _named("Secret", value.get("secretKeyRef"))


def _of_source(source: Mapping[str, Any], secret: str) -> Iterator[Reference]:
    yield from _named("ConfigMap", source.get("configMap"))
    yield from _named("Secret", source.get("secret"), secret)


def _named(kind: str, reference: Any, key: str = "name") -> Iterator[Reference]:
    if isinstance(reference, Mapping) and reference.get(key):
        yield kind, str(reference[key])
