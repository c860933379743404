"""Where archives are kept: a directory, or a bucket of a server that speaks S3.

Contract: a file appears under its name complete or not at all, and none is ever replaced. Beside each archive lies a
small file of JSON, readable without a key, that says what it is; it is written last and removed first.

Dangers: an upload that is cut off leaves its parts with the server, unseen and paid for, until a rule of the bucket
removes them (docs/backup.md).
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from autarky.archive.contents import Contents
from autarky.archive.sealing import Sealed, Writer
from autarky.archive.streams import Reader
from autarky.errors import Unreachable, UserError

if TYPE_CHECKING:
    from obstore import WritableFile  # which exists for type checkers only

_PART = 8 * 1024 * 1024
"""Bytes of a part of an upload. A server takes 10,000 of them: 80 GB."""
_AT_ONCE = 2
"""Parts that are held in memory."""
_RANGE = 4 * 1024 * 1024
"""Bytes that a server is asked for at once."""
_RANGE_SECONDS = 180.0
"""For one range: a server that sends less than 23 KB/s has failed."""
_LEAST_PIECE = 64 * 1024
_UNFLUSHED = 8 * 1024 * 1024
"""Bytes of a file that are in memory only."""
LEFT_SECONDS = 86400.0
"""A part that nobody has written to for so long is nobody's: a pod has a quarter of it."""
_PART_OF_POD = re.compile(r"\..+-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}\.(tar\.gz\.age|json)\.[0-9a-f]{16}\.part")
"""No other attempt has its name."""
_AMAZON = "s3.amazonaws.com"
_NO_FILE = (errno.ELOOP, errno.ENXIO)
"""Of a link that is not followed, and of a socket."""
_NO_BUCKET = "<Code>NoSuchBucket</Code>"


def described(contents: Contents, file: str, sealed: Sealed, verified: str) -> bytes:
    """The file beside an archive: what of its manifest is no secret, and the archive's digest."""
    known = {
        "form": contents.form,
        "cluster": contents.cluster,
        "ca": contents.ca,
        "node": contents.node,
        "made": contents.made,
        "autarky": contents.autarky,
        "kubernetes": contents.kubernetes,
        "etcd": asdict(contents.etcd),
        "file": file,
        "size": sealed.size,
        "sha256": sealed.sha256,
        "verified": verified,
    }
    return (json.dumps(known, indent=1) + "\n").encode()


class Target(Protocol):
    """Names are those of files, without a directory. Raises UserError, or Unreachable for a server that fails."""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    def writing(self, name: str) -> AbstractContextManager[Writer]:
        """A new file, which is there when the block ends without an error."""
        ...

    def reading(self, name: str) -> AbstractContextManager[Reader]:
        """UserError if there is none."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is such a file: one question, whatever else is there. Raises where the target itself is not."""
        ...

    def remove(self, name: str) -> None:
        """Does nothing if there is none."""
        ...


