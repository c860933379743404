"""Steps of an upgrade with a soak, where everything may be late, fail, be given up or asked for again, and whoever
decides may be replaced at any moment: nothing is raised too early, nothing emulates another minor, and it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.common.emulation import EMULATING
from autarky.control.upgrade.decide.steps import (
    ORDER,
    SOAK,
    Decision,
    Part,
    Seen,
    Soak,
    Step,
    decide,
    kubelets_may_follow,
    to_come,
)
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version
from e2e.watching import violations

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
MINOR, SECONDS = "1.36", 60.0
NODES = ("n1", "n2")
Revision = tuple[Version, str]
"""And the minor that it emulates."""


@dataclass
class Cluster:
    """The template of each component, what runs on each node, the standbys, and what was rolled back. followed:
    the version with which kubelets might follow, while that is wanted."""

    wanted: Version = NEW
    seconds: float = SECONDS
    soaked: float = 0.0
    has_soaked: bool = False
    template: dict[str, Revision] = field(default_factory=dict)
    good: dict[str, Revision] = field(default_factory=dict)
    pods: dict[str, dict[str, Revision]] = field(default_factory=dict)
    standbys: dict[str, dict[str, Revision]] = field(default_factory=dict)
    failed: dict[str, set[Revision]] = field(default_factory=dict)
    said: list[Decision] = field(default_factory=list)
    followed: Version | None = None

    def __post_init__(self) -> None:
        for name in ORDER:
            self.template[name] = self.good[name] = (OLD, "")
            self.pods[name] = dict.fromkeys(NODES, (OLD, ""))
            self.standbys[name] = {} if name == KUBE_PROXY else dict.fromkeys(NODES, (OLD, ""))
            self.failed[name] = set()

    def part(self, name: str) -> Part:
        version, emulates = self.template[name]
        return Part(
            name,
            version,
            in_place=self.is_in_place(name),
            standbys={node: one[0] for node, one in self.standbys[name].items()},
            failed="it did not start" if (self.wanted, "") in self.failed[name] else "",
            emulates=emulates,
            standbys_emulate={node: one[1] for node, one in self.standbys[name].items() if one[1]},
            failed_emulating="it did not start" if (self.wanted, MINOR) in self.failed[name] else "",
            rolled_out=self.is_in_place(name),
        )

    def is_in_place(self, name: str) -> bool:
        return set(self.pods[name].values()) == {self.template[name]}

    def seen(self) -> Seen:
        soaks = self.seconds and self.wanted == NEW
        soak = Soak(MINOR, self.seconds, self.soaked) if soaks else None
        return Seen(self.wanted, frozenset({OLD, NEW}), [self.part(name) for name in ORDER], soak)

    def one_pass(self) -> Decision:
        decision = decide(self.seen())
        self.said.append(decision)
        if decision.step is Step.SET:
            target = (self.wanted, decision.emulates)
            assert target not in self.failed[decision.component], "what was rolled back is tried again"
            if decision.component == API_SERVER and target == (NEW, "") and self.seconds:
                self.check_before_raising()
            self.template[decision.component] = target
        if decision.step is Step.SOAK:
            assert all(self.is_new_everywhere(name) for name in ORDER)
            self.soaked += 20.0
            self.has_soaked = self.soaked >= self.seconds
        return decision

    def is_new_everywhere(self, name: str) -> bool:
        emulates = MINOR if name in EMULATING else ""
        return {*self.pods[name].values(), *self.standbys[name].values()} == {(NEW, emulates)}

    def check_before_raising(self) -> None:
        assert self.has_soaked
        assert all(self.is_new_everywhere(name) for name in ORDER)

    def goes_on(self, name: str, node: str) -> None:
        """A pod, or a standby, becomes what is wanted of it; all pods are: that is good."""
        if self.pods[name][node] != self.template[name]:
            self.pods[name][node] = self.template[name]
        elif self.is_in_place(name):
            self.good[name] = self.template[name]
            if node in self.standbys[name]:
                self.standbys[name][node] = self.template[name]

    def rolls_out(self, name: str) -> None:
        """All pods become what is wanted of them; no standby does."""
        self.pods[name] = dict.fromkeys(NODES, self.template[name])
        self.good[name] = self.template[name]

    def fails(self, name: str) -> None:
        """A rollout that is not good yet is rolled back."""
        if self.template[name] != self.good[name] and not self.is_in_place(name):
            self.failed[name].add(self.template[name])
            self.template[name] = self.good[name]
            self.pods[name] = dict.fromkeys(NODES, self.good[name])

    def wants(self, version: Version) -> None:
        """The operator forgets a soak of another version, and verdicts expire."""
        if version != self.wanted:
            self.wanted, self.soaked, self.has_soaked, self.followed = version, 0.0, False, None
            self.failed = {name: set() for name in ORDER}

    def check(self) -> None:
        for name in ORDER:
            for version, emulates in {self.template[name], *self.pods[name].values(), *self.standbys[name].values()}:
                assert emulates in ("", MINOR)
                assert not emulates or (version == NEW and name in EMULATING)
        running = {*self.pods[API_SERVER].values(), *self.standbys[API_SERVER].values()}
        self.check_kubelets(running)
        both = {name: {*self.pods[name].values(), *self.standbys[name].values()} for name in ORDER}
        assert list(violations({name: {version.minor for version, _ in found} for name, found in both.items()})) == []
        for name in ORDER[1:]:
            for version, emulates in both[name]:
                if name in EMULATING and any(one == (NEW, MINOR) for one in running):
                    assert version == OLD or emulates, f"{name} knows more than an API server"

    def check_kubelets(self, running: set[Revision]) -> None:
        """None follows while all may go back yet, nor while an API server is of before, or becomes so."""
        if kubelets_may_follow(self.seen()):
            self.followed = self.wanted
            assert self.wanted == OLD or not self.seconds or self.has_soaked
        assert self.followed is None or running == {(self.wanted, "")}


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("moves"), st.sampled_from(ORDER), st.sampled_from(NODES)),
        st.tuples(st.sampled_from(("everything moves", "another leads", "raise", "back", "again", "fails"))),
        st.tuples(st.just("rolls out"), st.sampled_from(ORDER)),
        st.tuples(st.just("fails"), st.sampled_from(ORDER)),
    ),
    max_size=80,
)


def everything_moves(cluster: Cluster) -> None:
    for name in ORDER:
        for node in NODES * 2:
            cluster.goes_on(name, node)


def happens(cluster: Cluster, event: tuple[str, ...]) -> None:
    match event:
        case ("moves", name, node):
            cluster.goes_on(name, node)
        case ("rolls out", name):
            cluster.rolls_out(name)
        case ("everything moves",):
            everything_moves(cluster)
        case ("another leads",):
            cluster.soaked = max(0.0, cluster.soaked - 10.0) if not cluster.has_soaked else cluster.soaked
        case ("raise",):
            cluster.seconds = 0.0
        case ("back",):
            cluster.wants(OLD)
        case ("again",):
            cluster.wants(NEW)
        case ("fails", name):
            cluster.fails(name)


@given(EVENTS)
@settings(max_examples=300, deadline=None)
def test_nothing_is_raised_before_all_binaries_have_soaked_and_it_ends(events: list[tuple[str, ...]]) -> None:
    cluster = Cluster()
    for event in events:
        cluster.one_pass()
        happens(cluster, event)
        cluster.check()
    for _ in range(60):
        decision = cluster.one_pass()
        everything_moves(cluster)
        cluster.check()
        if decision.step in (Step.FINISH, Step.STOP):
            break
    assert decision.step is (Step.STOP if decision.component else Step.FINISH)
    if decision.step is Step.FINISH:
        assert set(cluster.template.values()) == {(cluster.wanted, "")}
    else:
        assert cluster.failed[decision.component]


def until(cluster: Cluster, step: Step) -> Decision:
    for _ in range(60):
        decision = cluster.one_pass()
        if decision.step is step:
            return decision
        everything_moves(cluster)
    raise AssertionError(f"{cluster.said[-1]}")


def test_new_binaries_soak_and_are_raised_in_the_same_order() -> None:
    cluster = Cluster()
    until(cluster, Step.FINISH)
    assert kubelets_may_follow(cluster.seen())
    steps = [one.sentence for one in cluster.said if one.step is Step.SET]
    emulates = f"from {OLD} to {NEW}, which emulates {MINOR}"
    assert steps == [
        *(f"{name}: {emulates}" for name in (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)),
        f"{KUBE_PROXY}: from {OLD} to {NEW}",
        *(f"{name}: {NEW} no longer emulates {MINOR}" for name in (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)),
    ]
    assert [one.step for one in cluster.said].count(Step.SOAK) == SECONDS / 20.0


def test_without_a_soak_each_component_is_rolled_out_once() -> None:
    cluster = Cluster(seconds=0.0)
    until(cluster, Step.FINISH)
    assert [one.component for one in cluster.said if one.step is Step.SET] == list(ORDER)


@pytest.mark.parametrize("seconds", [0.0, SECONDS])
@pytest.mark.parametrize("up", [True, False])
def test_what_is_to_come_is_what_comes_in_its_order(up: bool, seconds: float) -> None:
    cluster = Cluster(seconds=seconds)
    if not up:
        until(cluster, Step.FINISH)
        cluster.wants(OLD)
    comes, said = list[str](), list[tuple[int, tuple[str, ...]]]()
    for _ in range(60):
        seen = cluster.seen()
        decision = cluster.one_pass()
        if decision.step is Step.SET or (decision.step is Step.SOAK and comes[-1] != SOAK):
            comes.append(decision.component or SOAK)
        said.append((len(comes), to_come(seen, decision)))
        everything_moves(cluster)
    assert len(comes) == len(ORDER) + up * bool(seconds) * (1 + len(EMULATING))
    assert [found for _, found in said] == [tuple(comes[so_far:]) for so_far, _ in said]


def test_given_up_while_it_soaks_it_goes_down_from_kube_proxy_to_the_api_servers() -> None:
    cluster = Cluster()
    until(cluster, Step.SOAK)
    cluster.wants(OLD)
    cluster.said.clear()
    until(cluster, Step.FINISH)
    assert [one.component for one in cluster.said if one.step is Step.SET] == list(reversed(ORDER))
    assert set(cluster.template.values()) == {(OLD, "")}


def test_a_standby_that_does_not_emulate_yet_holds_up_the_soak() -> None:
    cluster = Cluster()
    until(cluster, Step.SOAK)
    cluster.standbys[SCHEDULER]["n2"] = (NEW, "")
    waits = decide(cluster.seen())
    assert (waits.step, "its standby on n2 does not emulate 1.36 yet" in waits.sentence) == (Step.WAIT, True)
    assert not kubelets_may_follow(cluster.seen())


def test_what_is_away_when_the_soak_is_over_is_waited_for_before_anything_is_raised() -> None:
    cluster = Cluster()
    until(cluster, Step.SOAK)
    cluster.soaked = SECONDS
    cluster.pods[KUBE_PROXY]["n2"] = (OLD, "")
    assert decide(cluster.seen()).step is Step.WAIT
    cluster.pods[KUBE_PROXY]["n2"] = (NEW, "")
    assert (decide(cluster.seen()).component, decide(cluster.seen()).emulates) == (API_SERVER, "")


def test_a_raise_that_was_rolled_back_stops_there() -> None:
    cluster = Cluster()
    until(cluster, Step.SOAK)
    cluster.soaked = SECONDS
    cluster.has_soaked = True
    cluster.one_pass()
    assert cluster.template[API_SERVER] == (NEW, "")
    cluster.fails(API_SERVER)
    stopped = cluster.one_pass()
    assert stopped.step is Step.STOP
    assert f"{API_SERVER} {NEW} that no longer emulates 1.36 was rolled back" in stopped.sentence
    assert cluster.template[API_SERVER] == (NEW, MINOR)


def test_api_servers_that_somebody_has_raised_are_not_lowered_again() -> None:
    cluster = Cluster()
    until(cluster, Step.SOAK)
    cluster.template[API_SERVER] = cluster.good[API_SERVER] = (NEW, "")
    everything_moves(cluster)
    decision = decide(cluster.seen())
    assert (decision.step, decision.component, decision.emulates) == (Step.SET, CONTROLLER_MANAGER, "")


def test_a_soak_of_nothing_raises_at_once_and_what_is_to_come_never_emulates() -> None:
    cluster = Cluster()
    cluster.one_pass()
    everything_moves(cluster)
    cluster.seconds = 0.0
    cluster.said.clear()
    until(cluster, Step.FINISH)
    assert [(one.component, one.emulates) for one in cluster.said if one.step is Step.SET] == [
        (name, "") for name in ORDER
    ]


def test_a_flag_of_somebody_else_is_left_alone_without_a_soak_and_stops_one() -> None:
    seen = Cluster().seen()
    parts = [replace(one, foreign="1.35") if one.name == SCHEDULER else one for one in seen.parts]
    placed = [replace(one, version=NEW, emulates=MINOR if one.name in EMULATING else "") for one in parts]
    placed = [replace(one, in_place=True, standbys={}) for one in placed]
    stopped = decide(replace(seen, parts=[replace(one, emulates="") if one.foreign else one for one in placed]))
    assert (stopped.step, stopped.component) == (Step.STOP, SCHEDULER)
    assert "--emulated-version=1.35, which somebody has set" in stopped.sentence
    plain = decide(replace(seen, parts=parts, soak=None))
    assert (plain.step, plain.component) == (Step.SET, API_SERVER)


def test_another_minor_is_not_gone_to_from_the_middle_of_a_plan() -> None:
    cluster = Cluster()
    until(cluster, Step.SOAK)
    older = Version(1, 35, 2)
    stopped = decide(replace(cluster.seen(), wanted=older, soak=None))
    assert (stopped.step, "go to a 1.36 first" in stopped.sentence) == (Step.STOP, True)
