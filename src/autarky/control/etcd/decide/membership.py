"""Which change of etcd's membership comes next. Pure: the node agent beside etcd's leader asks and carries it out.

Invariants, whatever the order of requests, crashes, lost nodes and stale observations:
- rule 2: what cannot be seen now (EtcdMembers, members, the leader) changes nothing.
- rule 3: one change at a time, and only one after which the serving voters are a quorum; every member joins as a
  learner and is promoted in a second step; leadership moves away from a member before the member leaves.
- rule 5: nothing here depends on memory: the agent of a new leader continues from what etcd itself says. The memory
  only serves timeouts.
- rule 10: a member is removed because somebody asked for it by name, because its own node reports that this very
  member's data is gone or of no use, or because it has been silent for long and another node waits that could have a
  member: etcd lets nobody join beside a silent one. No other absence means anything. If all are asked to leave at once,
  none does: it is a mistake.

The order of work: an existing learner, members that do not serve and should leave, silent members whose place another
node takes, joins in the order in which they were requested, members that serve and should leave, changes of a member's
version or arguments. So a machine is replaced without being one member short.

A member's change is a restart of its process by its own node, which gets the turn for it here: one at a time, while all
others serve, unhealthy ones first, the leader last, after it has handed over. None follows one that failed. A single
member is not restarted: `second` lets another one stand in for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autarky.model.etcd_members import Action, Desired, Member, MemberStatus, Phase, Seen, Verb, is_second

SILENT_SECONDS = 120.0
"""How long a learner may be silent before it is removed: it has no vote, but others wait for it."""
SYNC_SECONDS = 1800.0
"""How long a live learner may take to sync: etcd sends it the entire database, 8 GiB at most."""
PAUSE_SECONDS = 60.0
LONGEST_PAUSE = 960.0
"""Before the same node is tried again; the pause doubles with each failure."""
LONGEST_NOTICE = 150.0
"""Between reporting that a member leaves and removing it, at most: less when the member's node reports that nobody
writes there any more (`etcd_leaving`). An API server drains for 15 s and another one takes its place."""
REPLACE_SECONDS = 600.0
"""How long a member may be silent before another node takes its place, by default: longer than a machine needs to boot
again, and than a person needs to say that it will."""
_LOST = "its node says that its data is gone or of no use: it joins again"
MOST_MEMBERS = 5
"""By default: seven survive the loss of three, but each write waits for more disks."""


@dataclass(frozen=True, slots=True)
class Learner:
    since: float
    alive: float
    """When it last answered."""


@dataclass(frozen=True, slots=True)
class Pause:
    failures: int
    until: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) things are as they are. If it is lost, timeouts start again; nothing else."""

    learners: Mapping[int, Learner] = field(default_factory=dict)
    silent: Mapping[int, float] = field(default_factory=dict)
    """Voters that do not serve, by id."""
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    leaving: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """reported: by name of the EtcdMember; empty where another agent reports."""

    memory: Memory
    action: Action | None
    reported: Mapping[str, MemberStatus]
    sentence: str


@dataclass(slots=True)
class _Pass:
    """One decision in the making: `stop` is set when nothing else may be started now."""

    members: tuple[Member, ...]
    desired: tuple[Desired, ...]
    alarms: tuple[str, ...]
    leader: int
    replace_after: float
    memory: Memory
    now: float
    action: Action | None = None
    stop: bool = False
    sentence: str = "etcd's members are as they should be"
    refused: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_address = {spec.address: spec for spec in self.desired}
        self.voters = [member for member in self.members if not member.learner]
        self.learners = [member for member in self.members if member.learner]

    by_address: dict[str, Desired] = field(init=False)
    voters: list[Member] = field(init=False)
    learners: list[Member] = field(init=False)

    def spec(self, member: Member) -> Desired | None:
        return self.by_address.get(member.address)

    def name(self, member: Member) -> str:
        spec = self.spec(member)
        return member.address if spec is None else spec.name

    def names(self, members: Sequence[Member]) -> str:
        return ", ".join(sorted(self.name(member) for member in members))

    def act(self, verb: Verb, spec: Desired, sentence: str, *, member: int = 0, target: int = 0) -> None:
        self.action = Action(verb, spec.name, spec.address, member, target)
        self.wait(spec, sentence)

    def wait(self, spec: Desired, sentence: str) -> None:
        self.stop, self.sentence = True, f"{spec.name}: {sentence}"
        self.notes[spec.name] = sentence

    def refuse(self, spec: Desired, sentence: str) -> None:
        self.refused[spec.name] = sentence
        self.sentence = f"{spec.name}: {sentence}"


