"""A standby without a hosted pod beside it follows the last good revision, and only that."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.checkpoint.decide.following import FOLLOW_SECONDS, Memory, Seen, decide, watched
from autarky.control.checkpoint.decide.revisions import Action, Disk, Verb
from autarky.control.slots.decide.pivot import Health, Slot

DISK = Disk(current="old", previous="older", complete=frozenset({"old", "older"}))
SEEN = Seen(Slot.HOSTED, Health.ABSENT, DISK, candidate="good", images=True)
DUE = Memory(0.0)


def test_where_no_hosted_pod_has_been_for_a_while_the_last_good_revision_is_taken():
    assert decide(SEEN, DUE, FOLLOW_SECONDS - 1)[0] == ()
    assert decide(SEEN, DUE, FOLLOW_SECONDS)[0] == (Action(Verb.WRITE, "good"), Action(Verb.SWITCH, "good"))
    written = replace(SEEN, disk=replace(DISK, complete=DISK.complete | {"good"}))
    assert decide(written, DUE, FOLLOW_SECONDS)[0] == (Action(Verb.SWITCH, "good"),)


def test_once_it_is_there_what_nothing_uses_goes():
    disk = Disk("good", "old", frozenset({"good", "old", "older", "used"}), frozenset({"torn"}), frozenset({"used"}))
    actions, _ = decide(replace(SEEN, disk=disk), DUE, FOLLOW_SECONDS)
    assert actions == (Action(Verb.DELETE, "older"), Action(Verb.DELETE, "torn"))


def test_without_its_images_it_is_not_taken():
    assert decide(replace(SEEN, images=False), DUE, FOLLOW_SECONDS)[0] == ()
    assert decide(replace(SEEN, images=None), DUE, FOLLOW_SECONDS)[0] == ()


def test_a_hosted_pod_that_is_ready_is_what_its_checkpoint_is_made_of():
    memory = watched(Slot.HOSTED, Health.ABSENT, Memory(), 0.0)
    assert watched(Slot.HOSTED, Health.NOT_READY, memory, 30.0).is_due(FOLLOW_SECONDS)
    assert not watched(Slot.HOSTED, Health.READY, memory, 30.0).is_due(FOLLOW_SECONDS)
    assert not watched(Slot.STANDBY, Health.ABSENT, memory, 30.0).is_due(1000.0)


@given(st.booleans(), st.booleans(), st.none() | st.booleans(), st.text(max_size=3))
def test_unknown_is_not_down(disk, candidate, images, refusal):
    """Rule 2: whatever cannot be seen changes nothing."""
    seen = Seen(
        Slot.HOSTED, Health.ABSENT, DISK if disk else None, "good" if candidate else None, refusal, images=images
    )
    actions, _ = decide(seen, DUE, 10 * FOLLOW_SECONDS)
    assert not actions or (disk and candidate and images and not refusal)
    assert not watched(Slot.HOSTED, Health.UNKNOWN, DUE, 1000.0).is_due(10_000.0)
