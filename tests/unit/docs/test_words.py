"""The words of the field, in code, messages and documents: CONTRIBUTING has the list, with what to say instead."""

from __future__ import annotations

import re

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
    r"(?<!as a )whole(?!$|[ _](numbers?|seconds))": "complete, intact, all of",
    r"lets? go of|let_go": "disconnects",
    r"(is|are|was|were|be|been) told(?! to)": "reported",
}
"""Pattern → what is said instead. Names on the wire and on disk stay as they are."""
ON_THE_WIRE = (*("vacatedMemberID", "untold-events.json", '"founders"', "`founders`", '"founder"'),)
FILES = [
    path
    for pattern in (
        *("src/autarky/**/*.py", "src/autarky/**/*.sh", "src/autarky/**/*.lua"),
        *("docs/**/*.md", "README.md", "CHANGELOG.md", "SECURITY.md", "bench/*.py", "scripts/*.py", "examples/*.yaml"),
        *("run", ".ci/run"),
    )
    for path in sorted(ROOT.glob(pattern))
]


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 400


@pytest.mark.parametrize("pattern", NOT_OURS)
def test_no_word_of_our_own_is_used_where_the_field_has_one(pattern: str) -> None:
    looked_for = re.compile(rf"(?<![a-z])({pattern})(?![a-z])", re.IGNORECASE)  # also within an identifier
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if looked_for.search(line) and not any(word in line for word in ON_THE_WIRE)
    ]
    assert found == [], f"say: {NOT_OURS[pattern]}"
