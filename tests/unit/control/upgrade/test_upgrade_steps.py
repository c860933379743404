"""Steps of an upgrade, in a cluster where everything may be late, fail, or be set by hand: the skew rules hold at every
moment, nothing that failed is tried again, and it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autarky.control.upgrade.decide.steps import ORDER, Decision, Part, Seen, Step, decide
from autarky.model.components import API_SERVER, KUBE_PROXY
from autarky.model.versions import Version
from e2e.watching import violations

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
NODES = ("n1", "n2", "n3")


@dataclass
class Cluster:
    """The template of each component, what runs on each node, the standbys, and whose agents do not report theirs.
    slow: the component to which something happens only while all others are as they are wanted."""

    up: bool
    slow: str | None = None
    template: dict[str, Version] = field(default_factory=dict)
    pods: dict[str, dict[str, Version]] = field(default_factory=dict)
    standbys: dict[str, dict[str, Version]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in ORDER:
            self.template[name] = self.runs
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
        in_place = set(self.pods[name].values()) == {self.template[name]}
        standbys = {node: None if node in self.silent else one for node, one in self.standbys[name].items()}
        return Part(name, self.template[name], in_place, standbys, self.failed.get(name, ""))

    def goes_on(self, component: str, node: str) -> None:
        """A pod, or a standby, becomes what is wanted of it."""
        if self.pods[component][node] != self.template[component]:
            self.pods[component][node] = self.template[component]
        elif node in self.standbys[component]:
            self.standbys[component][node] = self.template[component]

    def rolls_out(self, component: str) -> None:
        """All pods become what is wanted of them; no standby does."""
        self.pods[component] = dict.fromkeys(NODES, self.template[component])

    def fails(self, component: str) -> None:
        """What was found good is never rolled back."""
        on_trial = set(self.pods[component].values()) != {self.wanted} and self.template[component] == self.wanted
        if on_trial and component not in self.failed:
            self.template[component], self.failed[component] = self.runs, "it did not start"
            self.pods[component] = dict.fromkeys(NODES, self.runs)

    def check(self) -> None:
        """Rules 4 and 11: of whatever runs, and of whatever a crash would have run on any node."""
        assert list(violations({name: {one.minor for one in self.versions(name)} for name in ORDER})) == []

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
    lagging = [name for name in ORDER if cluster.versions(name) != {cluster.template[name]}]
    lagging = [name for name in lagging if name != cluster.slow] or lagging or list(ORDER)
    component = lagging[number % len(lagging)]
    match what:
        case "moves":
            cluster.goes_on(component, node)
        case "rolls out":
            cluster.rolls_out(component)
        case "has standbys" if set(cluster.pods[component].values()) == {cluster.template[component]}:
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


def test_it_waits_for_standbys() -> None:
    cluster = Cluster(up=True)
    cluster.template[API_SERVER] = NEW
    cluster.pods[API_SERVER] = dict.fromkeys(NODES, NEW)
    cluster.standbys[API_SERVER] = dict.fromkeys(NODES, NEW) | {"n2": OLD}
    waits = decide(cluster.seen())
    assert (waits.step, "standby on n2" in waits.sentence) == (Step.WAIT, True)
    cluster.standbys[API_SERVER]["n2"] = NEW
    assert decide(cluster.seen()).step is Step.SET


def test_level_3_is_rolled_out_side_by_side_and_before_the_api_servers_go_down() -> None:
    for up in (True, False):
        cluster = Cluster(up)
        if up:
            for node in NODES * 2:
                cluster.template[API_SERVER] = NEW
                cluster.goes_on(API_SERVER, node)
        set_now = [one_pass(cluster).component for _ in ORDER[1:]]
        assert sorted(set_now) == sorted(ORDER[1:])
        waits = one_pass(cluster)
        assert waits.step is Step.WAIT
        assert all(name in waits.sentence for name in ORDER[1:]), waits
        for name in set_now[:2]:
            for node in NODES:
                cluster.goes_on(name, node)
        waits = one_pass(cluster)
        assert (waits.step, waits.component) == (Step.WAIT, set_now[2])


def test_what_somebody_has_set_by_hand_is_a_step_or_stops_it() -> None:
    cluster = Cluster(up=True)
    for name in ORDER[:2]:
        cluster.template[name] = NEW
        cluster.pods[name] = dict.fromkeys(NODES, NEW)
        cluster.standbys[name] = dict.fromkeys(NODES, NEW)
    assert decide(cluster.seen()).component == ORDER[2]
    seen = cluster.seen()
    odd = replace(seen, parts=[replace(one, version=None) if one.name == ORDER[2] else one for one in seen.parts])
    stopped = decide(odd)
    assert (stopped.step, stopped.component) == (Step.STOP, ORDER[2])
