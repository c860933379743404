"""Leaves in files that processes read while they are renewed: inspecting and replacing them.

Contract: a leaf is verified before it replaces the previous one. A renewal keeps the key, so that certificate and key
belong together whenever they are read. A file that cannot be read is an OSError, which never means "absent".
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.check import authority_of, why_renew
from autarky.pki.issue import Authority, Pair, issue_leaf, read_pair, renewed_leaf
from autarky.pki.keys import Algorithm, PrivateKey, algorithm_of
from autarky.pki.unreadable import UNREADABLE
from autarky.store import write_private


@dataclass(frozen=True, slots=True)
class Files:
    """Where a leaf lies: two files, or one that holds both. group: who may read them besides root; None nobody."""

    certificate: Path
    key: Path
    group: int | None = None

    def read(self) -> Pair | None:
        """None unless both are there. OSError for what cannot be read."""
        return Pair.read(self.certificate, self.key)

    @property
    def readable(self) -> bool:
        """Whether those may read it who should."""
        return self.group is None or all(path.stat().st_gid == self.group for path in (self.certificate, self.key))

    def write(self, pair: Pair, *, with_key: bool) -> None:
        """The key first: alone it is useless."""
        mode = 0o600 if self.group is None else 0o640
        self.settle_directory()
        if self.key == self.certificate:
            write_private(self.certificate, pair.certificate + pair.key, mode=mode, group=self.group)
            return
        if with_key:
            write_private(self.key, pair.key, mode=mode, group=self.group)
        write_private(self.certificate, pair.certificate, mode=mode, group=self.group)

    def settle_directory(self) -> None:
        """Those of a group are in a directory that it may enter, in one that is closed, whoever has made them; any
        other directory stays as it is. OSError."""
        if self.group is not None:
            _settle(self.certificate.parent.parent, 0o700)
            _settle(self.certificate.parent, 0o750, self.group)


def _settle(directory: Path, mode: int, group: int | None = None) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = directory.stat()
    if group is not None and there.st_gid != group:
        os.chown(directory, -1, group)
    if stat.S_IMODE(there.st_mode) != mode:
        directory.chmod(mode)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A leaf as it should be."""

    spec: CertSpec
    files: Files
    algorithm: Algorithm
    life: timedelta


def read_authority(directory: Path, name: str, now: datetime) -> Authority | None:
    """The CA of DIRECTORY/NAME.crt and .key; None where its key is not there. UserError where it cannot be used."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    try:
        pair = Pair(certificate.read_bytes(), key.read_bytes())
    except FileNotFoundError:
        return None
    return authority_of(pair, str(certificate), str(key), now)


def why_renewed(wanted: Wanted, authority: Authority, now: datetime) -> str | None:
    """Why the leaf must be reissued, as a clause; None while it is as it should be. OSError."""
    pair = wanted.files.read()
    if pair is None:
        return "missing"
    why = why_renew(pair, wanted.spec, authority, wanted.algorithm, now, wanted.life)
    return why or (None if wanted.files.readable else "those that use it cannot read it")


def put_in_place(wanted: Wanted, authority: Authority, now: datetime) -> None:
    """Issue it, verify it, and only then replace the previous one. UserError, OSError."""
    key = _key_in_use(wanted)
    if key is None or not wanted.files.readable:
        pair, with_key = _issued(wanted, authority, key, now), True
    else:
        pair, with_key = renewed_leaf(wanted.spec, authority, key, now, wanted.life), False
    if wrong := why_renew(pair, wanted.spec, authority, wanted.algorithm, now, wanted.life):
        raise UserError(
            f"{wanted.spec.name} would be no better if it were reissued: {wrong}",
            fix="look at the CA's lifetime and at this host's clock",
        )
    wanted.files.write(pair, with_key=with_key)


def _issued(wanted: Wanted, authority: Authority, key: PrivateKey | None, now: datetime) -> Pair:
    if key is not None:
        return renewed_leaf(wanted.spec, authority, key, now, wanted.life)
    return issue_leaf(wanted.spec, authority, wanted.algorithm, now, wanted.life)


def _key_in_use(wanted: Wanted) -> PrivateKey | None:
    """The key of a complete pair, of the wanted kind; None if there is none."""
    pair = wanted.files.read()
    if pair is None:
        return None
    try:
        _, key = read_pair(pair)
    except ValueError:
        return None
    return key if algorithm_of(key) == wanted.algorithm else None


def end_of(path: Path) -> datetime | None:
    """When the (first) certificate in the file ends; None where there is none, or none that can be read."""
    try:
        return end_of_pem(path.read_bytes())
    except OSError:
        return None


def end_of_pem(pem: bytes) -> datetime | None:
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except UNREADABLE:
        return None