class _Steady:
    """A file whose content reaches the disk as it comes: etcd, on the same disk, waits for no gigabyte at the end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = _UNFLUSHED

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._left -= len(data)
        if self._left <= 0:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._left = _UNFLUSHED


def _irregular(path: Path) -> UserError:
    return UserError(f"{path} is no regular file, as an archive is", fix="see who has put it there, and remove it")


class Directory:
    """On this machine. Files are readable by root only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        return str(self._path)

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        final, part = self._path / name, self._path / f".{name}.{secrets.token_hex(8)}.part"
        if final.exists():
            raise UserError(f"{final} exists already", fix="choose another name")
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._remove_left(name)
        # A name that nobody guesses, and nothing that is there already: others may write to the directory.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            opened = os.open(part, flags, 0o600)
        except FileExistsError as error:
            raise UserError(f"{part} exists already", fix="try again") from error
        try:
            with os.fdopen(opened, "wb") as file:
                yield _Steady(file)
                file.flush()
                os.fsync(file.fileno())
            self._link(part, final)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
        self._sync()

    def _link(self, part: Path, final: Path) -> None:
        """Fails if somebody else made it meanwhile, where a rename would replace it."""
        try:
            os.link(part, final)
        except FileExistsError as error:
            raise UserError(f"{final} exists already", fix="choose another name") from error
        except FileNotFoundError as error:
            raise UserError(f"somebody else writes {final} as well", fix="choose another name") from error

    def _remove_left(self, name: str) -> None:
        """What a run that was killed has left of this file, or long ago of any that a pod has named. What is no file of
        our own user is not ours."""
        parts, long_ago = re.compile(rf"\.{re.escape(name)}\.([0-9a-f]{{16}}\.)?part"), time.time() - LEFT_SECONDS
        for one in self._path.iterdir():
            with suppress(FileNotFoundError):
                found = one.lstat()
                left = parts.fullmatch(one.name) or (_PART_OF_POD.fullmatch(one.name) and found.st_mtime < long_ago)
                if left and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                    one.unlink()

    @contextmanager
    def reading(self, name: str) -> Iterator[Reader]:
        with os.fdopen(self._opened(self._path / name), "rb") as file:
            yield file

    def _opened(self, path: Path) -> int:
        """Others may write to the directory: a pipe, which nobody writes into, would be waited for forever."""
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise UserError(f"there is no file {path}", fix="see `autarky backup list`") from error
        except OSError as error:
            if error.errno in _NO_FILE:
                raise _irregular(path) from error
            raise
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise _irregular(path)
        return opened

    def has(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            return stat.S_ISREG((self._path / name).lstat().st_mode)
        return False

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            (self._path / name).unlink()
            self._sync()

    def _sync(self) -> None:
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Of a server that speaks S3. endpoint: its URL, None for Amazon's. prefix: of the names, without a slash at its
    end. plain: without TLS."""

    name: str
    key_id: str
    secret: str
    endpoint: str | None = None
    region: str = "us-east-1"
    prefix: str = ""
    plain: bool = False
    path_style: bool = True

    @property
    def place(self) -> str:
        return f"bucket {self.name} at {self.endpoint or _AMAZON}"


class S3:
    """A bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._store = _store(bucket)

    @property
    def place(self) -> str:
        return self._bucket.place

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        if self._size(name) is not None:
            raise UserError(f"{self._named(name)} exists already", fix="choose another name")
        with _server_named(self._bucket):
            writer = obstore.open_writer(self._store, name, buffer_size=_PART, max_concurrency=_AT_ONCE)
        yield _Upload(writer, self._bucket)
        with _server_named(self._bucket):
            writer.close()  # nothing is to be seen of it before, and where the block has failed, it never is

    @contextmanager
    def reading(self, name: str) -> Iterator[Reader]:
        size = self._size(name)
        if size is None:
            raise UserError(f"there is no {self._named(name)}", fix="see `autarky backup list`")
        yield _Download(self._store, name, size, self._bucket)

    def has(self, name: str) -> bool:
        """Not by a list, which ends only when the server says so. An answer to HEAD would not say what is missing."""
        with _server_named(self._bucket):
            try:
                obstore.get(self._store, name, options={"range": (0, 1)})
            except FileNotFoundError as error:
                if _NO_BUCKET in str(error):
                    raise
                return False
            return True

    def remove(self, name: str) -> None:
        with _server_named(self._bucket), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def _size(self, name: str) -> int | None:
        """In bytes, as the server says; None if there is none."""
        with _server_named(self._bucket):
            try:
                return obstore.head(self._store, name)["size"]
            except FileNotFoundError:
                return None

    def _named(self, name: str) -> str:
        return f"s3://{'/'.join(one for one in (self._bucket.name, self._bucket.prefix, name) if one)}"


class _Upload:
    def __init__(self, writer: WritableFile, bucket: Bucket) -> None:
        self._writer, self._bucket = writer, bucket

    def write(self, data: bytes, /) -> None:
        with _server_named(self._bucket):
            self._writer.write(data)


class _Download:
    """One range after the other, of the bytes that the server has said there are. It may be anybody's: what it sends
    beyond that is not taken into memory, and it is not waited for where it sends next to nothing."""

    def __init__(self, store: S3Store, name: str, size: int, bucket: Bucket) -> None:
        self._store, self._name, self._size, self._bucket = store, name, size, bucket
        self._asked = 0
        self._held = b""

    def read(self, size: int = -1, /) -> bytes:
        found = bytearray()
        while (self._held or self._asked < self._size) and (size < 0 or len(found) < size):
            if not self._held:
                self._held = self._next_range()
            count = len(self._held) if size < 0 else size - len(found)
            found += self._held[:count]
            self._held = self._held[count:]
        return bytes(found)

    def _next_range(self) -> bytes:
        start, end = self._asked, min(self._asked + _RANGE, self._size)
        before, found = time.monotonic(), bytearray()
        with _server_named(self._bucket):
            answer = obstore.get(self._store, self._name, options={"range": (start, end)})
            for piece in answer.stream(min_chunk_size=_LEAST_PIECE):
                found += piece
                if len(found) > end - start:
                    raise OSError(f"{self._name}: it sends more than the {end - start:,} bytes that it was asked for")
                if time.monotonic() - before > _RANGE_SECONDS:
                    raise OSError(f"{self._name}: {len(found):,} bytes have come in {_RANGE_SECONDS:.0f} s")
        if len(found) < end - start:
            raise Unreachable(f"{self._bucket.place}: {self._name} ends before byte {end:,}")
        self._asked = end
        return bytes(found)


def _store(bucket: Bucket) -> S3Store:
    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        config={
            "access_key_id": bucket.key_id,
            "secret_access_key": bucket.secret,
            "region": bucket.region,
            "virtual_hosted_style_request": not bucket.path_style,
            **({} if bucket.endpoint is None else {"endpoint": bucket.endpoint}),
        },
        client_options={"allow_http": bucket.plain, "connect_timeout": "10s", "timeout": "120s"},
        retry_config={"max_retries": 5},
    )


@contextmanager
def _server_named(bucket: Bucket) -> Iterator[None]:
    """Errors of the library as ours: they say what the server said, and never a key."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise Unreachable(f"{bucket.place}: {_said(str(error))}") from error


def _said(text: str) -> str:
    """What the server said, of the library's text, which has all that it knows; else its first line."""
    found = re.search(r"<Code>([^<]{1,80})</Code>\s*<Message>([^<]{1,200})", text)
    return f"{found[2]} ({found[1]})" if found else text.partition("\n")[0][:300]
