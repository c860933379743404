"""Where an upgrade is, looked at from outside, and what interrupts it there: SIGKILL of its operator and of node
agents. Power cuts are those of `power` and `ha`.

Contract: an upgrade goes through STEPS, or back through them, and through the stages of each. A moment is one stage of
one step, as the ControlPlane's status and the pods show it; each look asks every load balancer that the kubeconfig
names, by a connection of its own, so that nothing is left of one that has lost its power. What is made at a moment is
made after a look that has seen the upgrade there; a moment that has passed before anybody saw it counts as missed.
Processes are killed in the lab's own hosts, whose process ids no other host has.

Dangers: right after a power cut the status says what it said before. So a moment may be seen late, but none that was
not there. A kubelet starts what is killed again and again later and later (0, 10, 20, 40 s): four kills of one thing
are what a case has time for.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from direct import asked_at
from harness import TestCluster, kill_when
from kills import killed
from leases import leader
from rollouts import API, CONTROLLER_MANAGER, PROXY, SCHEDULER, component
from survival import AGENT

from autarky.kube.kubeconfig import read_kubeconfig

OPERATOR = "deploy/autarky-operator"
OPERATORS = "python3 -m autarky[.]agents[.]operator"
"""The pattern of operators' command lines, which finds no shell that looks for it."""
SERVERS = frozenset({component(API)})
SIDE_BY_SIDE = frozenset(map(component, (CONTROLLER_MANAGER, SCHEDULER, PROXY)))
KUBELETS = frozenset({"kubelet"})
STEPS = (SERVERS, SIDE_BY_SIDE)
"""Up a minor. Kubelets follow when it is complete, or while kube-proxy is only watched still."""
BACK = (KUBELETS, SIDE_BY_SIDE, SERVERS)
"""Down a minor."""
MOMENT_SECONDS = 300.0
"""From one moment to the next: with a reboot between them, each clock of the operator and the agents begins again."""
END_SECONDS = 480.0
ANSWER_SECONDS = 3.0
KILL_SECONDS = 60.0
"""What was killed before may be started again that late."""
LONGEST_OUTAGE_OF_ALL = 75.0
"""From a power cut of every control node to the next look at what runs. About 30 s are usual."""
_PLANE = "/apis/autarky.dev/v1alpha1/controlplanes/cluster"
_PODS = "/api/v1/namespaces/kube-system/pods?labelSelector="
_NODES = "/api/v1/nodes"
_REPORT = "autarky.dev/kubelet"
_CHANGING, _PROVING = ("Staging", "Draining", "Switching"), "Proving"
"""States in what a node's agent says of its kubelet."""
_FOLLOWS = "its standby on "
"""In the sentence of an upgrade that waits for standbys."""


class Stage(IntEnum):
    """Of one step, in their order."""

    BEGUN = 0
    """Noted, or more: the operator says that it is at this component."""
    HALF_WAY = 1
    """A pod of the new version is there, and is not Ready. On several nodes, by turns with the stage before. A kubelet
    is being changed."""
    PROVING = 2
    """All are of the new version and Ready, and have not been for long enough to be found healthy. A kubelet runs, and
    is on trial."""
    FOLLOWING = 3
    """They were found healthy, and a standby is still of the version before. Short, where agents were not disturbed:
    they wait for as long as the operator does."""


class Moment(NamedTuple):
    """step: by its number, on this way."""

    step: int
    stage: Stage


@dataclass(frozen=True)
class Look:
    """moment: None where nobody answers, before the upgrade has begun, and when it has ended. ended: it is complete, or
    a step has gone back, and it has stopped there. says: the operator."""

    moment: Moment | None = None
    ended: bool = False
    stopped: bool = False
    says: str = "nothing"


