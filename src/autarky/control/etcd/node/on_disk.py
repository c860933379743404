"""etcd's files on this node: data, static pods, certificates; and the changes that the agent makes to them.

Contract: what cannot be read is None, which never means "nothing". Each change is one rename or removal, made durable,
so that it may be interrupted anywhere; data is moved aside under a timestamp and never deleted (rule 3).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autarky import places
from autarky.control.etcd.decide.change import Change
from autarky.control.etcd.decide.local import Data, Manifest
from autarky.control.etcd.manifests import pods as etcd
from autarky.etcd import read_identity
from autarky.model import ports
from autarky.model.components import ETCD
from autarky.model.etcd_members import second
from autarky.ports import Object
from autarky.render.node import manifest
from autarky.store import NOT_UNDERSTOOD, sync_directory, write_private

DATA = Path(places.ETCD_DATA)
MEMBER = Path(etcd.MEMBER_DIRECTORY)
CA = Path(etcd.PKI, "ca.crt")
MANIFESTS = Path(places.MANIFESTS)
MEMBERS = Path(places.MEMBERS_FILE)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a member of this node may be. component: of its pod, with which the names of its static pods begin."""

    component: str
    below: str
    """Of DATA: the part of its path."""

    @property
    def data(self) -> Path:
        return DATA / self.below

    @property
    def member(self) -> Path:
        return self.data / "member"


FIRST, SECOND = Seat(ETCD, ""), Seat(etcd.SECOND, Path(etcd.SECOND_DATA).name)
"""The second one is for the time of a change of the only member (`decide.second`)."""
KEPT_OF_CHANGE = "kept.change"
"""What the first one had before the last such change. One is enough: its successor has had all of it."""


def data(seat: Seat = FIRST) -> Data | None:
    """Whose data the directory contains; None where that cannot be determined."""
    try:
        found = read_identity(seat.data)
        anything = seat.member.exists()
    except NOT_UNDERSTOOD:
        return None
    return Data(anything=anything) if found is None else Data(found.member, found.cluster, anything)


def manifests(seat: Seat = FIRST) -> tuple[Manifest, ...] | None:
    """The static pods of etcd in place; None when they cannot be read."""
    try:
        return tuple(_read(path) for path in _paths(seat))
    except OSError:
        return None


def has_member(seat: Seat = FIRST) -> bool:
    """Whether a static pod of etcd is in place."""
    return bool(manifests(seat))


def has_second() -> bool:
    """Whether there is anything of a second member."""
    return has_member(SECOND) or SECOND.data.exists()


def is_fenced() -> bool:
    """Whether a recovery of etcd is under way, which alone may start a member here."""
    return Path(places.ETCD_FENCE).exists()


def drop_fence() -> None:
    """Without putting the member back that it has taken away. OSError."""
    Path(places.ETCD_FENCED).unlink(missing_ok=True)
    Path(places.ETCD_FENCE).unlink(missing_ok=True)
    sync_directory(Path(places.ETCD_FENCE).parent)


def has_certificates() -> bool:
    return all(Path(path).exists() for path in etcd.PKI_FILES)


def stop(seat: Seat = FIRST) -> None:
    """Remove etcd's static pods: the kubelet stops them. OSError."""
    remove([path.name for path in _paths(seat)])


