"""What a node's agent says to the supervisor of its hosted kubelet (level 0), and what it reports of it. Pure.

The supervisor asks for each start (a try), and runs it; the agent allows it, judges it, and has it end where it may not
be any more. The files are in `control.kubelet.manifests.hosted`, the report in `decide.hosted_report`.

Invariants:
- a start is allowed only if the API has just said that it may be (`allowed`) and that its pod has its turn, while
  nothing else is at work on the node: no order about its kubelet (where the host's does not run, one that has not come
  to the script waits instead: `starts_first`), no work of the host's script, nothing of `observed.Other`; what cannot
  be read may be any of these. What ran right then is on the disk before;
- of a pod that has failed nothing is allowed again, also after a restart of the machine, which may be how it fails:
  so many boots in a row may begin a try of it that is not proven, and no more;
- what is not known changes nothing: while the ControlPlane cannot be read, what runs stays, and what waits waits;
- a kubelet that may not be in force any more is to leave, proven or not: the host's is in force then;
- where the host's does not start, however often it ends is no reason to keep it from starting.

An order that begins while it is in force needs nothing of this: the supervisor sees the script's files, and has its
kubelet step aside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autarky.control.common import understood
from autarky.control.common.shapes import mapping, plain
from autarky.control.kubelet.decide import fields, order, own, pools, proof, wanted
from autarky.control.kubelet.decide import hosted_report as reports
from autarky.control.kubelet.decide.fields import NOT_UNDERSTOOD, fitting
from autarky.control.kubelet.decide.hosted_report import POD, Report
from autarky.control.kubelet.decide.observed import OnDisk, Other
from autarky.control.kubelet.manifests.hosted import STALE_SECONDS, State, Verdict
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE

MOST_TRIES, TRIES_SECONDS = 5, 3600
"""So many of the same pod within so many seconds, unless it was the host's turn meanwhile, or it was not allowed."""
MOST_BOOTS = 2
"""So many in a row may begin a try of the same pod with no proof: while one is proven the machine may lose its power,
but a kubelet that takes its machine down would do so after each start."""
LOOK_SECONDS = 5.0
"""Between two looks at the API while it waits for its start."""
_NUMBER: Final = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Hosted:
    """What the supervisor says. number: of the try. alone: the host's kubelet does not wait behind it. only: nor does
    that run at all."""

    pod: str
    number: int
    version: Version
    state: State
    why: str = ""
    alone: bool = False
    only: bool = False

    @property
    def trial(self) -> str:
        return f"{self.pod}/{self.number}"

    @property
    def is_in_force(self) -> bool:
        return self.state in (State.PROVING, State.PROVEN)

    @property
    def is_all_there_is(self) -> bool:
        """Whether the node would have no kubelet without it."""
        return self.is_in_force and self.alone


def said(values: Mapping[str, str] | None, boot: str | None, uptime: int) -> Hosted | None:
    """Of the supervisor's file (None where there is none): what runs now, None where no supervisor does. uptime: whole
    seconds."""
    if values is None or not boot or values.get("boot") != boot:
        return None
    try:
        if uptime - _number(values["uptime"]) > STALE_SECONDS:
            return None
        pod, version = fitting(POD, values["pod"]), fields.version(values["version"])
        state, why, behind = State(values["state"]), plain(values.get("why", "")), values.get("behind")
        return Hosted(pod, _number(values["try"]), version, state, why, behind in ("no", "gone"), behind == "gone")
    except NOT_UNDERSTOOD:
        return None


def _number(text: str) -> int:
    return int(fitting(_NUMBER, text))


@dataclass(frozen=True, slots=True)
class Allowed:
    """The agent's own note, on the disk before it allows a start: of which try, in which boot, and what ran then.
    begun: the uptimes of the tries of this pod that count. boots: in so many in a row, with this one, tries of it have
    begun and none was proven."""

    pod: str
    number: int
    boot: str
    before: proof.Before
    begun: tuple[int, ...] = ()
    boots: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent's own note of the pod that has failed last."""

    pod: str
    version: Version
    why: str


