"""Issuing: CAs, leafs and key pairs, with `cryptography`. Values in, PEM out; no files here."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from autarky.model.files import CertSpec

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Algorithm = Literal["EC", "RSA"]
BACKDATED = timedelta(minutes=5)
"""Certificates are valid from a little before now, so that a host whose clock is behind accepts them."""
_USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM. The key has no repr."""

    certificate: bytes
    key: bytes = field(repr=False)


def new_key(algorithm: Algorithm) -> Key:
    """P-256 or RSA 2048: what every Kubernetes component accepts."""
    if algorithm == "EC":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_pem(key: Key) -> bytes:
    """PKCS#8: one form for both algorithms."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: Key) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def issue_ca(common_name: str, algorithm: Algorithm, now: datetime, days: int) -> Pair:
    """A self-signed CA."""
    key = new_key(algorithm)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key, now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def issue_leaf(spec: CertSpec, ca: Pair, algorithm: Algorithm, now: datetime, days: int) -> Pair:
    """A leaf as specified, signed by the CA; it never outlives its CA."""
    ca_certificate = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = serialization.load_pem_private_key(ca.key, password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)  # noqa: S101 # checked when it was read
    key = new_key(algorithm)
    until = min(now + timedelta(days=days), ca_certificate.not_valid_after_utc)
    builder = (
        _builder(_subject(spec), ca_certificate.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGES[usage] for usage in spec.usages]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_certificate.public_key()),  # type: ignore[arg-type] # EC or RSA
            critical=False,
        )
    )
    names = _alternative_names(spec)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
    )


def _subject(spec: CertSpec) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in spec.organizations]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, spec.common_name)])


def _alternative_names(spec: CertSpec) -> list[x509.GeneralName]:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in spec.ip_addresses]
    return [*(x509.DNSName(name) for name in spec.dns_names), *addresses]


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
