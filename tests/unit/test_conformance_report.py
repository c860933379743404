"""What passes for upstream's specs having passed, on reports and output as e2e.test makes them."""

from __future__ import annotations

import re
from html import escape

import pytest

from e2e.conformance_report import complaints, ended, focus, names_in, outcomes, repeated
from unit.docs.documents import ROOT

JOB = "[sig-apps] Job should delete a job [Conformance]"
LEASE = "[sig-node] Lease lease API should be available [Conformance]"
WANTED = (JOB, LEASE)
NOT_CHOSEN = '<skipped message="skipped"></skipped>'
OTHERS = [
    ("[SynchronizedBeforeSuite]", "passed", ""),
    ("[It] [sig-node] Pods should be updated [Conformance]", "skipped", NOT_CHOSEN),
    ("[ReportAfterSuite] Kubernetes e2e suite report", "passed", ""),
]
SUITE_FAILED = ("[SynchronizedBeforeSuite]", "failed", '<failure message="" type="failed">no client</failure>')
PRINTED = """\
[SynchronizedBeforeSuite] PASSED [1.032 seconds]
------------------------------
[sig-node] Lease lease API should be available [Conformance] [sig-node, Conformance]
k8s.io/kubernetes@v1.36.4/test/e2e/common/node/lease.go:68
  STEP: Creating a kubernetes client @ 11/23/26 16:41:59.109
• [0.214 seconds]
------------------------------
[sig-apps] Job should delete a job [Conformance] [sig-apps, Conformance]
  Attempt #1 Failed.  Retrying ↺ @ 11/23/26 16:42:15.441
↺ [FLAKEY TEST - TOOK 2 ATTEMPTS TO PASS] [9.100 seconds]
------------------------------
• [FAILED] [12.500 seconds]
------------------------------
S [SKIPPED] [0.010 seconds]
------------------------------
[sig-node] Pods should be updated [NodeConformance] [Conformance]
"""


def passed(*names):
    return [(f"[It] {name}", "passed", "") for name in names]


def judged(*cases):
    lines = (
        f'<testcase name="{escape(name)}" status="{status}" time="1.5">{inner}</testcase>'
        for name, status, inner in cases
    )
    return complaints(outcomes(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>"), WANTED)


def test_what_was_wanted_and_nothing_else_ran_and_passed():
    assert judged(*passed(*WANTED), *OTHERS) == []


def test_a_spec_that_failed_is_told_with_its_message():
    failed = (f"[It] {JOB}", "failed", '<failure message="" type="failed">waited 5m0s: a &lt;pod&gt;</failure>')
    assert judged(*passed(LEASE), failed, *OTHERS) == [f"failed: {JOB}\nwaited 5m0s: a <pod>"]


@pytest.mark.parametrize("status", ["panicked", "timedout", "interrupted", "aborted", "pending", ""])
def test_whatever_is_not_passed_is_a_failure(status):
    assert judged(*passed(LEASE), (f"[It] {JOB}", status, "<error>it is so</error>")) == [f"{status}: {JOB}\nit is so"]


def test_a_spec_that_skips_itself_has_not_passed():
    skipped = (f"[It] {JOB}", "skipped", '<skipped message="skipped - no such feature"></skipped>')
    assert judged(*passed(LEASE), skipped, *OTHERS) == [f"skipped: {JOB}\nskipped - no such feature"]


def test_a_spec_that_was_not_chosen_or_is_not_there_did_not_run():
    assert judged(*passed(LEASE), (f"[It] {JOB}", "skipped", NOT_CHOSEN)) == [f"did not run: {JOB}"]
    assert judged(*passed(JOB), *OTHERS) == [f"did not run: {LEASE}"]


def test_a_suite_that_fails_before_any_spec_is_told_as_well():
    failed, *lacking = judged(SUITE_FAILED)
    assert failed == "failed: [SynchronizedBeforeSuite]\nno client"
    assert lacking == [f"did not run: {name}" for name in WANTED]


def test_what_nobody_asked_for_or_ran_twice_is_told():
    other = "[sig-node] Pods should be updated [Conformance]"
    assert judged(*passed(*WANTED, other)) == [f"nobody asked for: {other}"]
    assert judged(*passed(*WANTED, JOB)) == [f"ran 2 times: {JOB}"]


def test_the_focus_is_those_names_as_wholes_and_letter_by_letter():
    expression = re.compile(focus(["a (b,c) [Conformance]", "d. [Conformance]"]))
    assert expression.search("Kubernetes e2e suite a (b,c) [Conformance]")
    assert expression.search("Kubernetes e2e suite d. [Conformance]")
    for other in ("a (b,c) [Conformance] e", "more a (b,c) [Conformance]", "dx [Conformance]", "a b,c [Conformance]"):
        assert not expression.search(f"Kubernetes e2e suite {other}")


def test_specs_that_have_ended_are_counted_however_they_did():
    assert ended("") == 0
    assert [ended(PRINTED[: PRINTED.index(mark)]) for mark in ("• [0", "↺ [F", "• [F", "S [S")] == [0, 1, 2, 3]
    assert ended(PRINTED) == 4


def test_specs_that_were_tried_again_are_known_by_their_place():
    assert repeated(PRINTED) == [1]
    assert repeated(PRINTED.replace("↺ [", "• [")) == []


def test_the_focus_list_has_about_thirty_specs_of_the_conformance_suite_each_once():
    names = names_in(ROOT / "tests/e2e/conformance_focus.txt")
    assert 28 <= len(names) == len(set(names)) <= 40
    assert all(name.startswith("[sig-") and name.endswith(" [Conformance]") for name in names)
    assert not [name for name in names if "[Serial]" in name or "[Slow]" in name or "[Disruptive]" in name]


def test_lines_for_people_are_no_specs(tmp_path):
    (tmp_path / "list").write_text("# why\n\n  a [Conformance]\nb [Conformance]\n")
    assert names_in(tmp_path / "list") == ("a [Conformance]", "b [Conformance]")
