"""What the agent says to the supervisor of its node's hosted kubelet, and what it reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import hosted, order, proof
from autarky.control.kubelet.decide.hosted import (
    LOOK_SECONDS,
    MOST_BOOTS,
    MOST_TRIES,
    TRIES_SECONDS,
    Allowed,
    Answer,
    Decision,
    Failed,
    Hosted,
    Live,
    Memory,
    Notes,
    Seen,
    allowed,
)
from autarky.control.kubelet.decide.hosted_report import TURN, Report
from autarky.control.kubelet.decide.hosted_report import State as Reported
from autarky.control.kubelet.decide.observed import Final, OnDisk, Other, Phase, Trial
from autarky.control.kubelet.decide.order import Request, Target, made
from autarky.control.kubelet.decide.report import State as OrderState
from autarky.control.kubelet.decide.wanted import PIN
from autarky.control.kubelet.manifests.hosted import State, Verdict
from autarky.control.upgrade.decide.reported import lowest_version
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE
from unit.control.kubelet.decide.test_kubelet_order import any_json

V33, V36, V36_5, V37, V38 = (Version(1, *rest) for rest in ((33, 9), (36, 4), (36, 5), (37, 1), (38, 0)))
POD, OTHER_POD = "b3f1", "c4a2"
ORDER = made(Request(Target(V37, "base"), "autarky.dev/kubelet:v1.37.1"), 3)
BEFORE = proof.Before(sandboxes={"s1": "u1"})
DISK = OnDisk(base="base", current="gen", version=V37)
FINAL = Final(ORDER.id, 3, 1, OrderState.DONE)
NODE = {"annotations": {TURN: POD}}
ORDERED = {"annotations": {TURN: POD, order.ANNOTATION: order.text(ORDER)}}
WELL = proof.Seen(True, True, True, True, V37, frozenset({"s1"}), frozenset({"u1"}))
NOTED = Allowed(POD, 2, "b1", BEFORE, (990,))


def plane(wanted: Version = V37, complete: Version | None = None, **spec: Any) -> Any:
    found = {"version": str(wanted), "selfHosted": "0-4", "kubelets": {"follow": True}, **spec}
    return {"spec": found, "status": {"version": str(complete or wanted)}}


def unfollowed(*given: Any, **spec: Any) -> Any:
    return plane(*given, **{"kubelets": {}, **spec})


def unsaid(wanted: Version, **spec: Any) -> Any:
    """Of which no operator has said anything."""
    return {**plane(wanted, **spec), "status": {}}


def one(state: State = State.WAITING, **changes: Any) -> Hosted:
    return replace(Hosted(POD, 2, V37, state), **changes)


LIVE = Live(plane(), NODE, BEFORE)
SEEN = Seen(one(), "b1", 1000, disk=DISK, plane=plane(), metadata=NODE)


def decide(memory: Memory | None = None, now: float = 0.0, **changes: Any) -> Decision:
    return hosted.decide(replace(SEEN, **changes), memory or Memory(), now)


def reported(decision: Decision) -> Reported | None:
    return None if decision.report is None else decision.report.state


# --- whether it may be in force ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "node", "version", "may", "why"),
    [
        (plane(), {}, V37, True, ""),
        (plane(selfHosted="02-4"), {}, V37, True, ""),
        (plane(selfHosted="1-4"), {}, V37, False, "does not host"),
        (plane(selfHosted="2-4"), {}, V37, False, "does not host"),
        (None, {}, V37, None, "cannot be read"),
        (plane(), None, V37, None, "cannot be read"),
        (plane(selfHosted="9-9"), {}, V37, None, "cannot be read"),
        # the version that is wanted, and no other
        (plane(), {}, V36, False, "to be v1.37.1"),
        (plane(), {}, V38, False, "rule 4"),
        (plane(V37, V36), {}, V36, True, ""),
        (plane(V37, V36), {}, V37, False, "rule 4"),
        (plane(), {"annotations": {PIN: "v1.36.4"}}, V36, True, ""),
        (plane(), {"annotations": {PIN: "v1.36.4"}}, V37, False, "to be v1.36.4"),
        (plane(), {"annotations": {PIN: "latest"}}, V37, None, "no version such as"),
        (unfollowed(pools=[{"name": "workers", "version": "v1.36.4"}]), {}, V36, True, ""),
        (unfollowed(pools=[{"name": "workers", "version": "v1.36.4"}]), {}, V37, False, "to be v1.36.4"),
        (
            unfollowed(pools=[{"name": "workers", "version": "v1.36.4"}]),
            {"labels": {CONTROL_PLANE_ACTIVE: ""}},
            V37,
            True,
            "",
        ),
        (plane(pools="?"), {}, V37, None, "spec.pools"),
        (plane(pools="?"), {}, V38, False, "rule 4"),
        # nobody asks for a version
        (unfollowed(), {}, V37, True, ""),
        (unfollowed(), {}, V36_5, True, ""),
        (unfollowed(), {}, V38, False, "v1.37.1"),
        (unfollowed(), {}, V33, False, "minors older"),
        # a lower minor that the operator may refuse takes nothing away
        (plane(V36, V37), {}, V37, None, "yet to take up"),
        # nor does any before it has said which one the control plane has
        (unsaid(V36), {}, V37, None, "not known yet"),
        (unsaid(V37), {}, V37, None, "not known yet"),
        (unsaid(V38), {}, V37, None, "not known yet"),
        (unsaid(V36, pools=[{"name": "workers", "version": "v1.36.4"}]), {}, V37, None, "not known yet"),
        (unsaid(V36), {"annotations": {PIN: "v1.36.4"}}, V37, None, "not known yet"),
        (unsaid(V37, selfHosted="1-4"), {}, V37, False, "does not host"),
    ],
)
def test_whether_it_may_be_in_force(where, node, version, may, why):
    found = allowed(where, node, version)
    assert found.may is may
    assert why in found.why
    assert (found.why == "") is (may is True)


@given(any_json, any_json, st.sampled_from(["spec", "status", None]), st.sampled_from([V33, V36, V37, V38]))
def test_any_control_plane_and_node_get_an_answer(value, node, key, version):
    where = {**plane(), key: value} if key else value
    metadata = node if isinstance(node, dict) else {"annotations": node, "labels": node}
    assert isinstance(allowed(where if isinstance(where, dict) else None, metadata, version), Answer)


versions = st.sampled_from([V33, V36, V36_5, V37, V38])


@given(versions, versions, versions, st.booleans(), st.none() | versions, st.none() | versions)
def test_rule_4_no_kubelet_is_allowed_that_is_newer_than_an_api_server(version, wanted, complete, follow, pin, pool):
    pools = [] if pool is None else [{"name": "workers", "version": str(pool)}]
    where = plane(wanted, complete, kubelets={"follow": follow}, pools=pools)
    found = allowed(where, {} if pin is None else {"annotations": {PIN: str(pin)}}, version)
    lowest = lowest_version(where)
    assert lowest is not None
    if found.may:
        assert minor_of(version) <= minor_of(lowest)
        assert version == pin if pin is not None and minor_of(pin) <= minor_of(lowest) else True


# --- its start -------------------------------------------------------------------------------------------------


def test_it_starts_once_the_api_has_said_so():
    decision = decide()
    assert (decision.look, decision.verdict, decision.notes) == (True, None, None)
    decision = decide(decision.memory, live=LIVE)
    assert decision.verdict is Verdict.MAY
    assert decision.notes == Notes(Allowed(POD, 2, "b1", BEFORE, (1000,), 1))
    assert decision.report == Report(POD, V37, Reported.WAITING)


def test_the_api_is_not_asked_all_the_time():
    memory = decide(now=100.0).memory
    assert not decide(memory, 100.0 + LOOK_SECONDS - 0.1).look
    assert decide(memory, 100.0 + LOOK_SECONDS).look
    assert decide(memory, 101.0, hosted=one(number=3)).look, "another try"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"disk": None}, "autarky up"),
        ({"disk": replace(DISK, ask=ORDER.id)}, "being changed"),
        ({"disk": replace(DISK, trial=Trial(ORDER.id, Phase.PROVING))}, "being changed"),
        ({"metadata": ORDERED}, "ordered to change"),
        ({"live": replace(LIVE, metadata=ORDERED)}, "ordered to change"),
        *(({"others": frozenset({other})}, str(other)) for other in Other),
        ({"others": None}, "not known what else"),
        ({"metadata": {}}, "turn"),
        ({"metadata": {"annotations": {TURN: OTHER_POD}}}, "turn"),
        ({"plane": None}, "cannot be read"),
        ({"metadata": None}, "cannot be read"),
        ({"plane": plane(V36, V37)}, "yet to take up"),
        ({"plane": unsaid(V37)}, "not known yet"),
        ({"live": replace(LIVE, plane=unsaid(V36))}, "not known yet"),
        ({"live": replace(LIVE, plane=None)}, "cannot be read"),
        ({"live": replace(LIVE, metadata=None)}, "cannot be read"),
        ({"live": replace(LIVE, metadata={})}, "turn"),
        ({"live": replace(LIVE, before=None)}, "which pods run"),
    ],
)
def test_nothing_is_said_while_it_has_to_wait(changes, why):
    decision = decide(**changes)
    assert (decision.verdict, decision.look, decision.notes) == (None, False, None)
    assert reported(decision) is Reported.WAITING
    assert decision.report is not None
    assert why in decision.report.why


def test_an_order_that_has_ended_is_in_nobodys_way():
    assert decide(metadata=ORDERED, disk=replace(DISK, last=FINAL), live=replace(LIVE, metadata=ORDERED)).verdict


def test_an_order_waits_for_it_where_the_hosts_does_not_run():
    """The node has no kubelet, and a trial of the host's would be the only one to come."""
    ordered: dict[str, Any] = {"metadata": ORDERED, "live": replace(LIVE, metadata=ORDERED)}
    there, gone = one(alone=True), one(alone=True, only=True)
    assert decide(hosted=gone, metadata=ORDERED).look
    assert decide(hosted=gone, **ordered).verdict is Verdict.MAY
    assert decide(hosted=there, **ordered).verdict is None
    for begun in ({"ask": ORDER.id}, {"trial": Trial(ORDER.id, Phase.FORTH)}):
        assert decide(hosted=gone, disk=replace(DISK, **begun), **ordered).verdict is None
    elsewhere = {"annotations": {**ORDERED["annotations"], TURN: OTHER_POD}}
    assert decide(hosted=gone, live=replace(LIVE, metadata=elsewhere)).verdict is None