@dataclass
class Upgrade:
    """One that is under way, or is about to be. steps: what it goes through."""

    cluster: TestCluster
    wanted: str
    steps: Sequence[frozenset[str]] = STEPS
    _servers: list[str] = field(init=False)

    def __post_init__(self) -> None:
        found = read_kubeconfig(self.cluster.directory / "kubeconfig")
        self._servers = [found.server, *found.others]

    def look(self) -> Look:
        plane = self._asked(_PLANE)
        if plane is None:
            return Look()
        status = plane.get("status", {})
        said = status.get("upgrade") or {}
        if status.get("version") == self.wanted and not said:
            return Look(ended=True, says="it is complete")
        if said.get("wanted") != self.wanted:
            return Look()
        says = f"{said['state']} {said.get('component', '')}: {said['message']}"
        if said["state"] == "Stopped":
            return Look(ended=True, stopped=True, says=says)
        number = next((number for number, step in enumerate(self.steps) if said.get("component") in step), None)
        stage = None if number is None else self._stage(self.steps[number], said["message"])
        return Look(None if number is None or stage is None else Moment(number, stage), says=says)

    def _stage(self, step: frozenset[str], message: str) -> Stage | None:
        """None where nobody says which pods there are."""
        if step == KUBELETS:
            return self._stage_of_kubelets()
        if _FOLLOWS in message:
            return Stage.FOLLOWING
        found = self._asked(_PODS + quote(f"k8s-app in ({','.join(sorted(step))}),autarky.dev/slot=hosted"))
        if found is None:
            return None
        pods = [pod for pod in found["items"] if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        new = [pod for pod in pods if _image(pod).endswith(f":{self.wanted}") and not _ends(pod)]
        if any(not _is_ready(pod) for pod in new):
            return Stage.HALF_WAY
        all_are_new = len(new) == len(pods) and {_component(pod) for pod in new} == step
        return Stage.PROVING if all_are_new else Stage.BEGUN

    def _stage_of_kubelets(self) -> Stage | None:
        found = self._asked(_NODES)
        if found is None:
            return None
        said = [json.loads(one["metadata"].get("annotations", {}).get(_REPORT) or "{}") for one in found["items"]]
        states = {one.get("state") for one in said}
        return Stage.PROVING if _PROVING in states else Stage.HALF_WAY if states & {*_CHANGING} else Stage.BEGUN

    def _asked(self, path: str) -> Mapping[str, Any] | None:
        """Of whoever answers; who has answered last comes first."""
        for server in list(self._servers):
            url = urlsplit(server)
            assert url.hostname is not None
            said = asked_at(self.cluster, url.hostname, url.port or 443, path, seconds=ANSWER_SECONDS)
            if said is not None:
                self._servers = [server, *(one for one in self._servers if one != server)]
                found: dict[str, Any] = json.loads(said)
                return found
        return None

    def reaches(self, moment: Moment) -> Look:
        """As soon as it is there, or past it, or has ended."""

        def there(look: Look) -> bool:
            return look.ended or (look.moment is not None and look.moment >= moment)

        return self._look_until(f"the upgrade is at {self.named(moment)}", there, MOMENT_SECONDS)

    def is_over(self) -> Look:
        """As soon as it is complete, or has stopped."""
        return self._look_until("the upgrade is over", lambda look: look.ended, END_SECONDS, pause=1)

    def _look_until(self, what: str, there: Callable[[Look], bool], seconds: float, *, pause: float = 0.1) -> Look:
        look = Look()

        def looked() -> bool:
            nonlocal look
            look = self.look()
            return there(look)

        try:
            self.cluster.wait(what, looked, seconds=seconds, pause=pause)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says: {look.says}") from error
        return look

    def named(self, moment: Moment) -> str:
        """For people."""
        return f"{', '.join(sorted(self.steps[moment.step]))} ({moment.stage.name.lower().replace('_', ' ')})"

    def is_asked_for_by_a_command_that_is_killed(self) -> None:
        """`autarky upgrade`, as soon as the upgrade has begun: it goes on without."""
        argv = ["upgrade", self.wanted, "--cluster", self.cluster.name, "-o", "plain"]
        status = kill_when(argv, lambda: self.reaches(Moment(0, Stage.BEGUN)))
        assert status == -signal.SIGKILL, f"the command had ended with {status}"


def _image(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _component(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["k8s-app"])


def _ends(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


# --- interrupting ----------------------------------------------------------------------------------------


@dataclass
class Interruptions:
    """made: where the upgrade was just before, and what came then. missed: the same of moments that nobody saw."""

    upgrade: Upgrade
    made: list[tuple[Moment, str]] = field(default_factory=list)
    missed: list[tuple[Moment, str]] = field(default_factory=list)

    def at(self, moment: Moment, what: str, interrupt: Callable[[], object]) -> None:
        """Exactly there, or not at all."""
        look = self.upgrade.reaches(moment)
        self._made(look.moment if look.moment == moment else None, moment, what, interrupt)

    def after(self, moment: Moment, seconds: float, what: str, interrupt: Callable[[], object]) -> None:
        """So long after it, wherever the upgrade is then, unless it is over."""
        self.upgrade.reaches(moment)
        time.sleep(seconds)
        self._made(self.upgrade.reaches(Moment(0, Stage.BEGUN)).moment, moment, what, interrupt)

    def _made(self, found: Moment | None, moment: Moment, what: str, interrupt: Callable[[], object]) -> None:
        if found is None:
            self.missed.append((moment, what))
        else:
            interrupt()
            self.made.append((found, what))

    def each_was_made_at(self, moments: Iterable[Moment]) -> None:
        """And at each step in each way that was tried there, in one of its stages at least."""
        there = {moment for moment, _ in self.made}
        lacking = [self.upgrade.named(moment) for moment in moments if moment not in there]
        assert lacking == [], f"nothing came at {lacking}: {self}"
        made, missed = ({(moment.step, what) for moment, what in found} for found in (self.made, self.missed))
        assert {step for step, _ in made} == set(range(len(self.upgrade.steps))), f"a step was not interrupted: {self}"
        assert missed <= made, f"a step was not interrupted in each way: {self}"

    def __str__(self) -> str:
        made = [f"{what} at {self.upgrade.named(moment)}" for moment, what in self.made]
        missed = [f"no {what}: {self.upgrade.named(moment)} was not seen" for moment, what in self.missed]
        return "; ".join([*made, *missed])


def kill_the_operator_that_leads(cluster: TestCluster) -> None:
    """Its process, by SIGKILL: its lease stays with it until that is over."""

    def was_killed() -> bool:
        node = leader(cluster, OPERATOR)
        return bool(node) and bool(killed(cluster, node, f"pgrep -f '{OPERATORS}'"))

    cluster.wait("the operator that leads was killed", was_killed, seconds=KILL_SECONDS)


def kill_the_agents(cluster: TestCluster, node: str) -> None:
    """All processes of them on the node, the parked one as well."""
    look = f"pgrep -f '{AGENT}'"
    cluster.wait(f"the agents of {node} were killed", lambda: killed(cluster, node, look), seconds=KILL_SECONDS)


def an_operator_runs(cluster: TestCluster, node: str) -> bool:
    return bool(cluster.shell(node, f"pgrep -f '{OPERATORS}' || true").strip())
