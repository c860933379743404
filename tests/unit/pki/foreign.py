"""CAs as other tools make them: with other keys, identifiers and encodings than ours, and with faults."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.name import _ASN1Type

from autarky.pki.issue import Pair
from autarky.pki.keys import PrivateKey


def foreign_ca(
    now: datetime,
    *,
    key: PrivateKey | None = None,
    is_ca: bool | None = True,
    signs: bool | None = True,
    identifier: bytes | None = b"made in another way",
    begin: timedelta = timedelta(days=-1),
    end: timedelta = timedelta(days=100),
) -> Pair:
    """A self-signed certificate. None leaves the extension out. `begin` and `end` count from `now`."""
    key = key or ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "foreign", _ASN1Type.PrintableString)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now + begin, now + end)
    if is_ca is not None:
        builder = builder.add_extension(
            x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True
        )
    if signs is not None:
        usage = x509.KeyUsage(
            digital_signature=not signs,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=signs,
            crl_sign=signs,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    if identifier is not None:
        builder = builder.add_extension(x509.SubjectKeyIdentifier(identifier), critical=False)
    certificate = builder.sign(key, hashes.SHA384())
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return Pair(certificate.public_bytes(Encoding.PEM), key_pem)