@pytest.mark.parametrize(
    ("waits", "said", "turn", "starts_first"),
    [
        (one(alone=True, only=True), None, POD, True),
        (one(alone=True, only=True), Verdict.MAY, POD, True),
        (one(alone=True), Verdict.MAY, POD, False),
        (one(), None, POD, False),
        # it would wait for the end of the order, or does not start at all
        (one(alone=True, only=True), None, OTHER_POD, False),
        (one(alone=True, only=True), None, "", False),
        (one(alone=True, only=True), Verdict.STAY, POD, False),
        (one(State.AWAY, alone=True, only=True), None, POD, False),
    ],
)
def test_what_is_ordered_waits_only_for_one_that_starts(waits, said, turn, starts_first):
    assert hosted.starts_first(waits, said, {"annotations": {TURN: turn}}) is starts_first


@pytest.mark.parametrize("changes", [{"plane": plane(V38)}, {"live": replace(LIVE, plane=plane(selfHosted="1-4"))}])
def test_one_that_is_not_allowed_stays(changes):
    decision = decide(**changes)
    assert (decision.verdict, reported(decision)) == (Verdict.STAY, Reported.REFUSED)
    assert decision.report is not None
    assert decision.report.why


@pytest.mark.parametrize("state", State)
def test_a_pod_that_has_failed_is_not_tried_again(state):
    """Also in another boot, and while it runs all the same."""
    notes = Notes(NOTED, Failed(POD, V37, "it was not proven"))
    decision = decide(hosted=one(state), notes=notes, live=LIVE, proof=WELL, boot="b2")
    runs = state in (State.PROVING, State.PROVEN)
    assert decision.verdict is {State.WAITING: Verdict.STAY, State.AWAY: None}.get(state, Verdict.LEAVE)
    assert (reported(decision) is Reported.FAILED) is not runs
    assert decision.report is not None
    assert "it was not proven" in decision.report.why
    assert decide(hosted=one(pod=OTHER_POD), notes=notes, metadata={"annotations": {TURN: OTHER_POD}}).look


