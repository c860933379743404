"""Hosts, nodes and logs say what they want; it is shown, and commands nobody's terminal."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky import cli
from autarky.cli import up
from autarky.cli.bench import as_json
from autarky.cli.doctor import LONGEST, as_text
from autarky.cli.down import tell_of_silent
from autarky.cli.main import main
from autarky.cli.say import say
from autarky.cli.status import table
from autarky.control.certificates.decide import ANNOTATION, read
from autarky.doctor.diagnosis.finding import Finding
from autarky.errors import Unreachable, UserError
from autarky.probe.report import report
from autarky.probe.tally import Tally
from autarky.status.look import Row, Status
from autarky.ui.tables import columns
from autarky.ui.text import LONGEST_CELL, LONGEST_SENTENCE

ESCAPE, NEW_LINE, RIGHT_TO_LEFT, HALF, NO_SPACE = "\x1b[2J\x1b]0;x\x07", "\n", "\u202e", "\ud800", "\u200b"
HOSTILE = f"a{ESCAPE}{NEW_LINE}b{RIGHT_TO_LEFT}c{HALF}d{NO_SPACE}\u2028e\u009b1m"
DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def dangerous(text: str) -> set[str]:
    return {unicodedata.category(letter) for letter in text if letter != "\n"} & DANGEROUS


def hostile_status() -> Status:
    rows = (Row(0, "kubelet", "n1", "host", HOSTILE, "ready", HOSTILE), Row(1, "etcd", "n1", "static", "3.6", "ready"))
    return Status("c", "v1.36.4", "4", HOSTILE, rows, {"n2": HOSTILE}, {"n1": {HOSTILE: "2027"}}, (HOSTILE,))


def test_a_table_has_one_clean_line_for_each_row_whatever_is_in_a_cell() -> None:
    lines = columns([("NAME", "STATE"), (HOSTILE, "ready"), ("n2", HOSTILE)])
    assert len(lines) == 3
    assert not dangerous("".join(lines))
    assert lines[1].index("ready") == lines[0].index("STATE") == lines[2].index("a ")


@given(st.lists(st.tuples(st.text(), st.text(max_size=2 * LONGEST_CELL)), min_size=1))
def test_every_table_is_clean_and_as_wide_as_it_may_be(rows: list[tuple[str, str]]) -> None:
    lines = columns(rows)
    assert len(lines) == len(rows) == len("\n".join(lines).split("\n"))
    assert not dangerous("".join(lines))
    assert max(map(len, lines)) <= 2 * LONGEST_CELL + 2


def test_no_terminal_cuts_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TERM", "dumb"), ("FORCE_COLOR", "1"), ("TTY_COMPATIBLE", "1"), ("COLUMNS", "20")):
        monkeypatch.setenv(name, value)
    wide = "x" * LONGEST_CELL
    assert columns([("NAME", "SIZE"), (wide, "1"), ("y", "100")], right=[1]) == [
        f"NAME{' ' * (LONGEST_CELL - 4)}  SIZE",
        f"{wide}     1",
        f"y{' ' * (LONGEST_CELL - 1)}   100",
    ]


def test_the_status_of_a_cluster_whose_nodes_say_what_they_want_is_readable() -> None:
    text = table(hostile_status())
    assert not dangerous(text)
    assert len(text.splitlines()) == 1 + 1 + 1 + 1 + 3, "head, absent, overdue, blank, headings and rows"
    assert json.loads(json.dumps(hostile_status().as_dict()))["rows"][0]["component"] == "kubelet"


def test_what_the_doctor_says_has_three_lines_for_each_finding() -> None:
    text = as_text([Finding(HOSTILE, HOSTILE, HOSTILE, HOSTILE), Finding("n1", "is down", "nothing", "wait")])
    assert not dangerous(text)
    assert [line[:9] for line in text.split("\n")][1:3] == ["   seen: ", "   next: "]
    assert len(text.split("\n")) == 6


def test_what_the_doctor_says_has_lines_that_can_be_read() -> None:
    """A node's message is as long as the API takes it, and so is what tenants' workloads are called."""
    long = "word " * 100_000
    text = as_text([Finding("n1", "is down", long, long), Finding("n2", "is down", "short", "wait")])
    lines = text.split("\n")
    assert max(map(len, lines)) == len("   seen: ") + LONGEST
    assert [line[-1] for line in lines[1:3]] == ["…", "…"]
    assert lines[3:] == ["2. n2: is down", "   seen: short", "   next: wait"]


def test_what_is_said_keeps_its_lines_and_nothing_else_that_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"one\n{HOSTILE}")
    written = capsys.readouterr().out
    assert written.split("\n")[0] == "one"
    assert not dangerous(written)


@pytest.mark.parametrize("module", ["status", "doctor", "node", "session", "bench"])
def test_commands_that_show_what_others_say_have_one_way_out(module: str) -> None:
    source = Path(cli.__file__).with_name(f"{module}.py").read_text()
    assert "say(" in source
    assert "echo(" not in source


def test_what_a_probe_has_seen_is_ascii_as_all_json() -> None:
    found = report(Tally(), started=0.0, ended=1.0, endpoints=[HOSTILE])
    text = as_json(found, None)
    assert text.isascii()
    assert json.loads(text)["endpoints"] == [HOSTILE]


@pytest.mark.parametrize(
    "tell", [up.tell_of_absent, lambda absent, dry_run: tell_of_silent(absent, "demo", dry_run=dry_run)]
)
def test_why_a_node_was_left_out_is_no_line_of_its_own(
    tell: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {"n2": f"no answer\ncluster demo is up{HOSTILE}" + "x" * 10**5}
    tell(absent, dry_run=True)
    written = capsys.readouterr().err
    assert not dangerous(written)
    with pytest.raises(Unreachable) as caught:
        tell(absent, dry_run=False)
    for text in (written.strip("\n"), str(caught.value).partition("\n  fix: ")[0]):
        assert text.count("\n") == 0
        assert len(text) < LONGEST_SENTENCE + 200


def test_an_error_with_words_of_a_host_is_clean(
    autarky: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UserError(HOSTILE, fix="see there")

    for flags in ((), ("-v",)):
        assert autarky(fail, *flags) == 2
        written = capsys.readouterr().err
        assert not dangerous(written)
        assert "\n  fix: see there" in written


def test_a_terminal_with_few_letters_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    assert main(["--help"]) == 0
    say("the lock…")
    sys.stdout.flush()
    assert written.getvalue().endswith(b"the lock\\u2026\n")


@given(st.dictionaries(st.text(), st.text(), max_size=5), st.text())
def test_of_what_a_node_tells_only_names_and_plain_words_are_read(trouble: dict[str, str], name: str) -> None:
    said = json.dumps({"ends": {name: "2027-03-01T12:00:00Z"}, "trouble": trouble})
    found = read({"annotations": {ANNOTATION: said}})
    assert found is not None
    assert all(word.isprintable() for word in (*found.ends, *found.trouble, *found.trouble.values()))
