"""A rollout goes on while nodes are off, one living pod at a time: cases, and everything that may happen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autarky.control.rollout.decide.stepping import (
    LAG_SECONDS,
    SERVES_SECONDS,
    Lag,
    Observed,
    Place,
    Pod,
    Step,
    decide,
    followed,
    is_away,
    lags,
    most_unavailable,
    not_ready_since,
)

OLD, NEW = Pod("old", new=False, available=True), Pod("new", new=True, available=True)
GONE = Place("n3", ready=False, away=True, pods=(), ending=True)


def place(node: str, pod: Pod, **changes: Any) -> Place:
    return replace(Place(node, ready=True, away=False, pods=(replace(pod, name=f"{pod.name}-{node}"),)), **changes)


def seen(*places: Place, **changes: Any) -> Observed:
    away = sum(one.away for one in places)
    return replace(Observed(known=True, most=1, desired=len(places), unavailable=away, places=places), **changes)


# --- cases -------------------------------------------------------------------------------------------


def test_with_one_node_off_the_next_old_pod_is_replaced():
    step = decide(seen(place("n1", NEW), place("n2", OLD), GONE))
    assert (step.pod, step.node) == ("old-n2", "n2")
    assert step.sentence == "the rollout goes on without n3, not Ready for long: pod old-n2 on n2 is replaced"


def test_none_is_replaced_before_the_one_before_is_available():
    for first in (
        place("n1", replace(NEW, available=False)),
        place("n1", NEW, ending=True),
        place("n1", NEW, pods=()),
        place("n1", NEW, ready=False),
    ):
        step = decide(seen(first, place("n2", OLD), GONE))
        assert step.pod is None
        assert step.open, "it is looked at again soon"


def test_rule_2_a_node_that_has_just_fallen_silent_is_not_away():
    assert decide(seen(place("n1", NEW), place("n2", OLD), replace(GONE, away=False))).pod is None


def test_the_controller_goes_first_where_it_can():
    still_old = place("n3", replace(OLD, available=False), ready=False, away=True)
    assert decide(seen(place("n1", OLD), place("n2", OLD), still_old)).pod is None
    assert decide(seen(place("n1", OLD), place("n2", OLD), GONE, most=2)).pod is None
    assert decide(seen(place("n1", OLD), place("n2", OLD), GONE, known=False)).pod is None


@pytest.mark.parametrize("figures", [{"desired": 4}, {"desired": 2}, {"unavailable": 2}, {"unavailable": 0}])
def test_nothing_is_done_where_the_controller_counts_other_nodes(figures):
    assert decide(seen(place("n1", OLD), place("n2", OLD), GONE, **figures)).pod is None


def test_nothing_is_to_be_done_without_a_rollout_or_without_a_node_that_is_off():
    assert decide(seen(place("n1", NEW), place("n2", NEW), GONE)) == Step(
        "every node that is not away has the wanted revision"
    )
    assert not decide(seen(place("n1", NEW), place("n2", OLD))).open


def test_a_node_is_away_when_it_has_not_been_ready_for_a_minute_on_end():
    since = not_ready_since({}, {"n1": True, "n3": False}, 100.0)
    since = not_ready_since(since, {"n1": True, "n3": False}, 159.0)
    assert since == {"n3": 100.0}
    assert not is_away(since.get("n3"), 159.0)
    assert is_away(since.get("n3"), 160.0)
    back = not_ready_since(since, {"n1": True, "n3": True}, 161.0)
    assert not_ready_since(back, {"n1": True, "n3": False}, 162.0) == {"n3": 162.0}, "it starts from zero"
    assert not_ready_since(since, {"n1": True}, 163.0) == {}, "a Node that was deleted is forgotten"


@pytest.mark.parametrize(
    ("rolling", "most"),
    [({}, 1), ({"maxUnavailable": 2}, 2), ({"maxUnavailable": "30%"}, 3), ({"maxSurge": 1, "maxUnavailable": 0}, None)],
)
def test_the_users_strategy_is_obeyed(rolling, most):
    assert most_unavailable({"type": "RollingUpdate", "rollingUpdate": rolling}, 10) == most
    assert most_unavailable({"type": "OnDelete"}, 10) is None


# --- workers that do not come along --------------------------------------------------------------------

ILL = replace(NEW, available=False)


def worker(node: str, pod: Pod, **changes: Any) -> Place:
    return place(node, pod, **{"trusted": False, **changes})


def test_a_rollout_goes_on_without_one_worker_that_lags_on_control_nodes_first():
    lagging = worker("w1", ILL, lags=True)
    step = decide(seen(worker("a1", OLD), place("n1", OLD), lagging, unavailable=1))
    assert (step.pod, step.node) == ("old-n1", "n1")
    assert step.sentence == (
        "the rollout goes on without w1, whose pod does not become available: pod old-n1 on n1 is replaced"
    )
    assert decide(seen(worker("a1", OLD), place("n1", NEW), lagging, unavailable=1)).pod == "old-a1"
    assert decide(seen(worker("a1", OLD), place("n1", ILL), lagging, unavailable=1)).pod is None, "one after the other"


def test_one_that_has_just_begun_is_waited_for_and_looked_at_again_soon():
    step = decide(seen(place("n1", OLD), worker("w1", ILL), unavailable=1))
    assert (step.pod, step.open) == (None, True)


def test_with_a_second_one_it_may_be_the_template():
    two = (worker("w1", ILL, lags=True), worker("w2", ILL, lags=True))
    for most in (1, 2):
        assert decide(seen(place("n1", OLD), *two, unavailable=2, most=most)).pod is None
    one_begins = (two[0], replace(two[1], lags=False))
    assert decide(seen(place("n1", OLD), *one_begins, unavailable=2)).pod is None


def test_no_number_of_workers_keeps_agents_from_control_nodes_which_judge_them_nor_lets_them_reach_all_workers():
    """One that fails on workers alone would else take the agent from each of them."""
    lacking = [worker(f"w{number}", ILL, lags=True) for number in (1, 2)]
    observed = seen(place("n1", OLD), *lacking, unavailable=2)
    assert decide(observed).pod is None
    assert decide(replace(observed, by_workers=False)).pod == "old-n1"
    others = seen(place("n1", NEW), worker("w3", OLD), *lacking, unavailable=2)
    assert decide(replace(others, by_workers=False)).pod is None


def test_workers_that_are_off_say_nothing_of_the_template_however_long_they_have_lacked_it():
    off = tuple(worker(name, ILL, lags=True, ready=False, away=True) for name in ("w1", "w2"))
    step = decide(seen(place("n1", OLD), *off, unavailable=2))
    assert (step.pod, step.node) == ("old-n1", "n1")
    assert "without w1, w2, not Ready for long:" in step.sentence


def test_nor_do_two_that_are_not_ready_for_shorter_than_it_takes_to_be_away_again_and_again():
    """At most one of them is Ready at a time, and they would else hold up all others forever."""
    silent = worker("w1", ILL, lags=True, ready=False)
    for other in (worker("w2", ILL, lags=True), worker("w2", ILL, lags=True, ready=False)):
        assert decide(seen(place("n1", OLD), silent, other, unavailable=2)).pod == "old-n1"


def test_a_worker_that_is_ready_now_and_then_lags_as_any_other():
    """Neither silent for long nor, without a break, Ready for long; its pod is not available all the time."""
    blinks = worker("w1", ILL, ready=False)
    assert blinks.on_its_way
    assert decide(seen(place("n1", OLD), replace(blinks, lags=True), unavailable=1)).pod == "old-n1"


def test_a_control_node_never_lags():
    assert not place("n1", ILL).on_its_way
    assert worker("w1", ILL).on_its_way
    assert not worker("w1", replace(OLD, available=False)).on_its_way, "the controller replaces it anyway"


def test_a_worker_whose_old_pod_does_not_come_to_its_end_is_passed_over_whatever_the_controller_counts():
    stuck = worker("w1", OLD, pods=(), ending=True, lags=True)
    for unavailable in (0, 1):
        assert decide(seen(place("n1", OLD), stuck, unavailable=unavailable)).pod == "old-n1"
    assert decide(seen(place("n1", OLD), stuck, unavailable=2)).pod is None


def test_where_the_revision_may_not_be_any_number_of_nodes_of_either_kind_is_passed_over():
    """Hosted kubelets of nodes that are to have another one; the template is not in doubt for that."""
    refused = [replace(place(name, replace(NEW, available=False)), refused=True) for name in ("n1", "n2")]
    refused += [worker(name, replace(NEW, available=False), refused=True, lags=True) for name in ("w1", "w2")]
    step = decide(seen(*refused, place("n3", OLD), unavailable=4))
    assert (step.pod, step.node) == ("old-n3", "n3")
    assert "n1, n2, w1, w2, whose pod does not become available" in step.sentence
    for others in (refused[:2], refused[2:]):
        assert (
            decide(seen(*(replace(one, refused=False) for one in others), place("n3", OLD), unavailable=2)).pod is None
        )
    assert decide(seen(refused[0], place("n3", OLD), unavailable=1)).pod == "old-n3", "nobody is away or lags"


def test_where_it_waits_for_its_turn_any_number_of_nodes_is_passed_over_after_a_while_and_no_template_is_in_doubt():
    """w1's hosted kubelet has failed, which stops the others of its pool."""
    failed = worker("w1", ILL, lags=True)
    waiting = [replace(place("n1", ILL), waits=True), *(worker(name, ILL, waits=True) for name in ("w2", "w3"))]
    late = [replace(one, lags=True) for one in waiting]
    assert decide(seen(failed, *late, worker("w4", OLD), unavailable=4)).node == "w4"
    assert decide(seen(failed, *waiting, worker("w4", OLD), unavailable=4)).pod is None, "each is to be tried first"
    tried = [replace(one, waits=False) for one in late]
    assert decide(seen(failed, tried[1], worker("w4", OLD), unavailable=2)).pod is None, "two have no available pod"
    of_control = decide(seen(tried[0], GONE, worker("w4", OLD), unavailable=2))
    assert of_control.sentence == "pods are replaced one at a time: n1 has no available pod"
    assert late[0].on_its_way
    assert not tried[0].on_its_way