# --- again and again -------------------------------------------------------------------------------------------


def again(every: int, tries: int, *, meanwhile: dict[str, Any] | None = None, same_number: bool = False) -> Notes:
    """It is allowed, proven, and ends. meanwhile: what is seen before it is allowed again."""
    notes, said = Notes(), None
    for number in range(1, tries + 1):
        now = one(number=1 if same_number else number)
        common: dict[str, Any] = {"hosted": now, "uptime": every * number, "said": said}
        if meanwhile is not None:
            notes = decide(notes=notes, **(common | meanwhile)).notes or notes
        for _ in range(3):  # it does not start at once
            decision = decide(notes=notes, live=LIVE, **common)
            notes = decision.notes or notes
            if notes.failed is not None:
                assert (decision.verdict, reported(decision)) == (Verdict.STAY, Reported.FAILED)
                return notes
            assert decision.verdict is Verdict.MAY
            common["said"] = Verdict.MAY
        said = Verdict.GOOD if same_number else None
    return notes


@pytest.mark.parametrize("same_number", [False, True])
def test_one_that_ends_again_and_again_has_failed(same_number):
    """same_number: its container was restarted, and counts from 1 again."""
    assert again(60, MOST_TRIES, same_number=same_number).failed is None
    notes = again(60, MOST_TRIES + 1, same_number=same_number)
    assert notes.failed == Failed(POD, V37, "it ended again and again")


