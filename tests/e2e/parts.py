"""Long loops in parts, each a case of its own, which a run of CI can take. Pure: no cluster.

Contract: the parts together do what the whole did: each of its rounds is in one of them, and each write, whatever its
name, in exactly one. Of the writes of a part each run draws its own share, and never none; or it takes every one, or,
where that takes hours, one of so many parts of them, by AUTARKY_EVERY_WRITE.
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
    remainder: int = 0
    """Below `one_of`: two draws that differ in nothing else have no write in common, and all of them have every one."""

    def takes(self, write: str, taken: Collection[str]) -> bool:
        """The same answer each time, but for a write of a kind of which none has been `taken` yet."""
        if write in taken:
            return False
        drawn = zlib.crc32(f"{self.seed} {write}".encode()) % self.one_of == self.remainder
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


@dataclass(frozen=True)
class Part:
    """One of so many parts of all writes of a case; the first one is 1."""

    number: int
    of: int


def every_write(said: str) -> Part | None:
    """What AUTARKY_EVERY_WRITE asks for: "1" is all writes, "2/5" the second of five parts. None where it says nothing,
    ValueError where it is no part."""
    if not said:
        return None
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", "1/1" if said == "1" else said)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"{said!r} is no part of all writes: say AUTARKY_EVERY_WRITE=2/5, or 1 for all of them")
    return Part(int(found[1]), int(found[2]))


def draw_of(seed: str, one_of: int, kinds: tuple[str, ...], part: Part | None) -> Draw:
    """Of a run: every write of the part, if it was asked for one, else those that its seed draws. The runs of all parts
    have different seeds, and together they have every write: so a write is in a part by its name alone. A part need not
    have one of each kind."""
    if part is None:
        return Draw(seed, one_of, kinds)
    return Draw("", part.of, kinds if part.of == 1 else (), part.number - 1)