def reached(spec: Desired) -> Desired:
    """The EtcdMember of a node that was just reached."""
    return replace(spec, reachable=True)


def quorum(voters: int) -> int:
    return voters // 2 + 1


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """The next change, if any, and what every EtcdMember's status should say. `now`: monotonic seconds."""
    if seen.desired is None or seen.members is None or seen.leader is None:
        return Decision(memory, None, {}, "etcd's members, its leader or the EtcdMembers cannot be seen now")
    if seen.own != seen.leader:
        return Decision(Memory(), None, {}, "the agent beside etcd's leader manages the members")
    memory = _observed(seen.members, seen.desired, memory, now)
    one = _Pass(seen.members, seen.desired, seen.alarms, seen.leader, seen.replace_after, memory, now)
    for step in (_learners, _remove_dead, _add, _remove_serving, _change):
        step(one)
        if one.stop:
            break
    return Decision(
        one.memory,
        one.action,
        {spec.name: _status_of(one, spec) for spec in one.desired},
        one.sentence,
    )


def is_lost(member: Member, spec: Desired) -> bool:
    """Whether its own node reports its data as gone and it still does not serve: a disk may have been mounted late."""
    return spec.lost == member.id and not member.serves


def settled(members: Sequence[Member], desired: Sequence[Desired]) -> bool:
    """Whether nothing is left to do, as far as any agent can tell."""
    at = {member.address: member for member in members}
    for spec in desired:
        member = at.get(spec.address)
        if spec.present and (member is None or member.learner or is_lost(member, spec)):
            return False
        if not spec.present and member is not None:
            return False
        if spec.present and spec.should_change:
            return False
    return True


def _observed(members: Sequence[Member], desired: Sequence[Desired], memory: Memory, now: float) -> Memory:
    """The memory updated by this look; entries of what is gone are dropped."""
    learners = {}
    for member in members:
        if member.learner:
            old = memory.learners.get(member.id, Learner(now, now))
            learners[member.id] = replace(old, alive=now) if member.serves else old
    # One whose clients' port somebody occupies is connected to the leader all the same, and votes.
    gone = [m.id for m in members if not m.learner and m.serves is False and m.connected is not True]
    silent = {member: memory.silent.get(member, now) for member in gone}
    voting = {member.address for member in members if not member.learner}
    pauses = {w.name: memory.pauses[w.name] for w in desired if w.name in memory.pauses and w.address not in voting}
    leaving = {w.name: memory.leaving.get(w.name, now) for w in desired if w.reported and not w.present}
    return Memory(learners, silent, pauses, leaving)


# --- an existing learner ---------------------------------------------------------------------------


def _learners(one: _Pass) -> None:
    for member in one.learners:
        spec = one.spec(member)
        if spec is not None and not one.stop:
            _learner(one, member, spec)


def _learner(one: _Pass, member: Member, spec: Desired) -> None:
    if not spec.present:
        one.act(Verb.REMOVE, spec, "it should leave and has no vote yet", member=member.id)
    elif is_lost(member, spec):
        one.act(Verb.REMOVE, spec, _LOST, member=member.id)
    elif (reason := _given_up(one, member)) is not None:
        _pause(one, spec)
        one.act(Verb.REMOVE, spec, f"{reason}: it is removed and joins again later", member=member.id)
    elif not member.serves:
        one.wait(spec, "a learner that has not answered yet: waiting for etcd to start on its node")
    elif sum(voter.serves is True for voter in one.voters) + 1 < quorum(len(one.voters) + 1):
        one.refuse(spec, f"too few members serve to add another vote: {_silent(one)}")
    else:
        one.act(Verb.PROMOTE, spec, "a learner; it is promoted when it is in sync", member=member.id)


def _given_up(one: _Pass, member: Member) -> str | None:
    known = one.memory.learners[member.id]
    if one.now - known.alive > SILENT_SECONDS:
        return f"no sign of life for {SILENT_SECONDS:.0f} s"
    if one.now - known.since > SYNC_SECONDS:
        return f"not in sync after {SYNC_SECONDS:.0f} s"
    return None


