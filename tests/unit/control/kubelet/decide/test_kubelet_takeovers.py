"""Whose hosted kubelet takes over next, whatever nodes report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autarky.control.kubelet.decide import takeovers
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.pools import Pool
from autarky.control.kubelet.decide.standing import HELD_SECONDS
from autarky.control.kubelet.decide.takeovers import (
    LATE_SECONDS,
    STOPS_SECONDS,
    Decision,
    Memory,
    Situation,
    at_work,
    is_behind,
    set_once_more,
)
from autarky.control.kubelet.decide.turns import Node
from autarky.control.rollout.decide.failures import EXPIRES_SECONDS
from autarky.control.upgrade.decide.absent import Lacking
from unit.control.kubelet.decide.turns_scene import V36, V37, node
from unit.control.kubelet.decide.turns_scene import turns as ordered_turns


def pod(name: str, number: int = 1) -> str:
    return f"{name.encode().hex()}-{number}"


def hosted(name: str, state: State = State.WAITING, number: int = 1, turn: bool | str = False, **changes: Any) -> Node:
    """A node whose host has what is wanted, with that to say of its hosted kubelet. turn: its pod's, or whose."""
    said = Report(pod(name, number), V37, state, "why" if state is State.FAILED else "")
    found = replace(node(name, V37), hosted=said, turn=turn if isinstance(turn, str) else said.pod if turn else "")
    return replace(found, **changes)


def seen(*nodes: Node, **changes: Any) -> Situation:
    """Each node has the DaemonSet's pods 1 and 2."""
    return replace(Situation(nodes, {one.name: {pod(one.name), pod(one.name, 2)} for one in nodes}), **changes)


def decide(*nodes: Node, memory: Memory | None = None, now: float = 100.0, **changes: Any) -> Decision:
    return takeovers.decide(seen(*nodes, **changes), memory or Memory(), now)


# --- control nodes ------------------------------------------------------------------------------------------


def test_one_control_node_after_the_other_gets_its_turn():
    first = decide(hosted("c1"), hosted("c2"))
    assert first.given == {"c1": pod("c1")}
    assert first.waits == {"c2": "control node c1 has its turn"}
    assert decide(hosted("c1", State.IN_FORCE, turn=True), hosted("c2")).given == {"c2": pod("c2")}


@pytest.mark.parametrize("state", [State.WAITING, State.PROVING])
def test_while_its_trial_has_not_ended_no_other_control_node_has_one_however_long_that_takes(state):
    nodes = [hosted("c1", state, turn=True), hosted("c2")]
    memory = decide(*nodes).memory
    assert decide(*nodes, memory=memory, now=100 + 10 * LATE_SECONDS).given == {}


def test_one_that_is_proving_keeps_its_turn_also_when_its_pod_is_gone():
    assert decide(hosted("c1", State.PROVING, turn=True), hosted("c2"), pods={"c2": {pod("c2")}}).given == {}
    waits = hosted("c1", turn=True)
    assert decide(waits, hosted("c2"), pods={"c2": {pod("c2")}}).given == {"c2": pod("c2")}, "nothing can be tried"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"serves": False}, "control node c2 is not seen to serve"),
        ({"ready": False}, "control node c2 is not seen to serve"),
        ({"ready": False, "away": True, "serves": False}, ""),
    ],
)
def test_all_other_control_nodes_serve_and_are_ready_but_for_one_that_is_off(other, why):
    nodes = [hosted("c1"), hosted("c2", State.IN_FORCE, **other), hosted("c3", State.IN_FORCE)]
    assert decide(*nodes).waits == ({"c1": why} if why else {})


def test_of_two_control_nodes_none_changes_while_the_other_one_is_off():
    assert decide(hosted("c1"), hosted("c2", ready=False, away=True, serves=False)).given == {}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"busy": "etcd's members are changing"}, "etcd's members are changing"),
        ({"changing": {"c2"}}, "the kubelet of control node c2 changes"),
        ({"changing": {"c1"}}, "its host's kubelet changes"),
        ({"paused": True}, "spec.paused is true"),
        ({"moves": True}, "the control plane comes first"),
    ],
)
def test_nothing_else_is_at_work_on_the_control_plane(changes, why):
    assert decide(hosted("c1"), hosted("c2", State.IN_FORCE), **changes).waits == {"c1": why}


