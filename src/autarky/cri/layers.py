"""The layers of an image, as tar archives that are read forwards, in pieces: plain ones, and ones in gzip.

Contract: synchronous, and no more than one window of a layer and one piece of a file are in memory, whatever is in it.
`look` says what one layer knows of some paths; `copy` hands on the content of files that were found, and ends without
an error only where the digest of the complete layer is the wanted one: what it has handed on before that is not to be
believed. Damaged for everything that is no such archive, or has sizes that no image of programs has.

A layer hides what is below it: by having the same path, by a whiteout of it or of a directory above it, and by
something else in the place of such a directory.
"""

from __future__ import annotations

import gzip
import io
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

Fetch = Callable[[int, int], bytes]
"""(offset, size) → exactly these bytes of a blob."""
Take = Callable[[bytes], object]
"""What is given the content of a file, piece by piece."""
MIB: Final = 2**20
WINDOW: Final = MIB
PIECE: Final = 256 * 1024
LARGEST_FILE: Final = 1024 * MIB
LARGEST_LAYER: Final = 4 * LARGEST_FILE
"""As it comes, and unpacked. A kubelet has some 80 MB."""
LARGEST_HEADER: Final = 256 * 1024
"""Names and extended attributes of one file, which tarfile reads at once."""
MOST_ENTRIES: Final = 200_000
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_NO_TAR = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)
_DIRECTORY = "a directory"
_KINDS: Mapping[bytes, str] = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.DIRTYPE: _DIRECTORY,
}
ABSENT: Final = "is not in it"


class Damaged(ValueError):
    """What is wrong with a layer, as the end of a sentence that begins with it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the content of a file is in its layer, as unpacked."""

    offset: int
    size: int


