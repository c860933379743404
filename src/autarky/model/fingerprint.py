"""The fingerprint of a certificate: two machines compare it to know whether they mean the same CA."""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_OTHER = b" CERTIFICATE-----"
"""How every other label of a certificate ends: X509, TRUSTED."""


def fingerprint(pem: bytes | None) -> str | None:
    """SHA-256 of the first certificate's DER, in hex, as `openssl x509 -fingerprint -sha256` has it without colons.
    None if there is no certificate, or one with another label (X509 CERTIFICATE) comes first, which is the first one
    for some readers. Linear in time: the file may come from a compromised worker."""
    before, _, rest = (pem or b"").partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    if _OTHER in before or not end or not body.strip():
        return None
    try:
        return sha256(base64.b64decode(b"".join(body.split()), validate=True)).hexdigest()
    except binascii.Error:
        return None