def test_a_node_that_is_off_and_a_worker_that_lags_are_passed_over_together():
    step = decide(seen(place("n1", OLD), GONE, worker("w1", ILL, lags=True), unavailable=2))
    assert step.node == "n1"
    assert "without n3, not Ready for long, and w1, whose pod does not become available:" in step.sentence


def test_a_worker_lags_when_it_has_been_on_its_way_for_as_long_as_a_revision_is_judged():
    found = followed({}, [worker("w1", ILL), place("n1", ILL), worker("w2", NEW)], 100.0)
    assert found.keys() == {"w1"}
    assert lags(found["w1"], 190.0)
    assert not lags(found["w1"], 189.0)
    assert not lags(None, 1000.0)


NOT_SERVING = (
    worker("w1", ILL),
    worker("w1", NEW, ready=False),
    worker("w1", NEW, pods=()),
    worker("w1", NEW, ending=True),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NOT_SERVING), st.integers(1, 60), st.integers(0, int(SERVES_SECONDS) - 1))))
def test_one_that_serves_now_and_then_lags_as_one_that_never_does(blinks: list[tuple[Place, int, int]]):
    """Its node or its pod is Ready for a moment, before it would count as away or late."""
    found, now = followed({}, [NOT_SERVING[0]], 0.0), 0.0
    for instead, seconds, serves in blinks:
        for shown, duration in ((instead, seconds), (worker("w1", NEW), serves)):
            for _ in range(duration):
                now += 1.0
                found = followed(found, [shown], now)
                assert lags(found.get("w1"), now) == (now >= LAG_SECONDS)
    for _ in range(int(SERVES_SECONDS) + 1):
        now += 1.0
        found = followed(found, [worker("w1", NEW)], now)
    assert not lags(found["w1"], now), "then it is waited for again"


