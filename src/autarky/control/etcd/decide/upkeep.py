"""What keeps a running etcd in shape by itself: which member is defragmented next, and what is done about alarms. Pure:
the node agent beside etcd's leader asks and carries it out.

Invariants, whatever the order of looks, crashes, moves of the leadership and stale observations:
- rule 2: while a member, the leader or the alarms cannot be seen, no member is stopped; and no alarm is cleared, until
  it is clear that the member stays away.
- rule 3: one member at a time is defragmented, since it answers nothing meanwhile: only while all members answer and
  no member joins, leaves or changes; the leader only when no other one is left to do.
- NOSPACE is cleared only while every database that is seen is well below its quota, and ever more rarely if it comes
  back: clearing creates no space. CORRUPT is cleared only for a member that was removed (`corruption`).
- rule 5: each step is visible in the next look; the memory only serves pauses, and keeps what did not help from being
  repeated.
- rule 10: a member is removed only if etcd accuses it, and a comparison of our own finds it guilty, and it joins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from autarky.control.etcd.decide import corruption
from autarky.control.etcd.decide.maintenance import KEPT_REVISIONS, NEARLY_FULL

MIB = 1024 * 1024
WORTH = 100 * MIB
MOST_IN_USE = 0.55
"""A database of this size, of which no more is in use, is defragmented. OpenShift's operator for etcd and MicroShift
have the same (`minDefragBytes` 100 MiB, `maxFragmentedPercentage` 45); etcd has no defaults of its own."""
STEADY_SECONDS = 60.0
"""For so long nothing must have changed before a member is stopped for a while."""
DEFRAG_SECONDS = 300.0
"""Between two defragmentations, at least."""
AGAIN_SECONDS = 3600.0
"""Before the same member again: what did not help, or failed, is not repeated at once."""
SINGLE_MOST = 512 * MIB
"""In use: the most that is defragmented by itself where a single member makes everybody wait. A disk that copies 50 MiB
in a second needs ten seconds, and the API server's requests have sixty."""
ROOM = 0.9
"""Of its quota: a database is no bigger when NOSPACE is cleared."""
COMPACTED_SECONDS = 5.0
"""After a compaction, until all members have made theirs."""
STUCK_SECONDS = 30.0
STUCK_LONGEST = 300.0
"""Before space is looked for again where there was none; doubles each time."""
TRIED_SECONDS = 900.0
"""Before the same member is defragmented again though that did not help."""
CLEARED_SECONDS = 60.0
CLEARED_LONGEST = 960.0
"""Between two times that NOSPACE is cleared; doubles while it comes back within half an hour."""
CALM_SECONDS = 1800.0
PATIENCE_SECONDS = 120.0
"""With NOSPACE for longer, what is merely being changed is not waited for: it may be waiting for space itself."""
COMPARE_SECONDS = 120.0
"""Between two comparisons of all keys, which read the entire databases."""
NOSPACE, CORRUPT = "NOSPACE", "CORRUPT"


class Verb(Enum):
    COMPACT = "forget old revisions"
    DEFRAGMENT = "defragment"
    DISARM = "clear the alarm"
    COMPARE = "compare all keys"
    MOVE_LEADER = "move the leadership"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Member:
    """As it reports itself; sizes in bytes, quota 0 where it does not say. answers: whether it did, as this member and
    with the same leader as the others. rejoins: whether it would join again if it were removed."""

    id: int
    name: str
    learner: bool = False
    leads: bool = False
    answers: bool = True
    size: int = 0
    in_use: int = 0
    quota: int = 0
    rejoins: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """member: its id, which may not be a member's any more."""

    member: int
    kind: str


@dataclass(frozen=True, slots=True)
class Seen:
    """own: the member of this node. None for what could not be observed now. busy: whether membership, or a member's
    version or arguments, are being changed. contents: by id, of those that gave a hash; None: nobody was asked."""

    own: int | None
    leader: int | None
    members: tuple[Member, ...] | None
    alarms: tuple[Alarm, ...] | None
    revision: int = 0
    busy: bool = False
    fenced: bool = False
    contents: Mapping[int, corruption.Content] | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """member: its id. target: the new leader. revision: to compact to. alarms: to clear."""

    verb: Verb
    member: int = 0
    target: int = 0
    revision: int = 0
    alarms: tuple[Alarm, ...] = ()


