"""An archive and the file beside it are written, and read again, in one order wherever they go.

Contract: the file beside it, which says what the archive is, exists only after the archive has been read back with the
digest that it was written with; an archive that reads back as something else is removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from autarky.archive.contents import Contents
from autarky.archive.sealing import Lock, Part, Sealed, seal
from autarky.archive.targets import Target, described
from autarky.errors import UserError

_CHUNK = 1024 * 1024


def keep(
    target: Target, file: str, contents: Contents, parts: Sequence[Part], lock: Lock, now: Callable[[], str]
) -> tuple[Sealed, str]:
    """The archive as it was sealed, and when it was verified: by `now`, RFC 3339. UserError if it reads back as
    something else."""
    with target.writing(file) as writer:
        sealed = seal(parts, lock, writer)
    if digest(target, file, sealed.size) != sealed.sha256:
        target.remove(file)
        raise UserError(f"{file} reads back as something else than was written", fix="check the disk, or the server")
    verified = now()
    with target.writing(description(file)) as writer:
        writer.write(described(contents, file, sealed, verified))
    return sealed, verified


def digest(target: Target, file: str, size: int | None = None) -> str:
    """SHA-256, in hex. size: what it should have; of more than that no more is read."""
    found, come = hashlib.sha256(), 0
    with target.reading(file) as reader:
        while (size is None or come <= size) and (piece := reader.read(_CHUNK)):
            found.update(piece)
            come += len(piece)
    return found.hexdigest()


def description(file: str) -> str:
    """The name of the file beside an archive that says, without a key, what it is."""
    return file.removesuffix(".tar.gz.age").removesuffix(".age") + ".json"
