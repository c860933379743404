"""Level 3 on several nodes: a standby that leads gives way to a hosted pod that can, wherever that runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from autarky.control.leadership.decide.leader import (
    CANDIDATE_SECONDS,
    DOUBT_SECONDS,
    EXPIRY_MARGIN,
    RELEASED_SECONDS,
    SETTLE_SECONDS,
    TRUSTED_AGAIN_SECONDS,
    Lease,
    LeaseMemory,
    Seen,
    decide,
)
from autarky.control.slots.decide.pivot import Action, Health, Slot

DURATION = 15.0
LEADS = Seen(
    Health.ABSENT, None, standby_active=True, lease=Lease("n1_a", "0", DURATION), readable=True, elsewhere=False
)
"""A standby that leads on a node without a hosted pod."""
KNOWN = decide(Slot.HOSTED, LEADS, LeaseMemory(), -1.0).memory
"""Of an agent that has looked before."""
CANDIDATE = replace(LEADS, candidates=frozenset({"pod"}))


def renewing(seconds: int, seen: Seen, memory: LeaseMemory | None = None, begin: int = 0):
    """A look each second at a lease that is renewed each second: (when, action) of each action, and the memory."""
    memory, actions = memory or KNOWN, []
    for second in range(begin, begin + seconds + 1):
        lease = replace(LEADS.lease, renewed=str(second))
        found = decide(Slot.HOSTED, replace(seen, lease=lease), memory, float(second))
        memory = found.memory
        actions += [(second, action) for action in found.decision.actions]
    return actions, memory


def released(memory: LeaseMemory, begin: int, seconds: int, seen: Seen = CANDIDATE):
    """Nobody takes the lease, which the standby has released."""
    free = replace(seen, standby_active=False, lease=Lease("", "gone", DURATION))
    actions = []
    for second in range(begin, begin + seconds + 1):
        found = decide(Slot.HOSTED, free, memory, float(second))
        memory = found.memory
        actions += [(second, action) for action in found.decision.actions]
        if actions:
            break
    return actions, memory


def test_a_standby_that_leads_gives_way_to_a_hosted_pod_of_another_node():
    """Scaled to 0 and back to 1, the only pod may be anywhere."""
    actions, _ = renewing(int(SETTLE_SECONDS), CANDIDATE)
    assert actions == [(SETTLE_SECONDS, Action.WITHDRAW_STANDBY)]


def test_it_gives_way_also_where_its_own_nodes_pod_does_not_get_ready():
    for health in (Health.NOT_READY, Health.TERMINATING):
        seen = replace(CANDIDATE, hosted=health, hosted_pod="own")
        assert renewing(int(SETTLE_SECONDS), seen)[0] == [(SETTLE_SECONDS, Action.WITHDRAW_STANDBY)]


def test_without_a_hosted_pod_elsewhere_it_stays():
    assert renewing(600, LEADS)[0] == []


def test_a_pod_that_did_not_take_the_released_lease_is_not_given_way_to_again_for_a_while():
    _, memory = renewing(10, CANDIDATE)
    actions, memory = released(memory, 11, 20)
    [(back, action)] = actions
    assert action is Action.ACTIVATE_STANDBY
    assert back - 11 <= RELEASED_SECONDS + CANDIDATE_SECONDS + 1
    again = back + int(TRUSTED_AGAIN_SECONDS)
    actions, memory = renewing(again - back, CANDIDATE, memory, back)
    assert actions == [(again, Action.WITHDRAW_STANDBY)]
    actions, memory = released(memory, again + 1, 20)
    [(back, _)] = actions
    assert renewing(int(2 * TRUSTED_AGAIN_SECONDS) - 1, CANDIDATE, memory, back)[0] == []


def test_a_pod_that_is_not_ready_just_when_it_should_lead_is_not_given_way_to_again_for_a_while():
    _, memory = renewing(10, CANDIDATE)
    actions, memory = released(memory, 11, 20, LEADS)
    [(back, _)] = actions
    assert renewing(int(TRUSTED_AGAIN_SECONDS) - 1, CANDIDATE, memory, back)[0] == []


def test_what_may_be_from_before_a_power_cut_is_waited_for_longer():
    """All were cut; the API shows the pods of the others as Ready, and nothing of them runs."""
    actions, _ = renewing(200, CANDIDATE, LeaseMemory())
    assert actions[0] == (SETTLE_SECONDS + DOUBT_SECONDS, Action.WITHDRAW_STANDBY)


def test_another_pod_is_given_way_to_at_once():
    _, memory = renewing(10, CANDIDATE)
    _, memory = released(memory, 11, 20)
    other = replace(CANDIDATE, candidates=frozenset({"pod", "other"}))
    assert renewing(int(SETTLE_SECONDS), other, memory, 100)[0] == [(100 + SETTLE_SECONDS, Action.WITHDRAW_STANDBY)]


def test_a_pod_that_became_ready_while_the_lease_was_free_is_not_distrusted():
    free = replace(LEADS, standby_active=False, lease=Lease("", "gone", DURATION))
    memory = decide(Slot.HOSTED, free, LeaseMemory(), 0.0).memory
    memory = decide(Slot.HOSTED, replace(free, candidates=frozenset({"pod"})), memory, 4.0).memory
    found = decide(Slot.HOSTED, replace(free, candidates=frozenset({"pod"})), memory, 8.5)
    assert found.decision.actions == (Action.ACTIVATE_STANDBY,)
    assert found.memory.failed_elsewhere == ()


def test_after_an_outage_pods_of_other_nodes_are_not_distrusted_either():
    blind = decide(Slot.HOSTED, replace(CANDIDATE, readable=False), LeaseMemory(), 0.0).memory
    actions, memory = released(blind, 1, 60)
    assert actions[-1][1] is Action.ACTIVATE_STANDBY
    assert memory.failed_elsewhere == ()


NODES = ("n1", "n2", "n3", "n4")


@dataclass
class SimNode:
    """A control node: its agent's memory, its slots. able: whether its hosted pod takes a lease that is free."""

    name: str
    pod: int | None = None
    health: Health = Health.ABSENT
    able: bool = True
    standby: bool = False
    memory: LeaseMemory = field(default_factory=LeaseMemory)

    @property
    def uid(self) -> str | None:
        return None if self.pod is None else f"{self.name}-{self.pod}"


