"""The same certificate once more, with another time for which it is good. Pure: no cluster.

Contract: subject, names, usages and key are those of the one that is there, so that nobody sees a difference but in
time. The private key is not needed.
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from autarky.pki.issue import Authority


def good_until(pem: bytes, authority: Authority, end: datetime, *, begin: datetime | None = None) -> bytes:
    """`pem`: the first certificate in it counts. `begin`: that of its CA, as with all that autarky signs."""
    found = x509.load_pem_x509_certificate(pem)
    builder = (
        x509.CertificateBuilder()
        .subject_name(found.subject)
        .issuer_name(authority.certificate.subject)
        .public_key(found.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin or authority.certificate.not_valid_before_utc)
        .not_valid_after(end)
    )
    for extension in found.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def end_of(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc
