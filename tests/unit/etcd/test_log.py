"""The end of a member's log, from logs that are written here record by record, and from damaged ones.

Whether etcd itself writes and reads them so: tests/contract/etcd/test_log_of_a_member.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.etcd import log
from autarky.etcd.data import Identity, identity_in
from autarky.etcd.log import End, Newest, commits_all, crc32c, end_of, fields_of
from fakes.etcd_log import CLUSTER, VOTE, Writer, numbers

NUMBERS = st.integers(0, 2**64 - 1)


def end(*files: Writer | bytes) -> End:
    return end_of([bytes(one.content) if isinstance(one, Writer) else one for one in files])


def a_log() -> Writer:
    return Writer().snapshot(0, 0).state(1, 0).entry(1, 1).entry(1, 2, b"y" * 300).entry(2, 3).state(2, 2)


# --- the checksum -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_is_the_one_of_rfc_3720(data: bytes, known: int) -> None:
    assert crc32c(data) == known


@given(st.binary(), st.binary())
def test_a_checksum_goes_on_from_what_came_before(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


# --- the end ------------------------------------------------------------------------------------------------------


def test_a_log_ends_with_its_last_entry_and_its_last_state() -> None:
    written = a_log()
    assert end(written) == End(Newest(2, 3), (2, VOTE, 2), len(written.content), written.checksum)
    assert not end(written).committed
    assert end(written.state(2, 3)).committed


def test_logs_are_ordered_as_raft_orders_them() -> None:
    """A later term counts more than any number of entries of an earlier one."""
    assert Newest(2, 9) < Newest(3, 4) < Newest(3, 5)


def test_what_etcd_has_allocated_behind_the_end_is_empty() -> None:
    written = a_log()
    assert end(bytes(written.content) + bytes(4096)) == end(written)


def test_entries_that_were_replaced_by_those_of_a_later_leader_are_none() -> None:
    """A follower appends them again from an earlier index on: its log is as long as the last entry says."""
    written = Writer().entry(1, 1).entry(1, 2).entry(1, 3).state(1, 1).entry(2, 2).state(2, 1)
    assert end(written).newest == Newest(2, 2)
    assert not end(written).committed


def test_a_new_file_without_entries_leaves_the_end_where_it_was() -> None:
    first = a_log()
    second = Writer(first.checksum).state(2, 3)
    found = end(first, second)
    assert found == End(Newest(2, 3), (2, VOTE, 3), len(second.content), second.checksum)
    assert found.committed


def test_a_file_that_has_just_been_begun_says_nothing_of_its_own() -> None:
    first = a_log()
    second = Writer(first.checksum)
    assert (end(first, second).newest, end(first, second).state) == (Newest(2, 3), (2, VOTE, 2))


def test_a_snapshot_that_the_member_has_made_itself_is_behind_its_end() -> None:
    assert end(a_log().snapshot(1, 2)).newest == Newest(2, 3)


@pytest.mark.parametrize("snapshot", [Newest(2, 900), Newest(3, 2)])
def test_a_snapshot_that_a_leader_has_sent_is_the_end(snapshot: Newest) -> None:
    """The member has the database up to there, and no entry of it; what it had of an earlier term counts no more."""
    assert end(a_log().snapshot(snapshot.term, snapshot.index)).newest == snapshot
    assert end(a_log().snapshot(snapshot.term, snapshot.index).entry(4, 901)).newest == Newest(4, 901)


def test_the_identity_is_read_from_the_same_records() -> None:
    assert identity_in(bytes(a_log().content)) == Identity(VOTE, CLUSTER)


@pytest.mark.parametrize("files", [[], [b""], [bytes(4096)], [bytes(a_log().content), b""], [b"\xff" * 64]])
def test_where_the_last_file_has_no_record_nothing_is_said(files: list[bytes]) -> None:
    with pytest.raises(ValueError, match="no record"):
        end_of(files)


# --- what a power cut leaves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(30, 38))
def test_a_last_record_that_is_cut_off_anywhere_is_none(size: int) -> None:
    """Also in its padding, of which there is another length each time."""
    written = a_log().entry(2, 4, b"z" * size)
    before = end(written.until(-2))
    for length in range(written.starts[-1], len(written.content)):
        assert end(bytes(written.content[:length])) == before, length
        followed = bytes(written.content[:length]) + bytes(4096)  # etcd has allocated what follows, with zeros
        assert end(followed) == (end(written) if followed.startswith(written.content) else before), length
    assert end(written).newest == Newest(2, 4)


def test_a_record_of_which_a_sector_was_not_written_is_none_and_neither_is_what_follows() -> None:
    """The disk wrote the sectors in another order."""
    written = a_log().entry(2, 4, b"z" * 3000).entry(2, 5)
    content = bytearray(written.content)
    sector = (written.starts[-2] // 512 + 2) * 512
    content[sector : sector + 512] = bytes(512)
    found = end(bytes(content))
    assert (found.newest, found.offset) == (Newest(2, 3), written.starts[-2])


@pytest.mark.parametrize("verified", [1, 50, 400, 10**6])
def test_records_that_were_synced_long_ago_are_not_computed_and_the_last_ones_are(
    monkeypatch: pytest.MonkeyPatch, verified: int
) -> None:
    written = a_log()
    intact = end(written)
    monkeypatch.setattr(log, "_VERIFIED", verified)
    assert end(written) == intact
    content = bytearray(written.content)
    content[written.starts[-1] + 24] ^= 1
    assert end(bytes(content)) == end(written.until(-2))


# --- damage -------------------------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> Writer:
    """Any records, as a member could have written them."""
    written, term, index, commit = Writer(), 1, 0, 0
    for step in draw(st.lists(st.sampled_from(["entry", "entry", "state", "term", "back", "snapshot"]), max_size=12)):
        match step:
            case "entry":
                index += 1
                written.entry(term, index, draw(st.binary(max_size=200)))
            case "state":
                commit = draw(st.integers(commit, max(index, commit)))
                written.state(term, commit, draw(NUMBERS))
            case "term":
                term += draw(st.integers(1, 300))
            case "back" if index > commit:
                term, index = term + 1, draw(st.integers(commit + 1, index))
                written.entry(term, index, draw(st.binary(max_size=20)))
            case "snapshot":
                written.snapshot(term, draw(st.integers(0, index)))
            case _:
                pass
    return written


def said(content: bytes) -> tuple[Newest, tuple[int, int, int]] | None:
    try:
        found = end(content)
    except ValueError:
        return None
    return found.newest, found.state


@given(logs(), st.data())
def test_a_log_is_read_up_to_its_first_damaged_record_and_never_beyond(written: Writer, data: st.DataObject) -> None:
    """All but the number that says what kind of record it is, which etcd's checksum leaves out."""
    ends = [*written.starts, len(written.content)]
    number = data.draw(st.integers(1, len(written.starts) - 1))
    start, kind = ends[number], 1
    length = int.from_bytes(written.content[start : start + 7], "little")
    position = data.draw(st.integers(8, 7 + length).filter(lambda one: one != 8 + kind))
    content = bytearray(written.content)
    content[start + position] ^= 1 << data.draw(st.integers(0, 7))
    assert said(bytes(content)) == said(written.until(number))
    assert end(bytes(content)).offset == start


