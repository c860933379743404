from __future__ import annotations

import io

import pytest
from rich.console import Console, Group

from autarky.ui.board import Board
from autarky.ui.stream import LastingStream
from autarky.ui.text import LONGEST_SENTENCE
from autarky.ui.tty import ASCII, UNICODE, TtyRenderer, draw
from fakes.clock import BEGAN, HandClock


def picture(events, *, at, height=24, width=80, marks=UNICODE) -> str:
    """What is on the screen that many seconds after the start, without styles."""
    board = Board()
    for event in events:
        board.follow(event)
    screen = io.StringIO()
    console = Console(file=screen, width=width, color_system=None)
    console.print(Group(*draw(board, BEGAN + at, marks, height=height)))
    return "\n".join(line.rstrip() for line in screen.getvalue().splitlines())


def test_the_running_phase_shows_what_it_did_and_what_it_waits_for(failing_run):
    assert (
        picture(failing_run[:9], at=5)
        == """\
up: cluster one  5.0 s
✓ Get the components       unchanged    0.2 s
⠋ Start the control plane  4.8 s
    - start the kubelet on n1
    the kubelet of n1 runs
    waiting: the API answers (177 s left)
      refused
· Pivot"""
    )


def test_the_last_picture_tells_how_every_phase_ended_and_what_to_do(failing_run):
    assert (
        picture(failing_run, at=200, height=None)
        == """\
up: cluster one  failed after 3 min 02 s
✓ Get the components       unchanged    0.2 s
✗ Start the control plane  failed       3 min 02 s  1 change
· Pivot
timed out
run the same command again to resume"""
    )


def test_builds_show_bars_and_leave_when_they_are_done(script):
    events = [
        script.begin(get="Get"),
        script.phase_begins("get", "Get", 1, 1),
        script.progress("etcd", 12, 24),
        script.progress("runc", 0, 0),
        script.progress("cni", 1, 2),
        script.progress("cni", 2, 2),
    ]
    assert (
        picture(events, at=1, marks=ASCII)
        == """\
up: cluster one  1.0 s
| Get  1.0 s
    ============------------  50 %  etcd
    ------------------------        runc"""
    )


def test_a_wait_that_is_over_leaves_at_once(script):
    events = [
        script.begin(get="Get"),
        script.phase_begins("get", "Get", 1, 1),
        script.waiting("n1 answers", 9, "no"),
        script.waiting("n2 answers", 9, "no"),
        script.waiting("n1 answers", 8, ""),
    ]
    assert "n1" not in picture(events, at=1)
    assert "n2 answers (8 s left)" in picture(events, at=1)


def test_a_low_terminal_keeps_the_running_phase_in_sight(script):
    phases = {f"p{number}": f"Phase {number}" for number in range(12)}
    events = [script.begin(**phases)]
    for number in range(6):
        events += [script.phase_begins(f"p{number}", f"Phase {number}", number, 12), script.phase_ends("unchanged", 0)]
    events.append(script.phase_begins("p6", "Phase 6", 6, 12))
    shown = picture(events, at=0, height=9)
    assert (
        shown
        == """\
up: cluster one  0.0 s
✓ 3 phases before
✓ Phase 3   unchanged    0.0 s
✓ Phase 4   unchanged    0.0 s
✓ Phase 5   unchanged    0.0 s
⠋ Phase 6   0.0 s
· Phase 7
· Phase 8
· 3 phases to come"""
    )
    assert len(picture(events, at=0, height=None).splitlines()) == 13


def test_long_lines_are_cut_at_the_edge_and_not_wrapped(script):
    events = [script.begin(get="Get"), script.phase_begins("get", "Get", 1, 1), script.note("x" * 500)]
    assert max(len(line) for line in picture(events, at=1, width=40).splitlines()) == 40
    assert len(picture(events, at=1, width=40).splitlines()) == 3


