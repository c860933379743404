from __future__ import annotations

import base64
import ipaddress
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

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


WITH_NAMES = request(x509.DNSName("n1"), subject={NameOID.COMMON_NAME: "system:node:n1"})


def test_what_is_asked_for_is_read() -> None:
    subject = {NameOID.ORGANIZATION_NAME: "system:nodes", NameOID.COMMON_NAME: "system:node:n1"}
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("10.0.0.1", "fd00::1")]
    asked = read_request(request(x509.DNSName("n1"), *addresses, subject=subject))
    assert (asked.common_name, asked.organizations) == ("system:node:n1", ("system:nodes",))
    assert (set(asked.dns_names), set(asked.ip_addresses)) == ({"n1"}, {"10.0.0.1", "fd00::1"})
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


def test_a_request_before_which_something_stands_is_none() -> None:
    """The library here takes the first block of two; Go passes over one that does not begin a line."""
    own, other = (request(subject={NameOID.COMMON_NAME: f"system:node:{name}"}) for name in ("w1", "n1"))
    assert read_request(own + b"\n").common_name == "system:node:w1"
    for two in (b"x" + own + other, own + other, other + own, b" " + own, own + b"x", own.replace(b" REQUEST", b"")):
        with pytest.raises(UserError, match="not a certificate request"):
            read_request(two)


@pytest.mark.parametrize(
    "header", [b"Proc-Type: 4\n\n", b"NEW "], ids=["with headers", "with a label that Go does not know"]
)
def test_a_block_of_another_form_is_none(header: bytes) -> None:
    own = request()
    odd = (
        own.replace(b"CERT", header + b"CERT")
        if header.endswith(b" ")
        else own.replace(b"ST-----\n", b"ST-----\n" + header, 1)
    )
    with pytest.raises(UserError, match="not a certificate request"):
        read_request(odd)


def _named(*rdns: list[tuple[x509.ObjectIdentifier, str, _ASN1Type]]) -> bytes:
    name = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(*one[:2], _type=one[2]) for one in rdn]) for rdn in rdns]
    )
    return x509.CertificateSigningRequestBuilder(name).sign(new_key("EC"), hashes.SHA256()).public_bytes(Encoding.PEM)


MICROSOFT = x509.ObjectIdentifier("1.3.6.1.4.1.311.2.1.14")
UTF8, PRINTABLE, VISIBLE = _ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.VisibleString
EVIL, OWN = (NameOID.COMMON_NAME, "system:node:n1"), (NameOID.COMMON_NAME, "system:node:w1")
NODES = (NameOID.ORGANIZATION_NAME, "system:nodes")


@pytest.mark.parametrize("kind", [UTF8, PRINTABLE])
def test_names_as_kubelets_and_openssl_write_them_are_read(kind: _ASN1Type) -> None:
    assert read_request(_named([(*NODES, kind)], [(*OWN, kind)])).common_name == "system:node:w1"


@pytest.mark.parametrize(
    "rdns",
    [
        ([(*EVIL, UTF8)], [(*OWN, VISIBLE)]),
        ([(*EVIL, UTF8)], [(*OWN, UTF8)]),
        ([(*EVIL, UTF8), (*NODES, UTF8)], [(*OWN, UTF8)]),
        ([(*NODES, UTF8), (*OWN, UTF8)],),
        ([(*NODES, VISIBLE)], [(*OWN, UTF8)]),
        ([(*NODES, UTF8)], [(*OWN, UTF8)], [(NameOID.ORGANIZATIONAL_UNIT_NAME, "x", UTF8)]),
    ],
)
def test_a_subject_that_could_be_read_otherwise_is_none(rdns: tuple[list[Any], ...]) -> None:
    """Go leaves out the values that are no strings to it: of two common names it takes the other."""
    with pytest.raises(UserError, match="its subject"):
        read_request(_named(*rdns))


def test_names_in_any_place_but_the_ordinary_one_make_it_none() -> None:
    """The library here also reads the list of extensions under Microsoft's number; Go does not."""
    names = x509.SubjectAlternativeName([x509.DNSName("w1")])
    ordinary = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(names, critical=False)
    good = ordinary.sign(new_key("EC"), hashes.SHA256())
    assert read_request(good.public_bytes(Encoding.PEM)).dns_names == {"w1"}
    extensions = next(iter(good.attributes)).value
    of_microsoft = (
        x509.CertificateSigningRequestBuilder(x509.Name([]))
        .add_attribute(MICROSOFT, extensions, _tag=_ASN1Type.UTF8String)
        .sign(new_key("EC"), hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    with pytest.raises(UserError, match="attributes other than"):
        read_request(of_microsoft)


@pytest.mark.parametrize(
    "odd",
    [
        x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.5.5.7.1.24"), bytes.fromhex("3003020163")),
        x509.BasicConstraints(ca=True, path_length=None),
    ],
    ids=["a TLS feature that nobody knows", "a CA"],
)
@pytest.mark.parametrize("with_names", [True, False])
def test_extensions_other_than_names_make_it_none(odd: x509.ExtensionType, with_names: bool) -> None:
    """One of an unknown feature once ended the judging of all requests: reading it raised a KeyError."""
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(odd, critical=False)
    if with_names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("w1")]), critical=False)
    with pytest.raises(UserError, match="not a certificate request"):
        read_request(builder.sign(new_key("EC"), hashes.SHA256()).public_bytes(Encoding.PEM))


@given(st.integers(min_value=0, max_value=10_000), st.integers(min_value=1, max_value=255))
def test_a_request_with_any_byte_changed_is_none_and_no_error_of_another_kind(place: int, change: int) -> None:
    der = bytearray(x509.load_pem_x509_csr(WITH_NAMES).public_bytes(Encoding.DER))
    der[place % len(der)] ^= change
    pem = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + base64.encodebytes(bytes(der))
        + b"-----END CERTIFICATE REQUEST-----\n"
    )
    with pytest.raises(UserError):
        read_request(pem)


@pytest.mark.parametrize("tag", [0xA3, 0xA5], ids=["x400Address", "ediPartyName"])
def test_names_of_a_kind_that_nobody_reads_make_a_request_unreadable_and_no_more(tag):
    """Any kubelet may ask for them: what cannot be read must not end the round in which all others are judged."""
    general_name = bytes([tag, 2, 0x05, 0x00])
    odd = x509.UnrecognizedExtension(
        x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes([0x30, len(general_name)]) + general_name
    )
    key = new_key("EC")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:w1")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(odd, critical=False)
    pem = request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    with pytest.raises(UserError, match="not a certificate request"):
        read_request(pem)