def test_of_two_workers_that_are_on_their_way_by_turns_one_lags_at_any_moment():
    """Each serves for long enough to be waited for again, and the other one is down then: the controller, which counts
    it, replaces nothing, and nobody would be late."""
    found: dict[str, Lag] = {}
    now, down = 0.0, worker("w", NEW, pods=())
    for second in range(400):
        now += 1.0
        shown = [
            replace(down if (second + shift) % 86 < 45 else worker("w", NEW), node=name)
            for name, shift in (("w1", 0), ("w2", 43))
        ]
        found = followed(found, shown, now)
        lagging = {place.node for place in shown if lags(found.get(place.node), now)}
        assert second < LAG_SECONDS + 45 or lagging >= {place.node for place in shown if place.on_its_way}


def test_old_pods_that_do_not_come_to_their_end_on_any_number_of_workers_say_nothing_of_the_template():
    stuck = tuple(worker(name, OLD, pods=(), ending=True, lags=True) for name in ("w1", "w2", "w3"))
    for unavailable in (0, 3):
        assert decide(seen(place("n1", OLD), *stuck, unavailable=unavailable)).pod == "old-n1"
    two = (worker("w4", ILL, lags=True), worker("w5", ILL, lags=True, ending=True))
    assert decide(seen(place("n1", OLD), *stuck, *two, unavailable=5)).pod is None, "of these two it made pods"


