from __future__ import annotations

import io
import os

import pytest

from autarky.ui.stream import LastingStream


def test_text_is_passed_on_at_once():
    read, write = os.pipe()
    with open(write, "w") as sink, open(read, "rb", buffering=0) as source:  # noqa: PTH123 # descriptors
        LastingStream(sink).write("one line\n")
        assert source.read(100) == b"one line\n"


def test_a_reader_that_went_away_ends_the_text_and_nothing_else():
    read, write = os.pipe()
    os.close(read)
    sink = open(write, "w")  # noqa: PTH123, SIM115 # a descriptor; closing it fails below
    stream = LastingStream(sink)
    assert stream.alive
    assert stream.write("lost\n") == 5
    assert not stream.alive
    assert stream.write("lost\n") == 5
    assert not stream.isatty()
    with pytest.raises(BrokenPipeError):
        sink.close()


def test_a_stream_that_is_closed_or_was_never_open_takes_text_in_silence():
    closed = io.StringIO()
    closed.close()
    for stream in (LastingStream(closed), LastingStream(None)):
        assert not stream.isatty()
        assert stream.write("lost") == 4
        assert not stream.alive


def test_a_full_disk_does_not_raise():
    with open("/dev/full", "w") as full:  # noqa: PTH123 # a device
        stream = LastingStream(full)
        stream.write("lost")
        assert not stream.alive
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # so that closing it can write its rest
