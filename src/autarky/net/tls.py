"""TLS contexts from PEM in memory."""

from __future__ import annotations

import os
import ssl


def client_context(ca_pem: bytes, certificate_pem: bytes | None = None, key_pem: bytes | None = None) -> ssl.SSLContext:
    """A context that trusts only the given CAs, and acts as the given certificate.

    Python reads certificate chains from files only; an anonymous memory file is one that no other process
    can open by name and that is gone with its descriptor.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=ca_pem.decode())
    if certificate_pem is not None and key_pem is not None:
        descriptor = os.memfd_create("autarky-client-certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, certificate_pem + b"\n" + key_pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    return context