@pytest.mark.parametrize("shown", [{"away": True}, {"lags": True}])
def test_a_worker_that_is_not_ready_and_calls_its_pod_ready_holds_up_nobody(shown):
    """The controller counts that pod as available, and n3's alone as not."""
    lies = worker("w1", NEW, ready=False, **shown)
    assert decide(seen(place("n1", NEW), place("n2", OLD), GONE, lies, unavailable=1)).pod == "old-n2"
    assert decide(seen(place("n1", NEW), place("n2", OLD), GONE, lies, unavailable=0)).pod is None
    two = (lies, replace(lies, node="w2"))
    assert decide(seen(place("n2", OLD), GONE, *two, unavailable=1)).pod == "old-n2", "they blame no template"


# --- everything that may happen ------------------------------------------------------------------------


@dataclass
class Living:
    """A pod in the API. started: when (seconds) it was made; it needs a while until it is Ready."""

    name: str
    revision: int
    started: float
    available: bool = False
    ending: bool = False


@dataclass
class Machine:
    """powered: whether it runs; ready: what the API says of it; silent: since when it has sent nothing."""

    powered: bool = True
    ready: bool = True
    silent: float = 0.0
    pods: list[Living] = field(default_factory=list)


NODES = st.sampled_from(["n1", "n2", "n3", "n4"])
SILENT_SECONDS, START_SECONDS = 50.0, 2.0


@dataclass
class World:
    """A DaemonSet as its controller (1.36, 1.37: `rollingUpdate` with maxSurge 0), kubelets and the operator treat it.

    taken: the living nodes whose pod a rollout has taken, and that have none again yet.
    """

    nodes: dict[str, Machine]
    most: int = 1
    revision: int = 1
    looked: int = 1
    unavailable: int = 0
    now: float = 0.0
    since: dict[str, float] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    made: int = 0

    def __post_init__(self) -> None:
        for machine in self.nodes.values():
            machine.pods = [replace(self.new_pod(), available=True)]

    def new_pod(self) -> Living:
        self.made += 1
        return Living(f"pod-{self.made}", self.revision, self.now)

    # --- Kubernetes ---

    def passes(self, seconds: float) -> None:
        """Time, in which nodes that send nothing are marked so, and their pods with them."""
        self.now += seconds
        for machine in self.nodes.values():
            if not machine.powered and self.now - machine.silent >= SILENT_SECONDS:
                machine.ready = False
                for pod in machine.pods:
                    pod.available = False
        self.operator_follows()

    def kubelet(self, node: str) -> None:
        machine = self.nodes[node]
        if machine.powered:
            machine.ready = True
            machine.pods = [pod for pod in machine.pods if not pod.ending]
            for pod in machine.pods:
                pod.available = self.now - pod.started >= START_SECONDS
                if pod.available:
                    self.taken.discard(node)

    def cut(self, node: str) -> None:
        machine = self.nodes[node]
        machine.powered, machine.silent = False, self.now
        self.taken.discard(node)

    def boot(self, node: str) -> None:
        """Its pods start again, which takes a while."""
        machine = self.nodes[node]
        machine.powered = True
        for pod in machine.pods:
            pod.started = self.now

    def controller(self) -> None:
        counted, replaced, candidates = 0, [], []
        for node, machine in self.nodes.items():
            left = [pod for pod in machine.pods if not pod.ending]
            if not machine.pods:
                machine.pods.append(self.new_pod())  # what it creates is seen in its next reconcile
                counted += 1
            elif not left:
                counted += 1
            elif left[0].revision == self.revision:
                counted += not left[0].available
            elif not left[0].available:
                counted += 1
                replaced.append((node, left[0]))
            elif counted < self.most:
                candidates.append((node, left[0]))
        for node, pod in [*replaced, *candidates[: max(self.most - counted, 0)]]:
            self.delete(node, pod)
        self.looked = self.revision
        self.unavailable = sum(not any(pod.available for pod in m.pods[:1]) for m in self.nodes.values())

    def delete(self, node: str, pod: Living) -> None:
        machine = self.nodes[node]
        if machine.powered and machine.ready and pod.available and not pod.ending:
            self.taken.add(node)
        pod.ending = True

    # --- the operator ---

    def operator_follows(self) -> None:
        self.since = not_ready_since(self.since, {name: one.ready for name, one in self.nodes.items()}, self.now)

    def look(self) -> Step:
        self.operator_follows()
        places = tuple(
            Place(
                name,
                machine.ready,
                is_away(self.since.get(name), self.now),
                tuple(
                    Pod(pod.name, pod.revision == self.revision, pod.available)
                    for pod in machine.pods
                    if not pod.ending
                ),
                any(pod.ending for pod in machine.pods),
            )
            for name, machine in self.nodes.items()
        )
        known = self.looked == self.revision
        return decide(Observed(known, self.most, len(self.nodes), self.unavailable, places))

    def act(self, step: Step) -> None:
        for pod in self.nodes[step.node].pods if step.pod else ():
            if pod.name == step.pod:
                self.delete(step.node, pod)

    def is_rolled_out(self) -> bool:
        living = [machine for machine in self.nodes.values() if machine.powered]
        return all(
            [pod.revision for pod in machine.pods if pod.available and not pod.ending] == [self.revision]
            for machine in living
        )


