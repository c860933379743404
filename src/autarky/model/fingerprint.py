"""The fingerprint of a certificate: what two machines compare to know whether they mean the same CA."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import sha256

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def fingerprint(pem: bytes | None) -> str | None:
    """SHA-256 of the first certificate's DER, in hex, as `openssl x509 -fingerprint -sha256` has it without colons.
    None where there is no certificate."""
    found = _CERTIFICATE.search(pem or b"")
    if found is None:
        return None
    try:
        return sha256(base64.b64decode(b"".join(found[1].split()), validate=True)).hexdigest()
    except binascii.Error:
        return None
