"""The words of the field, in code, messages and documents: CONTRIBUTING has the list, with what to say instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from unit.docs.documents import ROOT

NOT_OURS = {
    r"anew": "again, from scratch",
    r"for good|for ever": "permanently, without an end",
    r"mend(s|ed|ing)?": "repair, fix",
    r"undertaker": "release of stale leases",
    r"untold(?!-events)": "pending",
    r"parked": "standby agent",
    r"founders?": "initial members",
    r"surplus": "unlisted",
    r"vacate[sd]?": "disconnected, drained",
    r"wish(es)?": "request",
    r"hold[s]? (\w+ )*for healthy|held for healthy": "considers healthy",
    r"begun as down": "starts as down",
    r"an only member": "a single member",
    r"whole(?<!as[ _]a[ _]whole)(?!$|[ _](numbers?|seconds))": "complete, intact, all of",
    r"lets? go of|let_go": "disconnects",
    r"(is|are|was|were|be|been) told(?! to)": "reported",
}
"""Pattern → what is said instead. Names on the wire and on disk stay as they are."""
ON_THE_WIRE = (
    *("vacatedMemberID", "untold-events.json", '"founders"', "`founders`", '"founder"'),
    *("release.anew", '"anew"'),  # of tests/e2e/releases.json
)
_GLOSSARY = re.compile(r"^### Words\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
"""Of CONTRIBUTING, which names the words."""
FILES = [
    path
    for pattern in (
        *("src/autarky/**/*.py", "src/autarky/**/*.sh", "src/autarky/**/*.lua"),
        *("docs/**/*.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        *("bench/*.py", "scripts/*.py", "examples/*.yaml", "run", ".ci/run"),
        # Not tests/e2e: its cases are recorded by their names and by hashes of their scenarios, and would have to pass
        # again for another word.
        *("tests/unit/**/*.py", "tests/contract/**/*.py", "tests/fakes/**/*.py", "tests/cases/**/*.py"),
        "tests/conftest.py",
    )
    for path in sorted(ROOT.glob(pattern))
    if path != Path(__file__)
]


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 1300
    assert len(_GLOSSARY.findall((ROOT / "CONTRIBUTING.md").read_text())) == 1


@pytest.mark.parametrize(
    "text", ["unparked", "anewly", "as a whole", "as_a_whole", "`founders`", "a whole number", "it is told to end"]
)
def test_other_words_are_left_alone(text: str) -> None:
    assert [*_places(text, "|".join(NOT_OURS))] == []


@pytest.mark.parametrize("text", ["Parked", "is_parked", "PARKED_AGENT", "wholes\nwhole, as", "it is told\nit"])
def test_a_word_is_found_in_any_case_and_within_an_identifier(text: str) -> None:
    assert len([*_places(text, "|".join(NOT_OURS))]) == 1


@pytest.mark.parametrize("pattern", NOT_OURS)
def test_no_word_of_our_own_is_used_where_the_field_has_one(pattern: str) -> None:
    found = [f"{path.relative_to(ROOT)}:{place}" for path in FILES for place in _places(_text(path), pattern)]
    assert not found, "\n".join([f"say: {NOT_OURS[pattern]}", *found])


@cache
def _text(path: Path) -> str:
    return _GLOSSARY.sub(lambda listed: "\n" * listed[0].count("\n"), path.read_text())


def _places(text: str, pattern: str) -> Iterator[str]:
    """Line numbers and lines. The pattern stands first and knows no case, by which `re` is ten times faster."""
    lowered, lines = text.lower(), text.split("\n")
    for match in re.finditer(rf"({pattern})(?![a-z])", lowered, re.MULTILINE):
        number = lowered.count("\n", 0, match.start())
        is_part = lowered[: match.start()][-1:].isalpha()
        if not is_part and not any(word in lines[number] for word in ON_THE_WIRE):
            yield f"{number + 1}: {lines[number].strip()[:100]}"