def world(count: int, most: int = 1) -> World:
    return World({f"n{number}": Machine() for number in range(1, count + 1)}, most)


@settings(max_examples=200)
@given(count=st.integers(2, 5), data=st.data(), rolled=st.booleans())
def test_a_rollout_reaches_every_living_node_whatever_set_of_others_is_off(count, data, rolled):
    cluster = world(count)
    off = data.draw(st.sets(st.sampled_from(sorted(cluster.nodes)), max_size=count - 1))
    order = data.draw(st.permutations(sorted(cluster.nodes)))
    cluster.nodes = {name: cluster.nodes[name] for name in order}  # the controller's order is that of a Go map
    if rolled:
        cluster.revision = 2
    for node in off:
        cluster.cut(node)
    cluster.revision += 1
    for _ in range(60):
        cluster.passes(5)
        for node in cluster.nodes:
            cluster.kubelet(node)
        cluster.controller()
        assert len(cluster.taken) <= 1
        cluster.act(cluster.look())
        assert len(cluster.taken) <= 1
    assert cluster.is_rolled_out()


def test_a_limit_that_was_raised_and_not_lowered_in_time_lets_the_controller_take_two_living_ones():
    """Why the operator steps, and leaves maxUnavailable alone."""

    def rounds(number: int) -> None:
        for _ in range(number):
            cluster.passes(10)
            for node in cluster.nodes:
                cluster.kubelet(node)
            cluster.controller()

    cluster = world(3)
    cluster.cut("n1")
    rounds(12)
    cluster.most = 2
    cluster.boot("n1")
    rounds(3)
    cluster.revision += 1
    cluster.controller()
    assert len(cluster.taken) == 2


class NeverTwoLivingOnesAtOnce(RuleBasedStateMachine):
    """Any order of power cuts, returns, edits, and steps of controller, kubelets and operator, from a cluster on with
    one node off for long. Between the operator's look and its deletion everything may happen that takes no time; a pod
    that starts takes some."""

    @initialize(count=st.integers(2, 4), most=st.integers(1, 2), edited=st.booleans())
    def one_node_is_off_for_long(self, count: int, most: int, edited: bool) -> None:
        self.world = world(count, most)
        self.step = Step("")
        self.world.cut("n1")
        self.world.revision += edited
        for _ in range(12):
            self.everybody_but_the_operator(10.0)

    @rule(node=NODES)
    def cut(self, node: str) -> None:
        if node in self.world.nodes:
            self.world.cut(node)

    @rule(node=NODES)
    def boot(self, node: str) -> None:
        if node in self.world.nodes and not self.world.nodes[node].powered:
            self.world.boot(node)

    @rule(node=NODES)
    def kubelet(self, node: str) -> None:
        if node in self.world.nodes:
            self.world.kubelet(node)

    @rule()
    def controller(self) -> None:
        self.world.controller()

    @rule()
    def edit(self) -> None:
        self.world.revision += 1

    @rule()
    def look(self) -> None:
        self.step = self.world.look()

    @rule()
    def act(self) -> None:
        self.world.act(self.step)
        self.step = Step("")

    @rule()
    def look_and_act(self) -> None:
        self.look()
        self.act()

    @precondition(lambda self: self.step.pod is None)
    @rule(seconds=st.sampled_from([1.0, 3.0, 70.0]))
    def everybody_but_the_operator(self, seconds: float) -> None:
        self.world.passes(seconds)
        for node in self.world.nodes:
            self.world.kubelet(node)
        self.world.controller()

    @invariant()
    def as_many_living_ones_are_taken_as_the_user_allows(self) -> None:
        assert len(self.world.taken) <= self.world.most


TestNeverTwoLivingOnesAtOnce = NeverTwoLivingOnesAtOnce.TestCase
TestNeverTwoLivingOnesAtOnce.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
