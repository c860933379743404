from __future__ import annotations

import io

import pytest

from autarky.ui.choose import choose
from autarky.ui.jsonl import JsonLinesRenderer
from autarky.ui.plain import PlainRenderer
from autarky.ui.tty import TtyRenderer


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def chosen(output="auto", *, stderr=None, verbose=False, **environ) -> type:
    stream = Terminal() if stderr is None else stderr
    return type(choose(output, stdout=io.StringIO(), stderr=stream, environ=environ, verbose=verbose))


def test_a_terminal_gets_a_live_display():
    assert chosen(TERM="xterm-256color") is TtyRenderer
    assert chosen(TERM="xterm", CI="false") is TtyRenderer
    assert chosen(TERM="xterm", NO_COLOR="1") is TtyRenderer


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {}, {"TERM": "xterm", "CI": "true"}])
def test_a_terminal_that_cannot_draw_and_a_ci_system_get_plain_lines(environ):
    assert chosen(**environ) is PlainRenderer


def test_whatever_is_not_a_terminal_gets_plain_lines():
    assert chosen(stderr=io.StringIO(), TERM="xterm") is PlainRenderer


def test_a_closed_standard_error_is_no_obstacle():
    renderer = choose("auto", stdout=None, stderr=None, environ={"TERM": "xterm"})
    assert isinstance(renderer, PlainRenderer)


def test_plain_and_verbose_mean_plain_lines_on_a_terminal_too():
    assert chosen("plain", TERM="xterm") is PlainRenderer
    assert chosen(TERM="xterm", verbose=True) is PlainRenderer


def test_json_goes_to_standard_output_and_nothing_to_standard_error(failing_run):
    stdout, stderr = io.StringIO(), Terminal()
    renderer = choose("json", stdout=stdout, stderr=stderr, environ={"TERM": "xterm"})
    assert isinstance(renderer, JsonLinesRenderer)
    for event in failing_run:
        renderer.handle(event)
    assert stdout.getvalue().count("\n") == len(failing_run)
    assert stderr.getvalue() == ""
