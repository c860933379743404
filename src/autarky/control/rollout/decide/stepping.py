"""Which pod of a DaemonSet the operator replaces itself, where a rollout is stuck because nodes are away, or because
one worker lags. Pure.

The DaemonSet controller counts each node whose pod is not available. With one node off and `maxUnavailable: 1` it
replaces no other pod until that node returns, which may be never. The same happens with a worker on which the new pod
does not become available: the node may be faulty, or an attacker on it could block every rollout on all others.

Contract: `decide(observed)` names a pod only if all of this holds:
- the controller itself can replace none: it counts as many unavailable nodes as it may, and has observed the wanted
  template;
- every node that it counts is away, which is not Ready for AWAY_SECONDS (rule 2: a node that has just fallen silent is
  not gone); or says that the revision may not be in force there (a hosted kubelet, where another one is wanted), or has
  waited for its turn for LAG_SECONDS, which says nothing of the template; except for one that lags: a worker whose pod
  has not become available for LAG_SECONDS, or only now and then. If a second one lags whose node is Ready, the template
  is in doubt (`decide.verdict`), and the rollout stops. (Not that of what control nodes alone judge: on the way to
  these any number of workers is passed over; nor where it is a pod of before that does not finish terminating.)
- every other node is Ready and has one pod, which is available: no other living pod is stopping or starting;
- the pod is on a living node, and not of the wanted revision.
So one living pod is replaced at a time, as if the skipped nodes did not belong to the DaemonSet; control nodes first,
of which one failure is enough to roll the template back.

The DaemonSet itself is not changed, so that nothing has to be restored in time when the node returns: then the
controller counts the pod that is being replaced, and replaces no second one. (Raising `maxUnavailable` would work
until a node returns: as soon as its pod is Ready, the controller may replace two living pods at once.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

AWAY_SECONDS = 60.0
"""How long a node has not been Ready when it counts as away. By then a terminating pod has usually stopped if its node
lives."""
LAG_SECONDS = 90.0
"""How long a worker's pod has not been available when the rollout goes on without it: the default time limit after
which its revision is judged."""
SERVES_SECONDS = 40.0
"""How long without a break it must have served since, to be waited for again: as long as a revision is proven."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One that is not terminating. new: of the wanted revision; available: Ready, as the kubelet or the API says."""

    name: str
    new: bool
    available: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A node that the DaemonSet selects. ending: whether a pod of it terminates there. trusted: it is a control node.
    lags: it was first `on_its_way` LAG_SECONDS ago, and has not served for SERVES_SECONDS since. refused: its node says
    that what is new may not be in force there, so that it never becomes available; waits: that it has yet to get its
    turn."""

    node: str
    ready: bool
    away: bool
    pods: tuple[Pod, ...]
    ending: bool = False
    trusted: bool = True
    lags: bool = False
    refused: bool = False
    waits: bool = False

    @property
    def counted(self) -> bool:
        """Whether the controller counts it as unavailable, in any version. (An old pod that is not available is counted
        by some versions, and replaced by all: then it terminates, and is counted by all.)"""
        return len(self.pods) != 1 or (self.pods[0].new and not self.pods[0].available)

    @property
    def on_its_way(self) -> bool:
        """A worker that has no available pod, or is not Ready: it lags, if that lasts. Whatever it says of itself
        meanwhile: one that is Ready now and then would be neither away nor late, and hold up everybody else. A control
        node only while it waits."""
        return self.waits or (not self.trusted and (self.counted or self.ending or not self.ready))

    @property
    def passed_over(self) -> bool:
        return self.away or self.refused or (self.lags and (self.waits or not self.trusted))

    @property
    def serves(self) -> bool:
        return self.ready and not self.ending and len(self.pods) == 1 and self.pods[0].available

    @property
    def is_available(self) -> bool:
        """Whether the controller may count it as available: a kubelet may call a pod Ready while its node is not."""
        return any(pod.available for pod in self.pods)

    @property
    def doubts(self) -> bool:
        """Whether it lags because of what the template makes there. A former pod that does not finish terminating is no
        such thing, nor is one that has yet to be tried, nor what is on a node that is not Ready (rule 2), also for
        shorter than it takes to be away."""
        doubtful = self.lags and not (self.refused or self.waits)
        return doubtful and self.ready and not self.is_available and bool(self.pods or not self.ending)

    @property
    def old(self) -> Pod | None:
        """The pod that a rollout has yet to replace."""
        return next((pod for pod in self.pods if not pod.new), None)


@dataclass(frozen=True, slots=True)
class Observed:
    """known: whether the controller has observed the wanted template, and what is seen is current.

    most: how many nodes may be unavailable. desired, unavailable: as the controller counts them in the status.
    by_workers: whether pods on workers say anything about what control nodes should have.
    """

    known: bool
    most: int
    desired: int
    unavailable: int
    places: tuple[Place, ...]
    by_workers: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """pod: the one to be replaced, on `node`; None: none now, for the reason in the sentence. open: whether there may
    be one soon, without any other change."""

    sentence: str
    open: bool = False
    pod: str | None = None
    node: str = ""


def not_ready_since(before: Mapping[str, float], ready: Mapping[str, bool], now: float) -> dict[str, float]:
    """Node → since when (monotonic seconds) it is not Ready. `ready`: of each node there is."""
    return {node: before.get(node, now) for node, is_ready in ready.items() if not is_ready}


def is_away(since: float | None, now: float) -> bool:
    return since is not None and now - since >= AWAY_SECONDS


@dataclass(frozen=True, slots=True)
class Lag:
    """since: when (monotonic seconds) the worker was first on its way; serves: since when it has served without a
    break; None while it does not."""

    since: float
    serves: float | None = None


def followed(before: Mapping[str, Lag], places: Iterable[Place], now: float) -> dict[str, Lag]:
    """Those that are on their way, or were since the rollout began: else two of them, by turns, would never lag."""
    found: dict[str, Lag] = {}
    for place in places:
        lag = before.get(place.node, Lag(now))
        serves = now if lag.serves is None else lag.serves
        if place.on_its_way:
            found[place.node] = replace(lag, serves=None)
        elif place.node in before:
            found[place.node] = replace(lag, serves=serves)
    return found


def lags(lag: Lag | None, now: float) -> bool:
    if lag is None or now - lag.since < LAG_SECONDS:
        return False
    return lag.serves is None or now - lag.serves < SERVES_SECONDS


def decide(observed: Observed) -> Step:
    """See the module's contract."""
    old = [(place, place.old) for place in observed.places if not place.passed_over and place.old is not None]
    if not old:
        return Step("every node that is not away has the wanted revision")
    if all(place.ready and not place.on_its_way and not place.refused for place in observed.places):
        return Step("no node is away")
    place, pod = min(old, key=lambda one: (not one[0].trusted, one[0].node))
    if why := _not_yet(observed, place):
        return Step(why, open=True)
    sentence = f"the rollout goes on without {_without(observed)}: pod {pod.name} on {place.node} is replaced"
    return Step(sentence, open=True, pod=pod.name, node=place.node)


