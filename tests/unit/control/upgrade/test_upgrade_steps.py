"""Steps of an upgrade, in a cluster where everything may be late, fail, or be set by hand: the skew rules hold at every
moment, also with the kubelets that follow early, nothing that failed is tried again, and it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autarky.control.upgrade.decide.steps import ORDER, Decision, Part, Seen, Step, decide, kubelets_may_follow
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version
from e2e.watching import violations

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
NODES = ("n1", "n2", "n3")


@dataclass
class Cluster:
    """The template of each component, what runs on each node, what was found good, the standbys, and whose agents do
    not report theirs. slow: the component to which something happens only while all others are as they are wanted.
    may_follow: whether kubelets ever could; early: before all the rest was found good."""

    up: bool
    slow: str | None = None
    template: dict[str, Version] = field(default_factory=dict)
    pods: dict[str, dict[str, Version]] = field(default_factory=dict)
    good: dict[str, Version] = field(default_factory=dict)
    standbys: dict[str, dict[str, Version]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    may_follow: bool = False
    early: bool = False

    def __post_init__(self) -> None:
        for name in ORDER:
            self.template[name] = self.good[name] = self.runs
            self.pods[name] = dict.fromkeys(NODES, self.runs)
            self.standbys[name] = {} if name == KUBE_PROXY else dict.fromkeys(NODES, self.runs)

    @property
    def runs(self) -> Version:
        return OLD if self.up else NEW

    @property
    def wanted(self) -> Version:
        return NEW if self.up else OLD

    @property
    def last_of_all(self) -> tuple[str, ...]:
        """The components that the way ends with."""
        return ORDER[1:] if self.up else ORDER[:1]

    def seen(self) -> Seen:
        return Seen(self.wanted, frozenset({OLD, NEW}), [self.part(name) for name in ORDER])

    def part(self, name: str) -> Part:
        standbys = {node: None if node in self.silent else one for node, one in self.standbys[name].items()}
        failed, rolled_out = self.failed.get(name, ""), self.is_rolled_out(name)
        return Part(name, self.template[name], self.is_in_place(name), standbys, failed, rolled_out=rolled_out)

    def is_rolled_out(self, name: str) -> bool:
        return set(self.pods[name].values()) == {self.template[name]}

    def is_in_place(self, name: str) -> bool:
        return self.is_rolled_out(name) and self.good[name] == self.template[name]

    def goes_on(self, component: str, node: str) -> None:
        """A pod becomes what is wanted of it; then all are found good, and then a standby does."""
        if self.pods[component][node] != self.template[component]:
            self.pods[component][node] = self.template[component]
        elif self.is_rolled_out(component) and not self.is_in_place(component):
            self.good[component] = self.template[component]
        elif node in self.standbys[component]:
            self.standbys[component][node] = self.template[component]

    def rolls_out(self, component: str) -> None:
        """All pods become what is wanted of them, and are not found good yet; no standby does."""
        self.pods[component] = dict.fromkeys(NODES, self.template[component])

    def has(self, component: str) -> None:
        """Everything that is wanted of it."""
        for node in NODES * 3:
            self.goes_on(component, node)

    def fails(self, component: str) -> None:
        """What was found good is never rolled back."""
        on_trial = self.good[component] != self.wanted and self.template[component] == self.wanted
        if on_trial and component not in self.failed:
            self.template[component], self.failed[component] = self.runs, "it did not start"
            self.pods[component] = dict.fromkeys(NODES, self.runs)

    def check(self) -> None:
        """Rules 4 and 11: of whatever runs, and of whatever a crash would have run on any node."""
        assert list(violations({name: {one.minor for one in self.versions(name)} for name in ORDER})) == []
        self.check_kubelets()

    def check_kubelets(self) -> None:
        """No API server is, or ever becomes, older than those that follow."""
        if kubelets_may_follow(self.seen()):
            self.may_follow = True
            self.early |= not all(self.is_in_place(name) for name in ORDER)
            assert self.up or decide(self.seen()).step is Step.FINISH, "on the way down they have gone first"
            assert all(set(self.pods[name].values()) == {self.wanted} for name in ORDER)
            assert all(self.is_in_place(name) for name in ORDER if name != KUBE_PROXY)
        assert not self.may_follow or self.versions(API_SERVER) == {self.wanted}

    def versions(self, component: str) -> set[Version]:
        """In both slots."""
        return {*self.pods[component].values(), *self.standbys[component].values()}


Event = tuple[str, int, str]
"""What happens, to which of the components that are not as they are wanted, and on which node."""
WHAT = ("moves", "moves", "moves", "rolls out", "rolls out", "has standbys", "has standbys", "all report", "is silent")
EVENTS = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, len(ORDER) - 1), st.sampled_from(NODES)), min_size=25, max_size=60
)
FAILURES = st.none() | st.tuples(st.integers(0, 40), st.sampled_from(ORDER))
"""At most one, before that event: it ends the plan."""
CLUSTERS = st.builds(Cluster, st.booleans(), st.none() | st.sampled_from(ORDER))


def happens(cluster: Cluster, event: Event) -> None:
    what, number, node = event
    settled = [
        name for name in ORDER if cluster.versions(name) == {cluster.template[name]} and cluster.is_in_place(name)
    ]
    lagging = [name for name in ORDER if name not in settled]
    lagging = [name for name in lagging if name != cluster.slow] or lagging or list(ORDER)
    component = lagging[number % len(lagging)]
    match what:
        case "moves":
            cluster.goes_on(component, node)
        case "rolls out":
            cluster.rolls_out(component)
        case "has standbys" if cluster.is_rolled_out(component):
            for each in NODES:
                cluster.goes_on(component, each)
        case "is silent":
            cluster.silent.add(node)
        case "all report":
            cluster.silent.clear()


def happen(cluster: Cluster, events: list[Event], failure: tuple[int, str] | None) -> None:
    for number, event in enumerate(events):
        one_pass(cluster)
        if failure is not None and failure[0] == number:
            cluster.fails(failure[1])
        happens(cluster, event)
        cluster.check()


@given(CLUSTERS, EVENTS, FAILURES)
@settings(max_examples=300)
def test_rule_4_holds_at_every_moment_and_it_ends(
    cluster: Cluster, events: list[Event], failure: tuple[int, str] | None
) -> None:
    """Whoever leads decides by what is seen: there is nothing that another operator would not know."""
    happen(cluster, events, failure)
    cluster.silent.clear()
    for _ in range(100):
        decision = one_pass(cluster)
        for component in ORDER:
            for node in NODES:
                cluster.goes_on(component, node)
                cluster.check()
        if decision.step in (Step.FINISH, Step.STOP):
            break
    assert decision.step is (Step.STOP if cluster.failed else Step.FINISH)
    if decision.step is Step.STOP:
        assert decision.component in cluster.failed
    else:
        assert all(cluster.versions(name) == {cluster.wanted} for name in ORDER), "it ends with everything in place"
        assert cluster.may_follow


def test_these_events_lead_to_the_last_steps_of_either_way() -> None:
    """Else the test before this one would show nothing of them: in a quarter of its examples."""
    reached = dict[bool, list[bool]]({True: [], False: []})

    @given(CLUSTERS, EVENTS, FAILURES)
    @settings(max_examples=200, phases=[Phase.generate], database=None)
    def some(cluster: Cluster, events: list[Event], failure: tuple[int, str] | None) -> None:
        happen(cluster, events, failure)
        reached[cluster.up].append(cluster.begun >= set(cluster.last_of_all))

    some()
    for found in reached.values():
        assert sum(found) > len(found) / 4, f"{sum(found)} of {len(found)}"


def one_pass(cluster: Cluster) -> Decision:
    decision = decide(cluster.seen())
    if decision.step is Step.SET:
        assert decision.component not in cluster.failed, "what was rolled back is tried again"
        cluster.template[decision.component] = cluster.wanted
        cluster.begun.add(decision.component)
    return decision


@pytest.mark.parametrize("up", [True, False])
def test_on_a_plain_way_up_kubelets_may_follow_before_it_is_complete_and_on_the_way_down_none_does(*, up: bool) -> None:
    cluster = Cluster(up)
    while one_pass(cluster).step is not Step.FINISH:
        for component in ORDER:
            for node in NODES:
                cluster.goes_on(component, node)
                cluster.check()
    assert cluster.early is up


def test_it_waits_for_standbys() -> None:
    cluster = Cluster(up=True)
    cluster.template[API_SERVER] = NEW
    cluster.has(API_SERVER)
    cluster.standbys[API_SERVER]["n2"] = OLD
    waits = decide(cluster.seen())
    assert (waits.step, "standby on n2" in waits.sentence) == (Step.WAIT, True)
    cluster.standbys[API_SERVER]["n2"] = NEW
    assert decide(cluster.seen()).step is Step.SET


def test_level_3_is_rolled_out_side_by_side_and_before_the_api_servers_go_down() -> None:
    for up in (True, False):
        cluster = Cluster(up)
        if up:
            cluster.template[API_SERVER] = NEW
            cluster.has(API_SERVER)
        set_now = [one_pass(cluster).component for _ in ORDER[1:]]
        assert sorted(set_now) == sorted(ORDER[1:])
        waits = one_pass(cluster)
        assert waits.step is Step.WAIT
        assert all(name in waits.sentence for name in ORDER[1:]), waits
        for name in set_now[:2]:
            cluster.has(name)
        waits = one_pass(cluster)
        assert (waits.step, waits.component) == (Step.WAIT, set_now[2])


def test_what_somebody_has_set_by_hand_is_a_step_or_stops_it() -> None:
    cluster = Cluster(up=True)
    for name in ORDER[:2]:
        cluster.template[name] = NEW
        cluster.has(name)
    assert decide(cluster.seen()).component == ORDER[2]
    seen = cluster.seen()
    odd = replace(seen, parts=[replace(one, version=None) if one.name == ORDER[2] else one for one in seen.parts])
    stopped = decide(odd)
    assert (stopped.step, stopped.component) == (Step.STOP, ORDER[2])


def kube_proxy_is_watched() -> Seen:
    cluster = Cluster(up=True)
    for name in ORDER:
        cluster.template[name] = NEW
        if name != KUBE_PROXY:
            cluster.has(name)
    cluster.rolls_out(KUBE_PROXY)
    return cluster.seen()


def test_kubelets_may_follow_while_kube_proxy_is_only_watched() -> None:
    seen = kube_proxy_is_watched()
    assert decide(seen).step is Step.WAIT
    assert kubelets_may_follow(seen)
    assert not kubelets_may_follow(replace(seen, wanted=OLD)), "given up: the way down begins at that moment"
    assert kubelets_may_follow(replace(seen, parts=seen.parts[:1])), "where nothing else is hosted"


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        *[(API_SERVER, {"in_place": False, "rolled_out": True}), (API_SERVER, {"version": OLD})],
        *[(API_SERVER, {"emulates": "1.36", "standbys": {}}), (API_SERVER, {"foreign": "1.36"})],
        (API_SERVER, {"standbys": {"n1": NEW, "n2": OLD}}),
        (API_SERVER, {"standbys": {"n1": NEW, "n2": None}}),
        (API_SERVER, {"standbys_emulate": {"n3": "1.36"}}),
        *[(name, {"in_place": False, "rolled_out": True}) for name in (CONTROLLER_MANAGER, SCHEDULER)],
        (KUBE_PROXY, {"rolled_out": False}),
        *[(name, {"version": OLD, "in_place": True}) for name in ORDER[1:]],
        (ORDER[1], {"emulates": "1.36"}),
    ],
)
def test_and_not_while_anything_else_is_left(name: str, differs: dict[str, Any]) -> None:
    """Of the API servers: to be found good, in the standbys too, and with nothing that they emulate."""
    seen = kube_proxy_is_watched()
    parts = [replace(one, **differs) if one.name == name else one for one in seen.parts]
    assert not kubelets_may_follow(replace(seen, parts=parts))
