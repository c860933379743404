"""Clients of a real API server that act as somebody else, and how a refusal looks."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Any

from autarky.errors import ApiError
from autarky.kube import KubeClient
from autarky.net.http import Request
from contract.servers import Server

LIMIT = 60.0
"""Seconds until the API server has heard of what was written, by its watch: below one, as a rule."""


class As(KubeClient):
    """A client that says whom it acts as; `node`: that its token is of a pod on that node."""

    user = group = node = ""

    def _authorized(self, request: Request) -> Request:
        says = {"impersonate-user": self.user}
        if self.group:
            says["impersonate-group"] = self.group
        if self.node:
            says["impersonate-extra-authentication.kubernetes.io%2fnode-name"] = self.node
        authorized = super()._authorized(request)
        return dataclasses.replace(authorized, headers={**authorized.headers, **says})

    async def delete_all(self, api_version: str, kind: str, namespace: str) -> None:
        """All of the collection by one request: such a one names none of them."""
        resource = await self._resources.find(api_version, kind)
        self._object(await self._call(Request("DELETE", resource.collection(namespace))), resource)


def acting(server: Server, user: str, group: str = "", node: str = "") -> As:
    pair, ca = server.pki.read("super-admin"), server.pki.files()["ca.crt"]
    client = As([server.url], ca_pem=ca, client_cert_pem=pair.certificate, client_key_pem=pair.key)
    client.user, client.group, client.node = user, group, node
    return client


async def is_refused(write: Awaitable[Any]) -> bool:
    try:
        await write
    except ApiError as error:
        if error.status != 403:
            raise
        return True
    return False


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + LIMIT
    while not await holds():
        assert time.monotonic() < end, f"not after {LIMIT:.0f} s: {what}"
        await asyncio.sleep(0.1)
