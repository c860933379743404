"""What a restore takes away: the objects that were created, changed or deleted since the snapshot. Pure.

Contract: judged by etcd's own figures, so by what was written, not by what it says. A key that is in both with the same
creation and another last change was changed; with another creation it was deleted and created again, which counts as
changed. Exact as long as both are of one history: after a restore unchanged keys keep their figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PREFIX = "/registry/"
FLEETING = frozenset({"events", "leases", "masterleases", "peerserverleases", "endpoints", "endpointslices"})
"""Kinds that controllers and kubelets write again and again, by themselves."""
ALIVE = frozenset({"nodes", "etcdmembers.autarky.dev", "controlplanes.autarky.dev"})
"""Whose status changes all the time: that they were changed says nothing."""
_SHOWN = 5
_RENAMED = {"minions": "nodes", "services/specs": "services", "services/endpoints": "endpoints"}
"""Where a kind is kept under another name (kube-apiserver's storage)."""

Written = tuple[int, int]
"""The revisions of a key's creation and of its last change."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Keys, sorted."""

    created: tuple[str, ...]
    changed: tuple[str, ...]
    deleted: tuple[str, ...]


def compare(then: Mapping[str, Written], now: Mapping[str, Written]) -> Loss:
    """then: in the snapshot. now: in the cluster."""
    return Loss(
        created=tuple(sorted(now.keys() - then.keys())),
        changed=tuple(sorted(key for key in now.keys() & then.keys() if now[key] != then[key])),
        deleted=tuple(sorted(then.keys() - now.keys())),
    )


def sentences(loss: Loss) -> list[str]:
    """For people: what is fleeting in one sentence, the rest by kind with the first names."""
    parts = (
        ("created since the backup, and gone after the restore", loss.created, FLEETING),
        ("changed since the backup, and again as they were", loss.changed, FLEETING | ALIVE),
        ("deleted since the backup, and back after the restore", loss.deleted, FLEETING),
    )
    found, passed = [], 0
    for what, keys, over in parts:
        kinds = _by_kind(keys)
        lasting = [_clause(kind, names) for kind, names in sorted(kinds.items()) if kind not in over]
        passed += sum(len(names) for kind, names in kinds.items() if kind in over)
        if lasting:
            found.append(f"{what}: {'; '.join(lasting)}")
    if passed and found:
        found.append(
            f"{passed:,} events, leases, endpoints and states of nodes are not listed: they change by themselves"
        )
    return found or ["nothing was written since the backup"]


def kind_of(key: str) -> tuple[str, str]:
    """(resource, namespace and name) of a key: "deployments", "demo/web"."""
    words = key.removeprefix(PREFIX).split("/")
    two = "/".join(words[:2])
    if two in _RENAMED:
        return _RENAMED[two], "/".join(words[2:])
    if "." in words[0] and len(words) > 2:
        return f"{words[1]}.{words[0]}", "/".join(words[2:])
    return _RENAMED.get(words[0], words[0]), "/".join(words[1:])


def _by_kind(keys: Iterable[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        kind, name = kind_of(key)
        found[kind].append(name)
    return found


def _clause(kind: str, names: list[str]) -> str:
    shown = ", ".join(name for name in names[:_SHOWN] if name)
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{len(names):,} {kind}" + (f" ({shown}{more})" if shown else "")
