"""When a hosted pod becomes the checkpoint of its component on a node, and which revisions are kept.

Contract: `decide(seen, memory, now)` is pure. It returns the actions to carry out now, in this order, what
to remember until the next call, and one sentence that says what was seen and why. Times are monotonic
seconds. Timestamps of the API and of containers are not used: content and pods are ordered by their versions in etcd.

On the host an action may be interrupted anywhere; each can be interrupted and repeated safely:
- WRITE:  all files of the candidate, each synced, pod.json last; a revision without it is incomplete;
- SWITCH: first `previous` is pointed to what `current` points to, then `current` to the candidate, both by
  rename; no change when `current` points there already;
- DELETE: pod.json first, so that a partly deleted revision is incomplete.

The rules it keeps, in whatever order observations, failures and crashes come:
- only what has been healthy on its own port for PROVEN_SECONDS without a break, in one and the same
  container, with content no younger than that container, becomes the current revision;
- unknown is not down (rule 2): an observation that failed or that is late proves nothing, disproves nothing
  and never deletes anything; time without observations does not count;
- the clock stops while etcd is down (rule 9);
- the absence or deletion of the pod, its DaemonSet or our own objects removes nothing (rule 10);
- the current revision, the one before it, and all that an active manifest uses are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from autarky.control.slots.decide.pivot import Health, Slot

PROVEN_SECONDS = 40.0
"""How long a hosted pod must have been healthy: a server with a broken flag or certificate fails at once or within its
own start limits; one whose liveness check fails is ended by its kubelet after half a minute (three checks, one each
10 s, where nobody says otherwise). It also covers the first renewals of leases. An upgrade waits for it once before the
API servers' clients may follow, and is much of its time."""
LONGEST_GAP_SECONDS = 5.0
"""Two healthy observations further apart than this prove nothing about the time between them."""
STALE_SECONDS = 5.0
"""An observation older than this counts as none."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One run of the hosted pod's containers: any change of it restarts the clock from zero.

    restarts: of all containers together.
    started: when the first of the running containers started, as the API writes it: it distinguishes runs, and is
             not compared with anything else.
    version: the pod's own version from before the kubelet acknowledged it; None when that was not observed.
    """

    pod_uid: str
    restarts: int
    started: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One Secret or ConfigMap that the pod takes content from.

    version:    that of its last change, of any part of it.
    by_content: its name is derived from its content, so that this name has never had other content.
    """

    name: str
    version: int
    by_content: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """The component's directory on the node, known completely or not at all.

    current, previous: where the two links point, None where there is none.
    complete:   the revisions with all their files.
    incomplete: those whose writing or deletion was interrupted.
    in_use:     the revisions of the active manifests.
    """

    current: str | None = None
    previous: str | None = None
    complete: frozenset[str] = frozenset()
    incomplete: frozenset[str] = frozenset()
    in_use: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Seen:
    """One node's observation of one component; None stands for unknown throughout.

    looked:    when the hosted slot was observed.
    wanted:    the slot that this level should run in; the standby of a level that is not hosted is made from the
               cluster file.
    hosted:    the hosted slot by its own port, never by a shared one.
    candidate: the revision that the live pod would become, None while it is not known.
    refusal:   why it cannot become one, as a sentence; "" when it can.
    sources:   every Secret and ConfigMap of the pod that exists; None when not all could be read.
    images:    whether all images of the candidate are on the node.
    """

    looked: float
    wanted: Slot
    hosted: Health
    disk: Disk | None
    etcd_up: bool = True
    instance: Instance | None = None
    candidate: str | None = None
    refusal: str = ""
    sources: tuple[Source, ...] | None = None
    images: bool | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What one call passes to the next. Losing it costs another PROVEN_SECONDS, and nothing else.

    candidate: the first one seen of this instance. A change without a restart is content that the running
               containers may never have read, so one instance proves one candidate.
    healthy:   the seconds for which this instance, with this candidate, has proven healthy.
    last:      when it was last observed to be healthy; None while the clock stands still.
    refused:   why this instance can never become the checkpoint as it is; "" where no reason is known.
    """

    instance: Instance | None = None
    candidate: str | None = None
    healthy: float = 0.0
    last: float | None = None
    refused: str = ""


class Verb(Enum):
    WRITE = "write"
    SWITCH = "switch to"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Action:
    verb: Verb
    revision: str


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...]
    memory: Memory
    sentence: str
    settled: bool = False
    """True when the current checkpoint is that of the live pod and nothing is left to do."""


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """See the module's contract."""
    if (stands_still := _why_the_clock_stands_still(seen, now)) is not None:
        return Decision((), replace(memory, last=None), stands_still)
    if (broken := _what_broke(seen)) is not None:
        return Decision((), Memory(), broken)
    memory = replace(_counted(seen, memory), refused="")
    if seen.disk is not None and seen.candidate == seen.disk.current and seen.candidate in seen.disk.complete:
        return _kept_tidy(seen.disk, memory)
    memory = replace(memory, refused=_why_refused(seen, memory))
    unproven = memory.refused or _why_unproven(seen, memory)
    if unproven or seen.disk is None or seen.candidate is None:
        return Decision((), memory, f"{unproven}; the existing checkpoint stays")
    return _taken(seen.disk, seen.candidate, memory)


