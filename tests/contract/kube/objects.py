"""Objects for tests."""

from __future__ import annotations

import asyncio
import uuid

from autarky.errors import ApiError
from autarky.kube import Lister
from autarky.ports import Object


def config_map(namespace: str, name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    meta: Object = {"name": name, "namespace": namespace, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def deployment(namespace: str, name: str, *, env: dict[str, str] | None = None, replicas: int | None = None) -> Object:
    container = {"name": "main", "image": "example.org/main:1"}
    variables = {"env": [{"name": key, "value": value} for key, value in env.items()]} if env is not None else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **({"replicas": replicas} if replicas is not None else {}),
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container | variables]}},
        },
    }


async def defined(kube: Lister) -> str:
    """Define a new kind Gadget, namespaced, whose `spec` may hold anything; its apiVersion, once served."""
    group = f"g{uuid.uuid4().hex[:8]}.example.org"
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }
    await kube.apply(definition, manager="test")
    async with asyncio.timeout(60):
        while True:
            try:
                await kube.list(f"{group}/v1", "Gadget")
            except ApiError:
                await asyncio.sleep(0.05)
            else:
                return f"{group}/v1"
