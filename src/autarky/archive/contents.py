"""What an archive says of itself: `manifest.json`, its first file. Pure.

Contract: it names every other file with its size and digest, and is undamaged as the archive is. Danger: an archive of
a later form may mean something else by the same names, so only known forms are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

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
_MOST_MANIFEST = 4 * 1024 * 1024
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSeen:
    """size in bytes, sha256 in hex."""

    size: int
    sha256: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class EtcdSeen:
    """The snapshot. keys: counted in an etcd that was started from it. members: names of the members there were.
    quorum: whether their quorum confirmed that it has all that was acknowledged."""

    version: str
    cluster: str
    revision: int
    keys: int
    size: int
    members: Sequence[str] = ()
    quorum: bool = True


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
        return (json.dumps(asdict(self), indent=1, sort_keys=True) + "\n").encode()


def read(content: bytes) -> Contents:
    """UserError where it cannot be understood."""
    try:
        found = parsed(content)
        if not isinstance(found, dict) or found.get("form") != FORM:
            form = found.get("form") if isinstance(found, dict) else None
            raise UserError(f"the archive has form {form!r}; this autarky reads form {FORM}", fix="use a newer autarky")
        etcd = EtcdSeen(**{**found["etcd"], "members": tuple(found["etcd"]["members"])})
        files = {str(name): FileSeen(**one) for name, one in found["files"].items()}
        return Contents(**{**found, "etcd": etcd, "files": files})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"the archive's manifest cannot be read: {error}", fix="use another backup") from error


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
    """The manifest, and the other files as they come. UserError if it is not the first one, or if files are missing,
    unknown or different; the last only once all have been read."""
    first, content = next(files, (None, None))
    if first != MANIFEST or content is None:
        raise UserError("this is not a backup of autarky: its first file is no manifest", fix="give another file")
    contents = read(content.read(_MOST_MANIFEST))
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
