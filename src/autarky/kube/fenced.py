"""A Kube whose writes need permission: leaders write through it, so that they write nothing after their term.

Contract: `may_write` is asked right before each write is sent; without permission the write is a Conflict, and
nothing was sent. Reads need no permission.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass

from autarky.errors import Conflict
from autarky.model.patience import HEALTH
from autarky.ports import Kube, Object, WatchEvent


@dataclass(frozen=True, slots=True)
class Fenced:
    """Implements ports.Kube over another Kube, which it does not close."""

    inner: Kube
    may_write: Callable[[], bool]

    def _check(self) -> None:
        if not self.may_write():
            raise Conflict("this process does not hold the lease any more: nothing was written")

    # --- reading ---

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        return await self.inner.get(api_version, kind, name, namespace)

    async def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        return await self.inner.list(api_version, kind, namespace=namespace, labels=labels, fields=fields)

    def each(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncGenerator[Object, None]:
        return self.inner.each(api_version, kind, namespace=namespace, labels=labels, fields=fields)

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[WatchEvent, None]:
        return self.inner.watch(
            api_version,
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
        )

    async def logs(
        self, namespace: str, pod: str, *, container: str | None = None, previous: bool = False, tail: int | None = None
    ) -> str:
        return await self.inner.logs(namespace, pod, container=container, previous=previous, tail=tail)

    async def lines(self, path: str, beginnings: Collection[str]) -> Sequence[str]:
        return await self.inner.lines(path, beginnings)

    async def healthy(self, path: str = "/readyz", *, timeout: float = HEALTH) -> str | None:
        return await self.inner.healthy(path, timeout=timeout)

    async def close(self) -> None: ...

    # --- writing ---

    async def apply(self, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        self._check()
        return await self.inner.apply(obj, manager=manager, dry_run=dry_run)

    async def create(self, obj: Object) -> Object:
        self._check()
        return await self.inner.create(obj)

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        patch: Object,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        self._check()
        return await self.inner.patch(api_version, kind, name, patch, namespace=namespace, subresource=subresource)

    async def replace(self, obj: Object, *, subresource: str | None = None) -> Object:
        self._check()
        return await self.inner.replace(obj, subresource=subresource)

    async def evict(self, namespace: str, pod: str) -> bool:
        self._check()
        return await self.inner.evict(namespace, pod)

    async def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        as_read: Object | None = None,
    ) -> bool:
        self._check()
        return await self.inner.delete(api_version, kind, name, namespace, grace_seconds=grace_seconds, as_read=as_read)