# --- who gets none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [
        hosted("w1", ready=False),
        hosted("w1", hosted=None),
        hosted("w1", number=3),
        hosted("w1", turn=True),
        *(hosted("w1", state) for state in State if state is not State.WAITING),
    ],
)
def test_only_a_pod_that_is_there_and_waits_on_a_ready_node_gets_a_turn(one):
    assert decide(one).given == {}
    assert decide(hosted("w1")).given == {"w1": pod("w1")}


def test_another_pod_gets_another_turn():
    assert decide(hosted("w1", number=2, turn=pod("w1"))).given == {"w1": pod("w1", 2)}


def test_where_the_level_is_not_hosted_turns_are_taken_back():
    decision = decide(hosted("c1", turn=True), hosted("w1"), hosted("w2", State.IN_FORCE, turn=True), hosted=False)
    assert (decision.over, decision.given) == (("c1", "w2"), {})
    assert decide(hosted("c1", State.IN_FORCE, turn=True), hosted("w1", hosted=None, turn="0" * 8)).over == ()


# --- workers ------------------------------------------------------------------------------------------------


def test_of_a_pool_as_many_as_it_says_have_their_turn_beside_control_nodes():
    edge = Pool("edge", at_once=2)
    nodes = [hosted("c1"), hosted("w1"), hosted("w2"), *(hosted(f"e{n}", pool=edge) for n in (1, 2, 3))]
    assert decide(*nodes).given.keys() == {"c1", "w1", "e1", "e2"}


def test_a_worker_that_does_not_come_to_an_end_loses_its_place_to_the_next():
    nodes = [hosted("w1", State.PROVING, turn=True), hosted("w2")]
    first = decide(*nodes)
    assert first.waits == {"w2": "w1 has its turn"}
    assert decide(*nodes, memory=first.memory, now=100 + LATE_SECONDS - 1).given == {}
    assert decide(*nodes, memory=first.memory, now=100 + LATE_SECONDS).given == {"w2": pod("w2")}


def test_one_that_failed_stops_workers_of_its_pool_and_of_its_version_alone():
    failed, other = hosted("w1", State.FAILED), Pool("edge")
    nodes = [failed, hosted("w2"), hosted("w3", pool=other), hosted("c1")]
    decision = decide(*nodes)
    assert decision.given.keys() == {"w3", "c1"}
    assert decision.waits == {"w2": "w1 failed before"}
    assert {name: said.why for name, said in decision.failed.items()} == {"w1": "why"}
    older = replace(failed, hosted=Report(pod("w1"), V36, State.FAILED))
    assert decide(older, hosted("w2")).given == {"w2": pod("w2")}
    assert decide(hosted("w1", State.FAILED, number=3), hosted("w2")).given == {"w2": pod("w2")}, "its pod is gone"


def test_one_that_failed_stops_pods_of_its_own_revision_alone():
    """A pod of a former template may stay where it is forever, also with the same version in it."""
    for name, other in (("w1", "w2"), ("c1", "c2")):
        nodes = [hosted(name, State.FAILED), hosted(other)]
        assert decide(*nodes, revisions={pod(name): "former", pod(other): "wanted"}).given == {other: pod(other)}
        assert decide(*nodes, revisions={pod(name): "wanted", pod(other): "wanted"}).given == {}


def of_one_revision(*nodes: Node) -> dict[str, Any]:
    return {"revisions": {pod(one.name, number): "wanted" for one in nodes for number in (1, 2)}}


