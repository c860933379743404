"""A list with the version of the collection that it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autarky.ports import Kube, Object

Slim = Callable[[Object], Object]
"""Keeps part of an object, since somebody may have made it very long."""


def complete(obj: Object) -> Object:
    return obj


@dataclass(frozen=True, slots=True)
class Listing:
    """A watch that starts from `resource_version` misses nothing that happened after this list."""

    items: list[Object]
    resource_version: str


class Lister(Kube, Protocol):
    """A Kube whose lists come with their resourceVersion: what a reflector needs."""

    async def list_at(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        slim: Slim = complete,
    ) -> Listing:
        """slim: done with each object as soon as its page has come, so that a list may be longer than what is kept."""
        ...
