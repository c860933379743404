"""When a hosted pod becomes a checkpoint: one look at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.checkpoint.decide.revisions import (
    LONGEST_GAP_SECONDS,
    PROVEN_SECONDS,
    STALE_SECONDS,
    Action,
    Decision,
    Disk,
    Instance,
    Memory,
    Seen,
    Source,
    Verb,
    decide,
)
from autarky.control.slots.decide.pivot import Health, Slot

NOW = 5000.0
RUN = Instance("uid-1", restarts=0, started="2026-11-21T09:00:09Z", version=500)
OLD = Source("the Secret s", version=100)
DISK = Disk(current="a", previous=None, complete=frozenset({"a"}))
GOOD = Seen(NOW, Slot.HOSTED, Health.READY, DISK, instance=RUN, candidate="b", sources=(OLD,), images=True)
"""A healthy pod with new content, of which everything is known."""
PROVEN = Memory(RUN, "b", healthy=PROVEN_SECONDS, last=NOW - 1)
TAKEN = (Action(Verb.WRITE, "b"), Action(Verb.SWITCH, "b"))


def look(memory: Memory = PROVEN, *, at: float = NOW, **changes: Any) -> Decision:
    return decide(replace(GOOD, looked=at, **changes), memory, at)


def test_a_pod_that_was_healthy_for_long_enough_becomes_the_checkpoint():
    decision = look()
    assert decision.actions == TAKEN
    assert decision.sentence == "the hosted pod has been healthy for 41 s, so it becomes the checkpoint b"


def test_the_time_is_counted_from_the_first_healthy_look():
    memory, taken_after = Memory(), None
    for second in range(100):
        decision = look(memory, at=NOW + second)
        memory = decision.memory
        if decision.actions:
            taken_after = second
            break
    assert taken_after == PROVEN_SECONDS


def test_a_revision_that_is_complete_already_is_only_switched_to():
    disk = replace(DISK, complete=frozenset({"a", "b"}))
    assert look(disk=disk).actions == (Action(Verb.SWITCH, "b"),)


def test_rule_5_nothing_is_done_when_the_checkpoint_is_that_of_the_pod():
    disk = Disk(current="b", previous="a", complete=frozenset({"a", "b"}))
    for memory in (Memory(), PROVEN):
        decision = look(memory, disk=disk)
        assert (decision.actions, decision.settled) == ((), True)


def test_a_current_revision_of_which_a_file_is_missing_is_written_again():
    disk = Disk(current="b", previous="a", complete=frozenset({"a"}), incomplete=frozenset({"b"}))
    assert look(disk=disk).actions == TAKEN
    assert look(Memory(), disk=disk).actions == (), "and only once it is proven"


# --- what restarts the clock -----------------------------------------------------------------------

BREAKS = {
    "not ready": {"hosted": Health.NOT_READY},
    "terminating": {"hosted": Health.TERMINATING},
    "absent": {"hosted": Health.ABSENT},
    "another pod": {"instance": replace(RUN, pod_uid="uid-2")},
    "a restart": {"instance": replace(RUN, restarts=1)},
    "another start": {"instance": replace(RUN, started="2026-11-21T09:00:18Z")},
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS)
def test_every_break_restarts_the_clock(change):
    decision = look(**change)
    assert decision.actions == ()
    assert decision.memory.healthy == 0.0


def test_content_that_changed_without_a_restart_is_never_proven_by_this_run():
    changed = look(candidate="c")
    assert (changed.actions, changed.memory.healthy) == ((), 0.0)
    assert changed.memory.candidate == "b"
    later = look(replace(changed.memory, healthy=900.0), candidate="c")
    assert later.actions == ()
    assert "restart the pod to prove it" in later.sentence
    back = look(later.memory)
    assert back.memory.candidate == "b"
    assert look(replace(back.memory, healthy=PROVEN_SECONDS)).actions == TAKEN


def test_a_gap_between_two_looks_is_not_counted():
    memory = Memory(RUN, "b", healthy=10.0, last=NOW - LONGEST_GAP_SECONDS - 0.1)
    assert look(memory).memory == Memory(RUN, "b", healthy=10.0, last=NOW)


# --- unknown is not down ---------------------------------------------------------------------------

UNKNOWN = {
    "health": {"hosted": Health.UNKNOWN},
    "run": {"instance": None},
    "candidate": {"candidate": None},
    "disk": {"disk": None},
    "sources": {"sources": None},
    "images": {"images": None},
}


@pytest.mark.parametrize("change", UNKNOWN.values(), ids=UNKNOWN)
def test_rule_2_unknown_is_not_down_it_proves_and_breaks_nothing(change):
    decision = look(**change)
    assert decision.actions == ()
    assert "unknown" in decision.sentence
    assert decision.memory.healthy >= PROVEN.healthy
    assert not decision.settled


@pytest.mark.parametrize("age", [STALE_SECONDS + 0.1, 1e6, -0.1])
def test_rule_2_a_late_observation_is_none_at_all(age):
    decision = decide(replace(GOOD, looked=NOW - age), PROVEN, NOW)
    assert (decision.actions, decision.memory) == ((), replace(PROVEN, last=None))
    broken = decide(replace(GOOD, looked=NOW - age, hosted=Health.ABSENT), PROVEN, NOW)
    assert broken.memory.healthy == PROVEN.healthy


def test_rule_9_the_clock_stands_still_while_etcd_is_down():
    memory = Memory(RUN, "b", healthy=40.0, last=NOW - 1)
    for health in Health:
        down = look(memory, etcd_up=False, hosted=health)
        assert (down.actions, down.memory.healthy) == ((), 40.0)
    again = look(down.memory, at=NOW + 3)
    assert again.memory.healthy == 40.0
    assert look(again.memory, at=NOW + 4).memory.healthy == 41.0


# --- rule 10 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("health", [h for h in Health if h is not Health.READY])
@pytest.mark.parametrize("wanted", Slot)
def test_rule_10_what_is_gone_or_broken_removes_no_checkpoint(health, wanted):
    crowded = Disk("a", "p", frozenset("abpx"), frozenset("y"))
    decision = look(hosted=health, wanted=wanted, disk=crowded)
    assert decision.actions == ()
    assert "stays as it is" in decision.sentence or "unknown" in decision.sentence


def test_a_level_that_is_not_hosted_any_more_keeps_its_standby():
    decision = look(wanted=Slot.STANDBY)
    assert (decision.actions, decision.memory) == ((), Memory())
    assert decision.sentence == "this level is not hosted: its standby stays as it is"


# --- what must be there ----------------------------------------------------------------------------


def test_what_cannot_be_static_is_said_and_changes_nothing():
    decision = look(candidate=None, refusal="refused by the rule «x»")
    assert decision.actions == ()
    assert decision.sentence == "refused by the rule «x»; the existing checkpoint stays"
    assert decision.memory.refused == "refused by the rule «x»"
    assert decision.memory.healthy > 0


def test_an_image_that_is_not_there_forbids_a_checkpoint():
    assert look(images=False).actions == ()
    assert "not all images are on the node" in look(images=False).sentence


PROVEN_CONTENT = [
    OLD,
    Source("written right before the pod was seen", 499),
    Source("named by its content, and made again later", 900, by_content=True),
]
UNPROVEN_CONTENT = [
    Source("changed later", 900),
    Source("changed right after the pod was seen", 501),
]


@pytest.mark.parametrize("source", PROVEN_CONTENT, ids=lambda source: source.name)
def test_content_that_the_container_started_with_is_proven(source):
    assert look(sources=(OLD, source)).actions == TAKEN


@pytest.mark.parametrize("source", UNPROVEN_CONTENT, ids=lambda source: source.name)
def test_content_that_may_be_younger_than_the_container_is_not(source):
    decision = look(sources=(OLD, source))
    assert decision.actions == ()
    assert source.name in decision.sentence
    assert "restart the pod" in decision.sentence


def test_a_container_restarted_after_a_change_may_have_read_the_old_content():
    """The kubelet brings new content to the volumes of a running pod when it gets to it."""
    again = replace(RUN, restarts=1)
    for version, actions in ((499, TAKEN), (501, ())):
        decision = look(replace(PROVEN, instance=again), instance=again, sources=(Source("the ConfigMap c", version),))
        assert decision.actions == actions


def test_of_a_pod_that_nobody_saw_start_only_what_is_named_by_its_content_is_proven():
    unseen = replace(RUN, version=None)
    memory = replace(PROVEN, instance=unseen)
    refused = look(memory, instance=unseen)
    assert refused.actions == ()
    assert "nobody saw it start" in refused.sentence
    assert look(memory, instance=unseen, sources=(replace(OLD, by_content=True),)).actions == TAKEN


# --- what is kept ----------------------------------------------------------------------------------


def test_the_current_the_previous_and_what_is_in_use_are_kept():
    disk = Disk("b", "a", frozenset("abcu"), frozenset("x"), in_use=frozenset("u"))
    decision = look(disk=disk)
    assert decision.actions == (Action(Verb.DELETE, "c"), Action(Verb.DELETE, "x"))
    assert not decision.settled


def test_nothing_is_deleted_while_a_switch_is_half_done():
    assert look(disk=Disk("b", "b", frozenset("abc"))).actions == ()


BOOLS = (True, False)


@settings(max_examples=300, deadline=None)
@given(
    seen=st.builds(
        Seen,
        looked=st.sampled_from([NOW, NOW - 1, NOW - 60]),
        wanted=st.sampled_from(Slot),
        hosted=st.sampled_from(Health),
        disk=st.none()
        | st.builds(
            Disk,
            st.none() | st.sampled_from("ab"),
            st.none() | st.sampled_from("ab"),
            st.frozensets(st.sampled_from("abcd")),
            st.frozensets(st.sampled_from("xy")),
            st.frozensets(st.sampled_from("abcd")),
        ),
        etcd_up=st.booleans(),
        instance=st.none() | st.just(RUN),
        candidate=st.none() | st.sampled_from("ab"),
        refusal=st.sampled_from(["", "refused"]),
        sources=st.none() | st.just((OLD,)),
        images=st.none() | st.booleans(),
    ),
    memory=st.sampled_from([Memory(), PROVEN, replace(PROVEN, healthy=30.0), replace(PROVEN, last=None)]),
)
def test_whatever_is_seen_only_the_proven_is_taken_and_nothing_needed_is_deleted(seen, memory):
    decision = decide(seen, memory, NOW)
    assert decision.sentence
    assert not (decision.settled and decision.actions)
    for action in decision.actions:
        assert seen.disk is not None
        assert (seen.hosted, seen.wanted, seen.etcd_up) == (Health.READY, Slot.HOSTED, True)
        if action.verb is Verb.DELETE:
            assert action.revision not in {seen.disk.current, seen.disk.previous, *seen.disk.in_use}
            assert seen.disk.current in seen.disk.complete
        else:
            assert action.revision == seen.candidate == memory.candidate
            assert decision.memory.healthy >= PROVEN_SECONDS


def test_every_situation_has_one_sentence():
    for hosted, wanted, etcd_up, images in product(Health, Slot, BOOLS, (True, False, None)):
        sentence = look(hosted=hosted, wanted=wanted, etcd_up=etcd_up, images=images).sentence
        assert sentence
        assert "\n" not in sentence
