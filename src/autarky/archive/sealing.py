"""A sealed archive: a gzipped tar in an age file, written and read as a stream.

Contract: never more than some hundred KiB in memory, whatever the size. What `opened` yields is what was sealed: age
authenticates each 64 KiB, and their order, and the end. Where a passphrase opens it, the file begins with an age file
in ASCII that holds an identity, encrypted with the passphrase, and the rest is encrypted to that identity. So whoever
seals needs to know no passphrase, and none is ever in the cluster; and the `age` program can open either form
(docs/backup.md). Without a recipient nothing is written.

Dangers: whoever knows a recipient can seal an archive for it: that one opens says nothing of who made it. A file of it
is undamaged once it has been read; that nothing is missing at the end is known only
once the last one has been read.

https://age-encryption.org/v1 is the format of both.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import pyrage

from autarky.archive.streams import produced
from autarky.errors import UserError

ARMOR_BEGINS = b"-----BEGIN AGE ENCRYPTED FILE-----\n"
ARMOR_ENDS = b"-----END AGE ENCRYPTED FILE-----\n"
_LEVEL = 1
"""Of gzip: a database of etcd becomes a fifth of its size with it; higher levels cost the node's processors."""


class Writer(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Lock:
    """What an archive is sealed with: nothing secret. recipients: of age ("age1…"), or SSH public keys. identity: the
    one of one of them, encrypted with a passphrase, in age's ASCII form; empty if no passphrase is to open it."""

    recipients: tuple[str, ...] = ()
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    """size in bytes, sha256 in hex: of the file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an archive: its name in it, and its content or the file that has it."""

    name: str
    content: bytes | Path
    mode: int = 0o600


def fresh_identity() -> tuple[str, str]:
    """(identity, recipient): a new key to open archives with, and what to seal them with."""
    identity = pyrage.x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def passphrase_lock(passphrase: str) -> Lock:
    """A new identity that only the passphrase gives away. Takes a second and half a GiB of memory, as opening does:
    that is what makes guessing expensive."""
    identity, recipient = fresh_identity()
    return Lock((recipient,), _armored(pyrage.passphrase.encrypt(identity.encode(), passphrase)).decode())


# --- writing -----------------------------------------------------------------------------------------


def seal(parts: Iterable[Part], lock: Lock, writer: Writer) -> Sealed:
    """Write the archive. UserError if there is nothing to seal it with, or that is malformed."""
    check_lock(lock)
    counted = _Counted(writer)
    counted.write(lock.identity.encode())
    with produced(lambda sink: _write_tar(parts, sink)) as source:
        try:
            pyrage.encrypt_io(source, counted, [*_recipients(lock)])
        except Exception as error:
            # The library says only that a read or a write has failed.
            raise source.wrong or counted.wrong or error from None
    return Sealed(counted.size, counted.digest.hexdigest())


def check_lock(lock: Lock) -> None:
    """UserError as `seal` raises it, before anything is done."""
    if not [*_recipients(lock)]:
        raise UserError(
            "an archive has all keys of the cluster, and there is nothing to encrypt it with",
            fix="name a recipient of age, or a passphrase",
        )
    armor = lock.identity.encode()
    if armor and not (
        armor.startswith(ARMOR_BEGINS) and armor.endswith(ARMOR_ENDS) and armor.count(b"-----BEGIN") == 1
    ):
        raise UserError("the encrypted identity is not one file of age in its ASCII form", fix="see docs/backup.md")


def _recipients(lock: Lock) -> Iterator[object]:
    for text in lock.recipients:
        kind = pyrage.ssh.Recipient if text.startswith("ssh-") else pyrage.x25519.Recipient
        try:
            yield kind.from_str(text)
        except pyrage.RecipientError as error:
            raise UserError(f"{text!r} is no recipient of age: {error}", fix="see `autarky backup keygen`") from error


def _armored(sealed: bytes) -> bytes:
    text = base64.b64encode(sealed)
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return ARMOR_BEGINS + b"\n".join(lines) + b"\n" + ARMOR_ENDS


def _write_tar(parts: Iterable[Part], sink: IO[bytes]) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=sink, mtime=0) as compressed,
        tarfile.open(mode="w|", fileobj=compressed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for part in parts:
            _add(tar, part)


def _add(tar: tarfile.TarFile, part: Part) -> None:
    entry = tarfile.TarInfo(part.name)
    entry.mode = part.mode
    if isinstance(part.content, bytes):
        entry.size = len(part.content)
        tar.addfile(entry, io.BytesIO(part.content))
        return
    with part.content.open("rb") as file:
        entry.size = os.fstat(file.fileno()).st_size
        tar.addfile(entry, file)


class _Counted:
    """A writer that counts and hashes what passes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.size = 0
        self.digest = hashlib.sha256()
        self.wrong: Exception | None = None

    def write(self, data: bytes) -> int:
        try:
            self._writer.write(data)
        except Exception as error:
            self.wrong = error
            raise
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """What is buffered is flushed by whoever opened the writer."""
