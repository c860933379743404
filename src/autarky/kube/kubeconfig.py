"""Reading kubeconfig files, ours and the user's.

Differences from kubectl: one file, not a list of them; no exec plugins, auth providers or passwords, no
proxies, and no servers whose certificate is not checked: these are refused by name.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autarky.errors import UserError

SERVERS = "autarky.dev/servers"
"""The extension in which our files list equivalent servers; kubectl ignores it."""
_REFUSED_IN_USER = ("exec", "auth-provider", "username", "password", "as")
_REFUSED_IN_CLUSTER = ("insecure-skip-tls-verify", "proxy-url")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Where a cluster is and the credentials for it. A token file is read again at each use. `others`: equivalent
    servers, if the file lists them (render/kubeconfig.py)."""

    server: str
    ca_pem: bytes | None
    client_cert_pem: bytes | None = None
    client_key_pem: bytes | None = field(default=None, repr=False)
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    server_name: str | None = None
    others: tuple[str, ...] = ()


def read_kubeconfig(path: Path, context: str | None = None) -> Kubeconfig:
    """The current (or named) context. Raises UserError for what is missing, broken or not supported."""
    document = _load(path)
    name = context or document.get("current-context") or ""
    chosen = _named(document, "contexts", "context", name, path)
    cluster = _named(document, "clusters", "cluster", chosen.get("cluster", ""), path)
    user = _named(document, "users", "user", chosen.get("user", ""), path)
    _refuse(cluster, _REFUSED_IN_CLUSTER, path)
    _refuse(user, _REFUSED_IN_USER, path)
    if not cluster.get("server"):
        raise UserError(f"the cluster of context {name} has no server", where=str(path), fix="add its URL")
    return Kubeconfig(
        server=cluster["server"],
        ca_pem=_content(cluster, "certificate-authority", path),
        client_cert_pem=_content(user, "client-certificate", path),
        client_key_pem=_content(user, "client-key", path),
        token=_token(user, path),
        server_name=cluster.get("tls-server-name") or None,
        others=tuple(server for server in _servers(cluster) if server != cluster["server"]),
    )


def _servers(cluster: Mapping[str, Any]) -> list[str]:
    """Content of our extension of the cluster; other extensions are ignored."""
    extensions = {entry.get("name"): entry.get("extension") or {} for entry in cluster.get("extensions") or []}
    return [str(server) for server in extensions.get(SERVERS, {}).get("servers") or []]


def _load(path: Path) -> Mapping[str, Any]:
    try:
        document = _parse(path.read_bytes(), path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), fix="give a kubeconfig file") from error
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise UserError("it is not a kubeconfig (kind: Config)", where=str(path), fix="give a kubeconfig file")
    return document


def _parse(content: bytes, path: Path) -> object:
    """JSON first, which ours are: agents then never load the YAML library, which their image does not have."""
    try:
        return json.loads(content)
    except ValueError:
        pass
    try:
        import yaml  # noqa: PLC0415 # see above
    except ImportError:
        raise UserError("it is not JSON", where=str(path), fix="write it as JSON, which YAML includes") from None
    try:
        return yaml.load(content, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        # The library's text quotes the file, which holds keys.
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else str(path)
        raise UserError("it is not YAML", where=where, fix="correct the file or write a new one") from None


def _named(document: Mapping[str, Any], section: str, what: str, name: str, path: Path) -> Mapping[str, Any]:
    entries = {entry.get("name"): entry.get(what) or {} for entry in document.get(section) or []}
    if name not in entries:
        known = ", ".join(str(known) for known in entries) or "none"
        raise UserError(
            f"there is no {what} «{name}»; there is: {known}", where=str(path), fix=f"name one of {section}"
        )
    found: Mapping[str, Any] = entries[name]
    return found


def _refuse(entry: Mapping[str, Any], keys: tuple[str, ...], path: Path) -> None:
    used = [key for key in keys if entry.get(key)]
    if used:
        raise UserError(
            f"{', '.join(used)}: not supported",
            where=str(path),
            fix="use a client certificate or a token, and the server's CA certificate",
        )


def _content(entry: Mapping[str, Any], key: str, path: Path) -> bytes | None:
    """Embedded data goes before a file; relative paths start at the kubeconfig's directory."""
    data, file = entry.get(f"{key}-data"), entry.get(key)
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, TypeError):
            raise UserError(f"{key}-data is not base64", where=str(path), fix="correct it, or name a file") from None
    return _read(path.parent / file) if file else None


def _token(user: Mapping[str, Any], path: Path) -> str | Callable[[], str] | None:
    if file := user.get("tokenFile"):
        return lambda: _read(path.parent / file).decode().strip()
    token: str | None = user.get("token") or None
    return token


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", where=str(path), fix="correct the path in the kubeconfig"
        ) from error