class Blob(io.RawIOBase):
    """A blob as a file that is read forwards, one window of it in memory. It may skip, and knows whether it did."""

    def __init__(self, fetch: Fetch, size: int, window: int = WINDOW) -> None:
        if not 0 < size <= LARGEST_LAYER:
            raise Damaged(f"has {size} bytes")
        self.size = size
        self._fetch, self._window = fetch, window
        self._begin, self._data, self._position = 0, b"", 0
        self._hash, self._hashed = sha256(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._begin:
            raise Damaged("goes backwards")
        self._position = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        """Fewer bytes only at the end."""
        end = min(self.size, self._position + size) if size >= 0 else self.size
        pieces = []
        while self._position < end:
            if self._position >= self._begin + len(self._data):
                self._turn()
            begin = self._position - self._begin
            pieces.append(self._data[begin : begin + end - self._position])
            self._position += len(pieces[-1])
        return b"".join(pieces)

    def _turn(self) -> None:
        """To the window that begins where the next read does."""
        self._begin = self._position
        self._data = self._fetch(self._begin, min(self._window, self.size - self._begin))
        self._hash.update(self._data)
        self._hashed += len(self._data)

    def verify(self, digest: str) -> None:
        """Read what is left. Damaged unless all of it was read, and this is its digest."""
        self._position = self._begin + len(self._data)
        while self._position < self.size:
            self._turn()
            self._position += len(self._data)
        if self._hashed != self.size or f"sha256:{self._hash.hexdigest()}" != digest:
            raise Damaged("has not the content that its digest says")


class _Plain(io.RawIOBase):
    """The unpacked layer for tarfile, which reads headers, and skips the rest."""

    def __init__(self, source: Blob | gzip.GzipFile) -> None:
        self._source = source
        self.last = b""

    def tell(self) -> int:
        return self._source.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if offset < self.tell():
            raise Damaged("goes backwards")
        if offset > LARGEST_LAYER:
            raise Damaged(f"has more than {LARGEST_LAYER // MIB} MiB when it is unpacked")
        return self._source.seek(offset)

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_HEADER:
            raise Damaged(f"has a header of {size} bytes")
        self.last = self._source.read(size)
        return self.last


def path_in(name: str) -> str:
    """As it is compared: with no slash in front, and nothing to resolve."""
    return posixpath.normpath(f"/{name.lstrip('/')}")[1:]


# --- what a layer knows ---------------------------------------------------------------------------------


def look(blob: Blob, wanted: Collection[str]) -> dict[str, Place | str]:
    """Path → where its content is, or why there is none, as the end of a sentence; without those paths of which only
    the layers below know. The paths are as of `path_in`."""
    above = {path: tuple(_directories_above(path)) for path in wanted}
    relevant = {*above, *(one for directories in above.values() for one in directories)}
    kinds: dict[str, str] = {}
    places: dict[str, Place] = {}
    hidden: set[str] = set()
    with _no_tar_explained():
        for entry in _entries(blob):
            path = path_in(entry.name)
            directory, name = posixpath.split(path)
            if name == _OPAQUE:
                hidden.update(one for one in relevant if _lies_in(one, directory))
            elif name.startswith(_WHITEOUT):
                hidden.add(posixpath.join(directory, name.removeprefix(_WHITEOUT)))
            elif path in relevant:  # a later one of the same archive wins
                kinds[path] = _kind(entry)
                places[path] = Place(entry.offset_data, entry.size)
    return {path: known for path in above if (known := _known(path, above[path], kinds, places, hidden)) is not None}


def _directories_above(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _lies_in(path: str, directory: str) -> bool:
    return not directory or path.startswith(f"{directory}/")


def _known(
    path: str,
    above: Collection[str],
    kinds: Mapping[str, str],
    places: Mapping[str, Place],
    hidden: Collection[str],
) -> Place | str | None:
    for directory in above:
        if kinds.get(directory, _DIRECTORY) != _DIRECTORY:
            return f"lies below {directory}, which is {kinds[directory] or 'a file'}"
    if path not in kinds:
        return ABSENT if any(one in hidden for one in (path, *above)) else None
    if kinds[path]:
        return f"is {kinds[path]}"
    if places[path].size > LARGEST_FILE:
        return f"has {places[path].size} bytes"
    return places[path]


def _kind(entry: tarfile.TarInfo) -> str:
    """Empty for a file."""
    if entry.issparse():
        return "a file with holes"
    return "" if entry.isreg() else _KINDS.get(entry.type, "of a kind that is not known")


def _entries(blob: Blob) -> Iterator[tarfile.TarInfo]:
    plain = _Plain(_unpacked(blob))
    archive = tarfile.TarFile(fileobj=plain)
    count = 0
    while (entry := archive.next()) is not None:
        vars(archive)["members"].clear()  # it would keep every one
        if (count := count + 1) > MOST_ENTRIES:
            raise Damaged(f"has more than {MOST_ENTRIES} entries")
        yield entry
    if plain.last.strip(b"\0"):  # tarfile takes a header that is not one for the end
        raise Damaged("breaks off")


# --- its content -----------------------------------------------------------------------------------------


def copy(blob: Blob, digest: str, files: Iterable[tuple[Place, Take]]) -> None:
    """One file after the other, in the order of the layer; then verify that this is the layer of that digest."""
    source = _unpacked(blob)
    position = 0
    for place, take in sorted(files, key=lambda file: file[0].offset):
        for _ in _pieces(source, place.offset - position):
            pass
        for piece in _pieces(source, place.size):
            take(piece)
        position = place.offset + place.size
    blob.verify(digest)


def _pieces(source: Blob | gzip.GzipFile, size: int) -> Iterator[bytes]:
    while size:
        with _no_tar_explained():
            piece = source.read(min(PIECE, size))
        if not piece:
            raise Damaged("breaks off")
        size -= len(piece)
        yield piece


def _unpacked(blob: Blob) -> Blob | gzip.GzipFile:
    """By what it begins with: names of media types are many."""
    begin = blob.read(4)
    blob.seek(0)
    if begin == _ZSTD:
        raise Damaged("is compressed with zstd")
    return gzip.GzipFile(fileobj=blob) if begin[:2] == _GZIP else blob


@contextmanager
def _no_tar_explained() -> Iterator[None]:
    try:
        yield
    except Damaged:
        raise
    except _NO_TAR as error:
        raise Damaged(f"is no tar archive that can be read: {error}") from error