# --- a flipped bit, and a torn end ----------------------------------------------------------------------------------


def long_log() -> Writer:
    """Entries 1 to 9, each followed by the state that marks the one before it as committed."""
    written = Writer()
    for index in range(1, 10):
        written.entry(1, index, bytes([index]) * (90 * index)).state(1, index - 1)
    return written


@given(st.integers(2, 17), st.data())
def test_complete_records_behind_a_flipped_bit_are_counted_and_what_is_lost_with_them(
    number: int, data: st.DataObject
) -> None:
    """They were synced, and perhaps acknowledged: this is no torn end. In whatever part of the record the bit is: its
    length, its checksum, its data."""
    written = long_log()
    start = written.starts[number]
    length = int.from_bytes(written.content[start : start + 7], "little")
    position = data.draw(st.sampled_from([0, 1]) | st.integers(8, 7 + length).filter(lambda one: one != 9))
    content = bytearray(written.content)
    content[start + position] ^= 1 << data.draw(st.integers(0, 7))
    found = end(bytes(content) + bytes(4096))
    before = end(written.until(number))
    assert (found.newest, found.offset) == (before.newest, start)
    assert found.damaged == len(written.starts) - number - 1
    assert found.lost == 9 - before.newest.index


@pytest.mark.parametrize("flipped", [200, 900])
def test_how_many_entries_are_lost_is_said_exactly(flipped: int) -> None:
    written = Writer().entry(1, 1).state(1, 1).entry(2, 2, b"y" * 1000).entry(2, 3).state(2, 3).entry(2, 4)
    content = bytearray(written.content)
    content[written.starts[4] + flipped] ^= 4
    found = end(bytes(content))
    assert (found.newest, found.damaged, found.lost) == (Newest(1, 1), 3, 3)


