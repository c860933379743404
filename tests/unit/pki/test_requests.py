from __future__ import annotations

import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from autarky.errors import UserError
from autarky.pki.keys import new_key
from autarky.pki.requests import read_request


def request(*names: x509.GeneralName, subject: dict[x509.ObjectIdentifier, str] | None = None) -> bytes:
    wanted = subject if subject is not None else {NameOID.COMMON_NAME: "system:node:n1"}
    attributes = [x509.NameAttribute(kind, value) for kind, value in wanted.items()]
    builder = x509.CertificateSigningRequestBuilder(x509.Name(attributes))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(new_key("EC"), hashes.SHA256()).public_bytes(Encoding.PEM)


def test_what_is_asked_for_is_read() -> None:
    subject = {NameOID.ORGANIZATION_NAME: "system:nodes", NameOID.COMMON_NAME: "system:node:n1"}
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("10.0.0.1", "fd00::1")]
    asked = read_request(request(x509.DNSName("n1"), *addresses, subject=subject))
    assert (asked.common_name, asked.organizations) == ("system:node:n1", ("system:nodes",))
    assert (asked.dns_names, asked.ip_addresses) == ({"n1"}, {"10.0.0.1", "fd00::1"})
    assert not asked.other_names


def test_a_request_without_names_asks_for_none() -> None:
    asked = read_request(request())
    assert asked.dns_names == asked.ip_addresses == frozenset()
    assert not asked.other_names


@pytest.mark.parametrize(
    "name", [x509.RFC822Name("a@example.org"), x509.UniformResourceIdentifier("https://example.org")]
)
def test_names_of_other_kinds_are_told(name: x509.GeneralName) -> None:
    assert read_request(request(x509.DNSName("n1"), name)).other_names


def test_a_request_without_a_subject_asks_for_an_empty_name() -> None:
    assert read_request(request(subject={})).common_name == ""


def test_what_is_no_request_is_refused() -> None:
    with pytest.raises(UserError, match="not a certificate request"):
        read_request(b"garbage")


def test_a_request_that_was_changed_after_it_was_signed_is_refused() -> None:
    der = bytearray(x509.load_pem_x509_csr(request()).public_bytes(Encoding.DER))
    place = der.index(b"system:node:n1")
    der[place : place + 14] = b"system:node:n2"
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(UserError, match="not signed by the key"):
        read_request(forged)


@pytest.mark.parametrize("tag", [0xA3, 0xA5], ids=["x400Address", "ediPartyName"])
def test_names_of_a_kind_that_nobody_reads_make_a_request_unreadable_and_no_more(tag):
    """Any kubelet may ask for them: what cannot be read must not end the round in which all others are judged."""
    general_name = bytes([tag, 2, 0x05, 0x00])
    odd = x509.UnrecognizedExtension(
        x509.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes([0x30, len(general_name)]) + general_name
    )
    key = new_key("EC")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:w1")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(odd, critical=False)
    pem = request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    with pytest.raises(UserError, match="not a certificate request"):
        read_request(pem)
