"""A change of this node's member: the static pod is replaced, and restored if the member is not healthy with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
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


@dataclass
class Node:
    """A node whose kubelet takes some looks to start and stop what its static pods say."""

    works: bool
    pods: set[str] = field(default_factory=lambda: {"former"})
    runs: set[str] = field(default_factory=lambda: {"former"})
    starts: int = 0
    noted: Change | None = field(default_factory=lambda: Change("r", {"name": "former"}, {"name": "wanted"}))

    def kubelet(self) -> None:
        for name in set(self.runs) - self.pods:
            self.runs.discard(name)
        for name in self.pods - self.runs:
            if name == "former" or self.works:
                self.runs.add(name)
            else:
                self.starts += 1

    def look(self) -> Seen:
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
            case Action.DONE | Action.GIVE_UP:
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
