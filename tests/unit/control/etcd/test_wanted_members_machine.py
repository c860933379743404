"""Mistakes on all labels, lists and EtcdMembers at once, with an operator that may be killed after any write.

Both decisions run as in the operator: which nodes leave, and which members follow. etcd confirms one removal at a
time, or none for long; it takes away whoever it is told to, the last one as well.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autarky.control.control_nodes.decide import roles as control_nodes
from autarky.control.control_nodes.decide.observed import LEAVE, READY, Member, Node, OwnNode, Record, State
from autarky.control.control_nodes.decide.procedure import Step
from autarky.control.etcd.decide import wanted as etcd_wanted
from autarky.control.etcd.decide.wanted import ControlNode, Existing, InForce, Wanted, Write

NAMES = ("n1", "n2", "n3", "n4")
TYPOS = ("n9", "nl", "worker")
ONE = st.sampled_from(NAMES)
REPORTED = f"{READY}1"


@dataclass(frozen=True)
class While:
    """on: the machines that members can start on. confirmed: whether etcd removes whom it is told to."""

    rounds: int
    on: set[str]
    confirmed: bool


SOME = st.sets(ONE) | ONE.map(lambda name: {name}) | st.just(set(NAMES))
LISTED = st.sampled_from([*NAMES, *TYPOS])
WHILES = st.builds(While, st.sampled_from([0, 1, 4, 12]), SOME, st.booleans())


@dataclass
class Etcd:
    """objects: the EtcdMembers. asked: whom the operator has asked to go and who is a member still."""

    voters: set[str]
    objects: dict[str, Existing] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)


class WantedMembers(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.nodes = {
            name: Node(name, f"uid-{name}", True, True, REPORTED, recorded=Record(f"uid-{name}")) for name in NAMES
        }
        self.silent: set[str] = set()
        self.names: list[str] | None = None
        self.force: InForce | None = InForce(None)
        self.etcd = Etcd(set(NAMES), {name: Existing(name, True, True) for name in NAMES})

    def change(self, name: str, **changes: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **changes)

    # --- mistakes, and some of them meant ---

    @rule(requested=st.booleans(), names=SOME, then=WHILES)
    def label(self, requested: bool, names: set[str], then: While) -> None:
        for name in names:
            self.change(name, requested=requested)
        self.a_while(then)

    @rule(names=st.none() | ONE.map(lambda name: [name]) | st.lists(LISTED, min_size=1, unique=True), then=WHILES)
    def write_a_list(self, names: list[str] | None, then: While) -> None:
        self.names = names
        self.a_while(then)

    @rule()
    def delete_all_etcdmembers(self) -> None:
        self.etcd.objects.clear()
        self.etcd.asked.clear()

    @rule()
    def delete_the_status(self) -> None:
        self.force = None

    @rule(names=st.sets(st.sampled_from(NAMES)), serves=st.booleans())
    def serve(self, names: set[str], serves: bool) -> None:
        self.silent = self.silent - names if serves else self.silent | names

    @rule(name=st.sampled_from(NAMES), ready=st.sampled_from([True, None]))
    def be_seen(self, name: str, ready: bool | None) -> None:
        self.change(name, ready=ready)

    # --- the operator ---

    @rule(writes=st.integers(0, 5))
    def operate(self, writes: int = 99) -> None:
        seen = {node.name: node for node in self.seen()}
        steps = {name: decision.step for name, decision in control_nodes.decide(seen.values()).items()}
        for name, step in list(steps.items())[:writes]:
            self.carry_out(seen[name], step)
        there = [
            ControlNode(name, name, etcd_wanted.standing(steps.get(name), requested=node.requested))
            for name, node in self.nodes.items()
            if node.active
        ]
        unfinished = {name for name in self.nodes if steps.get(name) is not Step.NOTHING}
        found = etcd_wanted.wanted(there, list(self.etcd.objects.values()), self.names, self.force, unfinished)
        for write in found.writes[:writes]:
            self.write(write, found, steps)
        for name in found.forget:
            self.etcd.objects.pop(name)
        self.force = found.in_force

    @rule(then=WHILES)
    def a_while(self, then: While) -> None:
        for _ in range(then.rounds):
            self.operate()
            self.those_that_are_wanted_join(then.on)
            if then.confirmed:
                self.removals_are_refused(False)
                self.one_removal_is_confirmed()
            for name in NAMES:
                self.an_agent_obeys(name)
            self.one_is_asked_to_go_at_a_time()
            self.there_is_a_member_that_stays()

    def seen(self) -> list[Node]:
        nodes = [replace(node, member=self.member(name)) for name, node in self.nodes.items()]
        asked = control_nodes.asked_whether_they_serve(nodes)
        return [
            replace(node, obstacle=None) if node.name in asked and node.name not in self.silent else node
            for node in nodes
        ]

    def member(self, name: str) -> Member:
        """By the object, and where there is none by the pod that runs."""
        existing = self.etcd.objects.get(name)
        there = name in self.etcd.voters if existing is None else not existing.gone
        return Member.THERE if there else Member.NONE

    def carry_out(self, seen: Node, step: Step) -> None:
        match step:
            case Step.MARK | Step.REMEMBER:
                self.change(seen.name, active=True, recorded=Record(seen.uid))
            case Step.GRANT:
                self.change(seen.name, reported=REPORTED, recorded=Record(seen.uid, State.JOINING))
            case Step.RESTORE:
                self.change(seen.name, requested=True)
            case Step.DISMISS:
                assert seen.name not in self.etcd.voters, "rule 3: its member is gone before"
                self.change(seen.name, active=False, reported=LEAVE, recorded=Record(seen.uid, State.DISMISSED))
            case Step.FORGET:
                self.change(seen.name, recorded=None)
            case _:
                pass

    def write(self, write: Write, found: Wanted, steps: dict[str, Step]) -> None:
        existing = self.etcd.objects.get(write.name)
        present = write.present if write.present is not None else existing is not None and existing.present
        if write.present is False:
            if steps.get(write.name) is not Step.REMOVE_MEMBER:
                self.goes_because_of_a_list(write.name, found)
            self.etcd.asked.add(write.name)
        elif present:
            self.etcd.asked.discard(write.name)
        gone = existing is not None and existing.gone and not present
        votes = existing is not None and existing.votes  # a new object says nothing yet
        self.etcd.objects[write.name] = Existing(write.name, present, write.idea, gone, votes=votes)

    def goes_because_of_a_list(self, name: str, found: Wanted) -> None:
        listed = self.force_of(found)
        assert listed is not None
        assert name not in listed
        requested = {one for one in listed if self.nodes[one].active and self.nodes[one].requested}
        assert requested <= self.etcd.voters, "who is listed votes before somebody else goes"

    def force_of(self, found: Wanted) -> tuple[str, ...] | None:
        """The list that is followed, which never names what was no control node when it was first followed."""
        names = None if found.in_force is None else found.in_force.names
        assert names is None or not set(names) & set(TYPOS)
        return names

    # --- etcd and the agents ---

    @rule()
    def one_removal_is_confirmed(self) -> None:
        """Also of one that never came to join."""
        objects = self.etcd.objects
        to_go = sorted(name for name, one in objects.items() if not one.present and not one.gone)
        if to_go:
            self.etcd.voters.discard(to_go[0])
            self.etcd.asked.discard(to_go[0])
            objects[to_go[0]] = replace(objects[to_go[0]], gone=True, blocked=False, votes=False)

    @rule(refused=st.booleans())
    def removals_are_refused(self, refused: bool) -> None:
        for name, existing in self.etcd.objects.items():
            if not existing.present and not existing.gone:
                self.etcd.objects[name] = replace(existing, blocked=refused)

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def those_that_are_wanted_join(self, names: set[str]) -> None:
        """Those of them whose machines are on."""
        for name, existing in self.etcd.objects.items():
            if existing.present and name in names:
                self.etcd.voters.add(name)
                self.etcd.objects[name] = replace(existing, gone=False, blocked=False, votes=True)

    @rule(name=st.sampled_from(NAMES))
    def an_agent_obeys(self, name: str) -> None:
        node = self.nodes[name]
        if OwnNode(node.requested, node.active, node.reported, None).is_dismissed:
            self.change(name, reported=None)

    # --- what holds, and what comes about ---

    @invariant()
    def one_is_asked_to_go_at_a_time(self) -> None:
        assert not hasattr(self, "etcd") or len(self.etcd.asked) <= 1, self.etcd

    @invariant()
    def there_is_a_member_that_stays(self) -> None:
        assert not hasattr(self, "etcd") or self.etcd.voters - self.etcd.asked, self.etcd

    def teardown(self) -> None:
        """Undisturbed, with all healthy and the list corrected, the members are those of the control nodes."""
        if not hasattr(self, "nodes") or sys.exc_info()[0] is not None:
            return
        self.names, self.silent = None, set()
        for name in NAMES:
            self.change(name, ready=True)
        self.a_while(While(60, set(NAMES), confirmed=True))
        active = {name for name, node in self.nodes.items() if node.active}
        assert self.etcd.voters == active, (self.etcd, self.nodes)


WantedMembers.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestWantedMembers = WantedMembers.TestCase