def test_a_worker_that_failed_stops_its_pool_for_a_while_whatever_else_it_says_and_a_control_node_for_ever():
    """It says so of one pod after the other, and waits in between."""
    memory, others = Memory(), [hosted("w2"), hosted("w3")]
    for step, (state, number) in enumerate([(State.FAILED, 1), (State.WAITING, 1), (State.FAILED, 2)] * 30):
        one = hosted("w1", state, number, turn=pod("w1", number))
        given = of_one_revision(one, *others)
        decision = decide(one, *others, memory=memory, now=100 + 10.0 * step, paused=state is State.WAITING, **given)
        memory = decision.memory
        assert (decision.given == {}) is (state is State.WAITING or 10 * step < STOPS_SECONDS)
        if decision.given:
            break
    assert 10 * step in (STOPS_SECONDS, STOPS_SECONDS + 10)
    control = [hosted("c1", State.FAILED), hosted("w2")]
    memory = decide(*control, **of_one_revision(*control)).memory
    assert decide(*control, memory=memory, now=100 + 10 * STOPS_SECONDS, **of_one_revision(*control)).given == {}


def test_another_revision_that_fails_there_stops_them_again():
    nodes = [hosted("w1", State.FAILED), hosted("w2")]
    memory = decide(*nodes, revisions={pod("w1"): "a", pod("w2"): "a"}).memory
    later, former, wanted = 100 + STOPS_SECONDS, {pod("w1"): "a", pod("w2"): "a"}, {pod("w1"): "b", pod("w2"): "b"}
    assert decide(*nodes, memory=memory, now=later, revisions=former).given != {}
    assert decide(*nodes, memory=memory, now=later, revisions=wanted).given == {}


@pytest.mark.parametrize("meanwhile", [State.IN_FORCE, State.FAILED, State.REFUSED])
def test_a_workers_turn_that_has_ended_never_counts_again(meanwhile):
    nodes = [hosted("w1", State.PROVING, turn=True), hosted("w2")]
    first = decide(*nodes)
    assert (first.given, first.clocks_run) == ({}, True)
    memory = takeovers.decide(seen(hosted("w1", meanwhile, turn=True)), first.memory, 101.0).memory
    assert decide(*nodes, memory=memory, now=102.0).given == {"w2": pod("w2")}
    alone = decide(nodes[0], memory=memory, now=102.0)
    assert not alone.clocks_run, "nobody looks again and again"


@pytest.mark.parametrize("blink", [hosted("w1", number=2, turn=pod("w1")), hosted("w1", hosted=None, turn=pod("w1"))])
def test_no_other_report_for_a_moment_renews_a_workers_turn(blink):
    nodes = [hosted("w1", State.PROVING, turn=True), hosted("w2")]
    memory = decide(*nodes).memory
    memory = takeovers.decide(seen(blink, paused=True), memory, 100 + LATE_SECONDS - 1).memory
    assert decide(*nodes, memory=memory, now=100 + LATE_SECONDS).given == {"w2": pod("w2")}


def test_a_control_node_that_failed_stops_all_of_its_version():
    nodes = [hosted("c1", State.FAILED), hosted("c2"), hosted("w1"), hosted("w2", pool=Pool("edge"))]
    assert decide(*nodes).given == {}
    assert set(decide(*nodes).waits.values()) == {"c1 failed before"}


def test_a_control_node_that_is_off_with_its_turn_gives_it_to_the_next_one():
    off = replace(hosted("c1", turn=True), ready=False, away=True, serves=False)
    nodes = [off, hosted("c2"), hosted("c3")]
    found = decide(*nodes)
    assert (found.given, found.over) == ({"c2": pod("c2")}, ("c1",))
    back = replace(off, ready=True, away=False, serves=True)
    assert decide(back, hosted("c2"), hosted("c3")).given == {}


# --- what was written ---------------------------------------------------------------------------------------


