"""Which cluster a host belongs to: this state directory's, another one, or none.

Contract: pure. A host belongs to a cluster by the fingerprint of that cluster's CA; a name is no proof, since two
clusters may have the same one, and a second workstation may have the same file with other keys. A host that has a
marker and is not proven to be ours is never touched (rule 2: unknown is not down, and not free either).

Invariants: without a CA of our own no host that has a marker is ours. A marker that names another CA is never ours. A
host without a marker belongs to no cluster: the preflight checks look at what is on its disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from autarky.model.names import is_name

SHOWN = 16
"""Digits of a fingerprint in messages."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a host reports. cluster, ca: from its marker; None where the marker cannot be read, or has none (one of an
    older release has no fingerprint). disk: the fingerprint of the CA on its disk."""

    cluster: str | None
    ca: str | None
    disk: str | None
    version: str | None = None
    """Of Kubernetes, in the marker; one of an older release has none."""

    @classmethod
    def of(cls, marker: bytes, disk: str | None) -> Said:
        """Never raises: a marker that is damaged, or nested too deeply, counts as empty."""
        try:
            content = json.loads(marker)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            return cls(None, None, disk)
        cluster, ca, version = (_text(content.get(key)) for key in ("cluster", "ca", "version"))
        if cluster is not None and not is_name(cluster):  # whoever controls the host may have written anything
            cluster = None
        return cls(cluster, ca, disk, version)

    @property
    def proven(self) -> str | None:
        """The fingerprint that counts: of the marker, else of the CA on the disk."""
        return self.ca or self.disk


@dataclass(frozen=True, slots=True)
class Ours:
    """The cluster that this state directory has. ca: the fingerprint of its CA, None where it has none yet."""

    cluster: str
    ca: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a host must not be touched, as a clause after its name, and how to continue."""

    seen: str
    go_on: str


def refuse(said: Said, ours: Ours, *, login: str, known_to_api: bool = False, by_name: bool = False) -> Refusal | None:
    """Why the host is not ours; None where it is.

    login: the command that fetches the state of the host's cluster. known_to_api: whether the API, which our CA
    verifies, has the host's node. by_name: whether a marker of an older release is enough where no CA is on the disk:
    for `down`, which may have been interrupted after it removed the CA.
    """
    if said.cluster is not None and said.cluster != ours.cluster:
        go_on = f"take that cluster down first (`autarky down --cluster {said.cluster}`), or name another host"
        return Refusal(f"belongs to the cluster {said.cluster}", go_on)
    whose = f"a cluster {said.cluster}" if said.cluster is not None else "a cluster (its marker cannot be read)"
    if ours.ca is None:
        seen = f"belongs to {whose}{_by(said.proven)}, of which this state directory has nothing"
        return Refusal(seen, f"{login} fetches it")
    if said.proven is not None:
        if said.proven == ours.ca:
            return None
        seen = f"belongs to another cluster of the same name: its CA is {_short(said.proven)}, ours {_short(ours.ca)}"
        return Refusal(seen, f"{login} in another state directory (XDG_STATE_HOME), or name another host")
    if said.cluster is not None and (known_to_api or by_name):
        return None
    seen = f"has the marker of {whose} that names no CA, and has no CA on its disk"
    return Refusal(seen, "find out whose it is; if nobody's, remove /var/lib/autarky/state/node.json there")


def refuse_api(said: str, ours: Ours) -> Refusal | None:
    """Why the API is not that of our cluster, though our CA verifies it: the CAs of several clusters may share a root.
    said: the fingerprint in its record; empty in one of an older release."""
    if not said or ours.ca is None or said == ours.ca:
        return None
    seen = f"keeps the record of another cluster: its CA is {_short(said)}, ours {_short(ours.ca)}"
    return Refusal(seen, "correct the address of the API: it leads to another cluster")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _by(ca: str | None) -> str:
    return "" if ca is None else f" whose CA is {_short(ca)}"


def _short(ca: str) -> str:
    return ca[:SHOWN]
