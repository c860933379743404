"""Opening a sealed archive: see `sealing` for its form.

Danger: anybody who knows a recipient may have sealed it, and a few bytes of it may unpack to any number. Nothing here
takes more than a piece of it into memory; what a caller reads of a file, it bounds itself.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import math
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

import pyrage

from autarky.archive.sealing import ARMOR_BEGINS, ARMOR_ENDS
from autarky.archive.streams import Reader, drain, produced
from autarky.errors import UserError

_MOST_ARMOR = 64 * 1024
_MOST_HEADER = 32 * 1024
"""Bytes of what the tar says of one file before its content, and that are read ahead with it. Ours says up to 2 KiB:
its name. tarfile takes all of it into memory, however much that claims to be."""
_ANOTHER = "use another backup"


@dataclass(frozen=True, slots=True)
class Unlock:
    """What opens an archive: identities (each the content of an age identity file, or of an SSH private key), or a
    passphrase."""

    identities: tuple[str, ...] = ()
    passphrase: str | None = None


class Content:
    """One file of an archive."""

    def __init__(self, file: Reader) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        with _damage_named():
            return self._file.read(size)


@contextmanager
def opened(reader: Reader, unlock: Unlock) -> Iterator[Iterator[tuple[str, Content]]]:
    """The files of an archive, name and content, in their order; each is to be read before the next one.

    UserError if it is no archive, is damaged, or does not open with these keys. That its end is missing is known only
    when the block ends.
    """
    rest, identities = _keys(reader, unlock)
    with produced(lambda sink: _decrypt(rest, sink, identities)) as source:
        with _damage_named():
            plain = gzip.GzipFile(mode="rb", fileobj=cast(IO[bytes], source))
            limited = _Limited(plain)
            with limited.to(_MOST_HEADER):  # of the first file
                tar = tarfile.open(mode="r|", fileobj=cast(IO[bytes], limited))  # noqa: SIM115 # nothing to close
        yield _files(tar, limited)
        with _damage_named():
            drain(plain)
            drain(source)


def _files(tar: tarfile.TarFile, limited: _Limited) -> Iterator[tuple[str, Content]]:
    while True:
        with _damage_named():
            with limited.to(_MOST_HEADER):
                entry = tar.next()
            tar.members = []  # type: ignore[attr-defined] # it would keep what is said of each, which may be much
            content = None if entry is None else tar.extractfile(entry)
        if entry is None:
            return
        if content is None or tar.pax_headers:  # these count for all that follow, and add up
            raise UserError(f"the archive has something else than files: {entry.name!r}", fix=_ANOTHER)
        yield entry.name, Content(content)


@contextmanager
def _damage_named() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise UserError(f"the archive is damaged: {error}", fix=_ANOTHER) from error


# --- keys --------------------------------------------------------------------------------------------


def _keys(reader: Reader, unlock: Unlock) -> tuple[Reader, list[object]]:
    """The encrypted stream, and the identities that may open it."""
    start = reader.read(len(ARMOR_BEGINS))
    if start != ARMOR_BEGINS:
        if not unlock.identities:
            raise UserError("the archive is encrypted to recipients of age", fix="give --identity FILE")
        return _Rewound(start, reader), [*_identities(unlock.identities)]
    if unlock.passphrase is None:
        raise UserError("the archive is encrypted with a passphrase", fix="give --passphrase-file FILE")
    armor, beyond = _to_end_of_armor(reader)
    try:
        identity = pyrage.passphrase.decrypt(armor, unlock.passphrase).decode()
    except (pyrage.DecryptError, ValueError) as error:
        raise UserError(f"the passphrase does not open the archive: {error}", fix="give the right one") from error
    return _Rewound(beyond, reader), [*_identities([identity])]


def _to_end_of_armor(reader: Reader) -> tuple[bytes, bytes]:
    held = b""
    while ARMOR_ENDS not in held:
        chunk = reader.read(4096)
        if not chunk or len(held) > _MOST_ARMOR:
            raise UserError("the archive is damaged: its first part has no end", fix=_ANOTHER)
        held += chunk
    armor, _, beyond = held.partition(ARMOR_ENDS)
    try:
        return base64.b64decode(armor.replace(b"\n", b""), validate=True), beyond
    except binascii.Error as error:
        raise UserError(f"the archive is damaged: {error}", fix=_ANOTHER) from error


def _identities(texts: Iterable[str]) -> Iterator[object]:
    for text in texts:
        try:
            if "PRIVATE KEY-----" in text:
                yield pyrage.ssh.Identity.from_buffer(text.encode())
                continue
            for line in text.splitlines():
                if line.strip() and not line.startswith("#"):
                    yield pyrage.x25519.Identity.from_str(line.strip())
        except pyrage.IdentityError as error:
            raise UserError(
                f"that is no identity that can be used: {error}",
                fix="give one of age (`autarky backup keygen`), or an SSH private key that has no passphrase",
            ) from error


def _decrypt(rest: Reader, sink: IO[bytes], identities: list[object]) -> None:
    try:
        pyrage.decrypt_io(rest, sink, identities)
    except pyrage.DecryptError as error:
        if isinstance(error.__context__, BrokenPipeError) or "roken pipe" in str(error):
            raise BrokenPipeError from error
        raise UserError(f"the archive does not open: {error}", fix="give the key that it was sealed for") from error


class _Limited:
    """A reader that gives no more than so many bytes within a block, and any number outside of one."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._left = reader, math.inf

    @contextmanager
    def to(self, most: int) -> Iterator[None]:
        """tarfile.ReadError for more."""
        self._left = most
        try:
            yield
        finally:
            self._left = math.inf

    def read(self, size: int = -1) -> bytes:
        found = self._reader.read(size)
        self._left -= len(found)
        if self._left < 0:
            raise tarfile.ReadError("what it says of a file before its content has no end")
        return found


class _Rewound:
    """A reader that gives back what was read already."""

    def __init__(self, start: bytes, reader: Reader) -> None:
        self._start, self._reader = start, reader

    def read(self, size: int = -1) -> bytes:
        if not self._start:
            return self._reader.read(size)
        found, self._start = (self._start, b"") if size < 0 else (self._start[:size], self._start[size:])
        return found
