from __future__ import annotations

import io

from autarky.ui.plain import PlainRenderer
from autarky.ui.stream import LastingStream
from autarky.ui.text import LONGEST_SENTENCE


def shown(events, *, verbose=False) -> str:
    out = io.StringIO()
    renderer = PlainRenderer(LastingStream(out), verbose)
    for event in events:
        renderer.handle(event)
        renderer.tick()
    renderer.close()
    return out.getvalue()


def test_each_event_is_a_line_and_waits_are_told_now_and_then(failing_run):
    assert (
        shown(failing_run)
        == """\
up: cluster one
[1/3] Get the components
  unchanged in 0.2 s
[2/3] Start the control plane
  - start the kubelet on n1
  the kubelet of n1 runs
  waiting: the API answers (179 s left): connection refused
  waiting: the API answers (174 s left): 500: etcd is starting
  failed after 3 min 02 s
up: failed after 3 min 02 s
  timed out
  run the same command again to resume
"""
    )


def test_verbose_shows_every_wait(failing_run):
    assert shown(failing_run, verbose=True).count("waiting:") == 4


def test_a_short_wait_says_nothing_and_a_long_one_says_when_it_is_over(script):
    short = [script.at(0).waiting("a", 9, "no"), script.at(0.9).waiting("a", 8, "no"), script.at(1).waiting("a", 8, "")]
    long = [script.at(2).waiting("b", 9, "no"), script.at(4).waiting("b", 7, "no"), script.at(6).waiting("b", 5, "")]
    assert shown(short + long) == "  waiting: b (7 s left): no\n  waited 4.0 s: b\n"


def test_waits_beside_each_other_are_told_each_at_its_own_pace(script):
    events = [script.at(t).waiting(what, 9, "no") for t in (0, 1.5, 3) for what in ("n1 answers", "n2 answers")]
    assert shown(events) == "  waiting: n1 answers (9 s left): no\n  waiting: n2 answers (9 s left): no\n"


def test_a_build_tells_how_far_it_is_every_five_seconds_and_at_its_end(script):
    events = [script.at(t).progress("build etcd", t, 12) for t in range(13)]
    assert shown(events) == "  build etcd: 8 %\n  build etcd: 50 %\n  build etcd: 92 %\n  build etcd: 100 %\n"


def test_work_without_a_known_size_is_told_by_its_name(script):
    events = [script.at(t).progress("build etcd", t, 0) for t in range(3)]
    assert shown(events) == "  build etcd\n"


def test_an_operation_that_succeeds_tells_how_much_it_changed(script):
    assert shown([script.at(64).end("changed", 5)]) == "up: changed in 1 min 04 s (5 changes)\n"
    assert shown([script.at(2).end("unchanged")]) == "up: unchanged in 2.0 s\n"
    assert shown([script.at(2).end("done")]) == "up: done in 2.0 s\n"


def test_a_skipped_phase_has_no_duration(script):
    assert shown([script.phase_ends("skipped", 0)]) == "  skipped\n"


def test_the_changes_of_a_dry_run_are_left_to_the_result(script):
    assert shown([script.change("make it so", dry_run=True)]) == ""


def test_the_text_of_an_error_keeps_its_lines_in_its_place_and_commands_nothing(script):
    reported = shown([script.end("failed", 0, "one\n  fix: \x1b[31mtwo")])
    assert reported.partition("\n")[2] == "  one\n    fix:  [31mtwo\n"


def test_whatever_a_sentence_says_it_is_one_line_and_no_longer_than_can_be_read(script):
    """Names of pods, messages of kubelets and what programs on hosts say are in them."""
    said = "one\nup: unchanged in 2.0 s\u2028\r" + "x" * 10**5
    events = [
        script.phase_begins(said, said, 1, 1),
        script.change(said),
        script.note(said),
        script.warning(said),
        script.drift(said, "spec.x", "1", said),
        script.at(0).waiting("a", 9, said),
        script.at(2).waiting("a", 8, said),
        script.at(2).waiting(said, 8, "no"),
        script.at(4).waiting(said, 8, "no"),
        script.at(4).progress(f"{said}b", 1, 2),
        script.at(6).progress(f"{said}b", 1, 2),
    ]
    lines = shown(events).splitlines()
    assert len(lines) == 8
    assert not [line for line in lines if line.startswith("up:")]
    assert max(map(len, lines)) < LONGEST_SENTENCE + 10


def test_it_tells_errors_as_long_as_somebody_reads(script):
    renderer = PlainRenderer(LastingStream(io.StringIO()))
    assert renderer.tells_errors
    assert not PlainRenderer(LastingStream(None)).tells_errors


def test_what_is_left_as_others_have_set_it_is_a_line_with_whose_it_is(script):
    known = script.drift("DaemonSet x", "spec.image", "a:1", "a:2", "kubectl-set", "2026-11-21T10:00:00Z")
    unknown = script.drift("DaemonSet x", "spec.image", "a:1", "(not set)")
    assert shown([known, unknown]) == (
        "  left as it is: DaemonSet x: spec.image is a:2, ours was a:1 (kubectl-set, 2026-11-21T10:00:00Z)\n"
        "  left as it is: DaemonSet x: spec.image is (not set), ours was a:1\n"
    )


def test_a_warning_is_a_line_that_says_so(script):
    assert shown([script.warning("[swap] n1: swap is on")]) == "  warning: [swap] n1: swap is on\n"