@dataclass(frozen=True, slots=True)
class Full:
    """Since the alarm NOSPACE was first seen. compacted: to which revision, by us. tried: member → until when it is not
    defragmented again."""

    since: float
    compacted: int = 0
    tried: Mapping[int, float] = field(default_factory=dict)
    stuck: int = 0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Monotonic seconds. If it is lost, pauses start again, or something is tried once more; nothing else.

    steady: the picture that must not change, and since when. rests: member → until when it is not defragmented again.
    """

    steady: tuple[object, float] | None = None
    defragmented: float | None = None
    rests: Mapping[int, float] = field(default_factory=dict)
    full: Full | None = None
    cleared: float | None = None
    times: int = 0
    """How often NOSPACE was cleared without a calm in between."""
    compare: float = 0.0
    compared: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """reason: of the event that says so, "" where none does: of an action, once it is done. trouble: needs a person; ""
    where nothing does."""

    memory: Memory
    action: Action | None
    sentence: str
    reason: str = ""
    trouble: str = ""


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """The next step. `now`: monotonic seconds."""
    if seen.members is None or seen.leader is None or seen.alarms is None:
        return Decision(replace(memory, steady=None), None, "etcd's members, leader or alarms cannot be seen now")
    if seen.own != seen.leader or seen.fenced:
        who = "a recovery of etcd is under way" if seen.fenced else "the agent beside etcd's leader looks after it"
        return Decision(Memory(), None, who)
    memory = _observed(seen, seen.members, seen.alarms, memory, now)
    kinds = {alarm.kind for alarm in seen.alarms}
    if CORRUPT in kinds:
        return _corrupt(seen, seen.members, seen.alarms, memory, now)
    if memory.full is not None:
        return _full(seen, seen.members, seen.alarms, memory, memory.full, now)
    if kinds:
        return _reported(
            memory, f"etcd has an alarm that is not known here: {', '.join(sorted(kinds))}", "EtcdUnknownAlarm"
        )
    return _tidy(seen, seen.members, memory, now)


def _observed(seen: Seen, members: tuple[Member, ...], alarms: tuple[Alarm, ...], memory: Memory, now: float) -> Memory:
    """The memory updated by this look."""
    picture = (seen.leader, seen.busy, tuple((one.id, one.learner, one.answers) for one in members))
    since = memory.steady[1] if memory.steady is not None and memory.steady[0] == picture else now
    rests = {one.id: memory.rests[one.id] for one in members if memory.rests.get(one.id, now) > now}
    has_space = not any(alarm.kind == NOSPACE for alarm in alarms)
    calm = memory.cleared is None or now - memory.cleared > CALM_SECONDS
    is_corrupt = any(alarm.kind == CORRUPT for alarm in alarms)
    return replace(
        memory,
        steady=(picture, since),
        rests=rests,
        full=None if has_space else memory.full or Full(now),
        times=0 if has_space and calm else memory.times,
        compare=memory.compare if is_corrupt else 0.0,
        compared=memory.compared if is_corrupt else "",
    )


def _rest(memory: Memory, sentence: str) -> Decision:
    return Decision(memory, None, sentence)


def _reported(memory: Memory, sentence: str, reason: str) -> Decision:
    """It needs a person."""
    return Decision(memory, None, sentence, reason, trouble=sentence)


def _obstacle(seen: Seen, members: tuple[Member, ...]) -> str | None:
    """Why no member may stop answering now."""
    if learners := [one.name for one in members if one.learner]:
        return f"{', '.join(learners)} joins"
    if silent := [one.name for one in members if not one.answers]:
        return f"{', '.join(silent)} does not answer"
    return "etcd's members are being changed" if seen.busy else None


def _steady(memory: Memory, now: float) -> bool:
    return memory.steady is not None and now - memory.steady[1] >= STEADY_SECONDS


def _next(members: list[Member]) -> Member:
    """Learners are not among them. The leader last."""
    return min(members, key=lambda one: (one.leads, one.name))


# --- without an alarm --------------------------------------------------------------------------------


def _tidy(seen: Seen, members: tuple[Member, ...], memory: Memory, now: float) -> Decision:
    waiting = [one for one in members if one.answers and is_fragmented(one) and one.id not in memory.rests]
    if not waiting:
        return _rest(memory, "etcd's databases need no upkeep")
    member = _next(waiting)
    what = f"of the database of {member.name} ({_mib(member.size)}) {_mib(member.in_use)} are in use"
    if len(members) == 1 and member.in_use > SINGLE_MOST:
        sentence = (
            f"{what}: etcd has a single member, and the API would wait for longer than {_mib(SINGLE_MOST)} take, so it"
            " is left to you: `autarky etcd defrag`"
        )
        return _reported(memory, sentence, "EtcdDefragmentByHand")
    obstacle = _obstacle(seen, members) or (None if _steady(memory, now) else "something has changed lately")
    if obstacle is not None:
        return _rest(memory, f"{what}: it is defragmented when all is quiet ({obstacle})")
    if memory.defragmented is not None and now - memory.defragmented < DEFRAG_SECONDS:
        return _rest(memory, f"{what}: it is defragmented some minutes after the last one")
    return _defragment(memory, member, f"{what}: it is defragmented", now)


def is_fragmented(member: Member) -> bool:
    """Whether a defragmentation is worth its pause: of a big database, or of one that has most of its quota."""
    worth = min(WORTH, NEARLY_FULL * member.quota) if member.quota else WORTH
    return member.size > worth and member.in_use <= MOST_IN_USE * member.size


def _defragment(memory: Memory, member: Member, sentence: str, now: float) -> Decision:
    rests = {**memory.rests, member.id: now + AGAIN_SECONDS}
    full = memory.full
    full = None if full is None else replace(full, tried={**full.tried, member.id: now + TRIED_SECONDS})
    new = replace(memory, defragmented=now, rests=rests, full=full)
    return Decision(new, Action(Verb.DEFRAGMENT, member.id), sentence, "EtcdDefragmented")


# --- NOSPACE -----------------------------------------------------------------------------------------


def _full(
    seen: Seen, members: tuple[Member, ...], alarms: tuple[Alarm, ...], memory: Memory, full: Full, now: float
) -> Decision:
    """History is given up first, then free pages; then, if that has made space, the alarm is cleared."""
    what = "etcd refuses writes: a database has reached its quota (alarm NOSPACE)"
    early, silent = now - full.since < PATIENCE_SECONDS, [one.name for one in members if not one.answers]
    known = tuple(one for one in members if one.answers)
    if unknown := [one.name for one in known if not one.quota]:
        return _reported(memory, f"{what}; {', '.join(unknown)} does not say what its quota is", "EtcdOutOfSpace")
    if not known or (silent and early):
        return _rest(memory, f"{what}; waiting for {', '.join(silent)}, which does not answer")
    if all(one.size <= ROOM * one.quota for one in known):
        return _clear(known, alarms, memory, now)
    over = [one for one in known if one.in_use > ROOM * one.quota]
    if (over or not full.compacted) and (history := _history(seen.revision, what, memory, full, now)) is not None:
        return history
    return _shrink(seen, known, replace(memory, full=full), over=bool(over), early=early, silent=silent, now=now)


def _shrink(
    seen: Seen,
    known: tuple[Member, ...],
    memory: Memory,
    *,
    over: bool,
    early: bool,
    silent: list[str],
    now: float,
) -> Decision:
    """Defragment what would have space then. early: what is being changed is waited for."""
    what, tried = "etcd refuses writes (alarm NOSPACE)", memory.full.tried if memory.full is not None else {}
    large = [one for one in known if one.size > ROOM * one.quota and tried.get(one.id, now) <= now]
    if over or not large:
        return _reported(memory, f"{what}, and {_of_quota(known)}. {_WHAT_TO_DO}", "EtcdOutOfSpace")
    if silent:
        names = ", ".join(silent)
        sentence = f"{what}; no member is defragmented while {names} does not answer: start it, or remove it"
        return _reported(memory, sentence, "EtcdOutOfSpace")
    if early and (obstacle := _obstacle(seen, known)) is not None:
        return _rest(memory, f"{what}: members are defragmented when all is quiet ({obstacle})")
    member = _next(large)
    return _defragment(memory, member, f"{what}: {member.name} is defragmented", now)


def _history(revision: int, what: str, memory: Memory, full: Full, now: float) -> Decision | None:
    """Give up all but the newest revisions, then these as well; None where there is nothing to give up now."""
    target = revision - (0 if full.compacted else KEPT_REVISIONS)
    target = target if target > full.compacted else revision
    if target <= full.compacted:
        return None
    if now < full.again:
        return _rest(memory, f"{what}: the members give up their history") if full.stuck == 1 else None
    pause = min(STUCK_LONGEST, STUCK_SECONDS * 2.0 ** min(full.stuck, 10)) if full.compacted else COMPACTED_SECONDS
    full = replace(full, compacted=target, again=now + pause, stuck=full.stuck + 1, tried={})
    sentence = f"{what}: the history before revision {target} is given up"
    return Decision(replace(memory, full=full), Action(Verb.COMPACT, revision=target), sentence, "EtcdHistoryCompacted")


_WHAT_TO_DO = (
    "There is nothing left to give up: delete objects, which etcd still accepts, and the alarm is cleared by itself."
    " Then raise the quota: spec.etcd.quotaBytes of the ControlPlane; for that one write `autarky etcd alarm --disarm`"
    " may be enough"
)


def _clear(members: tuple[Member, ...], alarms: tuple[Alarm, ...], memory: Memory, now: float) -> Decision:
    pause = min(CLEARED_LONGEST, CLEARED_SECONDS * 2.0 ** min(memory.times - 1, 10)) if memory.times else 0.0
    if memory.cleared is not None and now - memory.cleared < pause:
        sentence = f"the alarm NOSPACE has come back soon after it was cleared: it stays for a while. {_WHAT_TO_DO}"
        return _reported(memory, sentence, "EtcdOutOfSpace")
    new = replace(memory, cleared=now, times=memory.times + 1)
    wanted = tuple(alarm for alarm in alarms if alarm.kind == NOSPACE)
    sentence = f"there is space again ({_of_quota(members)}): the alarm NOSPACE is cleared, and etcd takes writes"
    return Decision(new, Action(Verb.DISARM, alarms=wanted), sentence, "EtcdAlarmCleared")


def _of_quota(members: tuple[Member, ...]) -> str:
    shown = [f"{one.name} uses {_mib(one.in_use)} of {_mib(one.quota)}" for one in members if one.quota]
    return ", ".join(shown)


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"


# --- CORRUPT -----------------------------------------------------------------------------------------


def _corrupt(
    seen: Seen, members: tuple[Member, ...], alarms: tuple[Alarm, ...], memory: Memory, now: float
) -> Decision:
    """Nothing here needs the API: with this alarm no member is ready, and no API server can write."""
    accused = frozenset(alarm.member for alarm in alarms if alarm.kind == CORRUPT)
    by_id = {one.id: one for one in members}
    names = ", ".join(by_id[one].name if one in by_id else f"{one:x}" for one in sorted(accused) if one) or "nobody"
    what = f"etcd has found different keys in its members, and accuses {names} (alarm CORRUPT)"
    if learners := [f"{one.name} ({one.id:x})" for one in members if one.learner]:
        sentence = f"{what}: {', '.join(learners)} joins, and one change is made at a time: `etcdctl member remove ID`"
        return _reported(memory, sentence, "EtcdCorrupt")
    if seen.contents is None:
        if now >= memory.compare:
            new = replace(memory, compare=now + COMPARE_SECONDS)
            return Decision(new, Action(Verb.COMPARE), f"{what}: all keys are compared")
        return _reported(memory, memory.compared or what, "EtcdCorrupt")
    voters = [corruption.Voter(one.id, one.name, one.leads, seen.contents.get(one.id)) for one in members]
    verdict = corruption.judge(accused, voters)
    sentence = f"{what}: {verdict.why}"
    memory = replace(memory, compared=sentence)
    if verdict.cleared:
        wanted = tuple(alarm for alarm in alarms if alarm.kind == CORRUPT and alarm.member in verdict.cleared)
        return Decision(memory, Action(Verb.DISARM, alarms=wanted), sentence, "EtcdAlarmCleared")
    if verdict.guilty is None:
        return _reported(memory, sentence, "EtcdCorrupt")
    heirs = [one for one in members if one.id in seen.contents and one.id != verdict.guilty.id]
    return _replace(by_id[verdict.guilty.id], heirs, memory, sentence)


def _replace(guilty: Member, heirs: list[Member], memory: Memory, sentence: str) -> Decision:
    """After that all keys are compared again at once: no second member goes by the first comparison."""
    if not guilty.rejoins:
        sentence = f"{sentence}; no EtcdMember wants it to join again, so it stays: {guilty.name} ({guilty.id:x})"
        return _reported(replace(memory, compared=sentence), sentence, "EtcdCorrupt")
    memory = replace(memory, compare=0.0)
    if guilty.leads:
        heir = min(heirs, key=lambda one: one.name)
        action = Action(Verb.MOVE_LEADER, guilty.id, target=heir.id)
        return Decision(memory, action, f"{sentence}; {heir.name} gets the leadership before it is removed")
    sentence = f"{sentence}: {guilty.name} is removed, and joins again as a new member"
    return Decision(memory, Action(Verb.REMOVE, guilty.id), sentence, "EtcdMemberReplaced")
