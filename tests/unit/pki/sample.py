"""A small cluster's certificates, as a specification and as files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.pki.issue import Pair

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = CertificateSettings()
SERVER = CertSpec("apiserver", "ca", "kube-apiserver", (), ("localhost",), ("10.0.0.1",), ("server",))
SPECS = (
    SERVER,
    CertSpec("super-admin", "ca", "autarky:super-admin", ("system:masters",)),
    CertSpec("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
    CertSpec("etcd/server-n1", "etcd/ca", "etcd-server-n1", (), ("n1",), ("10.0.0.1",), ("server", "client")),
)
ALL = ["ca", "front-proxy-ca", "etcd/ca", "sa", *(spec.name for spec in SPECS)]
"""What is issued for SPECS."""


def names(reasons: Sequence[str]) -> list[str]:
    """What a plan is about."""
    return [reason.partition(" ")[0] for reason in reasons]


def put(directory: Path, name: str, pair: Pair) -> None:
    """Write a pair as somebody else would."""
    certificate = directory / f"{name}.crt"
    certificate.parent.mkdir(parents=True, exist_ok=True)
    certificate.write_bytes(pair.certificate)
    (directory / f"{name}.key").write_bytes(pair.key)