def test_what_was_written_and_is_not_seen_yet_counts_and_is_written_once_more():
    nodes = [hosted("c1"), hosted("c2")]
    memory = decide(*nodes).memory
    again = decide(*nodes, memory=memory, now=101.0)
    assert again.given == {"c1": pod("c1")}
    assert decide(*nodes, memory=memory, now=101.0, paused=True).given == {}
    unready = [hosted("c1", ready=False), hosted("c2")]
    assert decide(*unready, memory=memory, now=101.0).given == {}, "it may have its turn"
    arrived = decide(hosted("c1", State.IN_FORCE, turn=True), hosted("c2"), memory=memory, now=102.0)
    assert arrived.memory.written == {"c2": pod("c2")}


# --- orders wait --------------------------------------------------------------------------------------------


def test_no_order_is_written_for_a_control_node_beside_a_trial_but_for_one_that_does_not_end():
    nodes = [hosted("c1"), hosted("w1", State.PROVING, turn=True), hosted("c2", State.IN_FORCE, turn=True)]
    assert at_work(seen(*nodes), Memory(), 0.0) == ""
    memory = decide(*nodes).memory
    assert "control node c1 takes over" in at_work(seen(*nodes), memory, 101.0), "it was written just now"
    nodes[0] = hosted("c1", State.PROVING, turn=True)
    memory = decide(*nodes, memory=memory, now=102.0).memory
    assert "control node c1 takes over" in at_work(seen(*nodes), memory, 100 + LATE_SECONDS - 1)
    assert at_work(seen(*nodes), memory, 100 + LATE_SECONDS) == ""
    assert at_work(seen(replace(nodes[0], away=True)), memory, 103.0) == ""
    assert at_work(seen(hosted("c1", turn=True), pods={}), Memory(), 0.0) == "", "what is gone cannot take over"


# --- the image ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "behind"),
    [
        ("autarky.dev/kubelet:v1.36.4", True),
        ("autarky.dev/kubelet:v1.38.0", True),
        ("autarky.dev/kubelet:v1.37.1", False),
        ("autarky.dev/kubelet:latest", False),
        ("autarky.dev/kubelet", False),
        ("mine.example/kubelet:v1.36.4", False),
        ("autarky.dev/kubelet:v1.36.4@sha256:00", False),
        ("", False),
    ],
)
def test_an_image_of_ours_follows_up_and_down_and_any_other_stays(image, behind):
    assert is_behind(image, V37) is behind


def first(
    *nodes: Node, memory: Lacking | None = None, now: float = 0.0, **more: Any
) -> tuple[Lacking | None, set[str]]:
    control = [one.name for one in nodes if one.control]
    found = ordered_turns(*nodes)
    memory, names = takeovers.hosts_first(found, control, memory, now, drain_seconds=100)
    return memory, set(names)


def test_hosts_come_first_but_for_those_that_are_off_or_have_failed():
    assert first(node("c1"), node("w1"), node("w2", V37))[1] == {"c1", "w1"}
    assert first(node("c1", ready=False, away=True), node("w1", ready=False, away=True))[1] == set()
    assert first(node("c1", V37), node("w1", V37))[1] == set()


def test_control_nodes_are_waited_for_and_workers_while_they_come_to_an_end():
    nodes = [node("c1"), node("w1")]
    memory, names = first(*nodes)
    assert first(*nodes, memory=memory, now=HELD_SECONDS + 99)[1] == names == {"c1", "w1"}
    assert first(*nodes, memory=memory, now=HELD_SECONDS + 100)[1] == {"c1"}


# --- whatever is reported -----------------------------------------------------------------------------------

LIES = st.builds(
    lambda number, state, turn: (number, state, turn),
    st.integers(1, 3),
    st.sampled_from(State),
    st.integers(0, 3),
)


def lying(name: str, lie: tuple[int, State, int], **changes: Any) -> Node:
    number, state, turn = lie
    return hosted(name, state, number, pod(name, turn) if turn else "", **changes)


