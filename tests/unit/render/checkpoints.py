"""Checkpoints for tests: a small hosted pod that a test changes, and what a revision holds."""

from __future__ import annotations

import base64
import json
from typing import Any

from autarky.control.checkpoint.manifests import revision_from_pod
from autarky.control.slots.manifests import Revision
from autarky.render.values import Object

SCHEDULER = "kube-scheduler"


def a_pod(*, container: Object | None = None, volumes: list[Object] | None = None, **spec: Any) -> Object:
    """A live scheduler pod; `container` and `spec` add to or replace what it says."""
    main = {"name": SCHEDULER, "image": "registry.example/kube-scheduler:v1", "command": [SCHEDULER]}
    return {
        "metadata": {"name": f"{SCHEDULER}-x", "namespace": "kube-system", "uid": "u", "labels": {"zone": "a"}},
        "spec": {
            "hostNetwork": True,
            "nodeName": "n1",
            "containers": [{**main, **(container or {})}],
            "volumes": volumes or [],
            **spec,
        },
    }


def secret(**data: str | bytes) -> Object:
    """Keys with "_" for "."."""
    encoded = {
        key.replace("_", "."): base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()
        for key, value in data.items()
    }
    return {"kind": "Secret", "metadata": {"name": "s"}, "data": encoded}


def config_map(*, binary: dict[str, bytes] | None = None, **data: str) -> Object:
    keys = {key.replace("_", "."): value for key, value in data.items()}
    encoded = {key: base64.b64encode(value).decode() for key, value in (binary or {}).items()}
    return {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": keys, "binaryData": encoded}


def checkpoint(
    pod: Object, *, secrets: dict[str, Object | None] | None = None, config_maps: dict[str, Object | None] | None = None
) -> Revision:
    return revision_from_pod(SCHEDULER, pod, secrets or {}, config_maps or {})


def pod_in(revision: Revision) -> Object:
    pod: Object = json.loads(revision.files[-1].content)
    return pod


def spec_in(revision: Revision) -> Object:
    spec: Object = pod_in(revision)["spec"]
    return spec


def container_in(revision: Revision, name: str = SCHEDULER) -> Object:
    spec = spec_in(revision)
    [found] = [c for c in [*spec["containers"], *spec.get("initContainers", [])] if c["name"] == name]
    return found


def files_in(revision: Revision) -> dict[str, tuple[bytes, int]]:
    """Path under `files` → (content, mode)."""
    top = f"{revision.directory}/files/"
    return {f.path.removeprefix(top): (f.content, f.mode) for f in revision.files if f.path.startswith(top)}


def contents_in(revision: Revision) -> dict[str, bytes]:
    return {path: content for path, (content, _) in files_in(revision).items()}
