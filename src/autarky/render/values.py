"""What the renderers need besides the cluster: image references and the content of keys and certificates.

Contract: everything in `render` is pure: the same values give the same bytes, with no clock, no
random numbers and no environment. Danger: `Credentials` holds private keys; it has no repr, and they go only into
Secrets and files of mode 0600.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autarky.control.levels.decide.arguments import ANNOTATION as GIVEN_ARGUMENTS
from autarky.control.levels.decide.arguments import Given
from autarky.model.cluster import CONTROL_PLANE_ROLE, Cluster, Node
from autarky.model.components import NAME_LABEL
from autarky.model.facts import HostFacts

Object = dict[str, Any]
SYSTEM = "kube-system"
MANAGED_BY = {"app.kubernetes.io/managed-by": "autarky"}
RENDERED_HASH = "autarky.dev/rendered"
"""Annotation: the hash of what was rendered. An object is applied again only when it changes, so that `kubectl edit`
and `set image` persist until the file itself changes (docs/concepts.md, "Who owns what")."""
CONTROL_PLANE_REQUESTED = CONTROL_PLANE_ROLE
CONTROL_PLANE_ACTIVE = "node-restriction.kubernetes.io/autarky-control-plane"
"""Kubelets may not set this prefix themselves (NodeRestriction), so the label can be trusted."""
WITHDRAWN = "autarky.dev/withdrawn"
"""Annotation of a control node, set by its own agent: why its API servers should get no new connections."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM by file name relative to the pki directory: "ca.crt", "apiserver.key", "etcd/server-n1.crt"."""

    files: Mapping[str, bytes] = field(repr=False)

    def __getitem__(self, name: str) -> bytes:
        return self.files[name]

    def text(self, name: str) -> str:
        return self.files[name].decode()

    def pick(self, **renamed: str) -> dict[str, str]:
        """Some of the files as text under new names; "_" in a keyword stands for "." (ca_crt="etcd/ca.crt")."""
        return {new.replace("_", "."): self.text(old) for new, old in renamed.items()}


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a rendering depends on. `images` maps a component's name to its image reference."""

    cluster: Cluster
    images: Mapping[str, str]
    credentials: Credentials
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    record: bytes = b""
    """The record of the cluster that control nodes keep (`cluster_record`); empty where that is not known."""
    encryption: str = field(default="", repr=False)
    """The configuration by which the API server of the standby reads what is stored encrypted, where only a backup has
    it; empty: none."""

    def image(self, component: str) -> str:
        return self.images[component]

    def facts_of(self, node: Node) -> HostFacts | None:
        """The facts of the node's host; None when rendering for a host not seen yet."""
        return self.facts.get(node.name)

    def may_lower_oom_score(self, node: Node) -> bool:
        """Without CAP_SYS_RESOURCE (test hosts) a process with a negative oom score fails to start."""
        facts = self.facts_of(node)
        return facts is None or facts.may_lower_oom_score


def canonical_text(value: object) -> str:
    """One spelling for equal values, as JSON on one line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_json(value: object) -> bytes:
    """The same in bytes, for hashing."""
    return canonical_text(value).encode()


def content_hash(value: object, length: int = 10) -> str:
    """A short name for content; 40 bits are plenty among the few revisions of one component."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:length]


def pretty_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def metadata(name: str, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> Object:
    meta: Object = {"name": name}
    if namespace is not None:
        meta["namespace"] = namespace
    meta["labels"] = {**MANAGED_BY, **(labels or {})}
    return meta


def is_ours(obj: Object) -> bool:
    """Whether it has autarky's label, which nobody else may set on an object in kube-system (`protection`)."""
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in MANAGED_BY.items())


def immutable_secret(component: str, data: Mapping[str, str]) -> Object:
    """A Secret named by its content, so that a change of content is a change of the pod template."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(f"{component}-{content_hash(dict(data))}", SYSTEM, {NAME_LABEL: component}),
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def immutable_config_map(component: str, data: Mapping[str, str]) -> Object:
    """A ConfigMap named by its content, for the same reason as `immutable_secret`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(f"{component}-{content_hash(dict(data))}", SYSTEM, {NAME_LABEL: component}),
        "immutable": True,
        "data": dict(data),
    }


def is_named_by_content(obj: Object) -> bool:
    """Whether it is one of those two and its content fits its name: then it never had any other content."""
    try:
        data = {key: _text(obj["kind"], value) for key, value in (obj.get("data") or {}).items()}
    except ValueError:
        return False
    named = str(obj["metadata"]["name"]).endswith(f"-{content_hash(data)}")
    return named and bool(data) and not obj.get("binaryData") and obj.get("immutable") is True


def _text(kind: str, value: str) -> str:
    return base64.b64decode(value, validate=True).decode() if kind == "Secret" else value


def with_rendered_hash(obj: Object) -> Object:
    """The object with the hash of its rendering as an annotation."""
    annotated = {**obj, "metadata": {**obj["metadata"]}}
    annotations = {**annotated["metadata"].get("annotations", {}), RENDERED_HASH: content_hash(obj, 16)}
    annotated["metadata"]["annotations"] = annotations
    return annotated


def with_given(obj: Object, own: Mapping[str, str], extra: Mapping[str, str]) -> Object:
    """The workload with the record of the user's extra arguments, so that changing them changes nothing else."""
    if not extra:
        return obj
    given = Given(dict(extra), {name: own[name] for name in extra if name in own})
    annotations = {**(obj["metadata"].get("annotations") or {}), GIVEN_ARGUMENTS: given.text()}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def flags(arguments: Mapping[str, str], extra: Mapping[str, str]) -> list[str]:
    """`--name=value` in a stable order; the user's extra arguments win over ours."""
    merged = {**arguments, **extra}
    return [f"--{name}={value}" for name, value in merged.items()]
