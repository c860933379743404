"""ports.ImageFiles in memory, for tests of what uses it. tests/contract/cri holds the real one to its contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from autarky.errors import Unreachable, UserError
from autarky.ports import FoundFile, FoundImage

PIECE = 1000


@dataclass(slots=True)
class FakeImageFiles:
    """`there`: image → path → content. `asked`: the paths of every read. `breaks_off`: reads end so, after the content
    was given."""

    there: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    outage: str | None = None
    breaks_off: Exception | None = None

    async def find(self, reference: str, paths: Collection[str]) -> FoundImage:
        self._refuse_outage()
        files = self.there.get(reference)
        if files is None:
            raise UserError(f"the image {reference} is not on this node", fix="bring it")
        if absent := [path for path in paths if path not in files]:
            raise UserError(f"the image {reference} cannot be used: {absent[0]} is not in it", fix="build it again")
        digest = f"sha256:{sha256(repr(sorted(files.items())).encode()).hexdigest()}"
        return FoundImage(reference, digest, {path: FoundFile(len(files[path]), digest, 0) for path in paths})

    async def read(self, found: FoundImage, into: Mapping[str, Callable[[bytes], object]]) -> None:
        self._refuse_outage()
        self.asked.append(list(into))
        await asyncio.to_thread(self._give, self.there[found.reference], into)
        if self.breaks_off is not None:
            raise self.breaks_off

    def _give(self, files: Mapping[str, bytes], into: Mapping[str, Callable[[bytes], object]]) -> None:
        for path, take in into.items():
            for begin in range(0, len(files[path]), PIECE):
                take(files[path][begin : begin + PIECE])

    def _refuse_outage(self) -> None:
        if self.outage is not None:
            raise Unreachable(self.outage)

    async def close(self) -> None:
        pass
