"""A rollout where starts are slow: what the last good revision took is granted to the next one, and no more than that
follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.rollout.decide.clocks import Memory
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.limits import OWN_SECONDS, Policy, seconds_to_ready
from autarky.control.rollout.decide.observed import Leader, Lease, Observed, Pod
from autarky.control.rollout.decide.verdict import PROVEN_SECONDS, SETTLE_SECONDS, Decision, Verdict, decide
from autarky.model.patience import SLOW_ROLLOUT, STARTS

API = "kube-apiserver"


@dataclass
class Watch:
    """Looks once a second at the pods of a revision."""

    record: Record
    limit: float = 90.0
    now: float = 1000.0
    memory: Memory = field(default_factory=Memory)
    last: Decision | None = None

    def look(self, *pods: Pod, revision: str = "new", ending: bool = False, lease: Lease | None = None) -> Verdict:
        self.now += 1
        seen = Observed(revision, known=True, etcd_up=True, nodes=frozenset({"n1"}), pods=pods, lease=lease)
        seen = replace(seen, ending=frozenset({"n1"}) if ending else frozenset())
        self.last = decide(seen, self.memory, self.record, Policy(limit=self.limit), self.now)
        self.memory, self.record = self.last.memory, self.last.record
        return self.last.verdict

    def seconds(self, verdict: Verdict, *pods: Pod, revision: str = "new") -> int:
        for second in range(1200):
            if self.look(*pods, revision=revision) is verdict:
                return second
        raise AssertionError(f"no {verdict} within 1200 s")


def pod(*, ready: bool, start: float | None = None, node: str = "n1") -> Pod:
    return Pod(f"pod-{node}", node, ready, start=start)


BAD = pod(ready=False)


def good(start: float | None) -> Record:
    return Record("good", start=start)


def test_a_good_revision_that_starts_as_slowly_as_the_one_before_is_kept():
    """The emulated machine: 150 s from start to Ready."""
    watch = Watch(good(150.0))
    assert {watch.look(BAD) for _ in range(200)} == {Verdict.WAIT}, "50 s more than its like before"
    assert watch.seconds(Verdict.KEEP_AS_GOOD, pod(ready=True, start=190.0)) <= PROVEN_SECONDS + 1
    assert watch.record == Record("new", start=190.0)


def test_a_bad_one_goes_back_there_when_twice_that_has_passed_and_says_so():
    watch = Watch(good(150.0))
    assert watch.seconds(Verdict.ROLL_BACK, BAD) in (299, 300, 301)
    assert watch.last is not None
    assert watch.last.sentence == "pod pod-n1 on n1 was not healthy within 300 s"
    assert watch.record.start == 150.0, "what it goes back to starts as slowly"


def test_its_time_is_its_own_however_long_the_pod_before_has_taken():
    watch = Watch(good(150.0))
    for _ in range(280):
        assert watch.look(ending=True) is Verdict.WAIT
    assert watch.seconds(Verdict.ROLL_BACK, BAD) in (299, 300, 301)


@pytest.mark.parametrize("start", [STARTS * 1.01, 1e9, 1e300])
def test_no_figure_grants_more_than_the_most(start):
    assert Watch(good(start)).seconds(Verdict.ROLL_BACK, BAD) in (SLOW_ROLLOUT - 1, SLOW_ROLLOUT, SLOW_ROLLOUT + 1)


@pytest.mark.parametrize("limit", [10, 20, 90, 600])
@pytest.mark.parametrize("start", [None, 0.0, 5.0, 10.0, OWN_SECONDS / 2])
def test_where_starts_are_ordinary_or_not_known_the_limit_is_what_it_was(limit, start):
    assert Watch(good(start), limit).seconds(Verdict.ROLL_BACK, BAD) in (limit - 1, limit, limit + 1)


def test_a_longer_limit_is_as_long_as_it_was():
    assert Watch(good(150.0), 600).seconds(Verdict.ROLL_BACK, BAD) in (599, 600, 601)


@settings(deadline=None, max_examples=60)
@given(st.none() | st.floats(0, allow_nan=False), st.integers(10, 900))
def test_a_figure_only_ever_lengthens_patience_and_only_so_far(start, limit):
    took = Watch(good(start), limit).seconds(Verdict.ROLL_BACK, BAD)
    assert limit - 1 <= took <= max(limit, SLOW_ROLLOUT) + 1


# --- what is remembered ---------------------------------------------------------------------------------------


def test_the_first_good_revision_tells_what_its_start_took():
    watch = Watch(Record())
    assert watch.seconds(Verdict.KEEP_AS_GOOD, pod(ready=True, start=120.0)) <= SETTLE_SECONDS + 1
    assert watch.record == Record("new", start=120.0)


def test_the_slowest_of_several_nodes_counts():
    watch = Watch(good(None))
    pods = [pod(ready=True, start=start, node=node) for node, start in (("n1", 8.0), ("n2", 70.0), ("n3", None))]
    for _ in range(int(PROVEN_SECONDS) + 2):
        watch.now += 1
        seen = Observed("new", known=True, etcd_up=True, nodes=frozenset({"n1", "n2", "n3"}), pods=tuple(pods))
        watch.last = decide(seen, watch.memory, watch.record, Policy(), watch.now)
        watch.memory, watch.record = watch.last.memory, watch.last.record
    assert watch.record == Record("new", start=70.0)


def test_one_that_was_away_for_a_moment_did_not_take_until_then_to_start():
    """Its kubelet's stamp is that of its last change."""
    watch = Watch(good(None))
    for second in range(40):
        watch.look(pod(ready=second != 35, start=8.0 if second < 35 else 44.0))
    watch.seconds(Verdict.KEEP_AS_GOOD, pod(ready=True, start=44.0))
    assert watch.record.start == 8.0