def _pause(one: _Pass, spec: Desired) -> None:
    old = one.memory.pauses.get(spec.name, Pause(0, 0.0))
    seconds = min(LONGEST_PAUSE, PAUSE_SECONDS * 2**old.failures)
    pauses = {**one.memory.pauses, spec.name: Pause(old.failures + 1, one.now + seconds)}
    one.memory = replace(one.memory, pauses=pauses)


# --- joining ---------------------------------------------------------------------------------------


def _add(one: _Pass) -> None:
    at = {member.address for member in one.members}
    waiting = sorted((w for w in one.desired if w.present and w.address not in at), key=lambda w: (w.asked, w.name))
    ready = []
    for spec in waiting:
        pause = one.memory.pauses.get(spec.name)
        if pause is not None and one.now < pause.until:
            one.notes[spec.name] = "its last attempt failed; the next one follows automatically"
        elif not spec.reachable:
            one.notes[spec.name] = "its node does not answer: it joins when the node is back"
        else:
            ready.append(spec)
    if ready and (gone := _gone_for_long(one)) is not None:
        member, spec = gone
        reason = f"it has not answered for {one.replace_after:.0f} s, and {ready[0].name} takes its place"
        one.act(Verb.REMOVE, spec, reason, member=member.id)
        return
    for spec in ready:
        if (obstacle := _obstacle(one)) is not None:
            one.refuse(spec, obstacle)
    if ready and ready[0].name not in one.refused:
        one.act(Verb.ADD, ready[0], "it joins as a learner")


def _gone_for_long(one: _Pass) -> tuple[Member, Desired] | None:
    """A voter that has been silent for so long that a spare may have its place, if etcd can do without it."""
    for member in one.voters:
        since, spec = one.memory.silent.get(member.id), one.spec(member)
        silent_for_long = since is not None and one.now - since >= one.replace_after
        if silent_for_long and spec is not None and member.id != one.leader and _indispensable(one, member) is None:
            return None if one.learners or one.alarms else (member, spec)
    return None


def _obstacle(one: _Pass) -> str | None:
    """Why no member may join now."""
    if one.learners:
        return f"etcd has a learner that no EtcdMember asks for: see `etcdctl member list` ({one.names(one.learners)})"
    if one.alarms:
        return f"etcd has an alarm: {'; '.join(one.alarms)}"
    if any(not voter.serves for voter in one.voters):
        return f"a member joins only while every member serves, and {_silent(one)}"
    return None


def _silent(one: _Pass) -> str:
    names = one.names([voter for voter in one.voters if not voter.serves])
    what = f"{names} does not: repair it, or remove it (kubectl patch etcdmember NAME --type=merge -p {_REMOVED})"
    if one.replace_after == math.inf:
        return what
    return f"{what}; after {one.replace_after:.0f} s without an answer it is replaced"


SILENT = "it does not answer"
"""Of a member as it should be, whose machine may be off."""
_REMOVED = '\'{"spec":{"state":"Removed"}}\''


# --- leaving ---------------------------------------------------------------------------------------


def _remove_dead(one: _Pass) -> None:
    for member in one.voters:
        spec = one.spec(member)
        if spec is None or one.stop or member.serves or (spec.present and not is_lost(member, spec)):
            continue
        if member.id == one.leader:
            continue  # it leads, so it only answered late
        if (obstacle := _indispensable(one, member)) is not None:
            one.refuse(spec, obstacle)
        else:
            reason = _LOST if spec.present else "it does not serve any more"
            one.act(Verb.REMOVE, spec, reason, member=member.id)


def _remove_serving(one: _Pass) -> None:
    for member in one.voters:
        spec = one.spec(member)
        if spec is None or one.stop or spec.present or not member.serves:
            continue
        if (obstacle := _indispensable(one, member)) is not None:
            one.refuse(spec, obstacle)
        elif _has_clients(one, spec, member) and _noticed_for(one, spec) < LONGEST_NOTICE:
            one.wait(spec, "it leaves; its clients move to other members first")
        elif member.id == one.leader:
            heir = _heir(one, member)
            one.act(
                Verb.MOVE_LEADER,
                spec,
                f"it leads etcd: {one.name(heir)} gets the leadership first",
                member=member.id,
                target=heir.id,
            )
        else:
            one.act(Verb.REMOVE, spec, "it leaves", member=member.id)


