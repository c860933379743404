"""The commands of a page of docs/, which scenarios run, and what the page says that one sees, which they look for.

Pure. In a line that one sees, `…` stands for anything and a blank for any number of blanks; what follows a `←` is the
page's own remark. Every line has to be there, in that order; what else there is does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """A block of commands, and the lines that one sees when they have run: those of the block after it, if that is
    plain text."""

    commands: str
    seen: tuple[str, ...] = ()

    def unseen(self, said: str) -> str | None:
        """The first line that is not where it should be in what the commands have said; None where all are."""
        lines = iter(_plain(line) for line in said.splitlines())
        return next((line for line in self.seen if not any(_pattern(line).fullmatch(one) for one in lines)), None)


def page(name: str) -> str:
    return (_DOCS / name).read_text()


def headings(text: str) -> list[str]:
    """Of the sections that have commands, in the order of the page."""
    return [heading for heading, section in _sections(text) if steps(section)]


def steps_below(text: str, heading: str) -> list[Step]:
    """Those of the section with that heading."""
    [section] = [section for found, section in _sections(text) if found == heading]
    return steps(section)


def steps(section: str) -> list[Step]:
    found: list[Step] = []
    before = ""
    for language, block in _BLOCK.findall(section):
        if language == "sh":
            found.append(Step(block))
        elif not language and before == "sh":
            found[-1] = Step(found[-1].commands, tuple(block.splitlines()))
        before = language
    return found


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, section = part.partition("\n")
        yield heading, section


def _plain(line: str) -> str:
    return " ".join(line.split())


def _pattern(line: str) -> re.Pattern[str]:
    wanted = _plain(line.partition("←")[0])
    return re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
