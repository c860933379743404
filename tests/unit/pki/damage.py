"""Certificates and keys with a bit flipped, as a damaged disk has them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives import serialization


def flipped(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def every_byte_flipped(pem: bytes) -> Iterator[bytes]:
    """The first part of a PEM file, with one bit of each byte of its DER flipped, each bit in its turn."""
    lines = pem.splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith(b"-----END"))
    der = base64.b64decode(b"".join(lines[1:end]))
    for place in range(len(der)):
        yield b"\n".join([lines[0], base64.b64encode(flipped(der, place, place % 8)), *lines[end:], b""])


def unforeseen_by_a_reader_of_values(pem: bytes) -> Iterator[bytes]:
    """Those of them at which whoever expects a ValueError only comes to harm."""
    for damaged in every_byte_flipped(pem):
        try:
            if b"BEGIN CERTIFICATE" in pem:
                x509.load_pem_x509_certificate(damaged).public_key()
            else:
                serialization.load_pem_private_key(damaged, password=None)
        except ValueError:
            continue
        except Exception:
            yield damaged
