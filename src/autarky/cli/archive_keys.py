"""Who may open an archive, and what opens one: options of several commands, and what they give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.archive import Lock, Unlock

recipient_option = click.option(
    "--recipient",
    "recipients",
    multiple=True,
    metavar="KEY",
    help="Who may open it: an age recipient (age1…) or an SSH public key (repeatable).",
)
passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="The first line of FILE is a passphrase that opens it; - is standard input.",
)
identity_option = click.option(
    "-i",
    "--identity",
    "identities",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="An age identity, or an SSH private key, that opens it (repeatable).",
)


def lock_of(recipients: Sequence[str], passphrase_file: Path | None) -> Lock:
    from autarky.archive import Lock, check_lock, passphrase_lock

    if passphrase_file is None:
        lock = Lock(tuple(recipients))
    else:
        given = passphrase_lock(_passphrase(passphrase_file))
        lock = Lock((*given.recipients, *recipients), given.identity)
    check_lock(lock)
    return lock


def _passphrase(file: Path) -> str:
    with click.open_file(str(file)) as stream:
        first = str(stream.readline()).rstrip("\r\n")
    if not first:
        raise UserError(f"{file} has no passphrase in its first line", fix="write it there")
    return first


def unlock_of(identities: Sequence[Path], passphrase_file: Path | None) -> Unlock:
    from autarky.archive import Unlock

    texts = tuple(path.read_text() for path in identities)
    return Unlock(texts, None if passphrase_file is None else _passphrase(passphrase_file))
