"""Judging what exists: is a pair usable as a CA, is a leaf what its specification wants?"""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.issue import USAGES, Authority, Pair, alternative_names, read_pair, wanted_names
from autarky.pki.keys import Algorithm, algorithm_of
from autarky.pki.unreadable import UNREADABLE


def is_due(end: datetime, life: timedelta, now: datetime) -> bool:
    """The one rule for renewing: two thirds of its lifetime are over. A leaf starts with its CA, so its lifetime
    must be given."""
    return end - now < life / 3


def why_renew(
    pair: Pair, spec: CertSpec, authority: Authority, algorithm: Algorithm, now: datetime, life: timedelta
) -> str | None:
    """Why a leaf must be reissued, as a clause; None if it is as specified and valid for a while."""
    try:
        return _why_renew(pair, spec, authority, algorithm, now, life)
    except UNREADABLE as error:
        return f"unreadable: {error}"


def _why_renew(
    pair: Pair, spec: CertSpec, authority: Authority, algorithm: Algorithm, now: datetime, life: timedelta
) -> str | None:
    certificate, key = read_pair(pair)
    if not is_signed_by(certificate, authority.certificate):
        return "signed by another CA"
    return (
        _difference(certificate, spec)
        or (None if algorithm_of(key) == algorithm else f"its key is not {algorithm}")
        or _age(certificate, authority.certificate, now, life)
    )


def _difference(certificate: x509.Certificate, spec: CertSpec) -> str | None:
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if names != [spec.common_name] or sorted(groups) != sorted(spec.organizations):
        return "its subject differs"
    if alternative_names(certificate) != wanted_names(spec):
        return "its host names or addresses differ"
    if _usages(certificate) != {USAGES[usage] for usage in spec.usages}:
        return "its usages differ"
    return None


def _age(certificate: x509.Certificate, issuer: x509.Certificate, now: datetime, life: timedelta) -> str | None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        return f"not valid before {begin:%Y-%m-%d %H:%M}"
    # A leaf that ends with its CA gains nothing from being reissued: that would repeat in every run.
    if is_due(end, life, now) and end < issuer.not_valid_after_utc:
        return f"expires {end:%Y-%m-%d %H:%M}"
    return None


def expiry(pair: Pair | None) -> float:
    """Seconds since the epoch until which a pair is valid; 0 if it is not a pair."""
    try:
        return read_pair(pair)[0].not_valid_after_utc.timestamp() if pair is not None else 0.0
    except ValueError:
        return 0.0


def authority_of(pair: Pair, certificate_file: str, key_file: str, now: datetime) -> Authority:
    """The pair as a CA; UserError, naming both files and the fix, if it cannot be one."""
    where = f"{certificate_file} and {key_file}"
    try:
        certificate, key = read_pair(pair)
        may_sign = _may_sign(certificate)
    except UNREADABLE as error:
        raise UserError(
            f"not usable as a CA: {error}",
            where=where,
            fix="put a CA certificate there and the unencrypted EC or RSA key that belongs to it, both as PEM",
        ) from error
    if not may_sign:
        raise UserError(
            "the certificate is not a CA certificate",
            where=where,
            fix="give a certificate with CA:TRUE and, if it has key usages, Certificate Sign",
        )
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now < end:
        raise UserError(
            f"the CA is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} only",
            where=where,
            fix="give a CA that is valid now, or set this machine's clock",
        )
    return Authority(certificate, key)


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
    except x509.ExtensionNotFound:
        return False
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether that CA's key has signed it."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return set()
