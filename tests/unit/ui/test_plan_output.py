from __future__ import annotations

import io

from autarky.ui.plan import PlanOutput
from autarky.ui.stream import LastingStream
from autarky.ui.text import LONGEST_SENTENCE


def shown(events) -> str:
    out = io.StringIO()
    plan = PlanOutput(LastingStream(out))
    for event in events:
        plan.handle(event)
    return out.getvalue()


def test_the_plan_lists_the_changes_under_their_phases(script):
    events = [
        script.phase_begins("get-payload", "Get the components", 1, 3),
        script.change("build etcd", dry_run=True),
        script.change("build runc", dry_run=True),
        script.phase_ends("planned", 0),
        script.phase_begins("check", "Check the hosts", 2, 3),
        script.phase_ends("unchanged", 0),
        script.phase_begins("pivot", "Pivot", 3, 3),
        script.change("pivot kube-apiserver", dry_run=True),
        script.phase_ends("planned", 0),
        script.end("planned", 3),
    ]
    assert (
        shown(events)
        == """\
Get the components
  build etcd
  build runc
Pivot
  pivot kube-apiserver
3 changes in 2 phases; nothing was done
"""
    )


def test_a_plan_without_changes_says_so(script):
    assert shown([script.end("unchanged")]) == "nothing would change\n"


def test_a_plan_that_was_cut_short_says_so(script):
    events = [script.phase_begins("pivot", "Pivot", 1, 1), script.change("pivot etcd", dry_run=True)]
    assert shown([*events, script.end("failed", 1)]) == "Pivot\n  pivot etcd\nthe plan is not complete: failed\n"


def test_what_is_to_be_known_of_the_cluster_is_a_line_of_the_plan_and_no_change(script):
    events = [
        script.phase_begins("check-file", "Check the file", 1, 2),
        script.warning("the cluster keeps\nold defaults\x1b[31m", in_plan=True),
        script.phase_begins("check-hosts", "Check the hosts", 2, 2),
        script.warning("swap is on"),
        script.end("unchanged"),
    ]
    assert shown(events) == "the cluster keeps old defaults [31m\nnothing would change\n"


def test_what_is_left_as_others_have_set_it_is_a_table_and_no_change(script):
    events = [
        script.phase_begins("apply-objects", "Apply", 1, 1),
        script.drift("DaemonSet x", "spec.image", "a:1", "a:2", "kubectl-set", "2026-11-21T10:00:00Z"),
        script.drift("Deployment long-name", "spec.replicas", "2", "1\x1b[31m"),
        script.end("unchanged"),
    ]
    assert (
        shown(events)
        == """\
Left as others have set it (`--take-ownership` takes it back)
  OBJECT                FIELD          OURS  LIVE    CHANGED BY   AT
  DaemonSet x           spec.image     a:1   a:2     kubectl-set  2026-11-21T10:00:00Z
  Deployment long-name  spec.replicas  2     1 [31m  unknown      -
nothing would change
"""
    )


def test_whatever_a_sentence_says_it_is_one_line_of_the_plan(script):
    said = "remove x\nnothing would change\u2028" + "x" * 10**5
    events = [
        script.phase_begins("p", "Phase", 1, 1),
        script.change(said, dry_run=True),
        script.warning(said, in_plan=True),
        script.drift(said, said, said, said),
        script.end("planned", 1),
    ]
    lines = shown(events).splitlines()
    assert len(lines) == 2 + 3 + 1 + 1
    assert not [line for line in lines if line.startswith("nothing")]
    assert max(map(len, lines)) < 5 * LONGEST_SENTENCE
