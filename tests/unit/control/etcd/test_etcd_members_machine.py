"""etcd's membership on a simulated cluster: nodes come, go, crash, lose disks, and any observation may be stale.

The simulated etcd obeys whatever it is reported: it is the decisions that must keep the quorum. Only what no real etcd
would do is left out: it changes nothing without a quorum, and promotes no learner that is not in sync.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import Phase as HypothesisPhase
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from autarky.control.etcd.decide import local as etcd_local
from autarky.control.etcd.decide import membership as etcd_members
from autarky.control.etcd.decide.membership import Decision, decide, quorum
from autarky.model.etcd_members import Desired, Member, Phase, Seen, Verb
from unit.control.machines import run_until_all_ways_are_gone

NODES = ("n1", "n2", "n3", "n4", "n5")
CLUSTER = 7


@dataclass
class Host:
    """up: it has power. disk: the member whose log it has, 0 for an empty directory, None for no directory.
    manifest: the member that the static pod is for, None where there is none. damaged: whether etcd cannot start from
    what the disk has."""

    up: bool = True
    disk: int | None = None
    manifest: int | None = None
    damaged: bool = False
    memory: etcd_local.Memory = field(default_factory=etcd_local.Memory)


@dataclass
class Entry:
    """A member in etcd's list."""

    node: str
    learner: bool
    started: bool


REMOVED = "a member that votes is removed"
REPLACED = "a silent member gives its place to another node"
DAMAGED = "a member with damaged data is removed"
REFUSED = "the quorum keeps a member that is to go"


