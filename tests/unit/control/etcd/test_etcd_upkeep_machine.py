"""Upkeep of a simulated etcd that fills up, loses members, moves its leadership and has its keys damaged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from hypothesis import Phase as HypothesisPhase
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from autarky.control.etcd.decide.corruption import Content, Voter, judge
from autarky.control.etcd.decide.upkeep import (
    CORRUPT,
    MIB,
    NOSPACE,
    ROOM,
    STEADY_SECONDS,
    Action,
    Alarm,
    Decision,
    Member,
    Memory,
    Seen,
    Verb,
    decide,
    is_fragmented,
)
from unit.control.machines import run_until_all_ways_are_gone

QUOTA = 1024 * MIB
IDS = (1, 2, 3, 4, 5)
CONTENTS = st.sampled_from([None, Content(7, 900), Content(8, 900), Content(7, 800)])


@given(
    contents=st.lists(CONTENTS, min_size=1, max_size=5),
    accused=st.sets(st.sampled_from([0, *IDS, 9]), max_size=6),
    leader=st.sampled_from(IDS),
)
def test_rule_2_who_is_guilty_differs_from_a_quorum_that_agrees(
    contents: list[Content | None], accused: set[int], leader: int
) -> None:
    voters = [Voter(one, f"n{one}", one == leader, found) for one, found in zip(IDS, contents, strict=False)]
    verdict = judge(accused, voters)
    members = {voter.id for voter in voters}
    assert not set(verdict.cleared) & (members | {0})
    assert set(verdict.cleared) <= accused
    if verdict.cleared:
        assert len(voters) >= 2
        assert None not in contents
        assert len(set(contents)) == 1
    if verdict.guilty is not None:
        others = [voter.content for voter in voters if voter.id != verdict.guilty.id]
        known = [content for content in others if content is not None]
        assert verdict.guilty.id in accused
        assert verdict.guilty.content is not None
        assert len(known) >= 2
        assert len(known) > len(others) // 2
        assert {content.hash for content in known} == {known[0].hash} != {verdict.guilty.content.hash}


@dataclass
class Host:
    """A member; in MiB. history: what a compaction makes free."""

    up: bool = True
    live: int = 20
    history: int = 10
    size: int = 60
    damaged: bool = False
    learner: bool = False

    @property
    def in_use(self) -> int:
        return self.live + self.history


COMPACTED = "history is given up"
DEFRAGMENTED = "a follower is defragmented"
LEADER_DEFRAGMENTED = "the leader is defragmented"
CLEARED = "NOSPACE is cleared"
REPLACED = "a damaged member is removed"


class Upkeep(RuleBasedStateMachine):
    ways: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.hosts = {one: Host() for one in (1, 2, 3)}
        self.leader = 1
        self.alarms: set[tuple[int, str]] = set()
        self.revision = 5000
        self.memory = Memory()
        self.last_defragmented = -1e9
        self.busy = False

    # --- what happens ---

    @rule(mib=st.integers(1, 300))
    def objects_are_written(self, mib: int) -> None:
        for one in sorted(self.hosts):
            host = self.hosts[one]
            if self.alarms:
                return
            if max(host.size, host.in_use + mib) > 1024:
                self.alarms.add((one, NOSPACE))
        for host in self.hosts.values():
            host.live += mib if not self.alarms else 0
            host.size = max(host.size, host.in_use)
        self.revision += 1

    @rule(mib=st.integers(1, 400))
    def objects_are_changed(self, mib: int) -> None:
        if not self.alarms:
            for host in self.hosts.values():
                host.history = min(host.history + mib, 1024 - host.live)
                host.size = max(host.size, host.in_use)
            self.revision += 1

    @rule(mib=st.integers(1, 900))
    def objects_are_deleted(self, mib: int) -> None:
        if not any(kind == CORRUPT for _, kind in self.alarms):
            for host in self.hosts.values():
                gone = min(mib, host.live - 1)
                host.live, host.history = host.live - gone, host.history + gone
            self.revision += 1

    @rule(one=st.sampled_from(IDS[:3]), up=st.booleans())
    def power(self, one: int, up: bool) -> None:
        if one in self.hosts and (up or sum(host.up for host in self.hosts.values()) > 2):
            self.hosts[one].up = up
            self.elect()

    @rule(one=st.sampled_from(IDS[:3]))
    def keys_are_damaged_and_etcd_notices(self, one: int) -> None:
        """It accuses who differs from its leader."""
        if one in self.hosts and len(self.hosts) == 3 and not any(host.damaged for host in self.hosts.values()):
            self.hosts[one].damaged = True
            others = [other for other in self.hosts if other != self.leader]
            self.alarms |= {(other, CORRUPT) for other in (others if one == self.leader else [one])}

    @rule(one=st.sampled_from(IDS[:3]))
    def leadership_moves(self, one: int) -> None:
        if one in self.hosts and self.hosts[one].up and one != self.leader:
            self.leader, self.memory = one, Memory()

    @rule(busy=st.booleans())
    def members_change(self, busy: bool) -> None:
        self.busy = busy

    @rule()
    def a_removed_member_has_joined_again(self) -> None:
        if len(self.hosts) == 2 and not self.alarms:
            self.hosts[max(self.hosts) + 1] = replace(self.hosts[self.leader], damaged=False, up=True)

    @rule(seconds=st.sampled_from([3.0, 60.0, 300.0]), looks=st.integers(1, 12))
    def agents_look(self, seconds: float, looks: int) -> None:
        for _ in range(looks):
            self.look()
            self.now += seconds

    @rule()
    def all_is_quiet_for_long(self) -> None:
        self.busy = False
        for host in self.hosts.values():
            host.up = True
        self.agents_look(60.0, 30)

    # --- the agent ---

    def elect(self) -> None:
        if not self.hosts[self.leader].up:
            self.leader, self.memory = next(one for one in self.hosts if self.hosts[one].up), Memory()

    def seen(self) -> Seen:
        members = tuple(
            Member(
                id=one,
                name=f"n{one}",
                learner=host.learner,
                leads=one == self.leader,
                answers=host.up,
                size=host.size * MIB if host.up else 0,
                in_use=host.in_use * MIB if host.up else 0,
                quota=QUOTA if host.up else 0,
                rejoins=True,
            )
            for one, host in self.hosts.items()
        )
        alarms = tuple(Alarm(one, kind) for one, kind in sorted(self.alarms))
        return Seen(self.leader, self.leader, members, alarms, self.revision, self.busy)

    def look(self) -> None:
        seen = self.seen()
        for blind in (replace(seen, own=None), replace(seen, leader=None), replace(seen, members=None)):
            assert decide(blind, self.memory, self.now).action is None
        decision = decide(seen, self.memory, self.now)
        self.memory = decision.memory
        if decision.action is not None and decision.action.verb is Verb.COMPARE:
            contents = {one: Content(8 if host.damaged else 7, 900) for one, host in self.hosts.items() if host.up}
            decision = decide(replace(seen, contents=contents), self.memory, self.now)
            self.memory = decision.memory
        if decision.action is not None:
            self.carry_out(decision, decision.action)

    def carry_out(self, decision: Decision, action: Action) -> None:
        match action.verb:
            case Verb.COMPACT:
                assert action.revision <= self.revision
                for host in self.hosts.values():
                    host.history = 0 if action.revision == self.revision else host.history // 2
                self.ways[COMPACTED] += 1
            case Verb.DEFRAGMENT:
                self.defragmented(action.member)
            case Verb.DISARM:
                self.cleared(action)
            case Verb.MOVE_LEADER:
                assert not self.hosts[action.target].damaged
                self.leader, self.memory = action.target, Memory()
            case Verb.REMOVE:
                assert self.hosts[action.member].damaged, "rule 2: it has the same keys as the others"
                assert action.member != self.leader, "rule 3: the leadership is moved before"
                assert sum(host.up for one, host in self.hosts.items() if one != action.member) == 2, "rule 3"
                del self.hosts[action.member]
                self.ways[REPLACED] += 1
            case Verb.COMPARE:
                raise AssertionError(f"after a comparison: {decision}")

    def defragmented(self, member: int) -> None:
        full = any(kind == NOSPACE for _, kind in self.alarms)
        assert all(host.up for host in self.hosts.values()), "rule 3: another member does not answer"
        assert not any(kind == CORRUPT for _, kind in self.alarms)
        if not full:
            assert not self.busy, "rule 3: another member changes"
            assert self.now - self.last_defragmented >= STEADY_SECONDS
        self.last_defragmented = self.now
        if member == self.leader:
            rest = [one for one in self.seen().members or () if not one.leads]
            waits = [one for one in rest if (one.size > ROOM * QUOTA if full else is_fragmented(one))]
            assert not waits, "the leader is the last one"
            self.ways[LEADER_DEFRAGMENTED] += 1
        else:
            self.ways[DEFRAGMENTED] += 1
        self.hosts[member].size = self.hosts[member].in_use

    def cleared(self, action: Action) -> None:
        for alarm in action.alarms:
            if alarm.kind == CORRUPT:
                assert alarm.member not in self.hosts, "it is a member still"
                assert not any(host.damaged for host in self.hosts.values())
            else:
                assert all(host.size <= ROOM * 1024 for host in self.hosts.values() if host.up)
                self.ways[CLEARED] += 1
            self.alarms.discard((alarm.member, alarm.kind))

    @invariant()
    def there_is_a_quorum(self) -> None:
        assert len(self.hosts) >= 2
        assert self.leader in self.hosts

    def teardown(self) -> None:
        """Rule 5: when all is quiet and there is space, there is no alarm of space for long."""
        self.all_is_quiet_for_long()
        if not any(kind == CORRUPT for _, kind in self.alarms):
            self.objects_are_deleted(900)
            self.all_is_quiet_for_long()
            self.all_is_quiet_for_long()
            assert not self.alarms


def test_upkeep_stops_no_member_that_is_needed_and_ends_alarms_that_can_end(seed: str) -> None:
    phases = (HypothesisPhase.explicit, HypothesisPhase.reuse, HypothesisPhase.generate)
    usual = settings(max_examples=40, stateful_step_count=30, deadline=None, phases=phases)
    wanted = (COMPACTED, DEFRAGMENTED, LEADER_DEFRAGMENTED, CLEARED, REPLACED)
    run_until_all_ways_are_gone(Upkeep, Upkeep.ways, wanted, usual, seed)