def test_where_nobody_tells_it_nothing_is_remembered_of_the_one_before():
    watch = Watch(good(150.0))
    watch.seconds(Verdict.KEEP_AS_GOOD, pod(ready=True))
    assert watch.record == Record("new")


def test_level_3_is_given_as_long_and_remembered_as_well():
    watch = Watch(good(100.0))
    for version in range(190):
        assert watch.look(BAD, lease=Lease(Leader.OLD, f"v{version}")) is Verdict.WAIT
    ready = pod(ready=True, start=180.0)
    verdicts = [watch.look(ready, lease=Lease(Leader.NEW, f"new-{version}")) for version in range(3)]
    assert Verdict.KEEP_AS_GOOD in verdicts
    assert watch.record == Record("new", start=180.0)


# --- what a kubelet tells -------------------------------------------------------------------------------------

BEGAN, READY = "2026-11-21T10:00:05Z", "2026-11-21T10:02:35Z"


def reported(began: Any = BEGAN, ready: Any = READY, *, status: str = "True", name: str = API) -> dict[str, Any]:
    return {
        "status": {
            "containerStatuses": [
                {"name": "sidecar", "state": {"running": {"startedAt": "2026-11-21T09:00:00Z"}}},
                {"name": name, "state": {"running": {"startedAt": began}}},
            ],
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": BEGAN},
                {"type": "Ready", "status": status, "lastTransitionTime": ready},
            ],
        }
    }


def test_a_start_is_from_the_containers_to_the_pods_stamp():
    assert seconds_to_ready(reported(), API) == 150.0


NOTHING = {
    "not Ready": reported(status="False"),
    "a clock that was stepped back": reported(READY, BEGAN),
    "another container": reported(name="x"),
    "no stamp": reported(ready=None),
    "no time": reported("yesterday"),
    "a number": reported(7),
    "no zone": reported("2026-11-21T10:00:05"),
    "it has ended": {
        "status": {**reported()["status"], "containerStatuses": [{"name": API, "state": {"terminated": {}}}]}
    },
    "no word": {},
    "two of them": {
        "status": {**reported()["status"], "containerStatuses": reported()["status"]["containerStatuses"][1:] * 2}
    },
}


@pytest.mark.parametrize("words", NOTHING.values(), ids=NOTHING.keys())
def test_what_means_nothing_is_no_start(words):
    assert seconds_to_ready(words, API) is None


STAMPS = st.datetimes().map(lambda one: f"{one.isoformat()}Z") | st.text(max_size=30) | st.none() | st.integers()


@given(STAMPS, STAMPS)
def test_whatever_a_kubelet_says_grants_no_more_than_the_most(began, ready):
    start = seconds_to_ready(reported(began, ready), API)
    assert 0.0 <= Policy().after(start).slow <= SLOW_ROLLOUT
