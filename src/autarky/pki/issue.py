"""Issuing CAs and leaves. Values in, PEM out: no files here, and no clock but the given `now`.

Contract: a leaf never outlives its CA, and is never valid before it. Serial numbers are random.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.keys import Algorithm, PrivateKey, PublicKey, key_pem, load_key, new_key
from autarky.pki.unreadable import UNREADABLE

BACKDATED = timedelta(minutes=5)
"""Certificates are valid from a little before now, so that a host whose clock is behind accepts them."""
LONGEST_COMMON_NAME = 64
"""Characters; ub-common-name of RFC 5280, Appendix A.1."""
USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (maybe followed by others) and its private key, both PEM. The key has no repr."""

    certificate: bytes
    key: bytes = field(repr=False)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Pair | None:
        """None unless both files are there. OSError for what cannot be read."""
        try:
            return cls(certificate.read_bytes(), key.read_bytes())
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)


def read_pair(pair: Pair) -> tuple[x509.Certificate, PrivateKey]:
    """Both parts, of which the first certificate counts; ValueError, saying why, if they are not a pair."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        public = certificate.public_key()
    except UNREADABLE as error:
        raise ValueError("not a certificate in PEM form") from error
    key = load_key(pair.key)
    if public != key.public_key():
        raise ValueError("the key belongs to another certificate")
    return certificate, key


def issue_ca(common_name: str, key: PrivateKey, now: datetime, days: int) -> Pair:
    """A self-signed CA of this key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _certificate(name, name, key.public_key(), now - BACKDATED, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(certificate), key_pem(key))


def issue_leaf(spec: CertSpec, authority: Authority, algorithm: Algorithm, now: datetime, life: timedelta) -> Pair:
    """A leaf as specified, with a key of its own. Raises UserError for names that X.509 cannot hold."""
    return renewed_leaf(spec, authority, new_key(algorithm), now, life)


def renewed_leaf(spec: CertSpec, authority: Authority, key: PrivateKey, now: datetime, life: timedelta) -> Pair:
    """The same with an existing key: both files belong together at every moment."""
    return Pair(sign_leaf(spec, authority, key.public_key(), now, life), key_pem(key))


def sign_leaf(spec: CertSpec, authority: Authority, key: PublicKey, now: datetime, life: timedelta) -> bytes:
    """A leaf as specified for somebody else's key, as PEM. Raises UserError for names that X.509 cannot hold.

    It is valid from the beginning of its CA, as with kubeadm: a host whose clock is behind accepts it, and one that
    was issued by a clock that went ahead is good when the clock has come back.
    """
    issuer = authority.certificate
    begin = issuer.not_valid_before_utc
    left = issuer.not_valid_after_utc - now
    end = now + (left if spec.lasting else min(life, left))
    builder = (
        _certificate(_subject(spec), issuer.subject, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(enciphers_keys=isinstance(key, rsa.RSAPublicKey)), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USAGES[usage] for usage in spec.usages]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_issuer_identifier(authority), critical=False)
    )
    names = _alternative_names(spec)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pem(builder.sign(authority.key, hashes.SHA256()))


def request_for(spec: CertSpec, key: PrivateKey) -> bytes:
    """A request (PKCS#10) for a leaf as specified, as PEM. Raises UserError as `issue_leaf` does."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(spec))
    names = _alternative_names(spec)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def alternative_names(certificate: x509.Certificate) -> frozenset[x509.GeneralName]:
    """What a certificate is good for; empty where it has no such extension."""
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return frozenset()


def wanted_names(spec: CertSpec) -> frozenset[x509.GeneralName]:
    """The alternative names of a specification, in the same form as those of a certificate."""
    return frozenset(_alternative_names(spec))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _subject(spec: CertSpec) -> x509.Name:
    if len(spec.common_name) > LONGEST_COMMON_NAME:
        raise UserError(
            f"the certificate {spec.name} would name «{spec.common_name}», which has {len(spec.common_name)} "
            f"characters; X.509 allows {LONGEST_COMMON_NAME}",
            fix="give the node a shorter name",
        )
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in spec.organizations]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, spec.common_name)])


def _alternative_names(spec: CertSpec) -> list[x509.GeneralName]:
    try:
        addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in spec.ip_addresses]
        return [*(x509.DNSName(name) for name in spec.dns_names), *addresses]
    except ValueError as error:
        raise UserError(
            f"the certificate {spec.name} cannot name {', '.join((*spec.dns_names, *spec.ip_addresses))}: {error}",
            fix="write host names in their ASCII form (xn--…) and addresses as numbers",
        ) from error


def _issuer_identifier(authority: Authority) -> x509.AuthorityKeyIdentifier:
    """The CA's own identifier: other tools do not always derive it from the key as we do, and a
    verifier refuses a leaf whose identifier differs from its CA's."""
    try:
        own = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        public: PublicKey = authority.key.public_key()
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own.value)


def _key_usage(*, signs_certificates: bool = False, enciphers_keys: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=enciphers_keys,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
