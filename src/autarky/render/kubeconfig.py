"""Kubeconfig files, as JSON: most with embedded credentials, and by default through the local load balancer."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

from autarky.model import ports
from autarky.render.values import Credentials, Inputs, pretty_json

RENEWER = "kubelet-renewal"
"""The name of the user in the kubeconfig with `certificates.renewal_certificate`."""
LOCAL_SERVER = f"https://127.0.0.1:{ports.NLLB_API}"
_TOKEN = re.compile("[a-z0-9]{6}[.][a-z0-9]{16}")
"""The format of bootstrap tokens in Kubernetes."""
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
EXTENSION = "autarky.dev/servers"
"""kubectl knows one server and ignores extensions; ours lists all equivalent servers."""


def client_kubeconfig(
    inputs: Inputs, user: str, certificate: str, *, server: str = LOCAL_SERVER, servers: Sequence[str] = ()
) -> bytes:
    """A kubeconfig whose identity is the named certificate of the pki directory ("scheduler", "admin"). `servers`:
    all equivalent servers, where there are several."""
    return _kubeconfig(inputs, server, user, _certificate_user(inputs.credentials, certificate), servers)


def file_kubeconfig(inputs: Inputs, user: str, certificate: str, key: str) -> bytes:
    """A kubeconfig whose certificate is read from these files, and again when they have changed."""
    return _kubeconfig(inputs, LOCAL_SERVER, user, {"client-certificate": certificate, "client-key": key})


def embeds_certificate(kubeconfig: bytes) -> bool:
    """Whether its certificate is embedded, and so never renewed. False for what cannot be parsed (kubelets' YAML)."""
    try:
        return any("client-certificate-data" in one["user"] for one in json.loads(kubeconfig)["users"])
    except _UNREADABLE:
        return False


def token_file_kubeconfig(inputs: Inputs, user: str, token_file: str) -> bytes:
    """A kubeconfig that reads a (rotating) service account token from a file."""
    return _kubeconfig(inputs, LOCAL_SERVER, user, {"tokenFile": token_file})


def bootstrap_kubeconfig(ca_pem: bytes, cluster: str, token: str) -> bytes:
    """What a joining kubelet starts from: a bootstrap token, valid for one node name only."""
    return _document(ca_pem, cluster, LOCAL_SERVER, "kubelet-bootstrap", {"token": token})


def pair_kubeconfig(ca_pem: bytes, cluster: str, user: str, certificate: bytes, key: bytes) -> bytes:
    """A kubeconfig with this certificate embedded."""
    identity = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    return _document(ca_pem, cluster, LOCAL_SERVER, user, identity)


def bootstrap_token(kubeconfig: bytes) -> str | None:
    """The token in what `bootstrap_kubeconfig` made; None where there is a certificate instead, or the file or token is
    malformed: whoever controls the host may have written anything."""
    try:
        token = json.loads(kubeconfig)["users"][0]["user"].get("token")
    except _UNREADABLE:
        return None
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else None


def embedded_certificate(kubeconfig: bytes) -> bytes | None:
    """The embedded certificate, as PEM; None where there is none, or it cannot be read."""
    try:
        return base64.b64decode(json.loads(kubeconfig)["users"][0]["user"]["client-certificate-data"])
    except _UNREADABLE:
        return None


def _certificate_user(credentials: Credentials, certificate: str) -> dict[str, str]:
    return {
        "client-certificate-data": _base64(credentials[f"{certificate}.crt"]),
        "client-key-data": _base64(credentials[f"{certificate}.key"]),
    }


def _kubeconfig(inputs: Inputs, server: str, user: str, identity: dict[str, str], servers: Sequence[str] = ()) -> bytes:
    return _document(inputs.credentials["ca.crt"], inputs.cluster.name, server, user, identity, servers)


def _document(
    ca_pem: bytes, cluster: str, server: str, user: str, identity: dict[str, str], servers: Sequence[str] = ()
) -> bytes:
    context = f"{user}@{cluster}"
    place: dict[str, Any] = {"server": server, "certificate-authority-data": _base64(ca_pem)}
    if len(servers) > 1:
        place["extensions"] = [{"name": EXTENSION, "extension": {"servers": list(servers)}}]
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": place}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": context, "context": {"cluster": cluster, "user": user}}],
        "current-context": context,
    }
    return pretty_json(document)


def _base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
