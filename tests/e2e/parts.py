"""Long loops in parts, each a case of its own, which a run of CI can take. Pure: no cluster.

Contract: the parts together do what the whole did: each of its rounds is in one of them, and each write, whatever its
name, in exactly one.
"""

from __future__ import annotations

from collections.abc import Mapping

REST = "rest"


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