def _has_clients(one: _Pass, spec: Desired, member: Member) -> bool:
    """As far as their nodes have reported."""
    return spec.disconnected != member.id or any(member.id in other.uses for other in one.desired)


def _noticed_for(one: _Pass, spec: Desired) -> float:
    return one.now - one.memory.leaving.get(spec.name, one.now)


def _indispensable(one: _Pass, member: Member) -> str | None:
    """Why etcd cannot do without it now."""
    rest = [voter for voter in one.voters if voter.id != member.id]
    if not rest:
        return "the last member of etcd is never removed"
    if not any(spec.present for spec in one.desired):
        return "every EtcdMember says Removed, and etcd needs members: set Member on those that should stay"
    serve = sum(voter.serves is True for voter in rest)
    if serve < quorum(len(rest)):
        return f"without it {serve} of {len(rest)} members would serve, and etcd needs {quorum(len(rest))}"
    return None


def _heir(one: _Pass, leaving: Member) -> Member:
    """One that serves, and stays if possible. There is one: the others have a quorum without the one that leaves."""
    able = [voter for voter in one.voters if voter.serves and voter.id != leaving.id]

    def goes_too(voter: Member) -> bool:
        spec = one.spec(voter)
        return spec is not None and not spec.present

    return min(able, key=lambda voter: (goes_too(voter), one.name(voter)))


# --- changing version or arguments -----------------------------------------------------------------


def _change(one: _Pass) -> None:
    """Let one member restart with the present template, if all is quiet."""
    voters = [(member, spec) for member in one.voters if (spec := one.spec(member)) is not None and spec.present]
    waiting = [(member, spec) for member, spec in voters if spec.should_change]
    if not waiting or len(one.voters) < 2 or any(is_second(member.address) for member in one.members):
        return
    if failed := [spec.name for _, spec in voters if spec.failed]:
        one.sentence = f"{', '.join(failed)} was not healthy with the new template: no other member is changed"
        return
    if changing := [spec for _, spec in waiting if spec.has_turn]:
        one.wait(changing[0], "it is changed: waiting until it serves with the new template")
        return
    member, spec = min(waiting, key=lambda found: _cost(one, *found))
    if (obstacle := _why_not_now(one, member)) is not None:
        one.wait(spec, obstacle)
    elif member.id == one.leader:
        heir = _heir(one, member)
        reason = f"it leads etcd: {one.name(heir)} gets the leadership before it is changed"
        one.act(Verb.MOVE_LEADER, spec, reason, member=member.id, target=heir.id)
    else:
        one.act(Verb.TURN, spec, "it is the next one to be changed")
        one.action = replace(one.action, revision=spec.revision) if one.action is not None else None


def _cost(one: _Pass, member: Member, spec: Desired) -> tuple[int, str]:
    """The worst first, the leader last."""
    return (0 if member.serves is False else 2 if member.id == one.leader else 1), spec.name


def _why_not_now(one: _Pass, member: Member) -> str | None:
    """Why it must not stop, even for a moment. One of two stops all the same: etcd is away for some seconds then."""
    if one.learners:
        return "it is changed when the new member has its vote"
    others = [voter for voter in one.voters if voter.id != member.id]
    if silent := [voter for voter in others if not voter.serves]:
        return f"it is changed when all others serve; {one.names(silent)} does not"
    return None


# --- what is reported ------------------------------------------------------------------------------


def _status_of(one: _Pass, spec: Desired) -> MemberStatus:
    member = next((member for member in one.members if member.address == spec.address), None)
    known = None if member is None else member.id
    if spec.name in one.refused:
        return MemberStatus(Phase.BLOCKED, known, one.refused[spec.name])
    phase, usual = _phase(spec, member)
    return MemberStatus(phase, known, one.notes.get(spec.name, usual))


def _phase(spec: Desired, member: Member | None) -> tuple[Phase, str]:
    """With its default message."""
    if member is None:
        return (Phase.PENDING, "waiting: one member joins at a time") if spec.present else (Phase.REMOVED, "")
    if not spec.present:
        return Phase.LEAVING, "waiting: one member leaves at a time"
    if member.learner:
        return Phase.LEARNER if member.started else Phase.JOINING, ""
    if is_lost(member, spec):
        return Phase.LEAVING, _LOST
    return Phase.MEMBER, "" if member.serves else SILENT
