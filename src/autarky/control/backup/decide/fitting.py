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
    """Refused where it is of another cluster, or of another version than the file asks for on new machines."""
    refuse_another_cluster(archive, cluster)
    refuse_newer_etcd(archive.etcd, cluster.etcd)
    refuse_another_file(archive.kubernetes, cluster.kubernetes)


def refuse_another_cluster(archive: Side, cluster: Side) -> None:
    """A name is no proof, and the archive does not say who has made it: the CA does."""
    if cluster.ca is None or archive.ca != cluster.ca:
        raise Refused(
            SAME_CLUSTER,
            f"the archive is of cluster {archive.cluster} with the CA {_short(archive.ca)}, and this is cluster"
            f" {cluster.cluster} with the CA {_short(cluster.ca)}",
            "restore it into its own cluster; where no machine is left of that, see `autarky recover`",
        )


def refuse_newer_etcd(data: str, cluster: str) -> None:
    """data: the version that has written it. cluster: the newest version that its hosts can run."""
    if minor_of(data) > minor_of(cluster):
        raise Refused(
            OWN_VERSION,
            f"its snapshot is of etcd {data}, and this cluster has etcd {cluster}",
            "bring the cluster to that version first",
        )


def refuse_another_kubernetes(data: str, *cluster: str) -> None:
    """cluster: the versions that its API servers have. While an upgrade is under way these are two, and the data of
    either fits."""
    if _version(data) not in map(_version, cluster):
        raise Refused(
            OWN_VERSION,
            f"it was made with Kubernetes {data}, and this cluster has {' and '.join(cluster)}: its control"
            " plane in the API would not fit what is on the nodes",
            f"use a backup of that version, or bring the cluster to {data} first",
        )


def refuse_another_file(data: str, in_file: str) -> None:
    """For new machines, which have no version yet but the one that they are prepared for."""
    if _version(data) != _version(in_file):
        raise Refused(
            OWN_VERSION,
            f"the backup was made with Kubernetes {data}, and the file says {in_file}",
            f'write kubernetesVersion: "{data.removeprefix("v")}" in the file; another version is for later'
            " (`autarky upgrade`)",
        )


def refuse_no_version(data: str) -> None:
    _version(data)


def _short(ca: str | None) -> str:
    return ca[:16] if ca else "unknown"


def _version(text: str) -> Version:
    """UserError where it is no version: an archive may say anything."""
    try:
        return Version.parse(text)
    except ValueError as error:
        raise UserError(f"{text!r} is no version of Kubernetes", fix="use another backup") from error


def minor_of(version: str) -> tuple[int, int]:
    """UserError where it is no version."""
    try:
        major, minor = version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except ValueError as error:
        raise UserError(f"{version!r} is no version of etcd", fix="use another backup") from error