def _not_yet(observed: Observed, following: Place) -> str:
    """Why no pod may be replaced now; empty where one may. following: where that would be."""
    passed = [place for place in observed.places if place.passed_over]
    doubting = sorted(place.node for place in passed if place.doubts)
    if not observed.known:
        return "the DaemonSet controller has not observed the wanted template yet"
    if not passed or sum(place.counted for place in observed.places) < observed.most:
        return "the DaemonSet controller continues by itself, or will"
    if len(doubting) > 1 and (observed.by_workers or not following.trusted):
        return f"{', '.join(doubting)} have no available pod: the template may be the cause"
    if waits := sorted(place.node for place in observed.places if not place.passed_over and not place.serves):
        return f"pods are replaced one at a time: {', '.join(waits)} has no available pod"
    # A pod that does not finish terminating may still be available, as its kubelet says.
    least = sum(not place.is_available and not (place.lags and place.ending) for place in passed)
    if observed.desired != len(observed.places) or not least <= observed.unavailable <= len(passed):
        return "the DaemonSet controller counts other nodes than the operator sees"
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
    """Names of the skipped nodes."""
    passed = [one for one in observed.places if one.passed_over]
    return sorted(one.node for one in passed if ((one.lags or one.refused) and not one.away) is lags)


def most_unavailable(strategy: Mapping[str, object], desired: int) -> int | None:
    """`maxUnavailable` of the update strategy as a number; None where the operator must not act: pods are replaced by
    hand (OnDelete), or a new one is started beside the old one."""
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return None
    rolling = strategy.get("rollingUpdate") or {}
    if not isinstance(rolling, Mapping) or rolling.get("maxSurge") not in (None, 0, "0%"):
        return None
    most = rolling.get("maxUnavailable", 1)
    if isinstance(most, str):
        return -(-desired * int(most.removesuffix("%")) // 100)
    return int(most)
