"""Long loops in parts, each a case of its own, which a run of CI can take. Pure: no cluster.

Contract: the parts together do what the whole did: each of its rounds is in one of them, and each write, whatever its
name, in exactly one. Of the writes of a part each run draws its own share, and never none.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

REST = "rest"
_NONE = 2**33
"""One of so many is none, but for one name in four thousand million."""


def names_of_parts(parts: int) -> list[str]:
    """What pytest calls them: "1of5"."""
    return [f"{part + 1}of{parts}" for part in range(parts)]


def rounds_of(part: int, parts: int, whole: int, length: int | None = None) -> range:
    """The numbers of a part's rounds, of `whole` in all the parts. `length`: that it makes so many instead, yet one at
    least: a part without a round would show nothing."""
    usual, longer = divmod(whole, parts)
    first = part * usual + min(part, longer)
    return range(first, first + max(1, usual + (part < longer) if length is None else length))


def writes_in_parts(patterns: Mapping[str, str]) -> dict[str, str]:
    """Name of a part → the regular expression for the names of its writes, from their begin ("rename …/current").

    `patterns`: the same, where the first one that matches has the write. REST has what no other has.
    """
    found: dict[str, str] = {}
    before = ""
    for part, pattern in {**patterns, REST: ""}.items():
        found[part] = f"{before}(?:{pattern})"
        before += f"(?!{pattern})"
    return found


@dataclass(frozen=True)
class Draw:
    """Which writes a run looks at: one of so many, drawn by its seed, and of each of these kinds one at least."""

    seed: str
    one_of: int
    kinds: tuple[str, ...]
    """Regular expressions for the begins of names."""

    def takes(self, write: str, taken: Collection[str]) -> bool:
        """The same answer each time, but for a write of a kind of which none has been `taken` yet."""
        if write in taken:
            return False
        drawn = zlib.crc32(f"{self.seed} {write}".encode()) % self.one_of == 0
        return drawn or any(re.match(kind, write) for kind in self.missing(taken))

    def one_of_these(self, passed: Collection[str]) -> Draw | None:
        """After a pass in which none was drawn: a draw of one that was made in it. None where none was made."""
        if not passed:
            return None
        write = min(passed, key=lambda one: zlib.crc32(f"{self.seed} again {one}".encode()))
        return Draw(self.seed, _NONE, (f"{re.escape(write)}$",))

    def missing(self, taken: Collection[str]) -> list[str]:
        """The kinds of which none has been taken."""
        return [kind for kind in self.kinds if not any(re.match(kind, write) for write in taken)]
