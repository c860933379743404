"""A change of this node's member: the static pod is replaced, and restored if the member is not healthy with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky.control.etcd.decide.change import (
    END_SECONDS,
    LIMIT,
    STARTS,
    Action,
    Change,
    Decision,
    Memory,
    Seen,
    decide,
)
from autarky.control.etcd.decide.local import LOST_SECONDS, Data

QUIET = Seen(back=False, in_place=True, others=False, running=True, former_runs=False, starts=1, ready=False)


def seen(**values: object) -> Seen:
    return Seen(**{**{name: getattr(QUIET, name) for name in Seen.__slots__}, **values})


def test_the_former_static_pod_goes_first_and_the_new_one_comes_when_its_process_has_exited() -> None:
    assert decide(seen(in_place=False, others=True, former_runs=True), Memory(), 0).action is Action.REMOVE
    waits = decide(seen(in_place=False, former_runs=True), Memory(), 10)
    assert waits.action is Action.NOTHING
    assert decide(seen(in_place=False, former_runs=False), waits.memory, 11).action is Action.PUT
    assert decide(seen(in_place=False, former_runs=True), waits.memory, 10 + END_SECONDS).action is Action.PUT


def test_it_is_done_when_the_new_process_alone_runs_and_serves() -> None:
    assert decide(seen(ready=True), Memory(), 0).action is Action.DONE
    assert decide(seen(ready=True, former_runs=True), Memory(), 0).action is Action.NOTHING
    assert decide(seen(ready=True, running=False), Memory(), 0).action is Action.NOTHING
    assert decide(seen(ready=True, back=True), Memory(), 0).action is Action.GIVE_UP


def test_it_goes_back_when_it_exits_again_and_again_or_is_not_healthy_in_time() -> None:
    exits = decide(seen(running=False, starts=STARTS), Memory(), 0)
    assert exits.action is Action.GO_BACK
    assert "exited each time" in exits.why
    hangs = decide(seen(), Memory(), 0)
    assert hangs.action is Action.NOTHING
    assert decide(seen(), hangs.memory, LIMIT - 1).action is Action.NOTHING
    assert decide(seen(), hangs.memory, LIMIT).action is Action.GO_BACK


def test_on_its_way_back_it_waits_for_as_long_as_it_takes() -> None:
    waits = decide(seen(back=True, running=False, starts=9), Memory(), 0)
    assert waits.action is Action.NOTHING
    assert decide(seen(back=True, running=False, starts=9), waits.memory, 10 * LIMIT).action is Action.NOTHING


def test_rule_2_what_cannot_be_seen_changes_nothing() -> None:
    for unseen in ("in_place", "running", "former_runs"):
        assert decide(seen(others=True, **{unseen: None}), Memory(), 999).action is Action.NOTHING


MINE, CLUSTER = 5, 7
OWNED = {"member": MINE, "cluster": CLUSTER, "data": Data(MINE, CLUSTER, anything=True)}
LISTED = {"listed": frozenset({1, MINE}), "of_cluster": CLUSTER}


def test_it_goes_on_with_the_member_that_etcd_lists() -> None:
    for back in (True, False):
        absent = seen(in_place=False, running=False, back=back, **OWNED, **LISTED)
        assert decide(absent, Memory(), 0).action is Action.PUT


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize(
    "ended",
    [
        {"listed": frozenset({1, 2}), "of_cluster": CLUSTER},
        {"data": Data(9, CLUSTER, anything=True)},
        {"data": Data(MINE, 8, anything=True)},
    ],
)
def test_a_change_ends_with_its_member_wherever_it_is(ended: dict[str, object], back: bool) -> None:
    for state in ({}, {"others": True}, {"in_place": False}, {"running": False, "starts": 50}, {"ready": True}):
        values = {**OWNED, "back": back, **ended, **state}
        assert decide(seen(**values), Memory(), 0).action is Action.DROP


def test_rule_2_what_is_said_of_another_etcd_or_by_nobody_ends_nothing() -> None:
    for said in ({}, {"listed": frozenset({1}), "of_cluster": 8}, {"data": None}):
        values = {**OWNED, "in_place": False, "running": False, **said}
        assert decide(seen(**values), Memory(), 1e6).action is Action.PUT


def test_a_note_of_an_earlier_release_names_nobody_whose_data_this_could_not_be() -> None:
    """Its disk may come while the agent looks."""
    unnamed = {**OWNED, "member": None, "cluster": None, "in_place": False, "running": False}
    assert decide(seen(**unnamed, **LISTED), Memory(), 0).action is Action.PUT


GONE = {**OWNED, "data": Data(), "in_place": False, "running": False}


def test_rule_3_without_data_nothing_is_put_in_place_and_when_it_stays_away_the_change_ends() -> None:
    first = decide(seen(**GONE, **LISTED), Memory(), 0)
    assert first.action is Action.NOTHING
    for known, now, action in ((LISTED, LOST_SECONDS - 1, Action.NOTHING), ({}, 1e6, Action.NOTHING)):
        assert decide(seen(**GONE, **known), first.memory, now).action is action
    assert decide(seen(**GONE, **LISTED), first.memory, LOST_SECONDS).action is Action.DROP
    elsewhere = {"listed": frozenset({1}), "of_cluster": 8}
    assert decide(seen(**GONE, **elsewhere), first.memory, LOST_SECONDS).action is Action.DROP
    back = decide(seen(**{**GONE, "data": OWNED["data"]}, **LISTED), first.memory, LOST_SECONDS)
    assert (back.action, back.memory.missed) == (Action.PUT, None)


def test_data_does_not_count_as_missing_while_a_process_runs_or_nobody_knows() -> None:
    for runs in ({"running": True}, {"running": None}, {"former_runs": True}, {"former_runs": None}):
        values = {**GONE, **LISTED, "in_place": True, **runs}
        assert decide(seen(**values), Memory(missed=0.0), 1e6).action is not Action.DROP


@dataclass
class Node:
    """A node whose kubelet takes some looks to start and stop what its static pods say. disk, listed: whose data there
    is, and who is a member, of which etcd."""

    works: bool
    pods: set[str] = field(default_factory=lambda: {"former"})
    runs: set[str] = field(default_factory=lambda: {"former"})
    starts: int = 0
    noted: Change | None = field(
        default_factory=lambda: Change("r", {"name": "former"}, {"name": "wanted"}, member=MINE, cluster=CLUSTER)
    )
    disk: Data = field(default_factory=lambda: Data(MINE, CLUSTER, anything=True))
    listed: frozenset[int] = frozenset({1, MINE})
    of_cluster: int = CLUSTER

    def happens(self, event: str) -> None:
        match event:
            case "removed":
                self.listed = frozenset({1, 2})
            case "replaced":  # a recovery has made another etcd of its data, which runs
                self.disk, self.listed, self.of_cluster = Data(9, 8, anything=True), frozenset({9}), 8
                self.pods = {"founded again"}
            case "aside":  # a recovery has moved its data aside, and it has not joined again yet
                self.disk, self.listed, self.of_cluster, self.pods = Data(anything=True), frozenset({9}), 8, set()

    def lives(self, pod: str) -> bool:
        if self.of_cluster != CLUSTER:
            return pod == "founded again"
        return MINE in self.listed and (pod == "former" or self.works)

    def kubelet(self) -> None:
        for name in set(self.runs) - self.pods:
            self.runs.discard(name)
        self.runs = set(filter(self.lives, self.runs))
        for name in self.pods - self.runs:
            if self.lives(name):
                self.runs.add(name)
            else:
                self.starts += 1

    def look(self, *, lists: bool = True) -> Seen:
        assert self.noted is not None
        target = self.noted.target["name"]
        return Seen(
            back=self.noted.back,
            in_place=target in self.pods,
            others=bool(self.pods - {target}),
            running=target in self.runs,
            former_runs=bool(self.runs - {target}),
            starts=self.starts if target == "wanted" else 0,
            ready=bool(self.runs),
            member=self.noted.member,
            cluster=self.noted.cluster,
            data=self.disk,
            listed=self.listed if lists else None,
            of_cluster=self.of_cluster if lists else None,
        )

    def act(self, decision: Decision) -> None:
        assert self.noted is not None
        target = self.noted.target["name"]
        match decision.action:
            case Action.REMOVE:
                self.pods &= {target}
            case Action.PUT:
                self.pods.add(target)
            case Action.GO_BACK:
                self.noted = self.noted.going_back(decision.why)
            case Action.DONE | Action.GIVE_UP | Action.DROP:
                self.noted = None


@given(st.booleans(), st.lists(st.sampled_from(["agent", "kubelet", "killed"]), max_size=60))
def test_rule_5_killed_anywhere_it_ends_with_one_that_serves_and_never_two(works: bool, steps: list[str]) -> None:
    """Never two static pods, and with a template that does not work the former one is back."""
    node, memory, now = Node(works), Memory(), 0.0
    for step in [*steps, *["agent", "kubelet"] * 40]:
        now += 1
        if step == "killed":
            memory = Memory()
        elif step == "kubelet":
            node.kubelet()
        elif node.noted is not None:
            decision = decide(node.look(), memory, now)
            memory = decision.memory
            node.act(decision)
        assert len(node.pods) <= 1
        assert len(node.runs) <= 1
    assert node.noted is None
    assert node.runs == node.pods == ({"wanted"} if works else {"former"})


EVENTS = st.sampled_from(["removed", "replaced", "aside"])
TURNS = st.lists(st.sampled_from(["agent", "kubelet", "killed"]), max_size=30)


@example(True, "aside", ["agent", "kubelet", "agent", "kubelet"], [], False)
@given(st.booleans(), EVENTS, TURNS, TURNS, st.booleans())
def test_rules_3_and_5_removed_or_replaced_anywhere_in_it_the_change_ends_and_touches_nothing_more(
    works: bool, event: str, before: list[str], after: list[str], lists: bool
) -> None:
    """lists: whether the agent hears etcd's list in each look, or in each third one."""
    node, memory, now, looks, put = Node(works), Memory(), 0.0, 0, False
    for step in [*before, event, *after, *["agent", "kubelet"] * 60]:
        now += 1
        if step == event:
            node.happens(event)
            left = set(node.pods)
        elif step == "killed":
            memory = Memory()
        elif step == "kubelet":
            node.kubelet()
        elif node.noted is not None:
            looks += 1
            decision = decide(node.look(lists=lists or looks % 3 == 0), memory, now)
            memory = decision.memory
            node.act(decision)
            put = put or (node.of_cluster != CLUSTER and node.pods != left)
        assert len(node.pods) <= 1
    assert node.noted is None
    assert not put, "of another etcd"