@given(
    st.lists(st.tuples(LIES, st.booleans()), min_size=1, max_size=3),
    st.lists(st.tuples(LIES, st.booleans()), max_size=3),
    st.floats(0, 1000),
)
def test_no_worker_has_any_say_in_a_control_nodes_turn(control, workers, now):
    ours = [lying(f"c{n}", lie, ready=ready) for n, (lie, ready) in enumerate(control)]
    theirs = [lying(f"w{n}", lie, ready=ready) for n, (lie, ready) in enumerate(workers)]
    alone, beside = decide(*ours, now=now), decide(*ours, *theirs, now=now)
    names = {one.name for one in ours}

    def of_control(found: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in found.items() if name in names}

    assert of_control(dict(beside.given)) == dict(alone.given)
    assert of_control(dict(beside.waits)) == dict(alone.waits)
    assert at_work(seen(*ours, *theirs), beside.memory, now) == at_work(seen(*ours), alone.memory, now)
    assert len(alone.given) <= 1


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([s for s in State if s is not State.FAILED])), min_size=1))
def test_a_lying_worker_keeps_the_next_one_of_its_pool_for_no_longer_than_that(lies: Sequence[tuple[int, State]]):
    memory, turn, now = Memory(), "", 0.0
    while now <= LATE_SECONDS:
        number, state = lies[int(now / 20) % len(lies)]
        decision = decide(hosted("w1", state, number, turn=turn), hosted("w2"), memory=memory, now=now)
        if "w2" in decision.given:
            return
        memory, turn, now = decision.memory, decision.given.get("w1", turn), now + 20
    pytest.fail("the other one never got its turn")


ACTS = st.sampled_from([None, *State])
TRIAL, LOOK = 20.0, 10.0


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 2),
    st.lists(st.lists(st.tuples(ACTS, st.booleans()), min_size=1, max_size=6), min_size=1, max_size=3),
)
@example(1, [[(State.WAITING, False)] * 29 + [(State.IN_FORCE, False)]])  # a new turn for each, if that renewed it
def test_each_lying_worker_costs_each_honest_one_of_its_pool_its_time_once(at_once: int, lies: Any):
    """A liar says anything, of pods that it has made again as often as it likes."""
    group = Pool("edge", at_once=at_once)
    liars, honest = [f"a{n}" for n in range(len(lies))], ["b1", "b2", "b3"]
    numbers = dict.fromkeys((*liars, *honest), 1)
    states = dict.fromkeys(honest, State.WAITING)
    turns, began, memory, now = dict[str, str](), dict[str, float](), Memory(), 0.0
    stops = sum(any(state is State.FAILED for state, _ in acts) for acts in lies)
    limit = len(liars) * LATE_SECONDS + stops * STOPS_SECONDS + len(honest) * (TRIAL + 2 * LOOK) + 4 * LOOK
    while not all(state is State.IN_FORCE for state in states.values()):
        assert now <= limit, f"only {sorted(began)} got their turns"
        said = dict[str, State | None](states)
        for name, acts in zip(liars, lies, strict=True):
            said[name], again = acts[int(now / LOOK) % len(acts)]
            numbers[name] += again
        nodes = [
            replace(
                hosted(name, state or State.WAITING, numbers[name], turns.get(name, ""), pool=group),
                **({"hosted": None} if state is None else {}),
            )
            for name, state in said.items()
        ]
        pods = {name: {pod(name, number)} for name, number in numbers.items()}
        revisions = {uid: "wanted" for there in pods.values() for uid in there}
        decision = takeovers.decide(Situation(nodes, pods, revisions), memory, now)
        memory = decision.memory
        turns |= decision.given
        for name in honest:
            if states[name] is State.WAITING and turns.get(name) == pod(name):
                states[name], began[name] = State.PROVING, now
            elif states[name] is State.PROVING and now - began[name] >= TRIAL:
                states[name] = State.IN_FORCE
        now += LOOK


