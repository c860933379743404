"""What reading a forged or damaged certificate, request or key may raise."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

UNREADABLE = (
    *(ValueError, TypeError, OverflowError, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType, x509.InvalidVersion),
)
"""At any access: much of it is parsed only on demand. One that cannot be read must not block the others."""