def test_where_the_hosts_does_not_start_it_may_again_however_often_it_ended():
    full = Notes(Allowed(POD, 9, "b1", BEFORE, tuple(range(990, 990 + MOST_TRIES))))
    decision = decide(hosted=one(only=True), notes=full, live=LIVE)
    assert decision.verdict is Verdict.MAY
    assert decision.notes is not None
    assert decision.notes.allowed is not None
    assert decision.notes.allowed.begun == (SEEN.uptime,)
    assert decide(hosted=one(alone=True), notes=full, live=LIVE).verdict is Verdict.STAY


@pytest.mark.parametrize(("behind", "alone", "only"), [("yes", 0, 0), ("no", 1, 0), ("gone", 1, 1), ("", 0, 0)])
def test_what_is_behind_it_is_what_its_supervisor_says(behind, alone, only):
    values = {"boot": "b1", "pod": POD, "try": "2", "version": "v1.37.1", "state": "proven", "uptime": "9", "why": ""}
    found = hosted.said(values | {"behind": behind}, "b1", 10)
    assert found is not None
    assert (found.alone, found.only, found.is_all_there_is) == (alone, only, alone)
    former = hosted.said(values, "b1", 10)
    assert former is not None
    assert not former.alone, "a supervisor of before says nothing of it"


