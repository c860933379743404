"""What a node's agent does next for an order about its kubelet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.kubelet.decide import own, proof
from autarky.control.kubelet.decide.observed import (
    Asked,
    Decision,
    Final,
    Live,
    Memory,
    OnDisk,
    Other,
    Outcome,
    Phase,
    Pods,
    Result,
    Seen,
    Staged,
    Step,
    Trial,
)
from autarky.control.kubelet.decide.order import Request, Target, made
from autarky.control.kubelet.decide.own import FULL_SECONDS, ROOM, SPARE
from autarky.control.kubelet.decide.pools import Drain
from autarky.control.kubelet.decide.proof import Verdict
from autarky.control.kubelet.decide.report import Report, State
from autarky.model.versions import Version

V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
OLD, NEW = Target(V36, "base"), Target(V37, "base")
REQUEST = Request(NEW, "autarky.dev/kubelet:v1.37.1")
ORDER = made(REQUEST, 3)
DRAINED = made(replace(REQUEST, drain=Drain.MINOR, drain_seconds=300), 3)
DISK = OnDisk(base="base", current="gen-old", target=OLD.digest, version=V36)
BEFORE = proof.Before(sandboxes={"s1": "u1"})
PLANE = {"spec": {"version": str(V37)}, "status": {"version": str(V37)}}
LIVE = Live(ORDER.id, ORDER.id, PLANE, BEFORE)
SEEN = Seen(order=ORDER, disk=DISK, boot="b1", runs=V36, staged=Staged("gen-new"))
ASKED = Asked(ORDER.id, 3, 1, V37, "b1", BEFORE, settings=False)
WELL = proof.Seen(True, True, True, True, V37, frozenset({"s1"}), frozenset({"u1"}))
FINAL = Final(ORDER.id, 3, 1, State.DONE)


def decide(seen: Seen = SEEN, memory: Memory | None = None, now: float = 0.0, **changes: Any) -> Decision:
    """changes: of what is seen, or of the disk."""
    on_disk = {name: changes.pop(name) for name in [*changes] if name in OnDisk.__slots__}
    disk = replace(seen.disk, **on_disk) if seen.disk is not None else None
    return own.decide(replace(seen, **({"disk": disk} | changes)), memory or Memory(), now)


def state_of(decision: Decision) -> State | None:
    assert decision.report is not None
    return decision.report.state


# --- before the script is asked ---------------------------------------------------------------------------


def test_without_an_order_it_reports_what_is_in_force():
    decision = decide(order=None)
    assert decision.step is Step.NOTHING
    assert decision.report == Report(slot="host", version=V36, base="base", target=OLD.digest)


def test_it_is_staged_then_asked_for_when_the_api_has_said_so():
    decision = decide(staged=Staged(free=SPARE + 1))
    assert (decision.step, state_of(decision)) == (Step.STAGE, State.STAGING)
    decision = decide()
    assert (decision.step, state_of(decision)) == (Step.LOOK, State.SWITCHING)
    decision = decide(live=LIVE)
    assert (decision.step, decision.asked) == (Step.ASK, ASKED)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"plane": None}, "cannot be understood"),
        ({"plane": {}}, "cannot be understood"),
        ({"plane": {"spec": {"version": "?"}, "status": {}}}, "cannot be understood"),
        ({"order": ""}, "has just been changed"),
        ({"order": "0" * 16}, "has just been changed"),
        ({"reported": ""}, ""),
        ({"reported": "0" * 16}, ""),
        ({"before": None}, "which pods run"),
        ({"plane": {"spec": {"version": str(V36)}, "status": {"version": str(V37)}}}, "rule 4"),
        ({"plane": {"spec": {"version": str(V37)}, "status": {"version": str(V36)}}}, "rule 4"),
    ],
)
def test_the_script_is_not_asked_before_the_api_has_said_that_it_may(changes, why):
    decision = decide(live=replace(LIVE, **changes))
    assert decision.step is Step.NOTHING
    assert why in decision.sentence
    assert state_of(decision) is State.SWITCHING, "it is not final: what is in the way may pass"


@pytest.mark.parametrize("other", Other)
@pytest.mark.parametrize("staged", [Staged(), Staged("gen-new")])
def test_nothing_begins_while_something_else_is_at_work_on_the_node(other, staged):
    decision = decide(others=frozenset({other}), staged=staged, live=LIVE)
    assert decision.step is Step.NOTHING
    assert str(other) in decision.sentence
    assert decide(others=None, staged=staged, live=LIVE).step is Step.NOTHING, "unknown is not nothing"


def test_nothing_is_done_while_the_disk_cannot_be_read():
    assert decide(disk=None).step is Step.NOTHING
    assert decide(disk=None).report is None


def test_a_node_that_cannot_do_it_says_what_to_do():
    decision = decide(base="")
    assert decision.step is Step.REFUSE
    assert decision.final == Final(ORDER.id, 3, 1, State.REFUSED, "the node cannot do it yet: run `autarky up` first")
    assert decision.report is not None
    assert (decision.report.order, decision.report.state) == (ORDER.id, State.REFUSED)


def test_an_order_for_another_base_is_refused_and_the_next_one_is_for_that():
    decision = decide(base="other", live=LIVE)
    assert decision.step is Step.REFUSE
    assert decision.report is not None
    assert decision.report.base == "other"


def test_what_cannot_be_staged_is_refused_with_nothing_written():
    decision = decide(staged=Staged(trouble="its image is not on the node"))
    assert decision.step is Step.REFUSE
    assert "its image is not on the node" in decision.sentence


LACKS = Staged(free=SPARE - 2**20)
FULL = Staged(full="there is no room", free=SPARE)
HAS_ROOM = Staged(free=SPARE)


@pytest.mark.parametrize(
    ("staged", "step", "why"),
    [
        (LACKS, Step.NOTHING, "the disk is full: 256 MiB are to stay free, and there are 255 MiB"),
        (FULL, Step.STAGE, "there is no room"),
    ],
)
def test_a_disk_that_is_full_for_a_moment_is_waited_for_and_then_it_is_refused(staged, step, why):
    """A pod that has filled it is evicted. Where only staging sees that there is no room, it is tried again."""
    decision = decide(staged=staged, now=1000.0)
    for now in (1010.0, 1000.0 + FULL_SECONDS - 1):
        assert (decision.step, state_of(decision)) == (step, State.STAGING)
        assert decision.report is not None
        assert why in decision.report.why
        decision = decide(memory=decision.memory, staged=staged, now=now)
    last = decide(memory=decision.memory, staged=staged, now=1000.0 + FULL_SECONDS)
    assert (last.step, state_of(last)) == (Step.REFUSE, State.REFUSED)
    assert why in last.sentence
    other = decide(order=made(REQUEST, 4), memory=decision.memory, staged=staged, now=1000.0 + FULL_SECONDS)
    assert other.step is step, "each order has its own time"


@pytest.mark.parametrize("meanwhile", [{"staged": HAS_ROOM}, {"others": frozenset({Other.ETCD})}])
def test_what_was_not_full_all_the_time_is_waited_for_again(meanwhile):
    memory = decide(staged=LACKS, now=1000.0).memory
    memory = decide(memory=memory, staged=LACKS, now=1025.0).memory
    decision = decide(memory=memory, now=1026.0, **({"staged": LACKS} | meanwhile))
    assert decision.step is (Step.STAGE if "staged" in meanwhile else Step.NOTHING)
    memory = decide(memory=decision.memory, staged=LACKS, now=1030.0).memory
    assert decide(memory=memory, staged=LACKS, now=1030.0 + FULL_SECONDS - 1).step is Step.NOTHING
    assert decide(memory=memory, staged=LACKS, now=1030.0 + FULL_SECONDS).step is Step.REFUSE


def test_whether_a_program_lacks_room_or_anything_does_is_one_time():
    memory, both = Memory(), replace(LACKS, full="there is no room")
    for now, staged in ((1000.0, FULL), (1010.0, both), (1020.0, FULL), (1029.0, both)):
        memory = decide(memory=memory, staged=staged, now=now).memory
    assert decide(memory=memory, staged=FULL, now=1000.0 + FULL_SECONDS).step is Step.REFUSE


@pytest.mark.parametrize("staged", [LACKS, Staged("gen", free=ROOM - 1)])
@pytest.mark.parametrize(
    ("control", "lowers", "runs", "refused"),
    [
        (True, True, V36, False),
        (True, False, Version(1, 38, 0), False),  # nobody has ordered that
        (True, False, V36, True),
        (False, True, V36, True),
    ],
)
def test_a_control_node_that_is_to_go_down_waits_for_room_without_an_end(control, lowers, runs, refused, staged):
    """The control plane waits for it, and for nobody else forever."""
    disk = replace(SEEN.disk, version=runs)
    seen = replace(SEEN, order=made(REQUEST, 3, lowers=lowers), control=control, staged=staged, disk=disk)
    memory = decide(seen, now=1000.0).memory
    decision = decide(seen, memory, 1000.0 + 10 * FULL_SECONDS)
    assert (decision.step is Step.REFUSE) is refused
    assert "the disk is full" in decision.sentence
    assert decide(seen, decision.memory, 2000.0, staged=HAS_ROOM).step is Step.STAGE


def test_what_is_there_already_needs_little_room():
    assert decide(staged=Staged("gen", free=ROOM)).step is Step.LOOK
    assert decide(staged=Staged("gen", free=ROOM - 1)).step is Step.NOTHING


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.BACK])
def test_a_disk_that_was_full_when_the_script_began_is_no_failure_of_the_kubelet(outcome):
    disk = replace(SEEN.disk, asked=ASKED, result=Result(ORDER.id, outcome, "b1", "the disk is full"))
    final = decide(disk=disk).final
    assert final is not None
    assert final.interrupted
    other = decide(disk=replace(disk, result=Result(ORDER.id, outcome, "b1", "it exits"))).final
    assert other is not None
    assert not other.interrupted


@pytest.mark.parametrize("unschedulable", [True, False])
def test_of_a_control_node_it_is_not_whoever_has_made_it_schedulable_again(unschedulable):
    """Else `kubectl uncordon` would stop the way back of the entire control plane."""
    seen = replace(SEEN, order=DRAINED, control=True, unschedulable=unschedulable, pods=Pods(frozenset({"a/b"}), "why"))
    memory = decide(seen, now=1000.0).memory
    assert decide(seen, memory, 1300.0).step is Step.LOOK


def test_the_time_of_a_drain_is_not_that_of_a_full_disk():
    memory = decide(order=DRAINED, staged=LACKS, now=1000.0).memory
    seen = replace(SEEN, order=DRAINED, unschedulable=True, pods=Pods(frozenset({"a/b"})))
    decision = decide(seen, memory, 1020.0)
    assert decision.step is Step.DRAIN
    assert decide(seen, decision.memory, 1319.0).step is Step.DRAIN
    assert decide(seen, decision.memory, 1320.0).step is Step.REFUSE


def test_room_that_is_just_enough_is_enough():
    assert decide(staged=Staged(free=SPARE)).step is Step.STAGE
    assert decide(staged=Staged()).step is Step.STAGE, "nobody knows yet"


def test_what_is_there_already_is_done_with_nothing_switched():
    for decision in (decide(target=NEW.digest), decide(current="gen-new")):
        assert decision.step is Step.REPORT
        assert decision.final == Final(ORDER.id, 3, 1, State.DONE, "it was there already")


def test_but_not_what_a_script_could_not_take_back():
    failed = Result("f" * 16, Outcome.FAILED, "b1")
    assert decide(target=NEW.digest, result=failed).step is Step.LOOK


# --- a drain ------------------------------------------------------------------------------------------------


def test_pods_are_evicted_from_a_node_that_takes_no_new_ones():
    seen = replace(SEEN, order=DRAINED)
    decision = decide(seen)
    assert (decision.step, state_of(decision)) == (Step.NOTHING, State.DRAINING)
    assert decide(seen, unschedulable=True).step is Step.DRAIN, "nobody has looked yet"
    left = decide(seen, unschedulable=True, pods=Pods(frozenset({"a/b"}), "budget a/c allows none"))
    assert (left.step, state_of(left)) == (Step.DRAIN, State.DRAINING)
    assert left.sentence == "a/b has to go: budget a/c allows none"
    assert decide(seen, unschedulable=True, pods=Pods()).step is Step.LOOK


@pytest.mark.parametrize("unschedulable", [True, False])
def test_a_drain_that_takes_too_long_is_refused_and_says_what_was_in_the_way(unschedulable):
    seen = replace(SEEN, order=DRAINED, unschedulable=unschedulable, pods=Pods(frozenset({"a/b"}), "budget a/c"))
    memory = decide(seen, now=1000.0).memory
    assert decide(seen, memory, 1299.0).step in (Step.DRAIN, Step.NOTHING)
    decision = decide(seen, memory, 1300.0)
    assert decision.step is Step.REFUSE
    assert ("a/b has to go: budget a/c" in decision.sentence) is unschedulable
    assert decide(replace(seen, pods=None), memory, 1300.0).step is (Step.DRAIN if unschedulable else Step.REFUSE)


def test_the_time_of_a_drain_is_not_that_of_the_one_before():
    seen = replace(SEEN, order=DRAINED, unschedulable=True, pods=Pods(frozenset({"a/b"})))
    memory = decide(seen, now=1000.0).memory
    again = made(DRAINED.request, 4)
    assert decide(replace(seen, order=again), memory, 2000.0).step is Step.DRAIN


def test_a_patch_drains_nothing_nor_does_a_node_that_is_alone():
    assert decide(replace(SEEN, order=DRAINED), runs=V37).step is Step.LOOK
    assert decide(replace(SEEN, order=made(DRAINED.request, 3, alone=True))).step is Step.LOOK


# --- what the script does ---------------------------------------------------------------------------------


def test_while_the_script_has_been_asked_nothing_else_is_begun():
    decision = decide(ask=ORDER.id, asked=ASKED, live=LIVE)
    assert (decision.step, state_of(decision)) == (Step.NOTHING, State.SWITCHING)


def test_an_ask_that_the_script_dropped_is_asked_again():
    """Of another boot, or too old: then the API has to say it again."""
    assert decide(asked=ASKED).step is Step.LOOK
    assert decide(asked=ASKED, live=LIVE).step is Step.ASK


@pytest.mark.parametrize("phase", [Phase.FORTH, Phase.BACK])
def test_no_verdict_is_given_before_it_is_switched_nor_on_the_way_back(phase):
    decision = decide(trial=Trial(ORDER.id, phase), asked=ASKED, proof=WELL)
    assert (decision.step, decision.verdict, state_of(decision)) == (Step.NOTHING, None, State.SWITCHING)


def test_it_is_proven_by_what_was_noted_before():
    memory, verdicts = Memory(), []
    for second in range(12):
        seen = replace(SEEN, proof=WELL)
        decision = decide(seen, memory, float(second), trial=Trial(ORDER.id, Phase.PROVING), asked=ASKED)
        assert (decision.step, state_of(decision)) == (Step.PROVE, State.PROVING)
        memory = decision.memory
        verdicts.append(decision.verdict)
    assert verdicts == [Verdict.UNPROVEN] * 10 + [Verdict.GOOD] * 2


def test_a_pod_that_was_harmed_is_seen():
    harmed = replace(WELL, sandboxes=frozenset())
    decision = decide(trial=Trial(ORDER.id, Phase.PROVING), asked=ASKED, proof=harmed)
    assert decision.verdict is Verdict.UNPROVEN
    assert "the sandbox of u1 is gone" in decision.sentence


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, False),
        ({"target": replace(NEW, config={"maxPods": 50})}, True),
        ({"target": replace(NEW, arguments={"v": "4"})}, True),
        ({"target": replace(NEW, runtime="r")}, True),
        ({"target": replace(OLD, config={"maxPods": 50})}, True),
    ],
)
def test_it_is_noted_whether_anything_but_the_version_changes(changes, settings):
    order = made(replace(REQUEST, **changes), 3)
    decision = decide(order=order, live=replace(LIVE, order=order.id, reported=order.id))
    assert decision.asked is not None
    assert decision.asked.settings is settings
    unknown = decide(order=order, live=replace(LIVE, order=order.id, reported=order.id), version=None, target="")
    assert unknown.asked is not None
    assert unknown.asked.settings, "nobody knows"


@pytest.mark.parametrize("settings", [True, False])
@pytest.mark.parametrize("how", ["rejected", "evicted"])
def test_an_eviction_says_nothing_of_a_kubelet_with_the_settings_of_before(how, settings):
    harmed: dict[str, Any] = {"sandboxes": frozenset(), "living": frozenset(), how: frozenset({"u1"})}
    seen = replace(WELL, **harmed)
    asked = replace(ASKED, settings=settings)
    decision = decide(trial=Trial(ORDER.id, Phase.PROVING), asked=asked, proof=seen)
    assert ("no room for u1" in decision.sentence) is (settings or how == "rejected")


def test_a_switch_is_proven_also_when_something_else_is_ordered_or_nothing_any_more():
    for order in (None, made(replace(REQUEST, target=OLD), 4)):
        decision = decide(order=order, trial=Trial(ORDER.id, Phase.PROVING), asked=ASKED, proof=WELL)
        assert decision.step is Step.PROVE
        assert decision.report is not None
        assert (decision.report.order, decision.report.number) == (ORDER.id, 3)


def test_nobody_is_proven_of_whom_nobody_knows_what_ran_before():
    decision = decide(trial=Trial(ORDER.id, Phase.PROVING), asked=None, proof=WELL, now=100.0)
    assert (decision.step, decision.verdict) == (Step.PROVE, Verdict.UNPROVEN)
    assert decide(trial=Trial(ORDER.id, Phase.PROVING), asked=ASKED, proof=None).step is Step.NOTHING


def test_what_the_script_does_for_somebody_else_is_left_alone():
    for changes in ({"trial": Trial("up-1", Phase.PROVING)}, {"ask": "up-1"}):
        decision = decide(**changes, live=LIVE, proof=WELL)
        assert decision.step is Step.NOTHING
        assert decision.verdict is None
        assert state_of(decision) is None


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.GOOD, State.DONE),
        (Outcome.BACK, State.WENT_BACK),
        (Outcome.FAILED, State.WENT_BACK),
        (Outcome.REFUSED, State.REFUSED),
    ],
)
def test_a_result_is_noted_and_then_final(outcome, state):
    result = Result(ORDER.id, outcome, "b1", "why")
    decision = decide(asked=ASKED, result=result)
    assert decision.step is Step.REPORT
    assert decision.final == Final(ORDER.id, 3, 1, state, "why")
    after = decide(asked=ASKED, result=result, last=decision.final, live=LIVE)
    assert after.step is Step.NOTHING
    assert after.report is not None
    assert after.report == decision.report
    assert (after.report.state, after.report.why) == (state, "why")


def test_a_way_back_by_a_restart_of_the_machine_is_said_to_be_that():
    back = Result(ORDER.id, Outcome.BACK, "b2")
    assert decide(asked=ASKED, result=back, boot="b2").final == Final(ORDER.id, 3, 1, State.WENT_BACK, interrupted=True)
    good = Result(ORDER.id, Outcome.GOOD, "b2")
    assert decide(asked=ASKED, result=good).final == Final(ORDER.id, 3, 1, State.DONE)


def test_a_result_is_final_also_where_the_note_was_lost():
    decision = decide(result=Result(ORDER.id, Outcome.BACK, "b1"))
    assert decision.final == Final(ORDER.id, 3, 1, State.WENT_BACK)


def test_somebody_elses_result_says_nothing():
    assert decide(result=Result("up-1", Outcome.BACK, "b1")).step is Step.LOOK


def test_an_old_result_does_not_bring_back_an_order_that_was_refused_since():
    refused = Final("e" * 16, 4, 1, State.REFUSED)
    seen = replace(SEEN, order=made(REQUEST, 4))
    decision = decide(seen, asked=ASKED, result=Result(ORDER.id, Outcome.GOOD, "b1"), last=refused, live=LIVE)
    assert decision.step is Step.NOTHING
    assert decision.final is None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_order_that_is_not_later_than_a_final_one_is_never_begun(number):
    decision = decide(order=made(REQUEST, number, 2), last=FINAL, live=LIVE, staged=Staged())
    assert decision.step is Step.NOTHING
    assert decision.report is not None
    assert (decision.report.order, decision.report.state) == (ORDER.id, State.DONE)
    assert decide(order=made(REQUEST, 4), last=FINAL).step is Step.LOOK


@pytest.mark.parametrize("left", [{"ask": ORDER.id}, {"trial": Trial(ORDER.id, Phase.PROVING)}])
def test_what_a_script_leaves_for_a_moment_changes_no_report(left):
    decision = decide(**left, last=FINAL, asked=ASKED, proof=WELL)
    assert (decision.step, state_of(decision)) == (Step.NOTHING, State.DONE)


def test_a_report_has_what_is_in_force():
    decision = decide(runtime="r", former=V36)
    assert decision.report == Report(
        ORDER.id,
        3,
        1,
        State.SWITCHING,
        slot="host",
        version=V36,
        former=V36,
        base="base",
        runtime="r",
        target=OLD.digest,
    )
