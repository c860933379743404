"""Which pod of a DaemonSet the operator replaces itself, where a rollout stands still for nodes that are away, or for
one that does not come along. Pure.

The DaemonSet controller counts each node whose pod is not available. With one node off and `maxUnavailable: 1` it takes
no other pod before that node has returned, which may be never. So it does with a worker on which the new pod does not
become available: it may be the node that is ill, or whoever has got it keeps every rollout from all others.

Contract: `decide(observed)` names a pod only if all of this holds:
- the controller itself can take none: it has counted as many nodes as it may, and looked at the wanted template;
- every node that it counts is away, which is not Ready for AWAY_SECONDS (rule 2: what has just fallen silent is not
  gone); but for one, which lags: no control node, and its pod has not come to be available for LAG_SECONDS. With a
  second one that lags it is the template that is in doubt (`decide.verdict`), and nobody goes on;
- every other node is Ready and has one pod, which is available: no other living one is on its way down or up;
- the pod is on a living node, and not of the wanted revision.
So one living pod is replaced at a time, as if the nodes that are passed over were none of the DaemonSet's; control
nodes first, whose word is enough to take the template back.

Nothing of the DaemonSet is changed, so that nothing has to be put back in time when the node returns: then the
controller counts the pod that is being replaced, and takes no second one. (Raising `maxUnavailable` would do the same,
until a node returns: the moment its pod is Ready the controller may take two living pods at once.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AWAY_SECONDS = 60.0
"""How long a node has not been Ready when it counts as away. A pod that was told to end has ended by then, as a rule,
if its node lives."""
LAG_SECONDS = 90.0
"""How long a worker's pod has been on its way when the rollout goes on without it: as long as one has by default until
its revision is judged."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One that is not ending. new: of the wanted revision; available: Ready, as the kubelet or the API says."""

    name: str
    new: bool
    available: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A node that the DaemonSet selects. ending: whether a pod of it ends there. trusted: it is a control node.
    lags: it is Ready and has been on its way for LAG_SECONDS."""

    node: str
    ready: bool
    away: bool
    pods: tuple[Pod, ...]
    ending: bool = False
    trusted: bool = True
    lags: bool = False

    @property
    def counted(self) -> bool:
        """Whether the controller counts it as unavailable, whichever template comes next. (An old pod that is not
        available is counted by some versions, and replaced by all: then it ends, and is counted by all.)"""
        return len(self.pods) != 1 or (self.pods[0].new and not self.pods[0].available)

    @property
    def on_its_way(self) -> bool:
        """A worker that lives and has no available pod of its own: it lags, if that lasts."""
        return self.ready and not self.trusted and (self.counted or self.ending)

    @property
    def passed_over(self) -> bool:
        return self.away or self.lags

    @property
    def serves(self) -> bool:
        return self.ready and not self.ending and len(self.pods) == 1 and self.pods[0].available

    @property
    def old(self) -> Pod | None:
        """The pod that a rollout has yet to replace."""
        return next((pod for pod in self.pods if not pod.new), None)


@dataclass(frozen=True, slots=True)
class Observed:
    """known: whether the controller has looked at the wanted template, and what is seen is now.

    most: how many it lets be unavailable. desired, unavailable: as it counts them in the status.
    """

    known: bool
    most: int
    desired: int
    unavailable: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """pod: that is to be replaced, on `node`; None: nothing now, for the reason in the sentence. open: whether there
    may be one soon, with nothing else changing."""

    sentence: str
    open: bool = False
    pod: str | None = None
    node: str = ""


def not_ready_since(before: Mapping[str, float], ready: Mapping[str, bool], now: float) -> dict[str, float]:
    """Node → since when (monotonic seconds) it is not Ready. `ready`: of each node there is."""
    return {node: before.get(node, now) for node, is_ready in ready.items() if not is_ready}


def is_away(since: float | None, now: float) -> bool:
    return since is not None and now - since >= AWAY_SECONDS


def lags(since: float | None, now: float) -> bool:
    return since is not None and now - since >= LAG_SECONDS


def decide(observed: Observed) -> Step:
    """See the module's contract."""
    old = [(place, place.old) for place in observed.places if not place.passed_over and place.old is not None]
    if not old:
        return Step("every node that is there has the wanted revision")
    if all(place.ready and not place.on_its_way for place in observed.places):
        return Step("no node is away")
    if why := _not_yet(observed):
        return Step(why, open=True)
    place, pod = min(old, key=lambda one: (not one[0].trusted, one[0].node))
    sentence = f"the rollout goes on without {_without(observed)}: pod {pod.name} on {place.node} is replaced"
    return Step(sentence, open=True, pod=pod.name, node=place.node)


def _not_yet(observed: Observed) -> str:
    """Why no pod may be replaced now; empty where one may."""
    passed, lagging = [place for place in observed.places if place.passed_over], _names(observed, lags=True)
    if not observed.known:
        return "the controller has not looked at the wanted template yet"
    if not passed or sum(place.counted for place in observed.places) < observed.most:
        return "the controller goes on by itself, or will"
    if len(lagging) > 1:
        return f"{', '.join(lagging)} have no available pod: it may be the template"
    if waits := sorted(place.node for place in observed.places if not place.passed_over and not place.serves):
        return f"one after the other: {', '.join(waits)} has no available pod"
    # A pod that does not come to its end may still be available, as its kubelet says.
    least = len(passed) - sum(place.lags and place.ending for place in passed)
    if observed.desired != len(observed.places) or not least <= observed.unavailable <= len(passed):
        return "the controller counts other nodes than are seen here"
    return ""


def _without(observed: Observed) -> str:
    clauses = [
        f"{', '.join(names)}, {why}"
        for names, why in (
            (_names(observed, lags=False), "not Ready for long"),
            (_names(observed, lags=True), "whose pod does not become available"),
        )
        if names
    ]
    return ", and ".join(clauses)


def _names(observed: Observed, *, lags: bool) -> list[str]:
    """Of the places that are passed over."""
    return sorted(place.node for place in observed.places if place.passed_over and place.lags is lags)


def most_unavailable(strategy: Mapping[str, object], desired: int) -> int | None:
    """`maxUnavailable` of the update strategy as a number; None where the operator has no business: pods are replaced
    by hand (OnDelete), or a new one is started beside the old one."""
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return None
    rolling = strategy.get("rollingUpdate") or {}
    if not isinstance(rolling, Mapping) or rolling.get("maxSurge") not in (None, 0, "0%"):
        return None
    most = rolling.get("maxUnavailable", 1)
    if isinstance(most, str):
        return -(-desired * int(most.removesuffix("%")) // 100)
    return int(most)
