"""The API server's address as the probe was given it: the only thing the probe ever dials."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from autarky.errors import Unreachable, UserError

DEFAULT_PORT = 443


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. `host` is the name in the certificate, `address` the numeric one that is dialled."""

    url: str
    host: str
    address: str
    port: int
    family: socket.AddressFamily

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


async def resolve(url: str) -> Endpoint:
    """The endpoint of an https URL without a path.

    A name is looked up once, and its first IPv4 address (or, without one, its first) is dialled from then on:
    what is measured is the API server, not the name service, and clusters listen on IPv4. Raises UserError
    for anything but such a URL, Unreachable when the name cannot be resolved.
    """
    host, port = _split(url)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unreachable(f"{host} has no address: {error}") from error
    family, _, _, _, address = min(found, key=lambda one: one[0] is not socket.AF_INET)
    return Endpoint(url.rstrip("/"), host, str(address[0]), port, family)


def _split(url: str) -> tuple[str, int]:
    wanted = "give a URL such as https://10.0.0.1:6443"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError as error:
        raise UserError(f"{url!r} is not a URL: {error}", fix=wanted) from error
    if parts.scheme != "https" or not host or parts.path.strip("/") or parts.query:
        raise UserError(f"{url!r} is not the https URL of an API server", fix=wanted)
    return host, port
