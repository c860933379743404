"""Which dead runs of a pod hide a later one from the kubelet, because the clock was set back between them.

The kubelet takes the latest run of a container, and of a pod's sandbox, as the current one, by its creation time on the
wall clock. If the clock was set back since (a machine whose clock was ahead, or has no battery), that may be a dead
run: the kubelet tries to start the next one under a name that a later run already has, and keeps failing. If the later
run is alive, nobody probes it, and its pod is never Ready (kubernetes/kubernetes issues 83050 and 134153); if it is
dead, too, nothing runs until the clock reaches the creation time of the first one.

Contract: pure. The attempt number counts, not the time: the kubelet increments it within one pod. The run with the
highest number is the last one, in whatever state: each run blocks its own name. Returned are runs that are dead, have a
lower attempt than the last one of the same pod and name, and were created at the same time as that or later. Once they
are removed, the kubelet takes the last run, or another live one, as current; the next attempt number is free.

Invariants: nothing is returned that is alive, or may be, nor a sandbox with such a container in it (rule 2: unknown is
not down). If the clock never went back, nothing is returned. After the removal no dead run hides the last one, except
perhaps a container that was created and never ran, which is not returned either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from autarky.model.runtime import Container, Sandbox


@dataclass(frozen=True, slots=True)
class Hiding:
    """What must be removed. A sandbox is removed with its containers."""

    sandboxes: tuple[Sandbox, ...]
    containers: tuple[Container, ...]


class _Run(Protocol):
    @property
    def attempt(self) -> int: ...
    @property
    def created(self) -> float: ...


R = TypeVar("R", bound=_Run)


def hiding(sandboxes: Sequence[Sandbox], containers: Sequence[Container]) -> Hiding:
    """What hides a later run, over all pods."""
    # A runtime that could not inspect a sandbox reports it as not ready, too.
    may_live = {one.sandbox_id for one in containers if one.state in ("running", "unknown")}
    # What has no pod uid was not created by a kubelet, and may be anybody's.
    boxes = [one for one in sandboxes if one.uid]
    gone = _hides(boxes, lambda one: one.uid, lambda one: not one.ready and one.id not in may_live)
    going = {one.id for one in gone}
    left = [one for one in containers if one.pod_uid and one.sandbox_id not in going]
    return Hiding(gone, _hides(left, lambda one: (one.pod_uid, one.name), lambda one: one.state == "exited"))


def _hides(runs: Iterable[R], of: Callable[[R], Hashable], dead: Callable[[R], bool]) -> tuple[R, ...]:
    """`of`: what a run is a run of."""
    in_turn = sorted(runs, key=lambda one: one.attempt)
    last = {of(one): one for one in in_turn}
    return tuple(one for one in in_turn if dead(one) and _comes_after(one, last[of(one)]))


def _comes_after(one: _Run, last: _Run) -> bool:
    """By the clock alone."""
    return one.attempt < last.attempt and one.created >= last.created
