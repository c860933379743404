"""etcd's files on this node: data, static pods, certificates; and the changes that the agent makes to them.

Contract: what cannot be read is None, which never means "nothing". Each change is one rename or removal, made durable,
so that it may be interrupted anywhere; data is moved aside under a timestamp and never deleted (rule 3).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from autarky import places
from autarky.control.etcd.decide.local import Data, Manifest
from autarky.control.etcd.manifests import pods as etcd
from autarky.etcd import read_identity
from autarky.model.components import ETCD
from autarky.ports import Object
from autarky.render.node import manifest
from autarky.store import NOT_UNDERSTOOD, write_private

DATA = Path(places.ETCD_DATA)
MEMBER = Path(etcd.MEMBER_DIRECTORY)
CA = Path(etcd.PKI, "ca.crt")
MANIFESTS = Path(places.MANIFESTS)
MEMBERS = Path(places.MEMBERS_FILE)


def data() -> Data | None:
    """Whose data the directory contains; None where that cannot be determined."""
    try:
        found = read_identity(DATA)
        anything = MEMBER.exists()
    except NOT_UNDERSTOOD:
        return None
    return Data(anything=anything) if found is None else Data(found.member, found.cluster, anything)


def manifests() -> tuple[Manifest, ...] | None:
    """The static pods of etcd in place; None when they cannot be read."""
    try:
        return tuple(_read(path) for path in _paths())
    except OSError:
        return None


def has_member() -> bool:
    """Whether a static pod of etcd is in place."""
    return bool(manifests())


def is_fenced() -> bool:
    """Whether a recovery of etcd is under way, which alone may start a member here."""
    return Path(places.ETCD_FENCE).exists()


def has_certificates() -> bool:
    return all(Path(path).exists() for path in etcd.PKI_FILES)


def stop() -> None:
    """Remove etcd's static pods: the kubelet stops them. OSError."""
    for path in _paths():
        path.unlink(missing_ok=True)
    _sync(MANIFESTS)


def move_aside(now: float) -> Path:
    """Move the data into a directory of its own, on the same file system: /var/lib/etcd may be a mount point.
    `now`: Unix seconds. OSError."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = DATA / f"kept.{stamp}"
    kept.mkdir(mode=0o700, exist_ok=True)
    MEMBER.rename(kept / MEMBER.name)
    for directory in (kept, DATA):
        _sync(directory)
    return kept


def start(pod: Object) -> None:
    """Let the member start: write what it needs, then its static pod. OSError."""
    DATA.chmod(0o700)
    MEMBER.mkdir(mode=0o700, exist_ok=True)
    _sync(DATA)
    write_private(MEMBER / Path(etcd.PEER_CA).name, CA.read_bytes())
    file = manifest(pod)
    write_private(Path(file.path), file.content, mode=file.mode)


def remember_members(members: Sequence[Object]) -> bool:
    """Record them for the load balancer, which must know them without the API; whether that was a change. OSError."""
    content = (json.dumps(list(members), indent=2) + "\n").encode()
    try:
        if MEMBERS.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    write_private(MEMBERS, content)
    return True


def remember_cluster(cluster: int) -> None:
    """Record which cluster the data belongs to, for the next boot. OSError."""
    content = f"{cluster:x}\n".encode()
    path = Path(places.ETCD_CLUSTER)
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


def remembered_addresses() -> list[str]:
    """Of the last known members; empty where none are known."""
    try:
        return [str(member["address"]) for member in json.loads(MEMBERS.read_text())]
    except NOT_UNDERSTOOD:
        return []


def _paths() -> list[Path]:
    return sorted(path for path in MANIFESTS.iterdir() if path.match(f"{ETCD}-*.json"))


def _read(path: Path) -> Manifest:
    """A damaged one was written for nobody, so a new member replaces it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Manifest()
    try:
        return Manifest(int(json.loads(content)["metadata"]["annotations"][etcd.WRITTEN_FOR], 16))
    except NOT_UNDERSTOOD:
        return Manifest()


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
