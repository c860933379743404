"""The repository's Markdown, read as far as its tests need: code, headings, links and tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)(?P<text>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code and the line of the file that it begins at."""

    language: str
    text: str
    line: int


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    return [Block(m["language"], m["text"], text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)]


def spans(path: Path) -> Iterator[str]:
    """Code within the prose, on one line each. A span ends with its paragraph or its row of a table."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\|)", _prose(path)):
        for match in _SPAN.finditer(paragraph):
            yield " ".join(match["text"].split())


def links(path: Path) -> list[str]:
    """The targets of all links."""
    return _LINK.findall(_SPAN.sub("", _prose(path)))


def anchors(path: Path) -> set[str]:
    """What `#…` may name: the headings in lower case, without punctuation, with `-` for blanks; a second one is -1."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_prose(path)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def table_rows(path: Path, head: str) -> dict[str, str]:
    """The rows of all tables with that head, by the code in their first cell."""
    found: dict[str, str] = {}
    for table in re.findall(rf"^\| {re.escape(head)} \|\n\|[-|]+\|\n((?:\|.*\n)+)", path.read_text(), re.MULTILINE):
        for row in table.splitlines():
            name = re.match(r"\| `([^`]+)` \|", row)
            assert name is not None, f"{path.name}: {row}"
            assert name[1] not in found, f"{path.name}: {name[1]} is there twice"
            found[name[1]] = row
    return found


def _prose(path: Path) -> str:
    """The text without its blocks of code."""
    return _FENCE.sub("", path.read_text())