def test_one_that_ends_seldom_has_not():
    assert again(TRIES_SECONDS // MOST_TRIES + 1, 50).failed is None
    assert again(TRIES_SECONDS // MOST_TRIES - 100, 50).failed is not None


@pytest.mark.parametrize(
    "meanwhile",
    [{"disk": replace(DISK, trial=Trial(ORDER.id, Phase.FORTH))}, {"metadata": ORDERED}, {"plane": plane(V38)}],
)
def test_what_had_to_step_aside_or_leave_has_not_ended_by_itself(meanwhile):
    assert again(60, 30, meanwhile=meanwhile).failed is None
    assert again(60, 30, meanwhile={"others": frozenset({Other.ETCD})}).failed is not None


def test_tries_of_another_boot_or_pod_do_not_count():
    full = Allowed(POD, 9, "b1", BEFORE, tuple(range(990, 990 + MOST_TRIES)))
    assert decide(notes=Notes(full), live=LIVE).verdict is Verdict.STAY
    assert decide(notes=Notes(replace(full, boot="b0")), live=LIVE).verdict is Verdict.MAY
    assert decide(notes=Notes(replace(full, pod=OTHER_POD)), live=LIVE).verdict is Verdict.MAY


# --- it runs ---------------------------------------------------------------------------------------------------


def prove(decision: Decision | None = None, now: float = 0.0, **changes: Any) -> Decision:
    given = {"hosted": one(State.PROVING), "notes": Notes(NOTED), "proof": WELL, **changes}
    return decide(decision.memory if decision else None, now, **given)


def test_it_is_good_once_it_has_been_well_for_a_while():
    """Meanwhile its time does not run out: a slow machine has had it start late."""
    decision = prove()
    assert (decision.verdict, reported(decision)) == (Verdict.WAIT, Reported.PROVING)
    for now in (5.0, 9.9):
        decision = prove(decision, now)
        assert decision.verdict is Verdict.WAIT
    assert prove(decision, 10.0).verdict is Verdict.GOOD
    third = {"hosted": one(State.PROVING, number=3), "notes": Notes(replace(NOTED, number=3))}
    assert prove(decision, 10.0, **third).verdict is Verdict.WAIT, "another try begins again"


@pytest.mark.parametrize(
    ("changes", "verdict", "why"),
    [
        ({"proof": replace(WELL, answers=False)}, Verdict.WAIT, "API"),
        ({"proof": replace(WELL, healthy=False)}, Verdict.UNPROVEN, "healthy"),
        ({"proof": replace(WELL, version=V36)}, Verdict.UNPROVEN, "not v1.37.1"),
        ({"notes": Notes()}, Verdict.UNPROVEN, "what ran before"),
        ({"notes": Notes(replace(NOTED, number=1))}, Verdict.UNPROVEN, "what ran before"),
        ({"notes": Notes(replace(NOTED, pod=OTHER_POD))}, Verdict.UNPROVEN, "what ran before"),
        ({"notes": Notes(replace(NOTED, boot="b0"))}, Verdict.UNPROVEN, "what ran before"),
        ({"plane": plane(V38)}, Verdict.LEAVE, "to be v1.38.0"),
        ({"plane": plane(selfHosted="1-4")}, Verdict.LEAVE, "does not host"),
    ],
)
def test_what_is_said_of_one_that_is_not_proven(changes, verdict, why):
    decision = prove(**changes)
    for now in range(0, 30, 2):
        decision = prove(decision, float(now), **changes)
        assert (decision.verdict, reported(decision)) == (verdict, Reported.PROVING)
        assert why in decision.sentence


def test_a_pod_that_lives_without_its_sandbox_is_harmed_after_the_time_in_which_it_may_have_ended():
    lost = replace(WELL, sandboxes=frozenset())
    decision = prove(proof=lost)
    for now in range(0, 40, 2):
        decision = prove(decision, float(now), proof=lost)
        late = now >= proof.EXCUSED_SECONDS
        assert decision.verdict is (Verdict.UNPROVEN if late else Verdict.WAIT), now
        assert "the sandbox of u1 is gone" in decision.sentence


def test_a_pod_that_the_hosts_kubelet_would_have_evicted_as_well_says_nothing_of_it():
    """Any tenant has a pod evicted when it likes."""
    for how in ("rejected", "evicted"):
        harmed: dict[str, Any] = {"sandboxes": frozenset(), "living": frozenset(), how: frozenset({"u1"})}
        seen = replace(WELL, **harmed)
        assert prove(prove(prove(proof=seen), 5.0, proof=seen), 10.0, proof=seen).verdict is Verdict.GOOD
        assert "no room" in proof.decide(seen, BEFORE, V37, proof.Memory(), 0.0).sentence, "new settings may do that"


def test_without_a_look_nothing_is_said():
    assert prove(proof=None).verdict is None


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, None),
        ({"plane": None}, None),
        ({"plane": plane(pools="?")}, None),
        ({"plane": plane(V36, V37)}, None),
        ({"plane": unsaid(V36)}, None),
        ({"plane": unsaid(V38)}, None),
        ({"metadata": ORDERED}, None),
        ({"disk": replace(DISK, trial=Trial(ORDER.id, Phase.FORTH))}, None),
        ({"metadata": {}}, None),
        ({"plane": plane(V36)}, Verdict.LEAVE),
        ({"plane": plane(V38)}, Verdict.LEAVE),
        ({"plane": plane(selfHosted="1-4")}, Verdict.LEAVE),
        ({"metadata": {"annotations": {PIN: "v1.36.4"}}}, Verdict.LEAVE),
    ],
)
def test_what_is_proven_stays_until_it_is_known_that_it_may_not(changes, verdict):
    decision = decide(hosted=one(State.PROVEN), **changes)
    assert (decision.verdict, reported(decision)) == (verdict, Reported.IN_FORCE)
    assert decision.report is not None
    assert bool(decision.report.why) is (verdict is not None)


def test_one_that_has_ended_is_noted_as_failed_before_that_is_reported():
    decision = decide(hosted=one(State.AWAY, why="it has exited"), notes=Notes(NOTED))
    assert decision.notes == Notes(NOTED, Failed(POD, V37, "it has exited"))
    assert decision.report == Report(POD, V37, Reported.FAILED, "it has exited")
    assert decision.verdict is None
    assert decide(hosted=one(State.AWAY, why="?"), notes=decision.notes).report == decision.report
    assert decide(hosted=one(State.AWAY, why="?"), notes=decision.notes).notes is None


def test_where_no_supervisor_runs_nothing_is_said():
    assert decide(hosted=None) == Decision(Memory())


# --- in any case -----------------------------------------------------------------------------------------------

