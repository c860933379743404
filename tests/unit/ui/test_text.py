from __future__ import annotations

import pytest

from autarky.ui.text import LONGEST_SENTENCE, count, duration, one_line, percent, printable, sentence


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3725, "1 h 02 min"),
    ],
)
def test_durations_are_short_and_never_read_sixty(seconds, expected):
    assert duration(seconds) == expected


def test_text_from_elsewhere_cannot_command_the_terminal():
    assert printable("a\x1b[2Jb\rc\x9bd\ne") == "a [2Jb c d\ne"
    assert one_line("a\n  b\t\x1b c") == "a b c"


def test_percentages_are_bounded_and_absent_where_the_total_is_unknown():
    assert [percent(2, 5), percent(7, 5), percent(1, 0)] == ["40 %", "100 %", ""]


def test_nouns_have_a_plural():
    assert [count(1, "change"), count(0, "change"), count(2, "phase")] == ["1 change", "0 changes", "2 phases"]


def test_a_sentence_is_one_line_and_is_cut_where_it_is_long():
    assert sentence("a\n  b\t\x1b c") == "a b c"
    assert sentence("x" * LONGEST_SENTENCE) == "x" * LONGEST_SENTENCE
    assert sentence("x" * 10**6) == "x" * (LONGEST_SENTENCE - 1) + "…"