class Cluster(RuleBasedStateMachine):
    """Pods come and go, some Ready ones never lead, agents are killed, the API goes, and what the operator says of
    other nodes' pods is late. Whoever leads renews at each look; a lease that is free is taken within 2 s by
    whichever candidate is first, and that the test chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.nodes = {name: SimNode(name) for name in NODES}
        self.leader: tuple[str, str] | None = None  # (node, slot)
        self.holder, self.renewals, self.free_since = "", 0, 0.0
        self.published: dict[str, str] = {}
        self.operator_up, self.api = True, True
        self.turn = 0
        self.leaderless_since: float | None = 0.0
        self.numbers = 0
        self.disturbed = 0.0

    # --- what happens ---

    @rule(name=st.sampled_from(NODES), able=st.sampled_from([True, True, False]), ready=st.booleans())
    def a_pod_comes(self, name: str, able: bool, ready: bool) -> None:
        self.disturbed = self.now
        self.numbers += 1
        node = self.nodes[name]
        node.pod, node.able, node.health = self.numbers, able, Health.READY if ready else Health.NOT_READY
        self.ends(name, "hosted")

    @rule(name=st.sampled_from(NODES), health=st.sampled_from([Health.READY, Health.NOT_READY, Health.TERMINATING]))
    def a_pod_changes(self, name: str, health: Health) -> None:
        if self.nodes[name].pod is not None:
            self.disturbed = self.now
            self.nodes[name].health = health
            if health is not Health.READY:
                self.ends(name, "hosted")

    @rule(name=st.sampled_from(NODES))
    def a_pod_goes(self, name: str) -> None:
        self.disturbed = self.now
        node = self.nodes[name]
        node.pod, node.health = None, Health.ABSENT
        self.ends(name, "hosted")

    @rule(back=st.sets(st.sampled_from(NODES), max_size=2))
    def it_is_scaled_to_nothing_and_back(self, back: set[str]) -> None:
        for name in NODES:
            self.a_pod_goes(name)
        self.time_passes(60)
        for name in back:
            self.a_pod_comes(name, able=True, ready=True)

    @rule(name=st.sampled_from(NODES))
    def an_agent_is_killed(self, name: str) -> None:
        self.disturbed = self.now
        self.nodes[name].memory = LeaseMemory()

    @rule(up=st.booleans())
    def the_operator_comes_or_goes(self, up: bool) -> None:
        self.disturbed = self.now
        self.operator_up = up

    @rule(up=st.sampled_from([True, True, False]))
    def the_api_comes_or_goes(self, up: bool) -> None:
        self.disturbed = self.now
        self.api = up

    @rule(turn=st.integers(0, 7))
    def another_candidate_is_faster(self, turn: int) -> None:
        self.turn = turn

    @rule(looks=st.integers(1, 120))
    def time_passes(self, looks: int) -> None:
        for _ in range(looks):
            self.one_look()

    # --- how level 3 behaves ---

    def candidates(self) -> list[tuple[str, str]]:
        hosted = [(n.name, "hosted") for n in self.nodes.values() if n.health is Health.READY and n.able]
        return hosted + [(n.name, "standby") for n in self.nodes.values() if n.standby]

    def ends(self, name: str, slot: str) -> None:
        """In order: it releases the lease."""
        if self.leader == (name, slot):
            self.leader, self.holder, self.free_since = None, "", self.now
            self.renewals += 1

    def lead(self) -> None:
        if not self.api:
            return
        able = self.candidates()
        if self.leader is None and able and self.now - self.free_since >= 1.5:
            self.leader = able[self.turn % len(able)]
            self.holder = f"{self.leader[0]}_{self.leader[1]}"
        if self.leader is not None:
            self.renewals += 1

    def one_look(self) -> None:
        self.now += 0.5
        if not self.api:
            self.disturbed = self.now
        self.lead()
        if self.operator_up and self.api:
            self.published = {n.uid: n.name for n in self.nodes.values() if n.uid and n.health is Health.READY}
        for node in self.nodes.values():
            self.agent(node)
        if self.leader is not None or not self.api:
            self.leaderless_since = None
        elif self.leaderless_since is None:
            self.leaderless_since = self.now

    def agent(self, node: SimNode) -> None:
        lease = Lease(self.holder, str(self.renewals), DURATION)
        others = frozenset(uid for uid, name in self.published.items() if name != node.name)
        elsewhere = bool(self.holder) and not self.holder.startswith(f"{node.name}_")
        seen = Seen(node.health, node.uid, node.standby, lease, self.api, elsewhere, others)
        found = decide(Slot.HOSTED, seen, node.memory, self.now)
        node.memory = found.memory
        for action in found.decision.actions:
            if action is Action.ACTIVATE_STANDBY:
                node.standby = True
            else:
                node.standby = False
                self.ends(node.name, "standby")

    # --- what holds ---

    @invariant()
    def the_lease_is_without_a_holder_for_some_seconds_at_most(self) -> None:
        if self.leaderless_since is not None and self.now - self.disturbed > DURATION:
            waited = self.now - max(self.leaderless_since, self.disturbed)
            assert waited <= DURATION + EXPIRY_MARGIN + CANDIDATE_SECONDS + 30.0 + 3.0
            if self.leaderless_since > self.disturbed:
                assert waited <= RELEASED_SECONDS + CANDIDATE_SECONDS + 3.0, "a candidate that is bad costs no more"

    def teardown(self) -> None:
        """Left in peace: no standby leads forever while a hosted pod is Ready that would take the lease."""
        self.api = self.operator_up = True
        if not any(n.health is Health.READY and n.able for n in self.nodes.values()):
            return
        for _ in range(int(2 * (60 + 16 * TRUSTED_AGAIN_SECONDS))):
            self.one_look()
            if self.leader is not None and self.leader[1] == "hosted":
                break
        assert self.leader is not None
        assert self.leader[1] == "hosted", (self.leader, self.nodes)


Cluster.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestCluster = Cluster.TestCase