def test_texts_are_shown_as_they_are(script):
    events = [script.begin(get="Get"), script.phase_begins("get", "Get", 1, 1), script.note("[bold]a[/] :smile:")]
    assert "    [bold]a[/] :smile:" in picture(events, at=1)


# --- on a screen ---------------------------------------------------------------------------------------


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen() -> Screen:
    return Screen()


def renderer_on(screen, *, at=5.0, environ=None) -> TtyRenderer:
    console = Console(
        file=LastingStream(screen),  # type: ignore[arg-type]
        force_terminal=True,
        width=80,
        height=24,
        highlight=False,
        _environ={"TERM": "xterm-256color", **(environ or {})},
    )
    return TtyRenderer(console, now=HandClock(BEGAN + at).time)


def test_the_cursor_is_given_back_when_the_operation_ends_and_when_it_is_cut_short(screen, failing_run):
    for events in (failing_run, failing_run[:5]):
        renderer = renderer_on(screen)
        for event in events:
            renderer.handle(event)
            renderer.tick()
        renderer.close()
        assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") > 0


def test_no_color_takes_the_colours_away(screen, failing_run):
    renderer = renderer_on(screen, environ={"NO_COLOR": "1"})
    for event in failing_run:
        renderer.handle(event)
    assert "\x1b[32m" not in screen.getvalue()
    assert "\x1b[31m" not in screen.getvalue()
    assert "✓" in screen.getvalue()


def test_the_end_is_drawn_once_and_stays(screen, failing_run):
    renderer = renderer_on(screen)
    for event in failing_run:
        renderer.handle(event)
    renderer.tick()
    renderer.close()
    assert screen.getvalue().count("run the same command again to resume") == 1


def test_notes_of_an_operation_without_phases_stay_on_the_screen(screen, script):
    renderer = renderer_on(screen)
    for event in (script.begin(), script.note("n1 runs"), script.note("n2 runs"), script.end("done")):
        renderer.handle(event)
    assert screen.getvalue().index("n1 runs") < screen.getvalue().index("n2 runs")


def test_a_terminal_that_goes_away_stops_nothing(script, failing_run):
    class Gone(Screen):
        def write(self, _text: str) -> int:
            raise OSError(5, "Input/output error")

    renderer = renderer_on(Gone())
    for event in failing_run:
        renderer.handle(event)
        renderer.tick()
    renderer.close()
    assert not renderer.tells_errors


def test_a_warning_stays_on_the_screen_when_its_phase_is_over(screen, script):
    renderer = renderer_on(screen)
    begin = [script.begin(check="Check the hosts"), script.phase_begins("check", "Check the hosts", 1, 1)]
    for event in (*begin, script.warning("swap is on"), script.phase_ends("unchanged", 0), script.end("unchanged")):
        renderer.handle(event)
    assert "warning: swap is on" in screen.getvalue()


SAID = "one\nup: unchanged in 2.0 s\u2028" + "x" * 10**5


@pytest.mark.parametrize("height", [24, None])
def test_whatever_a_sentence_says_it_is_one_line_of_the_picture(script, height):
    events = [script.begin(get="Get"), script.phase_begins("get", "Get", 1, 1)]
    events += [script.change(SAID), script.note(SAID), script.waiting("a", 9, SAID), script.progress(SAID, 1, 2)]
    lines = picture(events, at=1, height=height).splitlines()
    assert len(lines) == 2 + 2 + 2 + 1
    assert [line for line in lines if line.startswith("up:")] == lines[:1]


def test_whatever_a_sentence_says_that_stays_it_begins_no_line(screen, script):
    renderer = renderer_on(screen, environ={"NO_COLOR": "1"})
    for event in (script.begin(), script.note(SAID), script.warning(SAID), script.drift(SAID, "a", "b", SAID)):
        renderer.handle(event)
    renderer.close()
    written = screen.getvalue()
    assert written.count("one up: unchanged in 2.0 s") >= 3
    assert "\nup: unchanged" not in written
    assert 1000 < written.count("x") < 4 * LONGEST_SENTENCE
