"""ports.KeptImages in memory, for tests of what uses it. tests/contract/cri holds the real one to its contract."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from autarky.errors import Unreachable


@dataclass(slots=True)
class FakeKeptImages:
    """`there`: what the node has. `asked`: every call of `keep`."""

    there: set[str] = field(default_factory=set)
    outage: str | None = None
    asked: list[frozenset[str]] = field(default_factory=list)

    async def keep(self, references: Collection[str]) -> frozenset[str]:
        if self.outage is not None:
            raise Unreachable(self.outage)
        self.asked.append(frozenset(references))
        return frozenset(references) & self.there

    async def close(self) -> None:
        pass
