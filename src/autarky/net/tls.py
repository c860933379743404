"""TLS contexts from PEM in memory."""

from __future__ import annotations

import os
import ssl

from autarky.errors import UserError

_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which Python has no name."""


def client_context(
    ca_pem: bytes | None,
    certificate_pem: bytes | None = None,
    key_pem: bytes | None = None,
    *,
    check_dates: bool = True,
) -> ssl.SSLContext:
    """A context that trusts only the given CAs (None: those of this machine) and acts as the given certificate.

    check_dates: False for who does not trust the own clock. Names, key and chain are verified all the same.

    Raises UserError when OpenSSL cannot use what is given, without showing any of it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A user's own CA may be an intermediate one, given without its root: trusting it is what was asked for.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if not check_dates:
        context.verify_flags |= _NO_CHECK_TIME
    if ca_pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, ca_pem)
    if certificate_pem is not None and key_pem is not None:
        load_identity(context, certificate_pem, key_pem)
    return context


def load_identity(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Act as this certificate in every connection that is made from now on. Raises UserError.

    Python reads certificate chains from files only; an anonymous memory file has no name, is never on disk
    and is gone with its descriptor.
    """
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(certificate_pem + b"\n" + key_pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (ssl.SSLError, OSError) as error:
        raise UserError(
            f"the client certificate and its key cannot be used: {error}",
            fix="give a PEM certificate and the unencrypted PEM key that belongs to it",
        ) from error
    finally:
        os.close(descriptor)


def _trust(context: ssl.SSLContext, ca_pem: bytes) -> None:
    try:
        context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise UserError("the CA is not a PEM certificate", fix="give one or more certificates as PEM") from error