@dataclass(frozen=True, slots=True)
class Notes:
    allowed: Allowed | None = None
    failed: Failed | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """What the API said in this very pass; metadata: of the Node. before: what runs, None where that cannot be seen."""

    plane: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    before: proof.Before | None


@dataclass(frozen=True, slots=True)
class Seen:
    """hosted: None where no supervisor runs. said: the verdict on this try that is on the disk. disk: None where the
    node cannot change its kubelet. others: None where they cannot be read. plane, metadata: as watched; None before.
    live: only after a look. proof: only while it is being proven."""

    hosted: Hosted | None
    boot: str
    uptime: int
    notes: Notes = field(default_factory=Notes)
    said: Verdict | None = None
    disk: OnDisk | None = None
    others: frozenset[Other] | None = frozenset()
    plane: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    live: Live | None = None
    proof: proof.Seen | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """trial: that this is about. looked: when (monotonic seconds) the API was asked last whether it may start."""

    trial: str = ""
    proof: proof.Memory = field(default_factory=proof.Memory)
    looked: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """report: what the Node is to say; None: nothing. notes: to be on the disk before anything else is done; None where
    they stay. verdict: to be written then, with the sentence as its reason; None where what is there stays. look: ask
    the API, and decide again."""

    memory: Memory
    sentence: str = ""
    report: Report | None = None
    notes: Notes | None = None
    verdict: Verdict | None = None
    look: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """may: None where that is not known. why: where it is not True, a clause."""

    may: bool | None
    why: str = ""


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """`now`: monotonic seconds."""
    hosted = seen.hosted
    if hosted is None:
        return Decision(Memory())
    memory = memory if memory.trial == hosted.trial else Memory(hosted.trial)
    match hosted.state:
        case State.WAITING:
            return _waiting(seen, hosted, memory, now)
        case State.PROVING:
            return _proving(seen, hosted, memory, now)
        case State.PROVEN:
            return _proven(seen, hosted, memory)
        case State.AWAY:
            return _away(seen, hosted, memory)


# --- whether it may be in force --------------------------------------------------------------------------------


def allowed(plane: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None, version: Version) -> Answer:
    """Whether a hosted kubelet of this version may be in force on this Node, as both objects are. Never raises."""
    if plane is None or metadata is None or not understood.is_control_plane(dict(plane)):
        return Answer(None, "the ControlPlane or the Node cannot be read")
    spec = plane["spec"]
    if not wanted.is_hosted(plane):
        return Answer(False, f"selfHosted {spec['selfHosted']} does not host the kubelet")
    if why := wanted.against_all(plane):  # what is asked for may be refused: that must not take a kubelet away
        return Answer(None, why)
    if (refused := wanted.refusal(plane, version)) is not None:
        return Answer(False, refused)
    return _as_wanted(plane, metadata, version)


def _as_wanted(plane: Mapping[str, Any], metadata: Mapping[str, Any], version: Version) -> Answer:
    spec = plane["spec"]
    if (why := understood.kubelets(spec)) is not None:
        return Answer(None, why)
    found = wanted.version(plane, _pool_of(spec, metadata), wanted.pin_of(metadata), version)
    if found.version is not None:
        why = f"the node's kubelet is to be {found.version}, and this one is {version}"
        return Answer(True) if found.version == version else Answer(False, why)
    if found.sentence != wanted.NOT_FOLLOWED:
        return Answer(None, found.sentence)
    why = wanted.too_old(plane, version)
    return Answer(True) if why is None else Answer(False, f"{version} is {why}")


