"""Whether a certificate request can be read in one way only.

Who judges a request (this) and who signs it (kube-controller-manager, in Go) read it with different libraries. Wherever
these disagree, one who is a node could have one name approved and another signed. So a request is judged only in the
form that kubelets and openssl write, in which there is nothing to disagree about:

- one PEM block with nothing around it, and DER with nothing after it (Go passes over a block that does not begin a
  line, and over what follows in a structure);
- a subject of at most one common name, and organizations, each an RDN of its own and a UTF8String or PrintableString
  (Go leaves out values of other types);
- no attribute but one list of extensions (Go knows a single kind of list), with the alternative names as its only one.

Danger: whoever relaxes this must know what both libraries do with it.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

_SEQUENCE, _SET, _OID, _OCTETS = 0x30, 0x31, 0x06, 0x04
_UTF8, _PRINTABLE = 0x0C, 0x13
_ALTERNATIVE_NAMES = bytes([0x55, 0x1D, 0x11])  # 2.5.29.17
_CRITICAL = bytes([0x01, 0x01, 0xFF])
_EXTENSION_REQUEST = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
_NAMES = {NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME}


def require_canonical(pem: bytes, request: x509.CertificateSigningRequest) -> None:
    """Raises ValueError, saying why, for a request that another library may read otherwise."""
    if request.public_bytes(Encoding.PEM).strip() != pem.rstrip():
        raise ValueError("not one PEM block of the ordinary form")
    _require_plain_subject(request.subject)
    for place, attribute in enumerate(request.attributes):
        if place or attribute.oid != _EXTENSION_REQUEST:
            raise ValueError("it has attributes other than one list of extensions")
        _require_names_only(attribute.value)


def _require_plain_subject(subject: x509.Name) -> None:
    named = [one.oid for one in subject]
    if set(named) - _NAMES or named.count(NameOID.COMMON_NAME) > 1:
        raise ValueError("its subject is not one common name and organizations")
    if any(len(rdn) != 1 for rdn in subject.rdns):
        raise ValueError("its subject has more than one value in one place")
    if not {_type_of_value(rdn) for rdn in subject.rdns} <= {_UTF8, _PRINTABLE}:
        raise ValueError("its subject has values that are not plain text")


def _type_of_value(rdn: x509.RelativeDistinguishedName) -> int:
    complete = x509.Name([rdn]).public_bytes()
    pair = _inside(_inside(_inside(complete, _SEQUENCE), _SET), _SEQUENCE)
    _, value = _split(pair)
    return value[0]


def _require_names_only(extensions: bytes) -> None:
    """extensions: the content of the list, as the library gives it."""
    extension = _inside(extensions, _SEQUENCE)
    kind, rest = _split(extension)
    if _inside(kind, _OID) != _ALTERNATIVE_NAMES:
        raise ValueError("it asks for an extension other than alternative names")
    _inside(rest.removeprefix(_CRITICAL), _OCTETS)


def _inside(der: bytes, tag: int) -> bytes:
    """The content, if this is exactly one element of that tag."""
    first, rest = _split(der)
    if rest or first[0] != tag:
        raise ValueError("its extensions are not the alternative names alone")
    header, _ = _length(first)
    return first[header:]


def _split(der: bytes) -> tuple[bytes, bytes]:
    """The first element, with its header, and what follows it."""
    header, length = _length(der)
    if len(der) < header + length:
        raise ValueError("it ends too early")
    return der[: header + length], der[header + length :]


def _length(der: bytes) -> tuple[int, int]:
    """Of the first element: how long its header is, and its content."""
    if len(der) < 2:
        raise ValueError("it ends too early")
    if der[1] < 0x80:
        return 2, der[1]
    size = der[1] & 0x7F
    return 2 + size, int.from_bytes(der[2 : 2 + size])
