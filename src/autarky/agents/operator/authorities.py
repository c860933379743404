"""The CAs that the operator signs with, from the Secret that is mounted into its pods, and into no others.

Danger: private keys. They are read when something is to be signed, and kept nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autarky.errors import UserError
from autarky.pki.check import authority_of
from autarky.pki.issue import Authority, Pair


@dataclass(frozen=True, slots=True)
class Authorities:
    """directory: with NAME.crt and NAME.key of each CA. leaf_life: how long what is signed is good for."""

    directory: Path
    leaf_life: timedelta

    def read(self, name: str) -> Authority:
        """ "ca" or "etcd-ca"; UserError where it is not there or cannot be used."""
        certificate, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        try:
            pair = Pair(certificate.read_bytes(), key.read_bytes())
        except OSError as error:
            raise UserError(
                f"the CA {name} cannot be read: {error.strerror}",
                where=str(self.directory),
                fix="run `autarky up`: it gives the operator the CAs",
            ) from error
        return authority_of(pair, str(certificate), str(key), datetime.now(UTC))
