"""Private keys: making them, and their PEM form. P-256 or RSA 2048: what every component accepts."""

from __future__ import annotations

from typing import Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from autarky.pki.unreadable import UNREADABLE

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
Algorithm = Literal["EC", "RSA"]

LEAST_RSA_BITS = 2048
"""Go refuses to handshake with less than 1024; NIST SP 800-131A allows nothing below 2048."""


def new_key(algorithm: Algorithm) -> PrivateKey:
    """A fresh key. RSA takes a tenth of a second, EC next to nothing."""
    if algorithm == "EC":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=LEAST_RSA_BITS)


def load_key(pem: bytes) -> PrivateKey:
    """Raises ValueError, saying why, for anything but an unencrypted EC or RSA key of decent size."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise ValueError("the key is encrypted") from error
    except UNREADABLE as error:
        raise ValueError("not a private key in PEM form") from error
    if isinstance(key, rsa.RSAPrivateKey):
        if key.key_size < LEAST_RSA_BITS:
            raise ValueError(f"an RSA key of {key.key_size} bits; {LEAST_RSA_BITS} are the least")
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    raise ValueError("neither an EC nor an RSA key")


def key_pem(key: PrivateKey) -> bytes:
    """PKCS#8: one form for both algorithms."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def algorithm_of(key: PrivateKey) -> Algorithm:
    return "RSA" if isinstance(key, rsa.RSAPrivateKey) else "EC"
