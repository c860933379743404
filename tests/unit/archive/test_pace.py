"""A target that answers is waited for as long as something comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.archive import Directory
from autarky.archive.pace import PATIENCE_SECONDS, SLOWEST, Paced, is_late
from autarky.archive.sealing import Writer


class Slow(Directory):
    """write, leave: seconds for each. clock: which passes meanwhile, and in a call that looks at it."""

    def __init__(self, path: Path, *, write: float = 0.0, leave: float = 0.0) -> None:
        super().__init__(path)
        self.clock, self._write, self._leave = 0.0, write, leave
        self.seen: list[bool] = []
        self.paced = Paced(self, lambda: self.clock)

    def passes(self, seconds: float) -> None:
        self.clock += seconds
        self.seen.append(self.paced.is_late())

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        with super().writing(name) as writer:
            yield _Writer(self, writer, self._write)
            self.passes(self._leave)


class _Writer:
    def __init__(self, target: Slow, writer: Writer, seconds: float) -> None:
        self._target, self._writer, self._seconds = target, writer, seconds

    def write(self, data: bytes, /) -> None:
        self._writer.write(data)
        self._target.passes(self._seconds)


@given(st.integers(0, 2**40), st.floats(0, 1e7))
def test_the_time_that_it_has_grows_with_what_has_come(done: int, spent: float) -> None:
    assert is_late(done, spent) == (spent > PATIENCE_SECONDS + done / SLOWEST)
    assert not is_late(done + int(spent + 1) * SLOWEST, spent)
    assert is_late(done, spent + PATIENCE_SECONDS + (done + 1) / SLOWEST)


@pytest.mark.parametrize(("seconds", "late"), [(1.0, False), (10.0, True)])
def test_one_that_takes_next_to_nothing_is_late_while_it_takes_it(tmp_path: Path, seconds: float, late: bool) -> None:
    target = Slow(tmp_path, write=seconds)
    with target.paced.writing("a") as writer:
        for _ in range(100):
            writer.write(bytes(SLOWEST))
    assert any(target.seen) is late
    assert not target.seen[0]


def test_what_its_caller_takes_meanwhile_is_not_its_time(tmp_path: Path) -> None:
    """A database of nothing but zeroes is sealed for long, and few bytes come."""
    target = Slow(tmp_path)
    with target.paced.writing("a") as writer:
        writer.write(b"1")
        target.passes(PATIENCE_SECONDS * 100)
        writer.write(b"2")
    assert not any(target.seen)
    assert (tmp_path / "a").read_bytes() == b"12"


def test_its_end_is_its_time_too(tmp_path: Path) -> None:
    target = Slow(tmp_path, leave=PATIENCE_SECONDS + 1)
    with target.paced.writing("a"):
        pass
    assert target.seen == [True]


def test_what_is_read_counts_as_what_is_written(tmp_path: Path) -> None:
    target = Slow(tmp_path)
    with target.paced.writing("a") as writer:
        writer.write(bytes(10 * SLOWEST))
    target.paced.has("a")
    with target.paced.reading("a") as reader:
        assert len(reader.read(9 * SLOWEST)) == 9 * SLOWEST
        assert reader.read() == bytes(SLOWEST)
    assert target.paced.done == 20 * SLOWEST
    target.paced.remove("a")
    assert list(tmp_path.iterdir()) == []


def test_when_nobody_waits_any_more_the_next_write_ends_it_and_nothing_is_left(tmp_path: Path) -> None:
    paced = Paced(Directory(tmp_path))

    def write() -> None:
        with paced.writing("a") as writer:
            writer.write(b"1")
            paced.stop()
            writer.write(b"2")

    with pytest.raises(InterruptedError):
        write()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InterruptedError):
        paced.has("a")
