"""Whether an archive may be restored into a cluster. Pure; asked before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass

from autarky.errors import Refused, UserError
from autarky.model.versions import Version

SAME_CLUSTER = "a cluster is restored from its own backups"
OWN_VERSION = "data is read by the version that wrote it, or a later one"


@dataclass(frozen=True, slots=True)
class Side:
    """The archive or the cluster. ca: the fingerprint of its CA; None where it is not known. etcd: as etcd says it,
    without v; empty where it is not known."""

    cluster: str
    ca: str | None
    kubernetes: str
    etcd: str


def refuse_unfit(archive: Side, cluster: Side) -> None:
    """Refused where it is of another cluster, or of another version than the cluster can read. A name is no proof, and
    the archive does not say who has made it: the CA does."""
    if cluster.ca is None or archive.ca != cluster.ca:
        raise Refused(
            SAME_CLUSTER,
            f"the archive is of cluster {archive.cluster} with the CA {_short(archive.ca)}, and this is cluster"
            f" {cluster.cluster} with the CA {_short(cluster.ca)}",
            "restore it into its own cluster; where no machine is left of that, see `autarky recover`",
        )
    if _minor(archive.etcd) > _minor(cluster.etcd):
        raise Refused(
            OWN_VERSION,
            f"its snapshot is of etcd {archive.etcd}, and this cluster has etcd {cluster.etcd}",
            "bring the cluster to that version first",
        )
    if _version(archive.kubernetes) != _version(cluster.kubernetes):
        raise Refused(
            OWN_VERSION,
            f"it was made with Kubernetes {archive.kubernetes}, and this cluster has {cluster.kubernetes}: its control"
            " plane in the API would not fit what is on the nodes",
            f"bring the cluster to {archive.kubernetes} first",
        )


def _short(ca: str | None) -> str:
    return ca[:16] if ca else "unknown"


def _version(text: str) -> Version:
    """UserError where it is no version: an archive may say anything."""
    try:
        return Version.parse(text)
    except ValueError as error:
        raise UserError(f"{text!r} is no version of Kubernetes", fix="use another backup") from error


def _minor(version: str) -> tuple[int, int]:
    """UserError where it is no version."""
    try:
        major, minor = version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except ValueError as error:
        raise UserError(f"{version!r} is no version of etcd", fix="use another backup") from error
