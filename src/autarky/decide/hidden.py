"""Which dead runs of a pod hide the living one from the kubelet, because the clock was set back between them.

The kubelet takes the run that was made last for the one that there is, by the wall clock's time of its making. Where
the clock has gone back since (a machine whose own clock was ahead, or has no battery), a dead run counts as the last:
the kubelet wants to start the next one under a name that the living one has, and goes on so for ever. What runs, runs
on, but nobody probes it, and its pod is never Ready (kubernetes/kubernetes issues 83050 and 134153).

Contract: pure. The number of the attempt is believed, not the time: the kubelet counts it up within one pod. Only what
is dead, has a lower attempt than something of the same pod that lives, and was made later, is named.

Invariants: nothing that lives is named; where nothing lives, nothing is named; with a clock that only goes on, nothing
is.
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
    """What hides what lives, of all pods."""
    dead = _hides(
        (one for one in sandboxes if one.ready), (one for one in sandboxes if not one.ready), lambda one: one.uid
    )
    going = {one.id for one in dead}
    left = [one for one in containers if one.sandbox_id not in going]
    return Hiding(
        dead,
        _hides(
            (one for one in left if one.state == "running"),
            (one for one in left if one.state == "exited"),
            lambda one: (one.pod_uid, one.name),
        ),
    )


def _hides(living: Iterable[R], dead: Iterable[R], of: Callable[[R], Hashable]) -> tuple[R, ...]:
    """`of`: of what they are runs."""
    latest = {of(one): one for one in sorted(living, key=lambda one: one.attempt)}
    return tuple(
        one
        for one in dead
        if (lives := latest.get(of(one))) is not None and one.attempt < lives.attempt and one.created >= lives.created
    )
