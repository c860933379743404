"""Files and certificates as values: what the renderers produce and the hosts and the PKI carry out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class File:
    """One complete file on a host. Written atomically (temporary name, fsync, rename).

    Owner is always root. Secrets have mode 0o600; `content` never appears in repr, logs or plans.
    """

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o644


Usage = Literal["server", "client"]


@dataclass(frozen=True, slots=True)
class CertSpec:
    """A leaf certificate to be issued: everything about it but the key.

    name: its file stem in the cluster's pki directory, e.g. "apiserver" or "etcd/server-n1".
    ca:   the name of the CA that signs it: "ca", "front-proxy-ca" or "etcd/ca".
    lasting: it is valid for as long as its CA.
    """

    name: str
    ca: str
    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    usages: tuple[Usage, ...] = ("client",)
    lasting: bool = False
