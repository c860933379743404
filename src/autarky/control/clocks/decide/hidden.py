"""Which dead runs of a pod hide a later one from the kubelet, because the clock was set back between them.

The kubelet takes the run of a container, and of a pod's sandbox, that was made last for the one that there is, by the
wall clock's time of its making. Where the clock has gone back since (a machine whose own clock was ahead, or has no
battery), that is a dead one: the kubelet wants to start the next one under a name that a later run has, and goes on so.
Where the later one lives, nobody probes it, and its pod is never Ready (kubernetes/kubernetes issues 83050 and 134153);
where it is dead, too, nothing runs until the clock has come to when the first one was made.

Contract: pure. The number of the attempt is believed, not the time: the kubelet counts it up within one pod. The run
with the highest is the last one, in whatever state: each keeps its name from others. Named is what is dead, has a lower
attempt than the last one of the same pod and name, and was made when that was made, or after it. With it gone, the
kubelet takes the last one for what there is, or another one that lives; the number after the last one's is free.

Invariants: nothing is named that lives, or of which nobody knows whether it does, nor a sandbox with such a container
in it (rule 2: unknown is not down). With a clock that only goes on nothing is named. Of what is left nothing that is
dead hides the last run. (A container that was created and never ran is not named either, and may hide the last one.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from autarky.model.runtime import Container, Sandbox


@dataclass(frozen=True, slots=True)
class Hiding:
    """What is to be removed. A sandbox goes with its containers."""

    sandboxes: tuple[Sandbox, ...]
    containers: tuple[Container, ...]


class _Run(Protocol):
    @property
    def attempt(self) -> int: ...
    @property
    def created(self) -> float: ...


R = TypeVar("R", bound=_Run)


def hiding(sandboxes: Sequence[Sandbox], containers: Sequence[Container]) -> Hiding:
    """What hides a later run, of all pods."""
    # A runtime that could not look at a sandbox calls it not ready, too.
    may_live = {one.sandbox_id for one in containers if one.state in ("running", "unknown")}
    # What has no pod's uid was made by no kubelet, and may be anybody's.
    boxes = [one for one in sandboxes if one.uid]
    gone = _hides(boxes, lambda one: one.uid, lambda one: not one.ready and one.id not in may_live)
    going = {one.id for one in gone}
    left = [one for one in containers if one.pod_uid and one.sandbox_id not in going]
    return Hiding(gone, _hides(left, lambda one: (one.pod_uid, one.name), lambda one: one.state == "exited"))


def _hides(runs: Iterable[R], of: Callable[[R], Hashable], dead: Callable[[R], bool]) -> tuple[R, ...]:
    """`of`: of what they are runs."""
    in_turn = sorted(runs, key=lambda one: one.attempt)
    last = {of(one): one for one in in_turn}
    return tuple(one for one in in_turn if dead(one) and _comes_after(one, last[of(one)]))


def _comes_after(one: _Run, last: _Run) -> bool:
    """By the clock alone."""
    return one.attempt < last.attempt and one.created >= last.created
