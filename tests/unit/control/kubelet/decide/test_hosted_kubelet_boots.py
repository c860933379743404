"""A hosted kubelet that is started in boot after boot, and proven in some of them or in none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.kubelet.decide.hosted import Decision, Failed, Memory, Notes
from autarky.control.kubelet.decide.hosted_report import State as Reported
from autarky.control.kubelet.manifests.hosted import State, Verdict
from unit.control.kubelet.decide.test_hosted_kubelet import (
    LIVE,
    NOTED,
    ORDERED,
    OTHER_POD,
    POD,
    V37,
    WELL,
    decide,
    one,
    prove,
    reported,
)


def starts(boot: str, notes: Notes, **changes: Any) -> Notes:
    """It is allowed in that boot, if it is."""
    decision = decide(notes=notes, boot=boot, live=LIVE, **changes)
    assert decision.verdict is (Verdict.STAY if decision.notes.failed else Verdict.MAY)
    return decision.notes


def test_one_that_takes_its_machine_down_each_time_has_failed():
    notes = Notes()
    for boot in ("b1", "b2"):
        notes = starts(boot, notes)
        assert notes.failed is None, "the machine may have lost its power"
        unproven = decide(hosted=one(State.PROVING), notes=notes, boot=boot, proof=replace(WELL, ready=False))
        assert (unproven.verdict, unproven.notes) == (Verdict.UNPROVEN, None)
    decision = decide(notes=notes, boot="b3", live=LIVE)
    assert (decision.verdict, reported(decision)) == (Verdict.STAY, Reported.FAILED)
    assert decision.notes == replace(notes, failed=Failed(POD, V37, "the machine restarted before it was proven"))
    assert decide(notes=notes, boot="b3").verdict is Verdict.STAY, "nor is the API asked"
    assert decide(notes=decision.notes, boot="b4", live=LIVE).verdict is Verdict.STAY


def test_tries_of_one_boot_count_once():
    notes = starts("b1", Notes())
    for number in (3, 4, 5):
        notes = starts("b1", notes, hosted=one(number=number))
    assert starts("b2", notes).allowed.boots == 2


def test_so_do_those_after_which_it_has_waited_for_something_else():
    """Else one that is in everybody's way for a moment after each start would never have failed."""
    notes = starts("b2", starts("b1", Notes()))
    notes = decide(notes=notes, boot="b3", metadata=ORDERED).notes
    assert starts("b3", notes).failed is not None


@pytest.mark.parametrize("by", ["its verdict", "what is seen of it then"])
def test_one_that_was_proven_is_started_with_its_machine_as_often_as_that_restarts(by):
    notes = Notes()
    for boot in range(9):
        notes = starts(f"b{boot}", notes)
        if boot % 2:  # a power cut while it proves
            continue
        if by == "its verdict":
            decision = Decision(Memory())
            for now in (0.0, 5.0, 10.0):
                decision = prove(decision, now, notes=notes, boot=f"b{boot}")
            assert decision.verdict is Verdict.GOOD
        else:
            decision = decide(hosted=one(State.PROVEN), notes=notes, boot=f"b{boot}")
        assert decision.notes.allowed == replace(notes.allowed, boots=0)
        notes = decision.notes
        assert decide(hosted=one(State.PROVEN), notes=notes, boot=f"b{boot}").notes is None, "it is noted once"
        again = starts(f"b{boot}", notes, hosted=one(number=3))
        assert again.allowed.boots == 1, "it may take the machine down this time"


def test_boots_of_another_pod_do_not_count():
    notes = Notes(replace(NOTED, pod=OTHER_POD, boots=2))
    assert starts("b3", notes).allowed.boots == 1
    assert decide(hosted=one(State.PROVEN), notes=notes).notes is None
