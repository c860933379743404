"""Steps of an upgrade, in a cluster where everything may be late, fail, or be set by hand: the skew rules hold at every
moment, nothing that failed is tried again, and it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.skew import breaks_skew
from autarky.control.upgrade.decide.steps import ORDER, Decision, Part, Seen, Step, decide
from autarky.model.components import API_SERVER, KUBE_PROXY
from autarky.model.versions import Version

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
NODES = ("n1", "n2", "n3")


@dataclass
class Cluster:
    """The template of each component, what runs on each node, and the standbys."""

    up: bool
    lands: list[str] = field(default_factory=list)
    template: dict[str, Version] = field(default_factory=dict)
    pods: dict[str, dict[str, Version]] = field(default_factory=dict)
    standbys: dict[str, dict[str, Version]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

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

    def seen(self) -> Seen:
        parts = [
            Part(
                name,
                self.template[name],
                set(self.pods[name].values()) == {self.template[name]},
                dict(self.standbys[name]),
                self.failed.get(name, ""),
            )
            for name in ORDER
        ]
        return Seen(self.wanted, frozenset({OLD, NEW}), parts)

    def goes_on(self, component: str, node: str) -> None:
        """A pod, or a standby, becomes what is wanted of it."""
        if self.pods[component][node] != self.template[component]:
            self.pods[component][node] = self.template[component]
        elif node in self.standbys[component]:
            self.standbys[component][node] = self.template[component]

    def on_trial(self, component: str) -> bool:
        """What was found good is never rolled back."""
        return self.template[component] == self.wanted and set(self.pods[component].values()) != {self.wanted}

    def check(self) -> None:
        servers = [f"x:{one}" for one in {*self.pods[API_SERVER].values(), *self.standbys[API_SERVER].values()}]
        assert len({one.rpartition(".")[0] for one in servers}) <= 2
        for name in ORDER[1:]:
            for one in {*self.pods[name].values()}:
                assert not breaks_skew(name, f"x:{one}", servers, is_api_server=False), f"{name} {one} beside {servers}"


EVENTS = st.lists(
    st.tuples(st.sampled_from(("moves", "fails")), st.sampled_from(ORDER), st.sampled_from(NODES)),
    max_size=120,
)


@given(st.booleans(), EVENTS)
def test_rule_4_holds_at_every_moment_and_it_ends(up: bool, events: list[tuple[str, str, str]]) -> None:
    """Whoever leads decides by what is seen: there is nothing that another operator would not know."""
    cluster = Cluster(up)
    for what, component, node in events:
        one_pass(cluster)
        match what:
            case "moves":
                cluster.goes_on(component, node)
            case "fails" if cluster.on_trial(component) and component not in cluster.failed:
                cluster.template[component], cluster.failed[component] = cluster.runs, "it did not start"
                cluster.pods[component] = dict.fromkeys(NODES, cluster.runs)
        cluster.check()
    for _ in range(100):
        decision = one_pass(cluster)
        for component in ORDER:
            for node in NODES:
                cluster.goes_on(component, node)
                cluster.check()
        if decision.step in (Step.FINISH, Step.STOP):
            break
    assert decision.step is (Step.STOP if cluster.failed else Step.FINISH)
    assert all(decision.component in cluster.failed for _ in [0] if decision.step is Step.STOP)


def one_pass(cluster: Cluster) -> Decision:
    decision = decide(cluster.seen())
    if decision.step is Step.SET:
        assert decision.component not in cluster.failed, "what was rolled back is tried again"
        cluster.template[decision.component] = cluster.wanted
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