class Takeovers(RuleBasedStateMachine):
    """Operators that are killed, and see Nodes late; honest agents of control nodes; one worker that says anything."""

    @initialize()
    def begins(self) -> None:
        self.nodes = {name: hosted(name) for name in ("c1", "c2", "c3", "w1", "w2")}
        self.shown = dict(self.nodes)
        self.memory, self.now = Memory(), 0.0
        self.numbers = dict.fromkeys(self.nodes, 1)

    def _seen(self, nodes: dict[str, Node]) -> Situation:
        pods = {name: {pod(name, number)} for name, number in self.numbers.items()}
        return Situation(list(nodes.values()), pods)

    @rule(seconds=st.sampled_from([1.0, 20.0, LATE_SECONDS]), arrives=st.booleans())
    def operator_decides(self, seconds: float, arrives: bool) -> None:
        self.now += seconds
        decision = takeovers.decide(self._seen(self.shown), self.memory, self.now)
        self.memory = decision.memory
        may = all(self._is_written(name, "", arrives) for name in decision.over)
        for name, uid in decision.given.items():
            assert self.shown[name].ready
            if self.shown[name].control:
                assert all(one.ready or one.away for one in self.shown.values() if one.control)
            if may or not self.shown[name].control:
                self._is_written(name, uid, arrives)

    def _is_written(self, name: str, turn: str, arrives: bool) -> bool:
        """Under the resourceVersion that was seen."""
        if not arrives or self.shown[name] != self.nodes[name]:
            return False
        self.nodes[name] = replace(self.nodes[name], turn=turn)
        return True

    @rule(name=st.sampled_from(["c1", "c2", "c3", "w1", "w2"]))
    def operator_hears_of(self, name: str) -> None:
        self.shown[name] = self.nodes[name]

    @rule()
    def another_operator_leads(self) -> None:
        self.shown, self.memory = dict(self.nodes), Memory()

    @rule(name=st.sampled_from(["c1", "c2", "c3"]), good=st.booleans())
    def agent_goes_on(self, name: str, good: bool) -> None:
        one = self.nodes[name]
        assert one.hosted is not None
        if one.hosted.state is State.WAITING and one.turn == one.hosted.pod:
            self._says(name, State.PROVING)
        elif one.hosted.state is State.PROVING:
            self._says(name, State.IN_FORCE if good else State.FAILED)

    @rule(name=st.sampled_from(["c1", "c2", "c3"]))
    def gets_another_pod(self, name: str) -> None:
        self.numbers[name] += 1
        said = Report(pod(name, self.numbers[name]), V37, State.WAITING)
        self.nodes[name] = replace(self.nodes[name], hosted=said)

    @rule(name=st.sampled_from(["c1", "c2", "c3", "w1"]), ready=st.booleans(), away=st.booleans())
    def node_is(self, name: str, ready: bool, away: bool) -> None:
        self.nodes[name] = replace(self.nodes[name], ready=ready, away=away and not ready)

    @rule(lie=LIES)
    def worker_lies(self, lie: tuple[int, State, int]) -> None:
        self.nodes["w1"] = replace(self.nodes["w1"], hosted=lying("w1", lie).hosted)

    def _says(self, name: str, state: State) -> None:
        said = self.nodes[name].hosted
        assert said is not None
        self.nodes[name] = replace(self.nodes[name], hosted=replace(said, state=state))

    @invariant()
    def one_control_node_at_a_time(self) -> None:
        tried = [
            name
            for name, one in self.nodes.items()
            if one.control and one.hosted is not None and one.turn == one.hosted.pod
            if one.hosted.state in (State.WAITING, State.PROVING)
        ]
        assert len(tried) <= 1


TestTakeovers = Takeovers.TestCase


# --- the image -------------------------------------------------------------------------------------------------------


def test_it_is_set_once_more_later_each_time_within_the_hour_and_of_the_same_version() -> None:
    found, delays = set_once_more(None, V37, 0.0), list[float]()
    for _ in range(8):
        delays.append(found.again_at() - found.last)
        found = set_once_more(found, V37, found.last + EXPIRES_SECONDS - 1)
    assert delays == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert set_once_more(found, V37, found.last + EXPIRES_SECONDS).times == 1
    assert set_once_more(found, V36, found.last + 1).times == 1
