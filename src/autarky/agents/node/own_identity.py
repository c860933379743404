"""The node agent's identity: that of its kubelet, from the kubelet's own files.

Contract: damaged files are skipped. Without any identity the agent still runs: the API refuses its requests, and it
acts as without an API, which is much better for its node than no agent at all.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from autarky.errors import AutarkyError
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.net.tls import load_identity
from autarky.store import NOT_UNDERSTOOD

Identity = tuple[bytes, bytes]
"""A client certificate and its key, both PEM."""


def of_kubelet(rotated: Path, kubeconfig: Path, tell: Callable[[str, str], None]) -> Identity | None:
    """Its rotated certificate where there is one, else that of its first kubeconfig, which autarky wrote. (The one that
    a joining kubelet writes is YAML, for which the agent has no library, and contains nothing more.)"""
    for path, read in ((rotated, _rotated), (kubeconfig, _first)):
        try:
            found = read(path)
            if found is not None:
                load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), *found)
                return found
        except (AutarkyError, *NOT_UNDERSTOOD) as error:
            tell(f"identity in {path.name}", f"{path} cannot be used, so this agent does not use its identity: {error}")
    return None


def _rotated(path: Path) -> Identity | None:
    return (path.read_bytes(),) * 2 if path.exists() else None


def _first(path: Path) -> Identity | None:
    found = read_kubeconfig(path)
    if found.client_cert_pem is None or found.client_key_pem is None:
        return None
    return found.client_cert_pem, found.client_key_pem
