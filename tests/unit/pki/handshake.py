"""TLS in memory: do two peers with these certificates accept each other? OpenSSL is the judge."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from autarky.pki.issue import Pair


def context(side: int, trusted: bytes, own: Pair | None, *, strict: bool) -> ssl.SSLContext:
    result = ssl.SSLContext(side)
    if strict:
        result.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    result.load_verify_locations(cadata=trusted.decode())
    if side == ssl.PROTOCOL_TLS_SERVER:
        result.verify_mode = ssl.CERT_REQUIRED
    if own is not None:
        with TemporaryDirectory() as directory:
            path = Path(directory) / "pair.pem"
            path.write_bytes(own.certificate + own.key)
            result.load_cert_chain(path)
    return result


def shake_hands(server: Pair, client: Pair | None, trusted: bytes, name: str, *, strict: bool = True) -> None:
    """Raises ssl.SSLError when one side refuses the other. `name` is what the client dials.

    strict: refuse also what RFC 5280 forbids and most accept, as Python does from 3.13 on.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    dials = context(ssl.PROTOCOL_TLS_CLIENT, trusted, client, strict=strict)
    answers = context(ssl.PROTOCOL_TLS_SERVER, trusted, server, strict=strict)
    client_side = dials.wrap_bio(to_client, to_server, server_hostname=name)
    server_side = answers.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(6):
        for side in (client_side, server_side):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    with suppress(ssl.SSLWantReadError):
        client_side.read(1)  # in TLS 1.3 the client learns only now that it was refused
