"""What an archive says of itself: `manifest.json`, its first file. Pure.

Contract: it names every other file with its size and digest, and is undamaged as the archive is. What is read has the
types that it is declared with, and names files that fit into memory, but for the snapshot. Dangers: an archive of a
later form may mean something else by the same names, so only known forms are read. Whoever knows a recipient can seal
an archive, and writes what he likes into its manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TypeVar

from autarky.archive.opening import Content
from autarky.errors import UserError
from autarky.parsing import parsed

MANIFEST = "manifest.json"
SNAPSHOT = "etcd/snapshot.db"
CLUSTER_FILE = "cluster/cluster.json"
CONTROL_PLANE = "cluster/control-plane.json"
HOST = "host/"
"""Prefix of files of the control node that made the archive, by their paths there."""
FORM = 1
MOST_BESIDES = 32 * 1024 * 1024
"""Bytes of all files but the snapshot: who reads an archive holds them before they prove who has made it. Those of a
control node have a few hundred KB."""
_MOST_MANIFEST = 4 * 1024 * 1024
_MOST_NUMBER = 2**63 - 1
_ID = re.compile("[0-9a-f]{1,16}")
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSeen:
    """size in bytes, sha256 in hex."""

    size: int
    sha256: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class EtcdSeen:
    """The snapshot. cluster: etcd's id, in hex. keys: counted in an etcd that was started from it. members: names of
    the members there were. quorum: whether their quorum confirmed that it has all that was acknowledged. alarms: their
    kinds; with one of them etcd took no writes."""

    version: str
    cluster: str
    revision: int
    keys: int
    size: int
    members: Sequence[str] = ()
    quorum: bool = True
    alarms: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """cluster, ca: its name and the fingerprint of its CA. made: RFC 3339. node: where."""

    cluster: str
    ca: str
    made: str
    node: str
    autarky: str
    kubernetes: str
    etcd: EtcdSeen
    files: Mapping[str, FileSeen] = field(default_factory=dict)
    form: int = FORM

    def written(self) -> bytes:
        """Without alarms where there are none: an earlier release reads no manifest that has them."""
        content = asdict(self)
        if not self.etcd.alarms:
            del content["etcd"]["alarms"]
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def read(content: bytes) -> Contents:
    """UserError where it cannot be understood."""
    try:
        found = parsed(content)
        if not isinstance(found, dict) or found.get("form") != FORM:
            form = found.get("form") if isinstance(found, dict) else None
            raise UserError(f"the archive has form {form!r}; this autarky reads form {FORM}", fix="use a newer autarky")
        etcd = _typed(EtcdSeen(**found["etcd"]))
        files = {name: _typed(FileSeen(**one)) for name, one in found["files"].items()}
        etcd = replace(etcd, members=tuple(etcd.members), alarms=tuple(etcd.alarms))
        return _typed(Contents(**{**found, "etcd": etcd, "files": files}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"the archive's manifest cannot be read: {error}", fix="use another backup") from error


_Said = TypeVar("_Said", FileSeen, EtcdSeen, Contents)


def _typed(one: _Said) -> _Said:
    """ValueError where a value has another type than it is declared with, or is no number or id that there can be."""
    fits = {"str": _is_text, "int": _is_number, "bool": _is_flag, "Sequence[str]": _is_texts}
    for declared in fields(one):
        value = getattr(one, declared.name)
        if declared.type in fits and not fits[str(declared.type)](value):
            raise ValueError(f"{declared.name} is {str(value)[:40]!r}")
    if isinstance(one, EtcdSeen) and not _ID.fullmatch(one.cluster):
        raise ValueError(f"{one.cluster[:40]!r} is no id of a cluster of etcd")
    return one


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST_NUMBER


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def refuse_large(contents: Contents, fix: str) -> None:
    """UserError where its files, but for the snapshot, are more than whoever reads it takes into memory."""
    size = sum(one.size for name, one in contents.files.items() if name != SNAPSHOT)
    if size > MOST_BESIDES:
        what = f"the archive's files have {size:,} bytes besides the snapshot, and {MOST_BESIDES:,} are the most"
        raise UserError(what, fix=fix)


@dataclass(frozen=True, slots=True)
class Arriving:
    """One file of an archive as it comes; read it in pieces to its end."""

    name: str
    _content: Content
    _seen: FileSeen

    def pieces(self) -> Iterator[bytes]:
        """UserError at its end if it is not what the manifest says."""
        digest = hashlib.sha256()
        size = 0
        while piece := self._content.read(_CHUNK):
            digest.update(piece)
            size += len(piece)
            if size > self._seen.size:
                break  # a few bytes may unpack to any number
            yield piece
        if (size, digest.hexdigest()) != (self._seen.size, self._seen.sha256):
            raise UserError(f"the archive is damaged: {self.name} is not what its manifest says", fix="use another one")


def checked(files: Iterator[tuple[str, Content]]) -> tuple[Contents, Iterator[Arriving]]:
    """The manifest, and the other files as they come. UserError if it is not the first one, or names too much; or if
    files are missing, unknown or different: the last only once all have been read."""
    first, content = next(files, (None, None))
    if first != MANIFEST or content is None:
        raise UserError("this is not a backup of autarky: its first file is no manifest", fix="give another file")
    contents = read(content.read(_MOST_MANIFEST))
    refuse_large(contents, "use another backup")
    return contents, _arriving(contents, files)


def _arriving(contents: Contents, files: Iterable[tuple[str, Content]]) -> Iterator[Arriving]:
    missing = dict(contents.files)
    for name, content in files:
        seen = missing.pop(name, None)
        if seen is None:
            raise UserError(f"the archive has {name!r}, which its manifest does not name", fix="use another backup")
        yield Arriving(name, content, seen)
    if missing:
        raise UserError(f"the archive lacks {', '.join(sorted(missing)[:3])}", fix="use another backup")
