"""When a kubelet that was switched has proven itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.kubelet.decide.proof import (
    EXCUSED_SECONDS,
    LOOK_SECONDS,
    PROVEN_SECONDS,
    Before,
    Decision,
    Memory,
    Seen,
    Verdict,
    decide,
)
from autarky.model.versions import Version

V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
BEFORE = Before(ready=True, sandboxes={"s1": "u1", "s2": "u2"})
WELL = Seen(
    answers=True,
    healthy=True,
    heartbeat=True,
    ready=True,
    version=V37,
    sandboxes=frozenset({"s1", "s2", "s3"}),
    living=frozenset({"u1", "u2", "u3"}),
)


def after(seconds: float, seen: Seen = WELL, before: Before = BEFORE, *, step: float = 1.0) -> Decision:
    """The same is seen all the time."""
    now, decision = 0.0, decide(seen, before, V37, Memory(), 0.0)
    while now < seconds:
        now += step
        decision = decide(seen, before, V37, decision.memory, now)
    return decision


def test_it_is_good_when_all_is_well_for_a_while():
    assert after(PROVEN_SECONDS - 1).verdict is Verdict.UNPROVEN
    assert after(PROVEN_SECONDS).verdict is Verdict.GOOD


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"healthy": False}, "it does not report that it is healthy"),
        ({"heartbeat": False}, "no heartbeat"),
        ({"ready": False}, "not Ready"),
        ({"version": V36}, "its Node shows v1.36.4, not v1.37.1"),
        ({"version": None}, "its Node shows no version"),
        ({"sandboxes": None}, "it is not known which pods run"),
        ({"living": None}, "it is not known which pods run"),
        ({"sandboxes": frozenset({"s1"})}, "the sandbox of u2 is gone"),
        ({"sandboxes": frozenset({"other"})}, "the sandbox of u1, u2 is gone"),
        (
            {"sandboxes": frozenset({"s1"}), "living": frozenset({"u1"}), "rejected": frozenset({"u2", "u3"})},
            "it has no room for u2, which it had before",
        ),
        (
            {"sandboxes": frozenset({"s1"}), "living": frozenset({"u1"}), "evicted": frozenset({"u2", "u3"})},
            "it has no room for u2, which it had before",
        ),
    ],
)
def test_what_is_missing_is_said_and_it_is_never_good(changes, missing):
    decision = after(5 * PROVEN_SECONDS, replace(WELL, **changes))
    assert decision.verdict is Verdict.UNPROVEN
    assert missing in decision.sentence


def test_pods_are_called_by_their_names_where_these_were_noted():
    named = replace(BEFORE, pods={"u1": "shop/web"})
    sentence = after(5 * PROVEN_SECONDS, replace(WELL, sandboxes=frozenset()), named).sentence
    assert "the sandbox of shop/web, u2 is gone" in sentence
    may_have = replace(WELL, sandboxes=frozenset({"s2"}))
    assert "the sandbox of shop/web is gone: it may have" in after(1, may_have, named).sentence
    refused = replace(WELL, rejected=frozenset({"u1"}))
    assert "no room for shop/web" in after(1, refused, named).sentence


def test_a_pod_that_has_ended_or_is_deleted_is_not_blamed_on_the_kubelet():
    seen = replace(WELL, sandboxes=frozenset({"s1"}), living=frozenset({"u1"}))
    assert after(PROVEN_SECONDS, seen).verdict is Verdict.GOOD


def looks(*seen):
    """The decisions about these looks, one a second."""
    found, memory = [], Memory()
    for number, one in enumerate(seen):
        found.append(decide(one, BEFORE, V37, memory, 1000.0 + number))
        memory = found[-1].memory
    return found


GONE = replace(WELL, sandboxes=frozenset({"s1"}))
"""The sandbox of u2 is, which lives."""
ENDED = replace(GONE, living=frozenset({"u1"}))


def test_nor_is_one_that_ends_before_a_status_says_so():
    """A kubelet says it after that. Pods of a tenant may end one after the other, all the time."""
    found = looks(*[one for _ in range(3) for one in (WELL, WELL, GONE, GONE, ENDED)])
    assert [one.verdict for one in found[:10]] == [Verdict.UNPROVEN] * 10
    assert found[10].verdict is Verdict.GOOD, "the time in which one had just ended counts"
    assert "the sandbox of u2 is gone: it may have ended by itself" in found[3].sentence


def test_while_one_may_have_ended_nothing_is_proven_and_one_that_lives_is_harmed():
    seconds = int(EXCUSED_SECONDS)
    found = looks(*[WELL] * 9, *[GONE] * (seconds + 5))
    assert {one.verdict for one in found} == {Verdict.UNPROVEN}
    assert "is gone and" not in found[-1].sentence
    assert found[-1].sentence == "the sandbox of u2 is gone"
    assert found[-1].memory.since is None, "it begins again"


def test_nor_is_one_that_it_has_never_had():
    assert after(PROVEN_SECONDS, replace(WELL, rejected=frozenset({"u3"}))).verdict is Verdict.GOOD


def test_a_node_that_was_not_ready_before_need_not_be():
    assert after(PROVEN_SECONDS, replace(WELL, ready=False), replace(BEFORE, ready=False)).verdict is Verdict.GOOD


def test_health_that_nobody_can_ask_for_is_no_failure():
    assert after(PROVEN_SECONDS, replace(WELL, healthy=None)).verdict is Verdict.GOOD


def test_while_the_api_is_away_nothing_is_said_of_the_kubelet():
    """Rule 9."""
    for seen in (replace(WELL, answers=False), replace(WELL, answers=False, healthy=False, sandboxes=frozenset())):
        assert after(5 * PROVEN_SECONDS, seen).verdict is Verdict.WAIT


@pytest.mark.parametrize("worse", [{"ready": False}, {"answers": False}, {"version": V36}])
def test_a_break_begins_it_again(worse):
    decision = after(PROVEN_SECONDS - 1)
    broken = decide(replace(WELL, **worse), BEFORE, V37, decision.memory, PROVEN_SECONDS - 0.5)
    again = decide(WELL, BEFORE, V37, broken.memory, PROVEN_SECONDS)
    assert again.verdict is Verdict.UNPROVEN
    later = decide(WELL, BEFORE, V37, again.memory, PROVEN_SECONDS + 2)
    assert later.verdict is Verdict.UNPROVEN


def test_so_does_a_while_in_which_nobody_looked():
    assert after(PROVEN_SECONDS, step=LOOK_SECONDS).verdict is Verdict.GOOD
    assert after(5 * PROVEN_SECONDS, step=LOOK_SECONDS + 1).verdict is Verdict.UNPROVEN
