"""Whether a rollout is rolled back: cases with names, and a simulated workload on which everything goes wrong.

Tests whose names begin with a rule stand for that safety rule (docs/concepts.md, "Safety rules").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autarky.control.rollout.decide.clocks import LEASE_IS_OLD, LONGEST_STEP, Memory
from autarky.control.rollout.decide.failures import EXPIRES_SECONDS, LONGEST_DELAY, TRY_AGAIN, Record
from autarky.control.rollout.decide.limits import OWN_SECONDS, UNMADE_SECONDS, Policy
from autarky.control.rollout.decide.observed import Leader, Lease, Observed, Pod
from autarky.control.rollout.decide.verdict import (
    BLIP_SECONDS,
    PROVEN_SECONDS,
    SETTLE_SECONDS,
    Decision,
    Verdict,
    decide,
)
from autarky.model.patience import SLOW_ROLLOUT

POLICY = Policy()
GOOD = Record("good")


@dataclass
class Watch:
    """Decides again and again, one second apart, and keeps what must be kept."""

    record: Record = GOOD
    policy: Policy = POLICY
    now: float = 1000.0
    memory: Memory = field(default_factory=Memory)
    decisions: list[Decision] = field(default_factory=list)

    def look(self, observed: Observed, *, after: float = 1.0) -> Decision:
        self.now += after
        decision = decide(observed, self.memory, self.record, self.policy, self.now)
        self.memory, self.record = decision.memory, decision.record
        self.decisions.append(decision)
        return decision

    def until(self, observed: Observed, verdict: Verdict, *, limit: int = 400) -> int:
        """Seconds until that verdict."""
        for second in range(limit):
            if self.look(observed).verdict is verdict:
                return second
        raise AssertionError(f"no {verdict} within {limit} s; last: {self.decisions[-1].sentence}")

    def for_seconds(self, observed: Observed, seconds: int) -> set[Verdict]:
        return {self.look(observed).verdict for _ in range(seconds)}


def api(revision: str = "new", *, nodes: tuple[str, ...] = ("n1",), **ready: Any) -> Observed:
    pods = tuple(Pod(f"pod-{node}", node, good, "" if good else "exit code 1") for node, good in ready.items())
    return Observed(revision, known=True, etcd_up=True, nodes=frozenset(nodes), pods=pods)


def level_3(leader: Leader, version: str, revision: str = "new", *, ready: bool = True, free: bool = False) -> Observed:
    return replace(api(revision, n1=ready), lease=Lease(leader, version, free))


# --- API servers -------------------------------------------------------------------------------------


def test_an_api_server_that_stays_ready_is_kept_as_the_last_good_one():
    watch = Watch()
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS
    assert watch.record == Record("new")
    assert watch.look(api(n1=True)).verdict is Verdict.HEALTHY


def test_one_that_is_not_healthy_within_the_limit_goes_back_and_says_why():
    watch = Watch()
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (89, 90, 91)
    decision = watch.decisions[-1]
    assert decision.sentence == "pod pod-n1 on n1 was not healthy within 90 s: exit code 1"
    assert decision.record.good == "good"
    assert decision.record.failure("new").count == 1
    assert decision.pod.name == "pod-n1"


def test_a_revision_of_which_no_pod_is_made_goes_back_and_may_be_applied_again():
    """Admission refuses its pods, or a quota is used up: the cause may be outside of it."""
    watch, due = Watch(), replace(api(), due=True)
    assert watch.for_seconds(due, int(UNMADE_SECONDS) - 1) == {Verdict.WAIT}
    assert not watch.decisions[-1].settled, "it is looked at again soon"
    assert watch.until(due, Verdict.ROLL_BACK) <= 3
    assert watch.decisions[-1].sentence.startswith("no pod of it was made within 12")
    assert not watch.record.failure("new").condemns
    assert not watch.record.failure("new").by_workers, "control nodes have none, either"


def test_one_whose_pods_are_made_late_is_judged_by_them():
    watch, due = Watch(), replace(api(), due=True)
    watch.for_seconds(due, int(UNMADE_SECONDS) - 5)
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1
    watch = Watch()
    assert watch.for_seconds(api(), 3 * int(UNMADE_SECONDS)) == {Verdict.WAIT}, "none is due"


def test_it_says_in_how_many_seconds_it_is_decided_at_the_latest():
    for ready, verdict in ((True, Verdict.KEEP_AS_GOOD), (False, Verdict.ROLL_BACK)):
        watch = Watch()
        first = watch.look(api(n1=ready)).left
        took = watch.until(api(n1=ready), verdict)
        assert abs(first - took) <= 2, (first, took)
        lefts = [one.left for one in watch.decisions if one.verdict is Verdict.WAIT]
        assert lefts == sorted(lefts, reverse=True)
    assert Watch().look(api()).left is None, "no pod has begun"


def test_the_limit_is_that_of_the_control_plane():
    assert Watch(policy=Policy(limit=20)).until(api(n1=False), Verdict.ROLL_BACK) in (19, 20, 21)


def test_every_node_has_its_own_clock_from_the_start_of_its_own_pod():
    watch = Watch()
    watch.for_seconds(api(nodes=("n1", "n2"), n1=True), 80)
    assert watch.for_seconds(api(nodes=("n1", "n2"), n1=True, n2=False), 80) == {Verdict.WAIT}
    assert watch.until(api(nodes=("n1", "n2"), n1=True, n2=False), Verdict.ROLL_BACK) <= 11


def test_the_limit_runs_while_the_pod_before_ends():
    watch = Watch()
    assert watch.for_seconds(replace(api(), ending=frozenset({"n1"})), 25) == {Verdict.WAIT}
    assert not watch.decisions[-1].settled, "it is looked at again soon"
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (64, 65, 66)


@pytest.mark.parametrize(("limit", "own"), [(90, OWN_SECONDS), (20, 20)])
def test_however_long_the_pod_before_takes_the_new_one_has_its_own_time(limit, own):
    watch = Watch(policy=Policy(limit=limit))
    watch.for_seconds(replace(api(), ending=frozenset({"n1"})), 200)
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (own - 1, own, own + 1)


def test_rule_9_what_waits_for_its_place_while_etcd_is_down_has_not_waited():
    watch = Watch()
    watch.for_seconds(replace(api(), ending=frozenset({"n1"}), etcd_up=False), 100)
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (89, 90, 91)


def test_a_rollout_has_succeeded_only_when_every_ready_node_has_it():
    watch = Watch()
    assert watch.for_seconds(api(nodes=("n1", "n2"), n1=True), 100) == {Verdict.WAIT}
    assert watch.until(api(nodes=("n1", "n2"), n1=True, n2=True), Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1


@pytest.mark.parametrize(("serves", "away"), [(3, 3), (15, 5), (30, 8), (38, 6)])
def test_one_that_ends_some_time_after_each_start_goes_back(serves, away):
    watch = Watch()
    verdicts: set[Verdict] = set()
    for _ in range(200 // (serves + away)):
        verdicts |= watch.for_seconds(api(n1=True), serves) | watch.for_seconds(api(n1=False), away)
        assert Verdict.KEEP_AS_GOOD not in verdicts
        if Verdict.ROLL_BACK in verdicts:
            return
    raise AssertionError("it never went back")


def test_one_that_has_served_does_not_go_back_for_a_blip_at_the_limit():
    watch = Watch()
    watch.for_seconds(api(n1=False), 60)
    watch.for_seconds(api(n1=True), 35)
    assert watch.for_seconds(api(n1=False), int(BLIP_SECONDS) - 1) == {Verdict.WAIT}
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS - 1, "it starts from zero"


def test_one_that_has_served_and_then_stays_away_goes_back():
    watch = Watch()
    watch.for_seconds(api(n1=True), 35)
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (54, 55, 56)


def test_one_that_is_ready_at_the_limit_is_given_the_time_to_settle():
    watch = Watch()
    watch.for_seconds(api(n1=False), 85)
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) >= PROVEN_SECONDS - 1


def test_a_pod_that_is_created_again_does_not_restart_its_time():
    watch = Watch()
    watch.for_seconds(api(n1=False), 80)
    watch.for_seconds(api(), 3)
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) <= 11


def test_nothing_goes_back_without_a_revision_that_was_healthy():
    watch = Watch(record=Record())
    watch.until(api(n1=False), Verdict.FAILED)
    assert watch.for_seconds(api(n1=False), 300) == {Verdict.FAILED}
    assert "there is no last good revision" in watch.decisions[-1].sentence
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) <= SETTLE_SECONDS + 1


def test_nothing_goes_back_when_that_is_switched_off():
    watch = Watch(policy=Policy(enabled=False))
    watch.until(api(n1=False), Verdict.FAILED)
    assert watch.for_seconds(replace(api(), skew="too new"), 30) == {Verdict.FAILED}


def test_what_was_healthy_once_never_goes_back_for_later_trouble():
    watch = Watch()
    watch.until(api(n1=True), Verdict.KEEP_AS_GOOD)
    assert watch.for_seconds(replace(api(n1=False), skew="too new"), 300) == {Verdict.HEALTHY}


# --- the rules ---------------------------------------------------------------------------------------


def test_rule_2_a_node_that_is_not_ready_says_nothing_and_begins_again_when_it_is():
    watch = Watch()
    watch.for_seconds(api(n1=False), 80)
    assert watch.for_seconds(api(nodes=()), 200) == {Verdict.WAIT}
    assert watch.for_seconds(api(n1=False), 80) == {Verdict.WAIT}


def test_rule_2_what_may_be_old_is_not_judged_and_no_time_passes():
    watch = Watch()
    watch.for_seconds(api(n1=False), 80)
    assert watch.for_seconds(replace(api(n1=False), known=False, skew="too new"), 200) == {Verdict.WAIT}
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (10, 11, 12)


def test_rule_9_the_clocks_stand_still_while_etcd_is_down():
    watch = Watch()
    watch.for_seconds(api(n1=False), 80)
    assert watch.for_seconds(replace(api(n1=False), etcd_up=False), 500) == {Verdict.WAIT}
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) in (10, 11, 12)


def test_an_operator_that_was_stopped_has_not_watched():
    watch = Watch()
    watch.look(api(n1=False))
    assert watch.look(api(n1=False), after=3600).verdict is Verdict.WAIT
    assert watch.memory.clocks["n1"].judged <= LONGEST_STEP


def test_rule_4_a_version_that_breaks_the_skew_rules_goes_back_at_once():
    watch = Watch()
    decision = watch.look(replace(api(n1=True), skew="scheduler v1.37.1 is newer than …"))
    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.sentence == "scheduler v1.37.1 is newer than …"


def test_a_version_that_broke_the_skew_rules_is_given_its_chance_when_it_does_not_any_more():
    watch = Watch()
    watch.look(replace(api(n1=False), skew="too new"))
    watch.look(api("good", n1=True))
    assert watch.for_seconds(api(n1=False), 60) == {Verdict.WAIT}
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1
    assert watch.record.failure("new") is None


# --- the same again ----------------------------------------------------------------------------------


def test_the_same_again_goes_back_at_once_then_later_each_time():
    watch = Watch()
    watch.until(api(n1=False), Verdict.ROLL_BACK)
    delays = []
    for _ in range(8):
        watch.look(api("good", n1=True))
        delays.append(watch.until(api(n1=False), Verdict.ROLL_BACK))
    assert delays == [0, 10, 20, 40, 80, 160, LONGEST_DELAY, LONGEST_DELAY]
    assert "applied again although it was rolled back before" in watch.decisions[-1].sentence


def test_another_edit_is_given_its_chance_and_a_healthy_one_ends_the_matter():
    watch = Watch()
    watch.until(api(n1=False), Verdict.ROLL_BACK)
    assert watch.record.current == "new"
    assert watch.for_seconds(api("newer", n1=False), 60) == {Verdict.WAIT}
    watch.until(api("newer", n1=True), Verdict.KEEP_AS_GOOD)
    assert watch.record.good == "newer"
    assert watch.record.current is None
    assert watch.look(api(n1=False)).verdict is Verdict.ROLL_BACK, "that it is bad is not forgotten"


# --- what never ran ----------------------------------------------------------------------------------


def pulling(revision: str = "new") -> Observed:
    """Its image cannot be had."""
    pod = Pod("pod-n1", "n1", ready=False, trouble="waits: ImagePullBackOff", never_ran=True)
    return replace(api(revision), pods=(pod,))


def test_what_never_ran_is_tried_again_when_its_image_is_there():
    watch = Watch()
    for _ in range(3):
        assert watch.until(pulling(), Verdict.ROLL_BACK) >= 89, "it gets its full time"
        watch.look(api("good", n1=True))
    assert watch.record.failure("new").count == 3
    assert watch.for_seconds(pulling(), 20) == {Verdict.WAIT}
    assert watch.until(api(n1=True), Verdict.KEEP_AS_GOOD) <= PROVEN_SECONDS + 1
    assert watch.record == Record("new")


def test_what_never_ran_and_is_applied_again_and_again_stays_longer_each_time_before_it_goes_back():
    watch, stays = Watch(), []
    for _ in range(9):
        stays.append(watch.until(pulling(), Verdict.ROLL_BACK))
        watch.look(api("good", n1=True))
    assert all(seconds >= 89 for seconds in stays)
    assert stays == sorted(stays)
    assert stays[-1] >= LONGEST_DELAY


def test_what_has_run_once_is_condemned_however_it_failed_before():
    watch = Watch()
    watch.until(pulling(), Verdict.ROLL_BACK)
    watch.look(api("good", n1=True))
    watch.until(api(n1=False), Verdict.ROLL_BACK)
    watch.look(api("good", n1=True))
    assert watch.until(pulling(), Verdict.ROLL_BACK) <= 11


def test_one_pod_that_ran_and_failed_speaks_for_those_that_never_ran():
    watch = Watch()
    failed = replace(pulling(), nodes=frozenset({"n1", "n2"}), pods=(*pulling().pods, Pod("pod-n2", "n2", ready=False)))
    watch.until(failed, Verdict.ROLL_BACK)
    assert watch.record.failure("new").condemns


# --- verdicts that end -------------------------------------------------------------------------------


def test_a_verdict_expires_when_the_revision_was_not_wanted_for_long():
    watch = Watch()
    for _ in range(3):
        watch.until(api(n1=False), Verdict.ROLL_BACK)
        watch.look(api("good", n1=True))
    watch.look(api("good", n1=True), after=EXPIRES_SECONDS)
    assert watch.for_seconds(api(n1=False), 80) == {Verdict.WAIT}
    assert watch.until(api(n1=False), Verdict.ROLL_BACK) <= 11
    assert watch.record.failure("new").count == 1


def test_one_that_is_applied_again_before_that_restarts_its_hour():
    watch = Watch()
    watch.until(api(n1=False), Verdict.ROLL_BACK)
    for _ in range(3):
        watch.look(api("good", n1=True), after=EXPIRES_SECONDS / 2)
        assert watch.until(api(n1=False), Verdict.ROLL_BACK) <= LONGEST_DELAY
    assert watch.record.failure("new").count == 4


def test_a_new_leader_forgives_later_and_never_sooner():
    watch = Watch()
    watch.until(api(n1=False), Verdict.ROLL_BACK)
    watch.look(api("good", n1=True), after=EXPIRES_SECONDS - 1)
    watch.memory = Memory()
    watch.look(api("good", n1=True), after=EXPIRES_SECONDS - 1)
    assert watch.look(api(n1=False)).verdict is Verdict.ROLL_BACK


def test_a_verdict_that_is_forgotten_gives_the_revision_its_full_chance():
    watch = Watch()
    watch.until(api(n1=False), Verdict.ROLL_BACK)
    watch.look(api("good", n1=True))
    watch.record = watch.record.pardoned()
    assert watch.record == GOOD
    assert watch.for_seconds(api(n1=False), 80) == {Verdict.WAIT}


def test_what_is_said_of_a_failure_names_what_to_run():
    record = GOOD
    for _ in range(3):
        record = record.with_failure("new", "crashed", by_skew=False)
    reported = record.failure("new").again("ds/kube-proxy")
    assert "goes back after 20 s" in reported
    assert f"`kubectl -n kube-system annotate ds/kube-proxy {TRY_AGAIN}=now`" in reported
    never_ran = GOOD.with_failure("new", "no image", by_skew=False, never_ran=True).failure("new")
    assert never_ran.again("ds/kube-proxy") == "nothing of it ever ran: to try it again, apply it again"


# --- level 3 -----------------------------------------------------------------------------------------


def test_a_level_3_revision_succeeds_when_it_has_led_and_not_when_it_is_ready():
    watch = Watch()
    assert watch.for_seconds(level_3(Leader.OTHER, "v1"), 60) == {Verdict.WAIT}
    watch.look(level_3(Leader.NEW, "v1"))
    assert watch.look(level_3(Leader.NEW, "v1")).verdict is Verdict.WAIT, "it may be the last word of the old one"
    assert watch.look(level_3(Leader.NEW, "v2")).verdict is Verdict.KEEP_AS_GOOD


def test_one_that_is_ready_and_does_not_lead_goes_back():
    watch = Watch()
    assert watch.until(level_3(Leader.OTHER, "v1", free=True), Verdict.ROLL_BACK) in (89, 90, 91)
    assert watch.decisions[-1].sentence == "pod pod-n1 on n1 is Ready, but no pod of this revision has led within 90 s"


def test_a_ready_pod_is_not_blamed_while_the_old_one_may_lead():
    watch = Watch()
    for second in range(300):
        assert watch.look(level_3(Leader.OLD, f"v{second}")).verdict is Verdict.WAIT
    assert watch.until(level_3(Leader.OLD, "v299"), Verdict.ROLL_BACK) >= LEASE_IS_OLD, "that one has fallen silent"


def test_a_crashing_pod_goes_back_although_the_old_one_leads_well():
    watch = Watch()
    for second in range(88):
        watch.look(level_3(Leader.OLD, f"v{second}", ready=False))
    assert watch.until(level_3(Leader.OLD, "v", ready=False), Verdict.ROLL_BACK) <= 3


# --- properties --------------------------------------------------------------------------------------

SECONDS = st.sampled_from([0.2, 1.0, 1.0, 4.0, 30.0])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["good", "a", "b"]), st.booleans(), st.booleans(), SECONDS), max_size=60),
    st.booleans(),
)
def test_a_revision_only_ever_gives_way_to_one_that_was_healthy(history, starts_with_good):
    watch = Watch(record=GOOD if starts_with_good else Record(), policy=Policy(limit=10))
    healthy = {"good"} if starts_with_good else set()
    for revision, ready, etcd_up, seconds in history:
        decision = watch.look(replace(api(revision, n1=ready), etcd_up=etcd_up), after=seconds)
        if decision.verdict is Verdict.KEEP_AS_GOOD:
            assert ready
            healthy.add(revision)
        if decision.verdict is Verdict.ROLL_BACK:
            assert decision.record.good in healthy
            assert decision.record.good != revision
            assert etcd_up


STARTS_TOLD = st.none() | st.sampled_from([0.0, 5.0, 29.0, 31.0, 100.0, 1e9])


class Rollout(RuleBasedStateMachine):
    """An API server on two nodes. The test keeps books of its own: for how long each node's pod was there to
    be judged, since the operator last began, and what the pods of each revision say that their starts took."""

    policy = Policy(limit=20.0)

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.stored = Record()
        self.memory = Memory()
        self.template = "v0"
        self.ready: dict[str, bool] = {}
        self.node_ready = {"n1": True, "n2": True}
        self.etcd_up = True
        self.unhealthy_for: dict[str, float] = {}
        self.healthy_once: set[str] = set()
        self.start: float | None = None
        self.starts_told: dict[str, set[float | None]] = {}

    @initialize(known=st.booleans(), start=STARTS_TOLD)
    def starts(self, known: bool, start: float | None) -> None:
        if known:
            self.stored = Record("v0", start=start)
            self.starts_told["v0"] = {start}
            self.healthy_once.add("v0")

    # --- what happens ---

    @rule(template=st.sampled_from(["v0", "v1", "v2"]))
    def the_user_applies(self, template: str) -> None:
        if template != self.template:
            self.template, self.ready, self.unhealthy_for = template, {}, {}

    @rule(node=st.sampled_from(["n1", "n2"]), ready=st.booleans())
    def a_pod_changes(self, node: str, ready: bool) -> None:
        self.ready[node] = ready

    @rule(node=st.sampled_from(["n1", "n2"]), ready=st.booleans())
    def a_node_changes(self, node: str, ready: bool) -> None:
        self.node_ready[node] = ready

    @rule(start=STARTS_TOLD)
    def starts_take(self, start: float | None) -> None:
        self.start = start

    @rule(up=st.booleans())
    def etcd_changes(self, up: bool) -> None:
        self.etcd_up = up

    @rule()
    def the_operator_is_killed(self) -> None:
        self.memory, self.unhealthy_for = Memory(), {}

    # --- what the operator does ---

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]), rounds=st.integers(1, 12))
    def the_operator_looks(self, seconds: float, rounds: int) -> None:
        for _ in range(rounds):
            self.carry_out(self.observe(seconds))

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def the_operator_is_killed_after_it_decided(self, seconds: float) -> None:
        self.observe(seconds)
        self.the_operator_is_killed()

    @precondition(lambda self: self.stored.good is not None)
    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def the_operator_is_killed_after_it_stored_what_it_decided(self, seconds: float) -> None:
        decision = self.observe(seconds)
        if decision.verdict in (Verdict.ROLL_BACK, Verdict.KEEP_AS_GOOD):
            self.stored = decision.record
        self.the_operator_is_killed()

    def observe(self, seconds: float) -> Decision:
        self.now += seconds
        nodes = frozenset(node for node, ready in self.node_ready.items() if ready)
        pods = tuple(
            Pod(f"p-{node}", node, ready, start=self.start if ready else None)
            for node, ready in self.ready.items()
            if node in nodes
        )
        self.starts_told.setdefault(self.template, set()).add(self.start)
        seen = Observed(self.template, known=True, etcd_up=self.etcd_up, nodes=nodes, pods=pods)
        if self.etcd_up:
            before = self.unhealthy_for
            self.unhealthy_for = {pod.node: before.get(pod.node, 0.0) + seconds for pod in pods}
            self.unhealthy_for |= {n: s for n, s in before.items() if n in nodes and n not in self.unhealthy_for}
        decision = decide(seen, self.memory, self.stored, self.policy, self.now)
        self.memory = decision.memory
        self.check(decision, {pod.node: pod.ready for pod in pods})
        return decision

    def check(self, decision: Decision, pods: Mapping[str, bool]) -> None:
        if decision.verdict is Verdict.KEEP_AS_GOOD:
            assert self.etcd_up
            self.healthy_once.add(self.template)
        if decision.verdict is Verdict.ROLL_BACK:
            assert self.etcd_up, "rule 9"
            assert self.template != self.stored.good, "what was healthy stays"
            assert self.stored.good in self.healthy_once, "the target was healthy"
            known_bad = self.stored.failure(self.template) is not None
            waited = max((self.unhealthy_for.get(node, 0.0) for node, ready in pods.items() if not ready), default=0.0)
            assert known_bad or waited >= self.policy.limit, "nothing goes back before its time"
            slow = self.stored.start is not None and 2 * self.stored.start > OWN_SECONDS
            assert known_bad or not slow or waited >= min(2 * (self.stored.start or 0.0), SLOW_ROLLOUT)

    def carry_out(self, decision: Decision) -> None:
        if decision.verdict in (Verdict.ROLL_BACK, Verdict.KEEP_AS_GOOD):
            self.stored = decision.record
        if decision.verdict is Verdict.ROLL_BACK:
            assert decision.record.good is not None
            self.the_user_applies(decision.record.good)

    @invariant()
    def the_good_revision_was_healthy(self) -> None:
        assert self.stored.good is None or self.stored.good in self.healthy_once

    @invariant()
    def the_start_that_is_remembered_is_one_of_the_good_revision(self) -> None:
        good = self.stored.good
        assert self.stored.start is None or (good is not None and self.stored.start in self.starts_told[good])

    def teardown(self) -> None:
        """Left in peace, what is bad goes back, and what is good is kept, unless it went back before."""
        self.etcd_up, self.node_ready = True, {"n1": True, "n2": True}
        good = self.template == "v1"
        self.ready = dict.fromkeys(self.node_ready, good)
        wanted = {self.template if good or self.stored.good is None else self.stored.good}
        if good and self.stored.good is not None and self.stored.failure(self.template) is not None:
            wanted.add(self.stored.good)
        for _ in range(int(max(LONGEST_DELAY, SLOW_ROLLOUT)) + 40):
            self.carry_out(self.observe(1.0))
        assert self.template in wanted


TestRollout = Rollout.TestCase
TestRollout.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("count", [1, 9, 20])
def test_only_the_latest_failures_are_remembered(count):
    record = GOOD
    for number in range(count):
        record = record.with_failure(f"bad-{number}", "crashed", by_skew=False)
    assert len(record.failures) == min(count, 8)
    assert record.current == f"bad-{count - 1}"