planes = st.sampled_from(
    [
        *(None, {}, plane(), plane(V36), plane(V38), plane(V37, V36), plane(V36, V37), unsaid(V36), unsaid(V37)),
        *(plane(pools="?"), unfollowed(), plane(selfHosted="1-4")),
    ]
)
metadatas = st.sampled_from([None, {}, NODE, ORDERED, {"annotations": {TURN: OTHER_POD}}])
befores = st.sampled_from([None, BEFORE])
notes = st.builds(
    Notes,
    st.none() | st.builds(Allowed, st.sampled_from([POD, OTHER_POD]), st.integers(1, 3), st.sampled_from(["b0", "b1"]),
                          st.just(BEFORE), st.lists(st.integers(0, 1000), max_size=7).map(tuple), st.integers(0, 4)),
    st.none() | st.builds(Failed, st.sampled_from([POD, OTHER_POD]), st.just(V37), st.just("it failed")),
)  # fmt: skip
proofs = st.none() | st.builds(
    proof.Seen, st.booleans(), st.sampled_from([None, False, True]), st.booleans(), st.booleans(), st.just(V37),
    st.sampled_from([frozenset(), frozenset({"s1"})]), st.just(frozenset({"u1"})),
)  # fmt: skip
disks = st.sampled_from(
    [None, DISK, replace(DISK, last=FINAL), replace(DISK, ask=ORDER.id), replace(DISK, trial=Trial("o", Phase.BACK))]
)
seens = st.builds(
    Seen,
    hosted=st.builds(one, st.sampled_from(State), number=st.integers(1, 3), only=st.booleans()),
    boot=st.just("b1"),
    uptime=st.integers(1000, 9000),
    notes=notes,
    said=st.none() | st.sampled_from(Verdict),
    disk=disks,
    others=st.sampled_from([None, frozenset(), frozenset(), frozenset({Other.UP})]),
    plane=planes,
    metadata=metadatas,
    live=st.none() | st.builds(Live, planes, metadatas, befores),
    proof=proofs,
)
proven = st.builds(proof.Memory, st.none() | st.just(0.0))
memories = st.builds(Memory, st.sampled_from([f"{POD}/2", ""]), proven, st.none() | st.just(0.0))
SAID: dict[State, set[Verdict | None]] = {
    State.WAITING: {None, Verdict.MAY, Verdict.STAY},
    State.PROVING: {None, Verdict.GOOD, Verdict.WAIT, Verdict.UNPROVEN, Verdict.LEAVE},
    State.PROVEN: {None, Verdict.LEAVE},
    State.AWAY: {None},
}


@settings(max_examples=2000)
@given(seens, memories, st.floats(0, 100))
def test_the_invariants_hold_whatever_is_seen(seen, memory, now):
    decision, given = hosted.decide(seen, memory, now), seen.hosted
    assert decision.verdict in SAID[given.state]
    assert decision.report is not None
    assert (decision.report.pod, decision.report.version) == (given.pod, given.version)
    has_failed = seen.notes.failed is not None and seen.notes.failed.pod == given.pod
    if decision.verdict is Verdict.MAY:
        assert_may_start(seen, decision)
    if decision.look:
        assert (given.state, seen.live, decision.verdict) == (State.WAITING, None, None)
    if has_failed:
        assert decision.verdict in (None, Verdict.STAY, Verdict.LEAVE)
        assert not decision.look
    if reported(decision) is Reported.FAILED:
        assert has_failed or (decision.notes is not None and decision.notes.failed is not None)
    if seen.plane is None and seen.live is None and not has_failed and decision.notes is None:
        assert decision.verdict not in (Verdict.LEAVE, Verdict.STAY, Verdict.MAY)
    if decision.verdict is Verdict.GOOD:
        assert seen.proof.answers
        assert seen.proof.healthy is not False
        noted = seen.notes.allowed
        assert (noted.pod, noted.number, noted.boot) == (given.pod, given.number, seen.boot)


def assert_may_start(seen: Seen, decision: Decision) -> None:
    live, given, disk = seen.live, seen.hosted, seen.disk
    assert live is not None
    assert given is not None
    assert disk is not None
    assert allowed(live.plane, live.metadata, given.version).may is True
    assert live.metadata["annotations"][TURN] == given.pod
    assert (disk.ask, disk.trial, seen.others) == ("", None, frozenset())
    assert disk.last is not None or live.metadata != ORDERED or given.only
    assert decision.notes is not None
    noted = decision.notes.allowed
    assert (noted.pod, noted.number, noted.boot, noted.before) == (given.pod, given.number, "b1", live.before)
    assert 1 <= noted.boots <= MOST_BOOTS
    assert 1 <= len(noted.begun) <= max(MOST_TRIES, len(seen.notes.allowed.begun) if seen.notes.allowed else 0)
