"""The names of a serving certificate: reading them, adding to them."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.x509.oid import NameOID

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.check import is_signed_by
from autarky.pki.issue import Authority, Pair, alternative_names, issue_leaf, read_pair
from autarky.pki.keys import PrivateKey, algorithm_of


@dataclass(frozen=True, slots=True)
class Names:
    """Host names and addresses, as text."""

    dns: frozenset[str]
    addresses: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.dns | self.addresses


def names_of(certificate_pem: bytes) -> Names:
    """What a certificate is good for; ValueError for what is none."""
    found = alternative_names(x509.load_pem_x509_certificate(certificate_pem))
    return Names(
        frozenset(name.value for name in found if isinstance(name, x509.DNSName)),
        frozenset(str(name.value) for name in found if isinstance(name, x509.IPAddress)),
    )


def reissued(pair: Pair, authority: Authority, *, add: Collection[str], drop: Collection[str], now: datetime) -> Pair:
    """A serving certificate like this one, with a new key, for other names, good for as long as that one was at first.

    UserError when the pair cannot be read, or was signed by somebody else.
    """
    certificate, key = _readable(pair)
    if not is_signed_by(certificate, authority.certificate):
        raise UserError(
            "the API servers' serving certificate was not signed by the cluster's CA",
            fix="issue it anew yourself, for all control nodes, or run `autarky up`",
        )
    wanted = (names_of(pair.certificate).all - set(drop)) | set(add)
    addresses = sorted(name for name in wanted if _is_address(name))
    spec = CertSpec(
        "apiserver",
        "ca",
        str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value),
        dns_names=tuple(sorted(wanted - set(addresses))),
        ip_addresses=tuple(addresses),
        usages=("server",),
    )
    life: timedelta = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return issue_leaf(spec, authority, algorithm_of(key), now, max(life.days, 1))


def _readable(pair: Pair) -> tuple[x509.Certificate, PrivateKey]:
    try:
        return read_pair(pair)
    except ValueError as error:
        raise UserError(
            f"the API servers' serving certificate cannot be read: {error}", fix="run `autarky up`"
        ) from error


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