def move_aside(now: float, seat: Seat = FIRST) -> Path:
    """Move the data into a directory of its own, on the same file system: /var/lib/etcd may be a mount point.
    `now`: Unix seconds. OSError."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = DATA / (f"kept.{stamp}" if seat is FIRST else f"kept.{stamp}.{seat.below}")
    kept.mkdir(mode=0o700, exist_ok=True)
    _moved(kept, seat)
    if seat is SECOND:
        remove_second()
    return kept


def move_aside_for_change() -> Path:
    """The same where a second member of this node has taken over all of it. What an earlier change has left gives way:
    changes come more often than disks have room. OSError."""
    kept = DATA / KEPT_OF_CHANGE
    if MEMBER.exists() and kept.exists():
        shutil.rmtree(kept)
    kept.mkdir(mode=0o700, exist_ok=True)
    return _moved(kept)


def _moved(kept: Path, seat: Seat = FIRST) -> Path:
    """Without the note of its cluster: at the next boot it would be taken for that of the data which comes then."""
    Path(places.ETCD_CLUSTER).unlink(missing_ok=True)
    seat.member.rename(kept / MEMBER.name)
    for directory in {kept, DATA, seat.data}:
        sync_directory(directory)
    return kept


def remove_second() -> None:
    """Its data, once etcd does not list it and it does not run: whoever made it leave has had all of it. OSError."""
    if SECOND.data.exists():
        shutil.rmtree(SECOND.data)
    sync_directory(DATA)


def start(pod: Object, seat: Seat = FIRST) -> None:
    """Let the member start: write what it needs, then its static pod. OSError."""
    DATA.chmod(0o700)
    seat.member.mkdir(mode=0o700, exist_ok=True, parents=True)
    seat.data.chmod(0o700)
    for directory in (seat.data, DATA):
        sync_directory(directory)
    write_private(seat.member / Path(etcd.PEER_CA).name, CA.read_bytes())
    put(pod)


def put(pod: Object) -> None:
    """A static pod in place. OSError."""
    file = manifest(pod)
    write_private(MANIFESTS / Path(file.path).name, file.content, mode=file.mode)


def remove(names: Sequence[str]) -> None:
    """These files of static pods. OSError."""
    for name in names:
        (MANIFESTS / name).unlink(missing_ok=True)
    sync_directory(MANIFESTS)


def pods_in_place(seat: Seat = FIRST) -> dict[str, Object] | None:
    """File → static pod; an empty one where the file cannot be understood. None where they cannot be read."""
    try:
        return {path.name: _pod(path) for path in _paths(seat)}
    except OSError:
        return None


def _pod(path: Path) -> Object:
    try:
        found = json.loads(path.read_bytes())
        return dict(found) if isinstance(found, dict) else {}
    except FileNotFoundError:
        return {}
    except ValueError:
        return {}


# --- a change of the member -------------------------------------------------------------------------

_KEYS = frozenset(one.name for one in fields(Change))
_IN_WHY = ("member", "cluster", "tried")
_WHOSE = re.compile(r"\[member ([0-9a-f]+) of cluster ([0-9a-f]+), ([0-9]+) earlier starts\] ?")


def change() -> Change | None:
    """The one that is under way, or was given up; None where there is none. OSError; ValueError for a damaged one."""
    try:
        text = Path(places.ETCD_CHANGE).read_text()
    except FileNotFoundError:
        return None
    try:
        found = _named(json.loads(text))
        return Change(**{key: found[key] for key in found.keys() & _KEYS})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{places.ETCD_CHANGE}: {error}") from error


def note_change(found: Change) -> None:
    """OSError."""
    write_private(Path(places.ETCD_CHANGE), (json.dumps(_noted(found), indent=2) + "\n").encode())


def _noted(found: Change) -> dict[str, Any]:
    """In the keys that the release before knows: agents go back to that by themselves, and it drops a note with any
    other key as damaged, after which nothing puts the static pod in place that was taken away for the change. It keeps
    `why`, which says whose change it is in front of what etcd may have said; where it goes back it writes that afresh,
    and the note is of the member whose data is there."""
    said = {key: value for key, value in asdict(found).items() if key not in _IN_WHY}
    if found.over or found.member is None or found.cluster is None:
        return said
    whose = f"[member {found.member:x} of cluster {found.cluster:x}, {found.tried} earlier starts]"
    return {**said, "why": f"{whose} {found.why}" if found.why else whose}


def _named(said: dict[str, Any]) -> dict[str, Any]:
    """The opposite."""
    whose = _WHOSE.match(str(said.get("why", "")))
    if whose is None:
        return said
    member, cluster, tried = int(whose[1], 16), int(whose[2], 16), int(whose[3])
    return {**said, "why": said["why"][whose.end() :], "member": member, "cluster": cluster, "tried": tried}


def forget_change() -> None:
    """OSError."""
    Path(places.ETCD_CHANGE).unlink(missing_ok=True)
    sync_directory(Path(places.ETCD_CHANGE).parent)


def is_changing() -> bool:
    """Whether a change is under way, also where that cannot be known."""
    try:
        found = change()
    except (OSError, ValueError):
        return True
    return found is not None and not found.over


# --- what this node knows of the members ------------------------------------------------------------


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
    """Of the last known members whose clients are where those of control nodes' members are: what answers there in the
    stead of one that is elsewhere is another etcd. Empty where none are known."""
    try:
        return [found for member in json.loads(MEMBERS.read_text()) if (found := _address(member))]
    except NOT_UNDERSTOOD:
        return []


def _address(member: Object) -> str:
    address, port = str(member["address"]), member.get("port", ports.ETCD_CLIENT)
    return {ports.ETCD_CLIENT: address, ports.ETCD_SECOND_CLIENT: second(address)}.get(port, "")


def _paths(seat: Seat) -> list[Path]:
    return sorted(path for path in MANIFESTS.iterdir() if path.match(f"{seat.component}-*.json"))


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
