"""Judging certificates that exist: does the pair belong together, is it what the specification wants?"""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.issue import _USAGES, Pair

RENEW_BEFORE = timedelta(days=30)


def why_renew(pair: Pair, spec: CertSpec, ca: Pair, now: datetime) -> str | None:
    """Why a leaf must be issued anew, or None when it is as specified and good for a while."""
    certificate = _load(pair)
    if certificate is None:
        return "unreadable, or its key belongs to another certificate"
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    if not _signed_by(certificate, issuer):
        return "signed by another CA"
    if certificate.not_valid_after_utc - now < min(RENEW_BEFORE, _lifetime(certificate) / 3):
        return f"expires {certificate.not_valid_after_utc:%Y-%m-%d}"
    return _differs(certificate, spec)


def _differs(certificate: x509.Certificate, spec: CertSpec) -> str | None:
    common_name = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    organizations = tuple(
        str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    )
    if (common_name, organizations) != (spec.common_name, spec.organizations):
        return "names another subject"
    if _names(certificate) != (set(spec.dns_names), set(spec.ip_addresses)):
        return "names other hosts or addresses"
    usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    if usages != {_USAGES[usage] for usage in spec.usages}:
        return "is for other usages"
    return None


def refuse_bad_ca(pair: Pair, certificate_file: str, key_file: str, now: datetime) -> None:
    """UserError when a given CA pair cannot be used; names both files and the remedy."""
    where = f"{certificate_file} and {key_file}"
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError) as error:
        raise UserError(
            f"they are not a PEM certificate and an unencrypted PEM key: {error}", where=where, fix="give both as PEM"
        ) from error
    if _load(pair) is None:
        raise UserError(
            "the key does not belong to the certificate", where=where, fix="give the key that the certificate is for"
        )
    try:
        is_ca = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_ca = False
    if not is_ca:
        raise UserError("the certificate is not a CA", where=where, fix="give a certificate with CA:TRUE")
    if certificate.not_valid_after_utc <= now:
        raise UserError(
            f"the CA expired {certificate.not_valid_after_utc:%Y-%m-%d}", where=where, fix="give a CA that is valid"
        )


def is_pair(pair: Pair) -> bool:
    """Whether the key belongs to the certificate."""
    return _load(pair) is not None


def _load(pair: Pair) -> x509.Certificate | None:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return None
    return certificate if key.public_key() == certificate.public_key() else None


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _lifetime(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc


def _names(certificate: x509.Certificate) -> tuple[set[str], set[str]]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set(), set()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return set(names.get_values_for_type(x509.DNSName)), addresses
