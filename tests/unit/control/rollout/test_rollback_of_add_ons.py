"""Rollouts of a Deployment whose pods may be on any node, as those of CoreDNS: each pod is judged by its own time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.observed import Observed, Pod
from autarky.control.rollout.decide.verdict import PROVEN_SECONDS, SETTLE_SECONDS, Verdict
from unit.control.rollout.test_rollback import Watch

NODES = ("n1", "w1", "w2")


def pod(name: str, node: str, *, ready: bool = True, never_ran: bool = False) -> Pod:
    return Pod(name, node, ready, "" if ready else "exit code 1", never_ran, shares=True)


def dns(*pods: Pod, wanted: int = 2, made: int | None = None, revision: str = "new") -> Observed:
    return Observed(
        *(revision, True, True, frozenset(NODES), pods),
        replicas=wanted,
        made=len(pods) if made is None else made,
        trusted=frozenset({"n1"}),
    )


def test_it_succeeds_when_every_pod_has_stayed_ready_wherever_they_are():
    watch = Watch()
    assert watch.until(dns(pod("a", "w1"), pod("b", "w2")), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS
    assert watch.record == Record("new")


def test_the_first_one_is_good_as_soon_as_on_every_other_workload():
    assert Watch(record=Record()).until(dns(pod("a", "n1"), pod("b", "n1")), Verdict.KEEP_AS_GOOD) <= SETTLE_SECONDS + 1


def test_two_pods_on_one_node_have_each_their_own_time():
    """Neither counts for the other: not for success, and not against it."""
    watch = Watch()
    assert watch.for_seconds(dns(pod("a", "n1"), pod("b", "n1", ready=False)), 88) == {Verdict.WAIT}
    assert watch.until(dns(pod("a", "n1"), pod("b", "n1", ready=False)), Verdict.ROLL_BACK) <= 3
    assert watch.decisions[-1].sentence == "pod b on n1 was not healthy within 90 s: exit code 1"


def test_a_pod_that_comes_later_has_its_full_time():
    watch = Watch()
    watch.for_seconds(dns(pod("a", "n1", ready=False)), 80)
    assert watch.for_seconds(dns(pod("c", "n1", ready=False)), 80) == {Verdict.WAIT}
    assert watch.until(dns(pod("c", "n1", ready=False)), Verdict.ROLL_BACK) <= 11


def test_an_image_that_cannot_be_had_goes_back_and_may_be_tried_again():
    watch = Watch()
    watch.until(dns(*(pod(name, "n1", ready=False, never_ran=True) for name in "ab")), Verdict.ROLL_BACK)
    assert not watch.record.failure("new").condemns


def test_pods_for_which_there_is_no_node_say_nothing():
    watch = Watch()
    assert watch.for_seconds(dns(made=2), 300) == {Verdict.WAIT}
    assert watch.decisions[-1].settled
    assert watch.until(dns(pod("a", "n1"), made=2), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS - 1, "one waits for a node"


def test_it_waits_until_as_many_pods_as_are_wanted_were_made():
    watch = Watch()
    assert watch.for_seconds(dns(pod("a", "n1"), wanted=3), 300) == {Verdict.WAIT}
    assert watch.until(dns(pod("a", "n1"), wanted=3, made=3), Verdict.KEEP_AS_GOOD) == 0


def test_before_the_first_node_is_ready_nothing_goes_back():
    watch = Watch(record=Record())
    assert watch.for_seconds(replace(dns(made=2), nodes=frozenset()), 300) == {Verdict.WAIT}


def test_with_no_pods_wanted_nothing_is_on_trial_and_it_is_judged_when_some_are():
    watch = Watch()
    assert watch.for_seconds(dns(wanted=0), 300) == {Verdict.HEALTHY}
    assert watch.record == Record("good"), "it has shown nothing"
    assert watch.until(dns(pod("a", "n1", ready=False)), Verdict.ROLL_BACK) in (89, 90, 91)


def test_rule_9_the_clocks_stand_still_while_etcd_is_down():
    watch = Watch()
    watch.for_seconds(dns(pod("a", "n1", ready=False)), 80)
    assert watch.for_seconds(replace(dns(pod("a", "n1", ready=False)), etcd_up=False), 300) == {Verdict.WAIT}
    assert watch.until(dns(pod("a", "n1", ready=False)), Verdict.ROLL_BACK) in (10, 11, 12)


# --- what workers say ----------------------------------------------------------------------------------


def test_one_worker_on_which_it_is_not_ready_keeps_it_from_nothing():
    watch = Watch()
    assert watch.until(dns(pod("a", "w1", ready=False), pod("b", "w2")), Verdict.KEEP_AS_GOOD) in (89, 90, 91)
    assert watch.decisions[-1].sentence.startswith("revision new is healthy (except on w1, a single worker)")


def test_two_workers_are_enough():
    watch = Watch()
    seen = dns(pod("a", "w1", ready=False), pod("b", "w2", ready=False))
    assert watch.until(seen, Verdict.ROLL_BACK) in (89, 90, 91)


def test_where_one_worker_has_all_pods_it_stays_and_that_is_said():
    watch = Watch()
    seen = dns(pod("a", "w1", ready=False), wanted=1)
    assert watch.until(seen, Verdict.FAILED) in (89, 90, 91)
    assert watch.decisions[-1].sentence.endswith(
        "a single worker causes no rollback, and no other node has a pod of it"
    )
    assert watch.for_seconds(seen, 300) == {Verdict.FAILED}
    assert watch.until(dns(pod("a", "w1"), wanted=1), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS - 1, "it came after all"


ACTS = st.lists(st.tuples(st.sampled_from(["ready", "unready", "another", "gone"]), st.integers(1, 60)), min_size=1)


@settings(deadline=None, max_examples=50)
@given(ACTS)
def test_whatever_one_worker_does_nothing_goes_back_and_what_is_well_elsewhere_becomes_the_last_good(acts):
    """It may end its pod, and have another one made, as often as it likes."""
    watch, number = Watch(), 0
    for act, seconds in acts:
        number += act == "another"
        own = () if act == "gone" else (pod(f"own-{number}", "w1", ready=act == "ready"),)
        assert Verdict.ROLL_BACK not in watch.for_seconds(dns(pod("a", "n1"), *own, made=2), seconds)
    for _ in range(100):
        number += 1
        watch.look(dns(pod("a", "n1"), pod(f"own-{number}", "w1", ready=False), made=2))
    assert watch.record == Record("new")


@pytest.mark.parametrize("wanted", [1, 2, 5])
@settings(deadline=None, max_examples=30)
@given(nodes=st.lists(st.sampled_from(NODES), min_size=5, max_size=5))
def test_wherever_its_pods_are_what_is_bad_never_becomes_the_last_good(wanted, nodes):
    watch = Watch()
    pods = [pod(f"p{index}", node, ready=False) for index, node in enumerate(nodes[:wanted])]
    verdicts = watch.for_seconds(dns(*pods, wanted=wanted), 95)
    assert Verdict.KEEP_AS_GOOD not in verdicts
    alone = {one.node for one in pods} in ({"w1"}, {"w2"})
    assert (Verdict.ROLL_BACK in verdicts) is not alone
