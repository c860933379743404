"""What reading a certificate, a request or a key raises when somebody has made it up, or a disk has damaged it."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

UNREADABLE = (
    *(ValueError, TypeError, OverflowError, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType, x509.InvalidVersion),
)
"""Wherever it is read: much of it is looked at only when it is asked for. One that cannot be read must not be in the
way of the others."""
