"""Power cuts in hand-overs of a node's kubelets: in which state of the hosted one's supervisor each of them fell. Cuts
at drawn moments show little if all of them come before a hand-over, or after it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

TRIAL = frozenset({"waiting", "proving"})
"""Another kubelet is about to take over, or has just done so."""
NOT_YET = "not yet"
TRIAL_SECONDS = 90.0
"""Until the pod of one node is replaced."""


class Hosts(Protocol):
    """A TestCluster."""

    def host_process(self, host: str, /) -> int: ...

    def cut_at_once(self, *hosts: str) -> None: ...


def state_in(said: str, version: str) -> str:
    """What the supervisor's file says of a kubelet of that version; empty where it is of another one."""
    words = dict(line.partition(" ")[::2] for line in said.splitlines())
    return words.get("state", "") if words.get("version") == version else ""


def states_of(cluster: Hosts, version: str, names: Collection[str]) -> dict[str, str]:
    """Of each node, as this machine sees its file: a command on the host would take too long."""
    found = {}
    for name in names:
        path = Path(f"/proc/{cluster.host_process(name)}/root/var/lib/autarky/kubelet/hosted")
        found[name] = state_in(path.read_text() if path.exists() else "", version)
    return found


def until_one_says(
    cluster: Hosts, version: str, states: Collection[str], names: Collection[str], seconds: float = 60
) -> dict[str, str]:
    """Until a supervisor on one of these nodes is in one of these states; those of all of them, as they are then."""
    end = time.monotonic() + seconds
    while True:
        said = states_of(cluster, version, names)
        if any_is(said, states):
            return said
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {version} to be {' or '.join(states)}: {said}"
        time.sleep(0.005)


def any_is(said: Mapping[str, str], states: Collection[str]) -> bool:
    return not set(states).isdisjoint(said.values())


@dataclass
class Cuts:
    """So many of one case, of which at least one falls in a trial: where all others did not, the last one waits for
    it."""

    cluster: Hosts
    number: int
    states: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def one_was_in_a_trial(self) -> bool:
        return any(any_is(said, TRIAL) for said in self.states)

    def cut(self, version: str, moment: float, *names: str) -> str:
        """The power of these nodes, after so many seconds; for people, when that was and what they were about."""
        if len(self.states) + 1 < self.number or self.one_was_in_a_trial:
            time.sleep(moment)
            said, when = states_of(self.cluster, version, names), f"{moment:.1f} s"
        else:
            said, when = until_one_says(self.cluster, version, TRIAL, names, TRIAL_SECONDS), "a trial"
        self.states.append(said)
        self.cluster.cut_at_once(*names)
        return f"{when}: {', '.join(f'{name} {state or NOT_YET}' for name, state in said.items())}"