def _pool_of(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> pools.Pool | None:
    labels = mapping(metadata.get("labels"))
    return pools.pool_of(pools.read(spec.get("pools")), labels, control=CONTROL_PLANE_ACTIVE in labels)


def _not_any_more(seen: Seen, hosted: Hosted) -> str:
    """Why one that runs is to leave; empty where it stays."""
    if (failed := _failed(seen, hosted)) is not None:
        return failed.why
    answer = allowed(seen.plane, seen.metadata, hosted.version)
    return answer.why if answer.may is False else ""


def _failed(seen: Seen, hosted: Hosted) -> Failed | None:
    failed = seen.notes.failed
    return failed if failed is not None and failed.pod == hosted.pod else None


# --- it waits for its start ------------------------------------------------------------------------------------


def starts_first(hosted: Hosted, said: Verdict | None, metadata: Mapping[str, Any]) -> bool:
    """Whether an order waits for its start. One that may not start, or has no turn, may wait for just that order. said:
    the verdict on this try that is on the disk; metadata: of the Node."""
    may_start = said is not Verdict.STAY and reports.turn_of(metadata) == hosted.pod
    return hosted.state is State.WAITING and hosted.only and may_start


def _waiting(seen: Seen, hosted: Hosted, memory: Memory, now: float) -> Decision:
    if (failed := _failed(seen, hosted)) is not None:
        return _stays(hosted, memory, reports.State.FAILED, failed.why)
    live = seen.live or Live(seen.plane, seen.metadata, None)
    answer = allowed(live.plane, live.metadata, hosted.version)
    if answer.may is False:
        return replace(_stays(hosted, memory, reports.State.REFUSED, answer.why), notes=_not_counted(seen))
    if why := _host_changes(seen, hosted, live):
        return replace(_waits(hosted, memory, why), notes=_not_counted(seen))
    if why := answer.why or _not_now(seen, hosted, live):
        return _waits(hosted, memory, why)
    return _in_turn(seen, hosted, memory, now)


def _in_turn(seen: Seen, hosted: Hosted, memory: Memory, now: float) -> Decision:
    if _with_this_boot(seen, hosted) > MOST_BOOTS:
        return _has_failed(seen, hosted, memory, "the machine restarted before it was proven", Verdict.STAY)
    if (begun := _with_this_try(seen, hosted)) is None and not hosted.only:
        return _has_failed(seen, hosted, memory, "it ended again and again", Verdict.STAY)
    if seen.live is not None:
        return _start(seen, hosted, memory, seen.live, begun or (seen.uptime,))
    if memory.looked is not None and 0 <= now - memory.looked < LOOK_SECONDS:
        return _waits(hosted, memory, "")
    return replace(_waits(hosted, replace(memory, looked=now), ""), look=True)


def _host_changes(seen: Seen, hosted: Hosted, live: Live) -> str:
    """A clause; empty where nobody changes the host's kubelet, nor is ordered to. One that does not run comes later."""
    disk = seen.disk
    if disk is None:
        return "the node cannot do it yet: run `autarky up` first"
    if disk.ask or disk.trial is not None:
        return "the host's kubelet is being changed"
    given = order.read(live.metadata or {})
    is_ordered = given is not None and not own.is_over(given, disk.last)
    return "the host's kubelet is ordered to change" if is_ordered and not hosted.only else ""


def _not_now(seen: Seen, hosted: Hosted, live: Live) -> str:
    if seen.others is None or seen.others:
        return "; ".join(sorted(seen.others or {"it is not known what else is at work on the node"}))
    if live.metadata is None or reports.turn_of(live.metadata) != hosted.pod:
        return "its turn has not come"
    return "it is not known which pods run" if seen.live is not None and live.before is None else ""


def _with_this_try(seen: Seen, hosted: Hosted) -> tuple[int, ...] | None:
    """The tries that count, and this one; None where they are too many. One that is still to begin counts once."""
    noted = seen.notes.allowed
    if noted is None or (noted.pod, noted.boot) != (hosted.pod, seen.boot):
        return (seen.uptime,)
    counts = tuple(one for one in noted.begun if 0 <= seen.uptime - one < TRIES_SECONDS)
    if counts and noted.number == hosted.number and seen.said is Verdict.MAY:
        return counts
    return (*counts, seen.uptime) if len(counts) < MOST_TRIES else None


def _with_this_boot(seen: Seen, hosted: Hosted) -> int:
    """The boots that count, and this one."""
    noted = seen.notes.allowed
    if noted is None or noted.pod != hosted.pod:
        return 1
    return max(1, noted.boots) if noted.boot == seen.boot else noted.boots + 1


def _with_proof(seen: Seen, hosted: Hosted) -> Notes | None:
    noted = seen.notes.allowed
    if noted is None or noted.pod != hosted.pod or not noted.boots:
        return None
    return replace(seen.notes, allowed=replace(noted, boots=0))


def _not_counted(seen: Seen) -> Notes | None:
    """It ended for a reason that is not its own, or would have."""
    noted = seen.notes.allowed
    return None if noted is None or not noted.begun else replace(seen.notes, allowed=replace(noted, begun=()))


def _start(seen: Seen, hosted: Hosted, memory: Memory, live: Live, begun: tuple[int, ...]) -> Decision:
    before = live.before or proof.Before()
    boots = _with_this_boot(seen, hosted)
    notes = replace(seen.notes, allowed=Allowed(hosted.pod, hosted.number, seen.boot, before, begun, boots))
    return replace(_waits(hosted, memory, ""), sentence="it may start", notes=notes, verdict=Verdict.MAY)


# --- it runs, or has ended -------------------------------------------------------------------------------------


def _proving(seen: Seen, hosted: Hosted, memory: Memory, now: float) -> Decision:
    if why := _not_any_more(seen, hosted):
        return _leaves(hosted, memory, reports.State.PROVING, why)
    noted = seen.notes.allowed
    if noted is None or (noted.pod, noted.number, noted.boot) != (hosted.pod, hosted.number, seen.boot):
        why = "what ran before is not known: it is not proven"
        return _says(hosted, memory, reports.State.PROVING, why, Verdict.UNPROVEN)
    if seen.proof is None:
        return _says(hosted, memory, reports.State.PROVING, "")
    # It has the settings of the host's kubelet: what that would have thrown off the node as well says nothing about it.
    looked = replace(seen.proof, rejected=frozenset(), evicted=frozenset())
    found = proof.decide(looked, noted.before, hosted.version, memory.proof, now)
    memory = replace(memory, proof=found.memory)
    # One that is well now is not out of time because the machine was slow to start it.
    is_well = found.verdict is proof.Verdict.UNPROVEN and found.memory.since is not None
    verdict = Verdict.WAIT if is_well else Verdict(found.verdict)
    notes = _with_proof(seen, hosted) if verdict is Verdict.GOOD else None
    return replace(_says(hosted, memory, reports.State.PROVING, found.sentence, verdict), notes=notes)


def _proven(seen: Seen, hosted: Hosted, memory: Memory) -> Decision:
    if why := _not_any_more(seen, hosted):
        return _leaves(hosted, memory, reports.State.IN_FORCE, why)
    return replace(_says(hosted, memory, reports.State.IN_FORCE, ""), notes=_with_proof(seen, hosted))


def _away(seen: Seen, hosted: Hosted, memory: Memory) -> Decision:
    if (failed := _failed(seen, hosted)) is not None:
        return _says(hosted, memory, reports.State.FAILED, failed.why)
    return _has_failed(seen, hosted, memory, hosted.why or "it ended", None)


def _has_failed(seen: Seen, hosted: Hosted, memory: Memory, why: str, verdict: Verdict | None) -> Decision:
    notes = replace(seen.notes, failed=Failed(hosted.pod, hosted.version, why))
    return replace(_says(hosted, memory, reports.State.FAILED, why, verdict), notes=notes)


# --- what is said ----------------------------------------------------------------------------------------------


def _waits(hosted: Hosted, memory: Memory, why: str) -> Decision:
    """A verdict that is there is of this try, or of none that anybody asks about."""
    return _says(hosted, memory, reports.State.WAITING, why)


def _stays(hosted: Hosted, memory: Memory, state: reports.State, why: str) -> Decision:
    return _says(hosted, memory, state, why, Verdict.STAY)


def _leaves(hosted: Hosted, memory: Memory, state: reports.State, why: str) -> Decision:
    """It is in force until it has ended."""
    return _says(hosted, memory, state, f"it is about to leave: {why}", Verdict.LEAVE)


def _says(hosted: Hosted, memory: Memory, state: reports.State, why: str, verdict: Verdict | None = None) -> Decision:
    return Decision(memory, why, Report(hosted.pod, hosted.version, state, why), verdict=verdict)
