"""What one worker reports of its pod rolls back no revision that is healthy elsewhere; what several report does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.rollout.decide.observed import Observed
from autarky.control.rollout.decide.verdict import PROVEN_SECONDS, Verdict
from unit.control.rollout.test_rollback import POLICY, Watch, api

NODES = ("n1", "w1", "w2", "w3")


def proxies(**ready: Any) -> Observed:
    return replace(api(nodes=NODES, **ready), trusted=frozenset({"n1"}))


def test_a_worker_alone_takes_nothing_back_and_the_revision_is_kept_as_good():
    watch = Watch()
    seen = proxies(n1=True, w1=False, w2=True, w3=True)
    assert watch.until(seen, Verdict.KEEP_AS_GOOD) in (89, 90, 91)
    assert Verdict.ROLL_BACK not in {decision.verdict for decision in watch.decisions}
    assert watch.decisions[-1].sentence == (
        "revision new is healthy (except on w1, a single worker): it is now the last good one"
    )
    assert watch.for_seconds(seen, 200) == {Verdict.HEALTHY}


def test_while_the_others_have_not_told_it_waits_and_says_for_whom():
    watch = Watch()
    assert watch.for_seconds(proxies(w1=False), 300) == {Verdict.WAIT}
    assert watch.decisions[-1].sentence == (
        "pod pod-w1 on w1 was not healthy within 90 s: exit code 1; a single worker causes no rollback:"
        " the other nodes decide"
    )
    assert not watch.decisions[-1].settled


def test_a_control_node_is_enough():
    watch = Watch()
    assert watch.until(proxies(n1=False, w1=True, w2=True, w3=True), Verdict.ROLL_BACK) in (89, 90, 91)
    assert watch.decisions[-1].pod.node == "n1"


def test_two_workers_are_enough_also_one_after_the_other():
    watch = Watch()
    watch.for_seconds(proxies(n1=True, w1=False), 100)
    assert watch.until(proxies(n1=True, w1=False, w2=False), Verdict.ROLL_BACK) in (89, 90, 91)


def test_the_only_node_there_is_proves_nothing_where_it_is_a_worker():
    watch = Watch()
    assert watch.for_seconds(replace(proxies(w1=False), nodes=frozenset({"w1"})), 300) == {Verdict.WAIT}


def test_a_worker_whose_old_pod_never_ends_keeps_nothing_from_success():
    watch = Watch()
    seen = replace(proxies(n1=True, w2=True, w3=True), ending=frozenset({"w1"}))
    assert watch.until(seen, Verdict.KEEP_AS_GOOD) in (89, 90, 91)


def test_a_worker_that_the_rollout_has_not_reached_is_waited_for():
    watch = Watch()
    assert watch.for_seconds(proxies(n1=True, w2=True, w3=True), 300) == {Verdict.WAIT}
    assert watch.until(proxies(n1=True, w1=True, w2=True, w3=True), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS - 1


@pytest.mark.parametrize("node", ["n1", "w1"])
def test_where_all_are_trusted_one_is_enough(node: str):
    watch = Watch()
    ready: Any = {**dict.fromkeys(NODES, True), node: False}
    seen = api(nodes=NODES, **ready)
    assert watch.until(seen, Verdict.ROLL_BACK) in (89, 90, 91)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["ready", "unready", "ending", "gone"]), st.integers(1, 90)), min_size=1))
def test_whatever_one_worker_does_nothing_goes_back(acts: list[tuple[str, int]]):
    watch = Watch(policy=POLICY)
    for act, seconds in acts:
        seen = proxies(n1=True, w2=True, w3=True, **({"w1": act == "ready"} if act in ("ready", "unready") else {}))
        seen = replace(seen, ending=frozenset({"w1"} if act == "ending" else ()))
        assert Verdict.ROLL_BACK not in watch.for_seconds(seen, seconds)