class Membership(RuleBasedStateMachine):
    ways: ClassVar[Counter[str]] = Counter()
    """What was reached, in all examples together: a rule that never had a chance to be broken is not shown to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.next_id = 100
        self.hosts = {name: Host() for name in NODES}
        self.members: dict[int, Entry] = {}
        self.desired: dict[str, Desired] = {}
        self.leader: int | None = None
        self.memories = {name: etcd_members.Memory() for name in NODES}
        self.old: Seen | None = None
        self.ever_ran: set[int] = set()
        self.asked_to_go: set[int] = set()

    @initialize(count=st.sampled_from([1, 2, 3, 3, 5, 5]))
    def founded(self, count: int) -> None:
        for name in NODES[:count]:
            self.next_id += 1
            self.members[self.next_id] = Entry(name, learner=False, started=True)
            self.hosts[name] = Host(disk=self.next_id, manifest=self.next_id)
            self.ever_ran.add(self.next_id)
            self.desired[name] = Desired(name, name, asked=name)
        self.elect()

    # --- the world ---

    def running(self, member: int) -> bool:
        """etcd runs there as this member: power, static pod and log."""
        host = self.hosts[self.members[member].node]
        return host.up and host.manifest is not None and host.disk == member and not host.damaged

    def voters(self) -> list[int]:
        return [member for member, entry in self.members.items() if not entry.learner]

    def has_quorum(self) -> bool:
        voters = self.voters()
        return sum(self.running(member) for member in voters) >= quorum(len(voters))

    def elect(self) -> None:
        able = [member for member in self.voters() if self.running(member)]
        if not self.has_quorum():
            self.leader = None
        elif self.leader not in able:
            self.leader = able[0]

    def seen_by(self, node: str) -> Seen:
        own = next((m for m, entry in self.members.items() if entry.node == node and self.running(m)), None)
        members = tuple(
            Member(member, entry.node, entry.learner, entry.started, self.running(member))
            for member, entry in self.members.items()
        )
        desired = tuple(
            Desired(w.name, w.address, w.present, w.asked, w.lost, self.hosts[w.name].up, w.reported)
            for w in self.desired.values()
        )
        return Seen(own, self.leader, members, desired)

    # --- what users and machines do ---

    @rule(node=st.sampled_from(NODES), present=st.booleans())
    def requested(self, node: str, present: bool) -> None:
        old = self.desired.get(node)
        lost = None if old is None else old.lost
        self.desired[node] = Desired(node, node, present, asked=f"{self.now}", lost=lost)

    @rule(rounds=st.integers(1, 6))
    def all_are_to_go_at_once(self, rounds: int) -> None:
        """A mistake: then nobody goes, whoever was on the way."""
        for node in NODES:
            if node in self.desired:
                self.requested(node, present=False)
        before = self.voters()
        self.agents_go_on(rounds)
        assert self.voters() == before

    @rule(node=st.sampled_from(NODES))
    def object_deleted(self, node: str) -> None:
        self.desired.pop(node, None)

    @rule(node=st.sampled_from(NODES))
    def power_cut(self, node: str) -> None:
        self.hosts[node].up = False
        self.elect()

    @rule(node=st.sampled_from(NODES))
    def power_back(self, node: str) -> None:
        self.hosts[node].up = True
        self.run_kubelet(node)
        self.elect()

    @rule(node=st.sampled_from(NODES))
    def machine_replaced(self, node: str) -> None:
        """The same name, and nothing on the disk."""
        self.hosts[node] = Host()
        self.elect()

    @rule(node=st.sampled_from(NODES), rounds=st.integers(0, 3))
    def data_damaged(self, node: str, rounds: int) -> None:
        """Its process ends, and cannot start again."""
        self.hosts[node].damaged = bool(self.hosts[node].disk)
        self.elect()
        self.agents_go_on(rounds)

    @rule(seconds=st.sampled_from([1.0, 6.0, 40.0, 160.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @rule(node=st.sampled_from(NODES))
    def agent_restarted(self, node: str) -> None:
        self.memories[node] = etcd_members.Memory()
        self.hosts[node].memory = etcd_local.Memory()

    @rule(node=st.sampled_from(NODES))
    def look_that_comes_late(self, node: str) -> None:
        self.old = self.seen_by(node)

    # --- what agents do ---

    @rule(node=st.sampled_from(NODES), killed=st.booleans())
    def round_of_an_agent(self, node: str, killed: bool) -> None:
        if not self.hosts[node].up:
            return
        self.local_round(node)
        seen = self.seen_by(node)
        decision = decide(seen, self.memories[node], self.now)
        self.memories[node] = etcd_members.Memory() if killed else decision.memory
        self.carry_out(decision)

    @rule(rounds=st.integers(1, 8))
    def agents_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now += 60
            for node in NODES:
                self.round_of_an_agent(node, killed=False)

    @rule(down=st.sets(st.sampled_from(NODES), max_size=2), leaving=st.sampled_from(NODES))
    def some_are_down_while_another_is_to_go(self, down: set[str], leaving: str) -> None:
        """For longer than its clients need to move to others; and then they are back."""
        for node in down:
            self.power_cut(node)
        self.requested(leaving, present=False)
        self.agents_go_on(6)
        for node in down:
            self.power_back(node)

    @rule(down=st.sampled_from(NODES), spare=st.sampled_from(NODES), rounds=st.integers(8, 16))
    def one_is_gone_and_another_waits(self, down: str, spare: str, rounds: int) -> None:
        """For about as long as it takes until it is replaced, and then it is back."""
        self.power_cut(down)
        self.requested(spare, present=True)
        self.agents_go_on(rounds)
        self.power_back(down)

    @rule()
    def all_are_members_again(self) -> None:
        for node in NODES:
            self.power_back(node)
            self.requested(node, present=True)
        self.agents_go_on(8)

    @rule(rounds=st.integers(1, 6))
    def leader_is_to_go(self, rounds: int) -> None:
        if self.leader is not None:
            self.requested(self.members[self.leader].node, present=False)
            self.agents_go_on(rounds)

    @precondition(lambda self: self.old is not None)
    @rule(node=st.sampled_from(NODES))
    def round_on_an_old_sight(self, node: str) -> None:
        """The agent looks again before it acts, so a stale observation decides and a new one forbids."""
        assert self.old is not None
        decision = decide(self.old, etcd_members.Memory(), self.now)
        new = self.seen_by(node)
        same = (new.own, new.leader) == (self.old.own, self.old.leader) and new.desired == self.old.desired
        if same and _list(new) == _list(self.old):
            self.carry_out(decision)

    @rule()
    def unseen_things_change_nothing(self) -> None:
        """Rule 2: unknown is not down."""
        seen = self.seen_by(NODES[0])
        for blind in (
            Seen(seen.own, None, seen.members, seen.desired),
            Seen(seen.own, seen.leader, None, seen.desired),
            Seen(seen.own, seen.leader, seen.members, None),
            Seen(None, seen.leader, seen.members, seen.desired),
        ):
            assert decide(blind, etcd_members.Memory(), self.now).action is None

    def carry_out(self, decision: Decision) -> None:
        for name, reported in decision.reported.items():
            if name in self.desired:
                spec = self.desired[name]
                leaving = reported.phase is Phase.LEAVING
                self.desired[name] = Desired(name, name, spec.present, spec.asked, spec.lost, reported=leaving)
            self.ways[REFUSED] += reported.phase is Phase.BLOCKED and "and etcd needs" in reported.message
        action = decision.action
        if action is None:
            return
        assert self.has_quorum(), "etcd decides nothing without a quorum"
        match action.verb:
            case Verb.ADD:
                self.next_id += 1
                assert not any(e.learner for e in self.members.values()), "rule 3: one learner at a time"
                assert all(self.running(member) for member in self.voters()), "rule 3: every member serves"
                self.members[self.next_id] = Entry(action.address, learner=True, started=False)
            case Verb.PROMOTE:
                if self.running(action.member):  # else etcd refuses: it is not in sync
                    self.members[action.member].learner = False
            case Verb.MOVE_LEADER:
                assert self.running(action.target)
                self.leader = action.target
            case Verb.REMOVE:
                entry = self.members[action.member]
                spec = self.desired[entry.node]
                assert action.member != self.leader, "rule 3: the leadership is moved before"
                asked = entry.learner or not spec.present or spec.lost == action.member
                assert asked or self.gives_its_place(action.member), "rule 10: nobody asked for it"
                self.ways[REPLACED] += not asked
                self.ways[DAMAGED] += self.hosts[entry.node].damaged and spec.present
                del self.members[action.member]
                self.ways[REMOVED] += not entry.learner
        self.elect()
        assert self.has_quorum(), f"rule 3: {action} costs the quorum"

    def gives_its_place(self, member: int) -> bool:
        """It does not run, and another one that was requested waits on a node that does."""
        there = {entry.node for entry in self.members.values()}
        waits = [w for w in self.desired.values() if w.present and w.name not in there and self.hosts[w.name].up]
        return bool(waits) and not self.running(member)

    def local_round(self, node: str) -> None:
        """This node's own member, with the list that any quorum gives."""
        host = self.hosts[node]
        mine = next((m for m, entry in self.members.items() if entry.node == node), None)
        known = self.has_quorum()
        seen = etcd_local.Seen(
            api=known and node in self.desired,
            cluster=CLUSTER if known else None,
            ids=frozenset(self.members),
            mine=None if mine is None else etcd_local.Listed(mine, self.members[mine].started),
            data=etcd_local.Data(host.disk or None, CLUSTER if host.disk else None, host.disk is not None),
            manifests=() if host.manifest is None else (etcd_local.Manifest(host.manifest),),
            running=host.manifest is not None and host.disk is not None and not host.damaged,
            pod=host.manifest is not None and host.disk is not None,
            certificates=True,
            unusable="etcd cannot read it" if host.damaged and host.manifest is not None else "",
        )
        decision = etcd_local.decide(seen, host.memory, self.now)
        host.memory = decision.memory
        match decision.action:
            case etcd_local.Action.STOP:
                host.manifest = None
            case etcd_local.Action.MOVE_ASIDE:
                assert host.manifest is None, "rule 1: its process has exited"
                assert host.disk not in self.members, "rule 3: the data of a member is never moved"
                host.disk, host.damaged = None, False
            case etcd_local.Action.START:
                host.manifest = mine
                host.disk = 0 if host.disk is None else host.disk
            case etcd_local.Action.CLAIM_LOST:
                spec = self.desired[node]
                self.desired[node] = Desired(node, node, spec.present, spec.asked, mine, reported=spec.reported)
            case etcd_local.Action.NOTHING:
                pass
        self.run_kubelet(node)
        self.elect()

    def run_kubelet(self, node: str) -> None:
        """etcd starts in an empty directory, and not at all without one. It exits when it was removed."""
        host = self.hosts[node]
        if not host.up or host.manifest is None or host.disk is None:
            return
        mine = host.manifest
        if mine not in self.members or self.members[mine].node != node:
            return
        if host.disk == 0:
            assert mine not in self.ever_ran, "rule 3: an empty directory under an id that has run"
            host.disk = mine
        if host.disk == mine:
            self.ever_ran.add(mine)
            self.members[mine].started = True

    # --- what must hold, and what must come about ---

    @invariant()
    def at_most_one_learner_and_always_a_voter(self) -> None:
        assert sum(entry.learner for entry in self.members.values()) <= 1
        assert not self.members or self.voters()

    @invariant()
    def the_leader_is_a_voter(self) -> None:
        assert self.leader is None or not self.members[self.leader].learner

    def teardown(self) -> None:
        """Rule 5: when everything runs again, what is requested comes about, whatever has happened before."""
        for node in NODES:
            self.hosts[node].up = True
            self.run_kubelet(node)
        self.elect()
        if not self.members or not self.has_quorum():
            return  # a majority has lost its disks: that is not a matter of membership
        for member in self.members.values():
            self.desired.setdefault(member.node, Desired(member.node, member.node, asked=member.node))
        for _ in range(60):
            self.now += 60
            for node in NODES:
                self.round_of_an_agent(node, killed=False)
        if not any(spec.present for spec in self.desired.values()):
            return  # nobody is to stay: then nobody goes either
        wanted = sorted(spec.name for spec in self.desired.values() if spec.present)
        assert sorted(self.members[m].node for m in self.voters()) == wanted, (self.members, self.desired, self.hosts)
        assert all(self.running(member) for member in self.members)


def _list(seen: Seen) -> list[tuple[int, bool, bool | None]]:
    return [(member.id, member.learner, member.serves) for member in seen.members or ()]


def test_etcds_membership_keeps_its_quorum_and_becomes_what_is_requested(seed: str) -> None:
    """What fails is shown as it was found: to make it smaller takes longer than a test may."""
    phases = (HypothesisPhase.explicit, HypothesisPhase.reuse, HypothesisPhase.generate)
    usual = settings(max_examples=90, stateful_step_count=30, deadline=None, phases=phases)
    run_until_all_ways_are_gone(Membership, Membership.ways, (REMOVED, REFUSED, REPLACED, DAMAGED), usual, seed)