def test_an_entry_behind_which_is_nothing_but_a_state_that_marks_it_is_lost_all_the_same() -> None:
    written = Writer().entry(1, 1).entry(1, 2).state(1, 2)
    content = bytearray(written.content)
    content[written.starts[3] + 20] ^= 1
    assert (end(bytes(content)).damaged, end(bytes(content)).lost) == (1, 1)


def test_a_damaged_state_costs_no_entry_and_the_log_is_damaged() -> None:
    """What follows is known, and cannot be used: etcd reads no further either."""
    written = Writer().entry(1, 1).state(1, 1).state(2, 1)
    content = bytearray(written.content)
    content[written.starts[3] + 20] ^= 1
    assert (end(bytes(content)).damaged, end(bytes(content)).lost) == (1, 0)


@given(logs(), st.integers(0, 700), st.integers(1, 3), st.integers(0, 4096))
def test_a_torn_end_is_no_damage(written: Writer, size: int, batch: int, more: int) -> None:
    """Of the last batch, which was not synced, any sectors may be missing, also the first of several: nothing that is
    in it was acknowledged by this member."""
    before = len(written.content)
    for number in range(batch):
        written.entry(9, 900 + number, b"z" * (600 + size))
    sectors = range(before // 512, len(written.content) // 512 + 1)
    for missing in sectors:
        content = bytearray(bytes(written.content) + bytes(more))
        first = max(before, 512 * missing)
        content[first : min(512 * (missing + 1), len(written.content))] = bytes(
            min(512 * (missing + 1), len(written.content)) - first
        )
        assert end(bytes(content)).damaged == 0, missing


@pytest.mark.timeout(30)
def test_megabytes_of_anything_behind_the_end_are_looked_through_in_time() -> None:
    anything = Random(7).randbytes(8 * 1024 * 1024)  # noqa: S311 # the same each time
    assert end(bytes(a_log().content) + anything).newest == Newest(2, 3)


@given(logs(), st.data())
def test_whatever_happens_to_a_log_it_is_read_or_a_value_error(written: Writer, data: st.DataObject) -> None:
    content = bytearray(written.content)
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(content)))
        content[position : position + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
    said(bytes(content))


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_what_is_no_log_is_a_value_error(files: list[bytes]) -> None:
    with suppress(ValueError):
        assert end_of(files).newest == Newest()


@pytest.mark.timeout(20)
def test_a_number_that_does_not_end_is_refused_at_once() -> None:
    """An erased block of a flash disk is full of ones."""
    with pytest.raises(ValueError, match="number"):
        fields_of(b"\xff" * 4_000_000)


@given(st.lists(NUMBERS, max_size=5))
def test_numbers_are_read_as_they_are_written(values: list[int]) -> None:
    assert fields_of(numbers(*values)) == dict(enumerate(values, 1))


# --- a record that commits all of it ------------------------------------------------------------------------------


@given(logs())
def test_with_the_record_all_of_the_log_is_committed_and_nothing_else_is_different(written: Writer) -> None:
    """It is the record that a leader's next message would have made the member write."""
    before = end(written)
    content = bytes(written.content[: before.offset])
    record = commits_all(before)
    assert len(record) % 8 == 0
    found = end(content + record)
    assert found.committed
    assert found.newest == before.newest
    assert (found.state[1], found.state[2]) == (before.state[1], before.newest.index)
    assert found.offset == len(content) + len(record)
    written.state(*(found.state[one] for one in (0, 2, 1)))
    assert (content + record, found.checksum) == (bytes(written.content), written.checksum)


@pytest.mark.parametrize("files", [1, 2])
def test_the_record_goes_where_the_torn_one_was(files: int) -> None:
    first = a_log()
    last = Writer(first.checksum).entry(2, 4) if files == 2 else first
    intact = bytes(last.content)
    torn = intact + bytes(last.entry(3, 5).content[len(intact) :])[:-9]
    earlier: Sequence[bytes] = [bytes(first.content)] if files == 2 else []
    found = end(*earlier, torn)
    assert found.offset == len(intact)
    repaired = end(*earlier, torn[: found.offset] + commits_all(found))
    assert (repaired.newest, repaired.committed) == (found.newest, True)


def test_the_record_keeps_the_vote_so_that_none_is_given_twice_in_a_term() -> None:
    assert end(bytes(a_log().content) + commits_all(end(a_log()))).state == (2, VOTE, 3)
