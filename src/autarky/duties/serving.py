"""The API servers' serving certificate, where it lives: in the Secret that their template names for it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from autarky.pki.issue import Pair
from autarky.ports import Kube, Object
from autarky.render import api_server
from autarky.render.values import SYSTEM

CERTIFICATE, KEY = f"{api_server.SERVING}.crt", f"{api_server.SERVING}.key"


def secret_of(template: Object) -> str | None:
    """The Secret of the volume that the serving certificate is in; None where it lies elsewhere."""
    container = next((one for one in template["spec"]["containers"] if one["name"] == api_server.COMPONENT), None)
    if container is None:
        return None
    path = _flag([*(container.get("command") or ()), *(container.get("args") or ())], "tls-cert-file")
    for mount in container.get("volumeMounts") or ():
        if path == f"{mount['mountPath'].rstrip('/')}/{CERTIFICATE}":
            return _secrets(template["spec"]).get(mount["name"])
    return None


async def read_pair(kube: Kube, secret: str) -> Pair | None:
    """The certificate and its key; None where the Secret has them not."""
    found = await kube.get("v1", "Secret", secret, SYSTEM)
    data = (found or {}).get("data") or {}
    if CERTIFICATE not in data or KEY not in data:
        return None
    return Pair(base64.b64decode(data[CERTIFICATE]), base64.b64decode(data[KEY]))


def with_secret(template: Object, old: str, new: str) -> Object:
    """The template with another Secret in place of that one."""
    volumes = [
        {**volume, "secret": {**volume["secret"], "secretName": new}}
        if (volume.get("secret") or {}).get("secretName") == old
        else volume
        for volume in template["spec"].get("volumes") or ()
    ]
    return {**template, "spec": {**template["spec"], "volumes": volumes}}


def _flag(words: Iterable[str], name: str) -> str | None:
    return next((word.partition("=")[2] for word in words if word.startswith(f"--{name}=")), None)


def _secrets(spec: Object) -> Mapping[str, str]:
    return {one["name"]: one["secret"]["secretName"] for one in spec.get("volumes") or () if one.get("secret")}
