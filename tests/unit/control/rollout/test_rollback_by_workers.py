"""What one worker reports of its pod rolls back no revision that is healthy elsewhere; what several report does."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.rollout.decide.clocks import ENDING_SECONDS
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.limits import OWN_SECONDS
from autarky.control.rollout.decide.observed import Observed, Pod
from autarky.control.rollout.decide.verdict import HELD_SECONDS, PROVEN_SECONDS, Verdict
from unit.control.rollout.test_rollback import POLICY, Watch, api

NODES = ("n1", "w1", "w2", "w3")
LONGEST = HELD_SECONDS + POLICY.longest + POLICY.own
"""How long workers hold up a verdict."""


def proxies(**ready: Any) -> Observed:
    return replace(api(nodes=NODES, **ready), trusted=frozenset({"n1"}))


ACTS = ("ready", "unready", "ending", "bare", "not Ready")
"""What a worker may make of its own pod, or of its Node."""


def while_w1_is(act: str) -> Observed:
    """The others have the revision, and it is well there."""
    seen = proxies(n1=True, w2=True, w3=True, **({"w1": act == "ready"} if act in ("ready", "unready") else {}))
    w1 = frozenset({"w1"})
    match act:
        case "ending":
            return replace(seen, ending=w1)
        case "bare":
            return replace(seen, bare=w1)
        case "not Ready":
            return replace(seen, nodes=seen.nodes - w1)
    return seen


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


def test_two_workers_are_enough_also_by_turns():
    """At each look one of them is Ready, and never for long enough."""
    watch = Watch()
    for second in range(400):
        turn = second // 35 % 2 == 0
        watch.look(proxies(n1=True, w1=turn, w2=not turn, w3=True))
    back = [one for one in watch.decisions if one.verdict is Verdict.ROLL_BACK]
    assert back[0].pod.node in {"w1", "w2"}
    assert Verdict.KEEP_AS_GOOD not in {one.verdict for one in watch.decisions}


def test_one_that_was_late_and_has_proven_itself_is_no_second_one():
    watch = Watch()
    watch.for_seconds(proxies(n1=True, w1=False), 100)
    watch.for_seconds(proxies(n1=True, w1=True), 45)
    assert Verdict.ROLL_BACK not in watch.for_seconds(proxies(n1=True, w1=True, w2=False), 300)


def test_the_only_node_there_is_proves_nothing_where_it_is_a_worker():
    watch = Watch()
    assert watch.for_seconds(replace(proxies(w1=False), nodes=frozenset({"w1"})), 300) == {Verdict.WAIT}


def test_a_worker_whose_old_pod_never_ends_keeps_nothing_from_success():
    watch = Watch()
    seen = replace(proxies(n1=True, w2=True, w3=True), ending=frozenset({"w1"}))
    assert watch.until(seen, Verdict.KEEP_AS_GOOD) in (89, 90, 91)


def test_a_worker_that_ends_each_pod_as_soon_as_it_is_made_keeps_nothing_from_success():
    """Hardly any look sees one, so that none is ever late."""
    watch = Watch()
    seen = proxies(n1=True, w2=True, w3=True)
    for second in range(100):
        if second % 10 == 9:
            watch.look(replace(seen, pods=(*seen.pods, Pod("pod-w1", "w1", False))))
        else:
            watch.look(replace(seen, bare=frozenset({"w1"})))
    kept = [second for second, one in enumerate(watch.decisions) if one.verdict is Verdict.KEEP_AS_GOOD]
    assert kept in ([89], [90], [91], [92])


def test_where_all_are_trusted_a_node_without_a_pod_is_waited_for_and_its_pod_has_its_full_time():
    watch = Watch()
    seen = replace(api(nodes=("n1", "n2"), n1=True), bare=frozenset({"n2"}))
    assert watch.for_seconds(seen, 300) == {Verdict.WAIT}
    assert watch.until(api(nodes=("n1", "n2"), n1=True, n2=False), Verdict.ROLL_BACK) in (89, 90, 91)


def test_workers_whose_old_pods_never_end_keep_nothing_from_success_however_many_they_are():
    """They hold up what they hold; of the revision they say nothing, and there is no pod to blame."""
    watch = Watch()
    seen = replace(proxies(n1=True, w3=True), ending=frozenset({"w1", "w2"}))
    assert watch.until(seen, Verdict.KEEP_AS_GOOD) in (89, 90, 91)
    assert watch.decisions[-1].sentence == (
        "revision new is healthy (except on workers that hold it up: w1, w2): it is now the last good one"
    )
    watch = Watch()
    assert watch.for_seconds(replace(proxies(n1=False), ending=frozenset({"w1", "w2", "w3"})), 80) == {Verdict.WAIT}
    nothing_proven = replace(proxies(), nodes=frozenset({"w1", "w2"}), ending=frozenset({"w1", "w2"}))
    assert watch.for_seconds(nothing_proven, 300) == {Verdict.WAIT}


def test_two_on_which_it_has_failed_are_not_forgotten_when_its_pods_end():
    watch = Watch()
    watch.for_seconds(proxies(n1=True, w1=False, w2=False, w3=True), 30)
    seen = replace(proxies(n1=True, w3=True), ending=frozenset({"w1", "w2"}))
    assert ENDING_SECONDS <= watch.until(seen, Verdict.ROLL_BACK) <= ENDING_SECONDS + OWN_SECONDS + 1
    assert Verdict.KEEP_AS_GOOD not in {one.verdict for one in watch.decisions}
    assert watch.record.failure("new").by_workers


def test_two_whose_pods_hang_while_they_end_take_back_nothing_for_a_while():
    """Somebody has deleted them, and both machines are slow to end anything: the revision was well there."""
    watch = Watch()
    watch.for_seconds(proxies(w1=True, w2=True, w3=True), 30)
    seen = replace(proxies(n1=True, w3=True), ending=frozenset({"w1", "w2"}))
    assert watch.for_seconds(seen, int(ENDING_SECONDS) - 1) == {Verdict.WAIT}
    everywhere = proxies(n1=True, w1=True, w2=True, w3=True)
    assert watch.until(everywhere, Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1


# --- workers on which no pod stays ---------------------------------------------------------------------


def without(*nodes: str, **ready: Any) -> Observed:
    """These have no pod at all."""
    return replace(proxies(**ready), bare=frozenset(nodes))


def test_two_workers_that_end_each_pod_as_soon_as_it_is_made_hold_up_nothing_for_ever():
    """Hardly any look sees one, so that none is ever late. What they say condemns nothing."""
    watch, both = Watch(), (Pod("pod-w1", "w1", False), Pod("pod-w2", "w2", False))
    seen = proxies(n1=True)
    for second in range(100):
        none_now = second % 10 != 9
        watch.look(without("w1", "w2", n1=True) if none_now else replace(seen, pods=(*seen.pods, *both)))
        if watch.decisions[-1].verdict is not Verdict.WAIT:
            break
    assert (watch.decisions[-1].verdict, second) in [(Verdict.ROLL_BACK, second) for second in (89, 90, 91)]
    assert watch.decisions[-1].sentence == (
        "it was not healthy on w1, w2 within 90 s: no pod of it is made, or stays, there"
    )
    assert watch.decisions[-1].pod is None
    assert not watch.record.failure("new").condemns


def test_a_rollout_that_has_reached_two_such_workers_only_is_looked_at_until_it_goes_back():
    watch = Watch()
    assert watch.for_seconds(without("w1", "w2"), 85) == {Verdict.WAIT}
    assert not watch.decisions[-1].settled
    assert watch.until(without("w1", "w2"), Verdict.ROLL_BACK) <= 6


def test_two_whose_pods_never_end_are_two_where_the_former_ones_had_ended():
    """Each was ended before a look saw it."""
    watch = Watch()
    watch.for_seconds(without("w1", "w2", n1=True, w3=True), 3)
    never_end = replace(proxies(n1=True, w3=True), ending=frozenset({"w1", "w2"}))
    assert ENDING_SECONDS <= watch.until(never_end, Verdict.ROLL_BACK) <= ENDING_SECONDS + OWN_SECONDS + 1


def test_two_that_lack_a_pod_for_a_moment_again_and_again_are_two_after_a_while():
    """Each moment counts at least for a second, however soon the looks follow one another."""
    watch, times = Watch(), 0
    while watch.look(without("w1", "w2", n1=True, w3=True), after=0.01).verdict is Verdict.WAIT:
        times += 1
        assert watch.for_seconds(proxies(n1=True, w1=True, w2=True, w3=True), 7) == {Verdict.WAIT}
        assert times <= OWN_SECONDS
    assert watch.decisions[-1].verdict is Verdict.ROLL_BACK


def test_where_such_moments_are_so_rare_that_they_prove_nothing_they_do_not_keep_it_on_trial():
    watch, verdicts = Watch(), set[Verdict]()
    while watch.now < 1000 + LONGEST + 2 * PROVEN_SECONDS and Verdict.KEEP_AS_GOOD not in verdicts:
        verdicts |= {watch.look(without("w1", "w2", n1=True, w3=True), after=0.01).verdict}
        verdicts |= watch.for_seconds(proxies(n1=True, w1=True, w2=True, w3=True), 38)
    assert Verdict.KEEP_AS_GOOD in verdicts


def by_turns(second: int, *, ready: int, workers: int) -> Observed:
    """Nodes w1, w2 and so on are not Ready by turns, and their pods are well while they are: there is always one of
    them that has yet to prove itself."""
    names = [f"w{number + 1}" for number in range(workers)]
    others = {"n1", *names} - {names[second // ready % workers]}
    return replace(proxies(**dict.fromkeys(sorted(others), True)), nodes=frozenset(others))


@pytest.mark.parametrize("workers", [2, 6])
@pytest.mark.parametrize("ready", [5, 20, 38])
def test_workers_whose_nodes_are_not_ready_by_turns_keep_nothing_on_trial(ready: int, workers: int):
    """Each time all clocks of theirs begin again, and however many they are, they have one time."""
    watch = Watch()
    for second in range(3 * int(LONGEST)):
        if watch.look(by_turns(second, ready=ready, workers=workers)).verdict is Verdict.KEEP_AS_GOOD:
            break
    assert second <= LONGEST + PROVEN_SECONDS + 1
    assert Verdict.ROLL_BACK not in {one.verdict for one in watch.decisions}


def test_nor_does_an_add_on_of_which_pods_are_there_by_turns():
    watch = Watch()
    for second in range(3 * int(LONGEST)):
        pods = tuple(
            replace(pod, name=f"{pod.name}-{second // 20}" if pod.node != "n1" else pod.name, shares=True)
            for pod in proxies(n1=True, w1=True, w2=True).pods
        )
        seen = replace(proxies(), pods=pods, replicas=3, made=3)
        if watch.look(seen).verdict is Verdict.KEEP_AS_GOOD:
            break
    assert second <= LONGEST + PROVEN_SECONDS + 1


def test_while_a_rollout_goes_from_worker_to_worker_its_time_does_not_count():
    """Those that it has yet to reach say nothing: what is kept as good before may fail there."""
    watch = Watch()
    assert watch.for_seconds(proxies(n1=True, w1=True, w2=True), 2 * int(LONGEST)) == {Verdict.WAIT}
    assert watch.until(proxies(n1=True, w1=True, w2=False, w3=False), Verdict.ROLL_BACK) <= POLICY.longest + 1


def test_nor_while_a_control_node_has_not_proved_it():
    """There the previous pod ends late, as it does on two workers, which then have their full time."""
    watch = Watch()
    late = replace(proxies(w3=True), ending=frozenset({"n1", "w1", "w2"}))
    assert watch.for_seconds(late, int(LONGEST) + 100) == {Verdict.WAIT}
    assert watch.for_seconds(proxies(n1=True, w1=False, w2=False, w3=True), int(OWN_SECONDS) - 2) == {Verdict.WAIT}


def test_after_the_time_of_workers_control_nodes_are_waited_for_as_ever():
    """The only one is off meanwhile, and its pod is not Ready when it returns."""
    watch = Watch()
    for second in range(int(LONGEST) + 100):
        worker = f"w{second // 20 % 2 + 1}"
        assert watch.look(replace(proxies(**{worker: True}), nodes=frozenset({worker}))).verdict is Verdict.WAIT
    returns = replace(proxies(n1=False, w3=True), nodes=frozenset({"n1", "w3"}))
    assert watch.for_seconds(returns, int(PROVEN_SECONDS) + 5) == {Verdict.WAIT}


def test_what_workers_have_condemned_is_tried_again_where_they_do_not_count():
    record = Record("good").with_failure("new", "it was not healthy on two", by_skew=False, by_workers=True)
    assert Watch(record).look(proxies(n1=True)).verdict is Verdict.ROLL_BACK
    watch = Watch(record)
    only_control_nodes = replace(proxies(n1=True), nodes=frozenset({"n1"}))
    assert watch.for_seconds(only_control_nodes, int(PROVEN_SECONDS)) == {Verdict.WAIT}
    assert watch.until(only_control_nodes, Verdict.KEEP_AS_GOOD) <= 2
    by_control_node = Record("good").with_failure("new", "it was not healthy on n1", by_skew=False)
    assert Watch(by_control_node).look(only_control_nodes).verdict is Verdict.ROLL_BACK


def test_workers_that_start_again_have_their_time_again():
    """Two machines that restart together, with pods that had their time long ago."""
    watch = Watch()
    watch.for_seconds(proxies(w1=True, w2=True, w3=True), 150)
    watch.for_seconds(replace(proxies(w3=True), nodes=frozenset({"n1", "w3"})), 30)
    assert watch.for_seconds(proxies(w1=False, w2=False, w3=True), int(OWN_SECONDS)) == {Verdict.WAIT}


def test_one_with_a_late_pod_and_one_on_which_none_stays_are_two():
    watch = Watch()
    assert watch.until(without("w2", n1=True, w1=False, w3=True), Verdict.ROLL_BACK) in (89, 90, 91)
    assert watch.decisions[-1].pod.node == "w1"


def test_one_on_which_none_stays_and_one_whose_former_pod_never_ends_are_not_two():
    watch = Watch()
    seen = replace(without("w1", n1=True, w3=True), ending=frozenset({"w2"}))
    assert watch.until(seen, Verdict.KEEP_AS_GOOD) in (89, 90, 91)


def test_without_a_revision_to_go_back_to_two_such_workers_make_it_fail():
    watch = Watch(record=Record())
    assert watch.until(without("w1", "w2", n1=True, w3=True), Verdict.FAILED) in (89, 90, 91)


def test_two_workers_that_prove_themselves_and_then_have_none_keep_nothing_on_trial():
    watch = Watch()
    assert watch.for_seconds(proxies(w1=True, w2=True), int(PROVEN_SECONDS) + 5) == {Verdict.WAIT}
    assert watch.until(without("w1", "w2"), Verdict.ROLL_BACK) in (59, 60, 61)


def test_two_that_lack_a_pod_for_less_than_its_own_time_take_back_nothing():
    """Someone deletes all pods while their controller begins again; early ones have had their time long ago."""
    watch = Watch()
    watch.for_seconds(proxies(w1=True, w2=True), 150)
    assert watch.for_seconds(without("w1", "w2"), int(OWN_SECONDS) - 2) == {Verdict.WAIT}
    assert watch.for_seconds(proxies(w1=False, w2=False), 3) == {Verdict.WAIT}
    everywhere = proxies(n1=True, w1=True, w2=True, w3=True)
    assert watch.until(everywhere, Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1


def test_two_whose_former_pods_ended_late_have_their_own_time():
    watch = Watch()
    for observed, seconds in (
        (replace(proxies(w3=True), ending=frozenset({"w1", "w2"})), 100),
        (without("w1", "w2", w3=True), 3),
        (proxies(w1=False, w2=False, w3=True), 50),
    ):
        assert watch.for_seconds(observed, seconds) == {Verdict.WAIT}
    assert watch.until(proxies(n1=True, w1=True, w2=True, w3=True), Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1


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
@given(st.lists(st.tuples(st.sampled_from([*ACTS, "not reached"]), st.integers(1, 90)), min_size=1))
def test_whatever_one_worker_does_nothing_goes_back(acts: list[tuple[str, int]]):
    watch = Watch(policy=POLICY)
    for act, seconds in acts:
        assert Verdict.ROLL_BACK not in watch.for_seconds(while_w1_is(act), seconds)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 60)), min_size=1))
def test_whatever_one_worker_does_again_and_again_the_revision_is_kept_as_good(acts: list[tuple[str, int]]):
    watch, verdicts = Watch(policy=POLICY), set[Verdict]()
    while watch.now < 3000 and Verdict.KEEP_AS_GOOD not in verdicts:
        for act, seconds in acts:
            verdicts |= watch.for_seconds(while_w1_is(act), seconds)
    assert Verdict.KEEP_AS_GOOD in verdicts


Turns = list[tuple[str, int]]


def turns(*acts: str) -> st.SearchStrategy[Turns]:
    return st.lists(st.tuples(st.sampled_from(acts), st.integers(1, 60)), min_size=1)


def verdict_on(w1: Turns, w2: Turns) -> Verdict:
    """While each of the two does that again and again, and all is well on the others."""
    watch = Watch()
    doing = {node: cycle(act for act, n in acts for _ in range(n)) for node, acts in (("w1", w1), ("w2", w2))}
    for _ in range(20_000):
        acts = {node: next(each) for node, each in doing.items()}
        ready = {node: act == "ready" for node, act in acts.items() if act in ("ready", "unready")}
        ending, bare = (frozenset(node for node in acts if acts[node] == act) for act in ("ending", "bare"))
        away = {node for node, act in acts.items() if act == "not Ready"}
        seen = replace(proxies(n1=True, w3=True, **ready), ending=ending, bare=bare)
        decision = watch.look(replace(seen, nodes=seen.nodes - away))
        if decision.verdict is not Verdict.WAIT:
            return decision.verdict
    raise AssertionError(f"it does not end: {decision.sentence}")


@settings(deadline=None, max_examples=50)
@given(turns(*ACTS), turns(*ACTS))
def test_whatever_two_workers_do_again_and_again_the_rollout_comes_to_an_end(w1: Turns, w2: Turns):
    assert verdict_on(w1, w2) in (Verdict.KEEP_AS_GOOD, Verdict.ROLL_BACK)


@settings(deadline=None, max_examples=50)
@given(turns("unready", "ending", "bare"), turns("unready", "ending", "bare"), st.sampled_from(["unready", "bare"]))
def test_what_is_never_ready_on_two_workers_goes_back_whatever_becomes_of_its_pods(w1: Turns, w2: Turns, first: str):
    """The pods from before have ended, and that was seen: the first look counts for nothing."""
    assert verdict_on([(first, 2), *w1], [(first, 2), *w2]) is Verdict.ROLL_BACK


def test_a_worker_that_is_unready_for_a_moment_before_it_proves_itself_delays_nothing_beyond_the_limit():
    """Each moment is shorter than what is excused on a control node, and begins its clock again."""
    watch = Watch()
    for second in range(200):
        ready = second % 39 != 0
        if watch.for_seconds(proxies(n1=True, w1=ready, w2=True, w3=True), 1) == {Verdict.KEEP_AS_GOOD}:
            break
    assert second <= 120


def test_two_workers_that_prove_themselves_and_go_down_keep_nothing_on_trial():
    """The rollout, which counts them, reaches no other node: they can have it taken back, and not more."""
    watch = Watch()
    assert watch.for_seconds(proxies(w1=True, w2=True), int(PROVEN_SECONDS) + 5) == {Verdict.WAIT}
    assert watch.until(proxies(w1=False, w2=False), Verdict.ROLL_BACK) <= 100


def test_two_workers_that_are_not_ready_at_one_look_take_back_nothing():
    """Early ones have had their time when a rollout over many nodes comes to its end."""
    watch = Watch()
    watch.for_seconds(proxies(w1=True, w2=True), 150)
    assert watch.for_seconds(proxies(w1=False, w2=False), 3) == {Verdict.WAIT}
    assert watch.for_seconds(proxies(n1=True, w1=True, w2=True, w3=True), int(PROVEN_SECONDS) + 5) >= {
        Verdict.KEEP_AS_GOOD
    }


def test_two_workers_that_are_unready_for_a_moment_again_and_again_are_evidence_after_a_while():
    watch = Watch()
    for second in range(800):
        ready = second % 39 != 0
        if watch.for_seconds(proxies(n1=True, w1=ready, w2=ready, w3=True), 1) == {Verdict.ROLL_BACK}:
            break
    assert 90 < second < 600