def _why_the_clock_stands_still(seen: Seen, now: float) -> str | None:
    """Rules 2 and 9."""
    if not 0 <= now - seen.looked <= STALE_SECONDS:
        return f"unknown: the last observation is {now - seen.looked:.1f} s old"
    if not seen.etcd_up:
        return "etcd is down: nothing is judged"
    if seen.hosted is Health.UNKNOWN or (seen.hosted is Health.READY and seen.instance is None):
        return "unknown: the hosted pod could not be observed"
    return None


def _what_broke(seen: Seen) -> str | None:
    """What ends the proof. None of it removes a checkpoint (rule 10)."""
    if seen.wanted is Slot.STANDBY:
        return "this level is not hosted: its standby stays as it is"
    if seen.hosted is not Health.READY:
        return f"the hosted pod is {seen.hosted.value}: the checkpoint stays as it is"
    return None


def _counted(seen: Seen, memory: Memory) -> Memory:
    """The clock, one healthy observation later."""
    if seen.instance != memory.instance:
        return Memory(seen.instance, seen.candidate, 0.0, seen.looked)
    if seen.candidate is not None and seen.candidate != memory.candidate:
        return replace(memory, candidate=memory.candidate or seen.candidate, healthy=0.0, last=seen.looked)
    between = 0.0 if memory.last is None else seen.looked - memory.last
    return replace(memory, healthy=memory.healthy + _proven(between), last=seen.looked)


def _proven(between: float) -> float:
    return between if 0 < between <= LONGEST_GAP_SECONDS else 0.0


def _why_refused(seen: Seen, memory: Memory) -> str:
    """The reasons that do not go away by waiting; "" when that is not known, or when there is none."""
    if seen.refusal or seen.candidate is None or seen.sources is None:
        return seen.refusal
    return _young_content(seen, memory)


def _why_unproven(seen: Seen, memory: Memory) -> str:
    """What is still missing for a checkpoint; "" when nothing is missing."""
    if seen.disk is None or seen.candidate is None:
        return f"unknown: {'the disk' if seen.disk is None else 'the pod'} could not be read completely"
    if seen.sources is None:
        return "unknown: some Secrets or ConfigMaps could not be read"
    if memory.healthy < PROVEN_SECONDS:
        return f"the hosted pod has been healthy for {memory.healthy:.0f} of {PROVEN_SECONDS:.0f} s"
    if not seen.images:
        return "not all images are on the node" if seen.images is False else "unknown: the images could not be listed"
    return ""


def _young_content(seen: Seen, memory: Memory) -> str:
    """A broken Secret shows only when the server restarts: only what it started with is proven."""
    if seen.candidate != memory.candidate:
        return "the pod or its content has changed since its containers started: restart the pod to prove it"
    for source in seen.sources or ():
        if seen.instance is not None and not _is_proven(source, seen.instance):
            why = " (nobody saw it start)" if seen.instance.version is None else ""
            return (
                f"the content of {source.name} may have changed since the pod started{why}: restart the pod to prove it"
            )
    return ""


def _is_proven(source: Source, instance: Instance) -> bool:
    """Whether these containers cannot have read other content. A container that restarts in the same pod may still find
    the old content in its volume: the kubelet updates that a minute or two after a change."""
    return source.by_content or (instance.version is not None and source.version < instance.version)


def _taken(disk: Disk, candidate: str, memory: Memory) -> Decision:
    write = () if candidate in disk.complete else (Action(Verb.WRITE, candidate),)
    sentence = f"the hosted pod has been healthy for {memory.healthy:.0f} s, so it becomes the checkpoint {candidate}"
    return Decision((*write, Action(Verb.SWITCH, candidate)), memory, sentence)


def _kept_tidy(disk: Disk, memory: Memory) -> Decision:
    """Revisions are deleted only here, with the current one known to be complete and the live pod healthy."""
    if disk.previous == disk.current:
        return Decision(
            (), memory, "the checkpoint is a copy of the hosted pod; older ones are not deleted", settled=True
        )
    old = unlisted(disk)
    if not old:
        return Decision((), memory, "the checkpoint is a copy of the hosted pod", settled=True)
    actions = tuple(Action(Verb.DELETE, revision) for revision in old)
    return Decision(actions, memory, f"unused revisions are deleted: {', '.join(old)}")


def unlisted(disk: Disk) -> list[str]:
    """The revisions that nothing uses, where the current one is known to be complete and good.

    Empty where a switch was interrupted after its first half: which revision was the previous one is no longer known.
    """
    if disk.previous == disk.current:
        return []
    return sorted((disk.complete | disk.incomplete) - {disk.current, disk.previous, *disk.in_use})
