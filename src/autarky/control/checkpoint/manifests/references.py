"""The Secrets and ConfigMaps that a pod takes content from, and that content.

Contract: unknown is not absent. `Contents` gets every object that was read, and None for every one that does not exist
according to the API; one that was not read is refused, never taken for absent.

Danger: holds private keys; has no repr.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from autarky.control.checkpoint.manifests.refusal import Rule, refused
from autarky.render.values import Object

Kind = Literal["Secret", "ConfigMap"]
TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 – a path, not a secret
"""Where the ServiceAccount admission plugin mounts the volume that it injects."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """One object that a pod refers to. `optional`: whether every reference to it is."""

    kind: Kind
    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read, by name; None where the object does not exist."""

    secrets: Mapping[str, Object | None] = field(repr=False)
    config_maps: Mapping[str, Object | None] = field(repr=False)

    def data(self, reference: Reference, where: str) -> dict[str, bytes] | None:
        """Key → content; None for an optional object that does not exist. Refuses an object that was not read."""
        objects = self.secrets if reference.kind == "Secret" else self.config_maps
        label = f"the {reference.kind} {reference.name}"
        if reference.name not in objects:
            raise refused(Rule.COMPLETE, where, f"{label} was not read", "restore access to the API")
        found = objects[reference.name]
        if found is not None:
            return _decoded(reference, found, where)
        if reference.optional:
            return None
        raise refused(Rule.COMPLETE, where, f"{label} does not exist", f"create {label}, or remove the reference")


def _decoded(reference: Reference, found: Object, where: str) -> dict[str, bytes]:
    data: Mapping[str, str] = found.get("data") or {}
    binary = data if reference.kind == "Secret" else (found.get("binaryData") or {})
    text = {} if reference.kind == "Secret" else data
    try:
        decoded = {key: base64.b64decode(value, validate=True) for key, value in binary.items()}
    except binascii.Error:
        what = f"the {reference.kind} {reference.name} is not valid base64"
        # The library's error is left out on purpose: its context holds the content.
        raise refused(Rule.COMPLETE, where, what, f"write the {reference.kind} again") from None
    return {**{key: value.encode() for key, value in text.items()}, **decoded}


def references(pod: Object) -> tuple[Reference, ...]:
    """Everything that has to be read before `revision_from_pod`, sorted, each once."""
    found: dict[tuple[Kind, str], bool] = {}
    for kind, name, optional in _mentions(pod["spec"]):
        found[kind, name] = found.get((kind, name), True) and optional
    return tuple(sorted(Reference(kind, name, optional) for (kind, name), optional in found.items()))


def all_containers(spec: Object) -> Iterator[tuple[str, Object]]:
    """(path in the pod, container): init containers (sidecars among them) first."""
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            yield f"spec.{group}[{container['name']}]", container


def injected_token_volumes(spec: Object) -> frozenset[str]:
    """Injected volumes with a service account's credentials, which a static pod cannot have."""
    mounted = {
        mount["name"]
        for _, container in all_containers(spec)
        for mount in container.get("volumeMounts") or ()
        if mount["mountPath"].rstrip("/") == TOKEN_DIRECTORY
    }
    tokens = {volume["name"] for volume in spec.get("volumes") or () if _has_token(volume)}
    return frozenset(mounted & tokens)


def _has_token(volume: Object) -> bool:
    return any("serviceAccountToken" in source for source in (volume.get("projected") or {}).get("sources") or ())


def _mentions(spec: Object) -> Iterator[tuple[Kind, str, bool]]:
    """(kind, name, optional) of every mention."""
    injected = injected_token_volumes(spec)
    for volume in spec.get("volumes") or ():
        if volume["name"] not in injected:
            yield from _mentions_of_volume(volume)
    for _, container in all_containers(spec):
        for source in container.get("envFrom") or ():
            yield from _pair(source.get("secretRef"), source.get("configMapRef"))
        for variable in container.get("env") or ():
            source = variable.get("valueFrom") or {}
            yield from _pair(source.get("secretKeyRef"), source.get("configMapKeyRef"))


def _mentions_of_volume(volume: Object) -> Iterator[tuple[Kind, str, bool]]:
    if (secret := volume.get("secret")) is not None:
        yield "Secret", secret["secretName"], bool(secret.get("optional"))
    yield from _pair(None, volume.get("configMap"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield from _pair(source.get("secret"), source.get("configMap"))


def _pair(secret: Object | None, config_map: Object | None) -> Iterator[tuple[Kind, str, bool]]:
    if secret is not None:
        yield "Secret", secret["name"], bool(secret.get("optional"))
    if config_map is not None:
        yield "ConfigMap", config_map["name"], bool(config_map.get("optional"))
