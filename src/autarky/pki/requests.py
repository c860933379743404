"""Reading certificate requests (PKCS#10): what they ask for, as a plain value.

Contract: a request has one reading, for whoever signs it as well (`pki.canonical`), or it is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography import x509
from cryptography.x509.oid import NameOID

from autarky.errors import UserError
from autarky.pki.canonical import require_canonical
from autarky.pki.keys import PublicKey
from autarky.pki.unreadable import UNREADABLE


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject and the names of a request. `other_names`: e-mail, URI or other kinds are asked for."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: frozenset[str]
    ip_addresses: frozenset[str]
    other_names: bool
    key: PublicKey = field(repr=False)


def read_request(pem: bytes) -> Asked:
    """Parse a request and check its signature; raises UserError when it is not a valid one, could be read otherwise,
    or is for a key that is neither EC nor RSA."""
    try:
        request = x509.load_pem_x509_csr(pem)
        require_canonical(pem, request)
        return _read(request)
    except UNREADABLE as error:
        raise UserError(f"not a certificate request: {error}") from error


def _read(request: x509.CertificateSigningRequest) -> Asked:
    names = _alternative_names(request)
    if not request.is_signature_valid:
        raise UserError("the request is not signed by the key it is for")
    key = request.public_key()
    if not isinstance(key, PublicKey):
        raise UserError("the request is for a key that is neither EC nor RSA")
    dns = frozenset(names.get_values_for_type(x509.DNSName)) if names else frozenset()
    addresses = frozenset(str(ip) for ip in names.get_values_for_type(x509.IPAddress)) if names else frozenset()
    return Asked(
        common_name=_attribute(request, NameOID.COMMON_NAME)[-1],
        organizations=tuple(_attribute(request, NameOID.ORGANIZATION_NAME)),
        dns_names=dns,
        ip_addresses=addresses,
        other_names=names is not None and len(list(names)) != len(dns) + len(addresses),
        key=key,
    )


def _alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _attribute(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    values = [str(attribute.value) for attribute in request.subject.get_attributes_for_oid(oid)]
    return values or [""]
