"""What a node's agent sees when it decides about its kubelet, and what it decides. Pure; `own` decides.

The files that these stand for, and who writes each of them, are in `control.kubelet.manifests.files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from autarky.control.kubelet.decide import proof
from autarky.control.kubelet.decide.order import Order
from autarky.control.kubelet.decide.proof import Verdict
from autarky.control.kubelet.decide.report import Report, State
from autarky.model.versions import Version


class Phase(StrEnum):
    """Of the script's trial."""

    FORTH = "forth"
    PROVING = "proving"
    BACK = "back"


class Outcome(StrEnum):
    """Of the script's result."""

    GOOD = "good"
    BACK = "back"
    REFUSED = "refused"
    FAILED = "failed"
    """Back, and not healthy with what was there before either."""


class Other(StrEnum):
    """What else may be at work on the node. The values are clauses."""

    UP = "`up` is changing the settings of its kubelet"
    ETCD = "its member of etcd is being changed"
    RECOVERY = "etcd is being recovered"
    ROLE = "it is becoming a control node, or a worker"
    HAND_OVER = "its API servers hand over to each other"
    HOSTED = (
        "its host's kubelet does not wait behind the hosted one, which would leave none: see `journalctl -u kubelet`"
    )


@dataclass(frozen=True, slots=True)
class Trial:
    order: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class Result:
    """boot: the id of the boot in which the script wrote it."""

    order: str
    outcome: Outcome
    boot: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent's own note, on the disk before it asks: for which order, in which boot, and what ran then. settings:
    whether anything else than the version changes."""

    order: str
    number: int
    attempt: int
    version: Version
    boot: str
    before: proof.Before = field(default_factory=proof.Before)
    settings: bool = True


@dataclass(frozen=True, slots=True)
class Final:
    """The agent's own note of how the last order ended, on the disk before it is reported."""

    order: str
    number: int
    attempt: int
    state: State
    why: str = ""
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class OnDisk:
    """base: the hash of base.json; empty where there is none, or no script. current: the generation in force; target,
    version, runtime: what it was made of, former: the version before; empty or None where that is not known. ask: the
    order in the script's file; empty where there is none."""

    base: str
    current: str
    target: str = ""
    version: Version | None = None
    runtime: str = ""
    former: Version | None = None
    ask: str = ""
    trial: Trial | None = None
    result: Result | None = None
    asked: Asked | None = None
    last: Final | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """generation: that of the order, complete on the disk; empty where it is not. trouble: why it cannot be made.
    full: why there was no room when it was tried last, which may pass. free: bytes, None where nobody knows yet."""

    generation: str = ""
    trouble: str = ""
    full: str = ""
    free: int | None = None


@dataclass(frozen=True, slots=True)
class Pods:
    """left: those that a drain has yet to evict. blocked: the budgets that do not let them go, a clause."""

    left: frozenset[str] = frozenset()
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """What the API said in this very pass. order: the id of the one on the Node, reported: of the one that the Node
    reports to be on its way; empty where there is none. plane: the ControlPlane, None where it does not exist or is not
    valid. before: what runs; None where that cannot be seen."""

    order: str
    reported: str
    plane: Mapping[str, Any] | None
    before: proof.Before | None


@dataclass(frozen=True, slots=True)
class Seen:
    """order: as watched. disk, others: None where they cannot be read. runs, unschedulable: as the Node shows them.
    control: whether it is a control node. ended: the order whose end the Node shows; empty where it shows none. pods:
    of a drain, None while nobody has looked. live: only after `Step.LOOK`. proof: only during a trial."""

    order: Order | None
    disk: OnDisk | None
    boot: str
    others: frozenset[Other] | None = frozenset()
    runs: Version | None = None
    unschedulable: bool = False
    control: bool = False
    ended: str = ""
    staged: Staged = field(default_factory=Staged)
    pods: Pods | None = None
    live: Live | None = None
    proof: proof.Seen | None = None


class Step(Enum):
    NOTHING = "nothing"
    REFUSE = "refuse it"
    STAGE = "stage"
    DRAIN = "evict pods"
    LOOK = "ask the API, and decide again"
    ASK = "ask the script"
    PROVE = "write the verdict"
    REPORT = "note how it ended"


@dataclass(frozen=True, slots=True)
class Memory:
    """drained: for which order pods are being evicted; since: since when (monotonic seconds). full: for which order
    there is no room; full_since: since when without a break."""

    proof: proof.Memory = field(default_factory=proof.Memory)
    drained: str = ""
    since: float = 0.0
    full: str = ""
    full_since: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """report: what the Node is to say, None where it stays as it is. final: to be noted on the disk before anything is
    reported (REFUSE, REPORT). asked: to be noted before the script is asked (ASK). verdict: to be written (PROVE), with
    the sentence as its reason."""

    memory: Memory
    step: Step
    sentence: str
    report: Report | None = None
    final: Final | None = None
    asked: Asked | None = None
    verdict: Verdict | None = None
