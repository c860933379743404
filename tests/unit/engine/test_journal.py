from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.engine.journal import Entry, Journal, stopped_in
from autarky.errors import UserError


def entry(what, **more) -> Entry:
    return Entry(time=1.5, operation="up", id="a1", what=what, **more)


BEGUN = entry("operation-started")
PREPARE = entry("phase-started", phase="prepare-hosts")
PREPARED = entry("phase-ended", phase="prepare-hosts", outcome="changed")
PIVOT = entry("phase-started", phase="pivot")
ENDED = entry("operation-ended", outcome="changed")


def test_what_was_written_is_read_again_by_the_next_run(tmp_path):
    with Journal(tmp_path / "journal") as journal:
        journal.append(BEGUN)
        journal.append(PREPARE)
    with Journal(tmp_path / "journal") as journal:
        journal.append(PREPARED)
        assert journal.entries() == [BEGUN, PREPARE, PREPARED]


def test_the_journal_and_its_directory_are_private(tmp_path):
    with Journal(tmp_path / "clusters" / "one" / "journal") as journal:
        journal.append(BEGUN)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700


def test_each_entry_is_one_line_of_json_whatever_its_text(tmp_path):
    failed = entry("phase-ended", phase="pivot", outcome="failed", error='two\nlines "quoted" \u2028 «é»')
    with Journal(tmp_path / "journal") as journal:
        journal.append(failed)
        assert journal.entries() == [failed]
    assert len(journal.path.read_text().splitlines()) == 1


@settings(deadline=None)  # it waits for the disk
@given(cut=st.integers(0, 10_000), times=st.integers(1, 3))
def test_a_line_torn_anywhere_costs_that_line_only(cut, times):
    written = [BEGUN, PREPARE, PREPARED, PIVOT]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        with Journal(path) as journal:
            for one in written:
                journal.append(one)
        size = cut % (path.stat().st_size + 1)
        complete = path.read_bytes()[:size].count(b"\n")
        os.truncate(path, size)
        for _ in range(times):
            with Journal(path) as journal:
                journal.append(ENDED)
                found = journal.entries()
    torn_but_complete = size > 0 and found[complete : complete + 1] == written[complete : complete + 1]
    assert found == written[: complete + torn_but_complete] + [ENDED] * times


def test_lines_of_another_form_are_passed_over(tmp_path):
    path = tmp_path / "journal"
    path.write_text('[]\nnull\n{"time": 1}\n\n\x00\xff\n{"time":1.5,"operation":"up","id":"a1","what":"phase-\n')
    with Journal(path) as journal:
        journal.append(BEGUN)
        assert journal.entries() == [BEGUN]


def test_a_long_journal_is_read_from_its_tail(tmp_path):
    long = entry("phase-ended", phase="pivot", outcome="failed", error="x" * 1000)
    with Journal(tmp_path / "journal") as journal:
        for _ in range(400):
            journal.append(long)
        found = journal.entries()
    assert 200 < len(found) < 400
    assert set(found) == {long}


def test_a_journal_whose_directory_is_moved_away_follows_it_and_makes_no_new_one(tmp_path):
    directory = tmp_path / "cluster"
    with Journal(directory / "journal") as journal:
        directory.rename(tmp_path / "kept")
        journal.append(ENDED)
    assert not directory.exists()
    assert (tmp_path / "kept" / "journal").read_text().count("\n") == 1


def test_a_journal_that_cannot_be_made_is_the_users_to_fix(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the journal .*\n  fix: "):
        Journal(tmp_path / "file" / "journal")


def test_a_full_disk_is_the_users_to_fix():
    with Journal(Path("/dev/full")) as journal, pytest.raises(UserError, match="No space left on device"):
        journal.append(BEGUN)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], None),
        ([BEGUN], BEGUN),
        ([BEGUN, PREPARE], PREPARE),
        ([BEGUN, PREPARE, PREPARED, PIVOT], PIVOT),
        ([BEGUN, PREPARE, PREPARED, ENDED], None),
        ([BEGUN, PREPARE, entry("operation-ended", outcome="failed")], PREPARE),
        ([BEGUN, PREPARE, entry("operation-ended", outcome="interrupted")], PREPARE),
        ([BEGUN, PREPARE, BEGUN], BEGUN),
    ],
)
def test_the_place_where_the_last_operation_stopped_is_found(entries, expected):
    assert stopped_in(entries) == expected
