"""Which template of etcd's members is in force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.template import (
    Kept,
    Reports,
    Request,
    decide,
    effective,
    request,
    revision,
    same,
    step_refused,
    stepping_stone,
    version_of,
)
from autarky.control.etcd.manifests import pods as etcd
from fakes.clusters import a_cluster, inputs_of

RENDERED = etcd.template(inputs_of(a_cluster()), requested=False)
BASE = {**RENDERED, "containers": [{**RENDERED["containers"][0], "image": "registry.k8s.io/etcd:3.6.16-0"}]}
NOTHING = Request({})
RUNS = effective(BASE, NOTHING)
SETTLED = Kept(RUNS, RUNS)


def reports(*running: Any, **failed: str) -> Reports:
    return Reports(running, failed)


def flags(spec: Any) -> dict[str, str]:
    words = [word.partition("=") for word in spec["containers"][0]["command"]]
    return {name: value for name, _, value in words}


def test_arguments_take_the_place_of_ours_or_come_last_and_a_version_changes_the_tag() -> None:
    found = effective(BASE, Request({"snapshot-count": "5", "v": "1"}, "3.7.3", 2**30))
    assert flags(found)["--snapshot-count"] == "5"
    assert found["containers"][0]["command"][-2:] == ["--v=1", "--quota-backend-bytes=1073741824"]
    assert found["containers"][0]["image"] == "registry.k8s.io/etcd:3.7.3-0"
    assert (version_of(found), version_of(BASE)) == ((3, 7, 3), (3, 6, 16))


def test_a_version_that_is_there_already_keeps_its_build() -> None:
    spec = {**BASE, "containers": [{**BASE["containers"][0], "image": "mirror:5000/etcd:3.6.16-2"}]}
    assert effective(spec, Request({}, "3.6.16"))["containers"][0]["image"] == "mirror:5000/etcd:3.6.16-2"
    assert effective(spec, Request({}, "3.6.17"))["containers"][0]["image"] == "mirror:5000/etcd:3.6.17-0"


def test_the_order_of_flags_is_no_difference_and_everything_else_is() -> None:
    turned = {**BASE, "containers": [{**BASE["containers"][0], "command": BASE["containers"][0]["command"][::-1]}]}
    assert same(BASE, turned)
    assert revision(BASE) == revision(turned)
    other = effective(BASE, Request({"v": "1"}))
    assert not same(BASE, other)
    assert revision(BASE) != revision(other)
    assert not same(BASE, {**BASE, "volumes": []})


def test_what_up_writes_with_the_arguments_of_the_file_is_what_the_operator_makes_of_them() -> None:
    """Else every member would be restarted when a cluster gets an operator that does this."""
    cluster = a_cluster(extra_args={"etcd": {"quota-backend-bytes": "1073741824", "auto-compaction-retention": "8"}})
    rendered = etcd.template(inputs_of(cluster))
    base = etcd.template(inputs_of(cluster), requested=False)
    assert same(rendered, effective(base, Request(cluster.extra_args["etcd"])))


def test_the_first_template_is_in_force_at_once_and_settled_when_all_run_it() -> None:
    found = decide(BASE, NOTHING, Kept(), reports(None, None)).kept
    assert found == Kept(RUNS, None)
    assert decide(BASE, NOTHING, found, reports(revision(RUNS), None)).kept == found
    assert decide(BASE, NOTHING, found, reports()).kept == found
    assert decide(BASE, NOTHING, found, reports(revision(RUNS), revision(RUNS))).kept == SETTLED


def test_one_that_a_member_is_not_healthy_with_goes_back_and_is_not_tried_again_by_itself() -> None:
    bad, good = Request({"nonsense": "1"}), Request({"v": "1"})
    now = decide(BASE, bad, SETTLED, reports(revision(RUNS))).kept
    assert now.in_force == effective(BASE, bad)
    failure = {revision(effective(BASE, bad)): "n1: it exited"}
    back = decide(BASE, bad, now, Reports((revision(RUNS),), failure))
    assert back.kept == Kept(RUNS, RUNS, effective(BASE, bad), "n1: it exited")
    assert back.rolled_back == "n1: it exited"
    again = decide(BASE, bad, back.kept, reports(revision(RUNS)))
    assert (again.kept, again.rolled_back) == (back.kept, "n1: it exited")
    corrected = decide(BASE, good, back.kept, reports(revision(RUNS)))
    assert corrected.kept == Kept(effective(BASE, good), RUNS)
    assert not corrected.rolled_back


BAD = effective(BASE, Request({"nonsense": "1"}))
FAILED = Reports((revision(RUNS),), {revision(BAD): "n1: it exited"})


def test_once_the_former_one_was_asked_for_the_same_is_tried_again() -> None:
    """Its image may have been missing, and be there now."""
    former = decide(BASE, NOTHING, Kept(RUNS, RUNS, BAD, "n1: it exited"), reports(revision(RUNS)))
    assert (former.kept, former.rolled_back) == (SETTLED, "")
    again = decide(BASE, Request({"nonsense": "1"}), former.kept, reports(revision(RUNS)))
    assert (again.kept, again.rolled_back, again.waits) == (Kept(BAD, RUNS), "", "")


def test_it_is_not_judged_by_what_a_member_has_reported_of_the_attempt_before() -> None:
    """Its node withdraws that as soon as it sees that the former one is asked for: it may be off."""
    former = decide(BASE, NOTHING, Kept(RUNS, RUNS, BAD, "n1: it exited"), FAILED)
    assert (former.kept, former.rolled_back) == (SETTLED, "")
    soon = decide(BASE, Request({"nonsense": "1"}), former.kept, FAILED)
    assert soon.kept == SETTLED
    assert "n1: it exited" in soon.waits
    assert not soon.rolled_back
    assert decide(BASE, Request({"nonsense": "1"}), soon.kept, reports(revision(RUNS))).kept == Kept(BAD, RUNS)


def test_where_nothing_is_in_force_yet_no_report_is_waited_for() -> None:
    """Nobody would be asked for anything else, and withdraw it."""
    assert decide(BASE, Request({"nonsense": "1"}), Kept(), FAILED).kept == Kept(BAD, None)


def test_without_rollback_it_stays_in_force_and_is_still_told() -> None:
    bad = Request({"nonsense": "1"})
    now = Kept(effective(BASE, bad), RUNS)
    found = decide(BASE, bad, now, Reports((None,), {revision(effective(BASE, bad)): "why"}), goes_back=False)
    assert (found.kept, found.rolled_back) == (now, "why")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Request({"data-dir": "/tmp"}), "--data-dir of etcd may not be set"),
        (Request({"initial-cluster": "x"}), "--initial-cluster of etcd may not be set"),
        (Request({"quota-backend-bytes": "1"}, quota=2**30), "the quota is set twice"),
        (Request({}, "3.5.35"), "an older minor cannot read"),
        (Request({}, "3.8.0"), "minors are not skipped"),
    ],
)
def test_what_is_refused_changes_nothing(wanted: Request, why: str) -> None:
    found = decide(BASE, wanted, SETTLED, reports())
    assert why in found.refused
    assert found.kept == SETTLED


def test_rule_4_upstreams_preconditions_for_a_minor_hold() -> None:
    assert step_refused((3, 5, 25), (3, 6, 16)) is not None
    assert step_refused((3, 5, 26), (3, 6, 16)) is None
    assert step_refused((3, 6, 10), (3, 7, 3)) is not None
    assert step_refused((3, 6, 16), (3, 7, 3)) is None
    assert step_refused((3, 6, 16), (3, 6, 2)) is None
    assert step_refused((3, 7, 3), (3, 6, 16)) is not None
    assert step_refused(None, (3, 9, 0)) is None


def test_a_way_back_is_open_until_all_members_run_the_newer_minor() -> None:
    newer = effective(BASE, Request({}, "3.7.3"))
    assert decide(BASE, NOTHING, Kept(newer, RUNS), reports(revision(newer), None)).kept.in_force == RUNS
    assert "older minor" in decide(BASE, NOTHING, Kept(newer, newer), reports()).refused


def test_what_the_control_plane_asks_for() -> None:
    spec = {"componentArguments": {"etcd": {"v": "1"}}, "etcd": {"version": "3.7.3", "quotaBytes": 5}}
    assert request({"spec": spec}) == Request({"v": "1"}, "3.7.3", 5)
    assert request({"spec": {"etcd": None, "componentArguments": None}}) == NOTHING


@given(
    st.lists(st.sampled_from([NOTHING, Request({"v": "1"}), Request({"nonsense": "1"})]), min_size=1, max_size=12),
    st.data(),
)
def test_what_went_back_is_in_force_again_when_another_was_asked_for_in_between_and_only_then(
    asked: list[Request], data: st.DataObject
) -> None:
    """The members look late: the next request may come before they have withdrawn what they said."""
    kept, given_up, failed = SETTLED, None, dict[str, str]()
    for number, one in enumerate(asked, 1):
        wanted = revision(effective(BASE, one))
        if wanted != given_up:
            given_up = None
        fails, calm = data.draw(st.booleans()), number == len(asked)
        for _ in range(5 if calm else data.draw(st.integers(1, 3))):
            now = revision(kept.in_force or {})
            if calm or data.draw(st.booleans()):
                failed = {name: why for name, why in failed.items() if name == now}
                if now == wanted and fails and now != revision(kept.settled or {}):
                    failed[now] = "why"
                    given_up = wanted
            running = revision(kept.settled or {}) if now in failed else now
            kept = decide(BASE, one, kept, Reports((running,), failed)).kept
            assert revision(kept.in_force or {}) != given_up
    assert revision(kept.in_force or {}) == (revision(kept.settled or {}) if wanted == given_up else wanted)


KNOWN = [(3, 5, 35), (3, 6, 16), (3, 7, 3)]
VERSIONS = st.tuples(st.just(3), st.integers(4, 9), st.integers(0, 40))


@given(VERSIONS, VERSIONS, st.lists(VERSIONS))
def test_the_first_step_of_a_way_is_one_that_etcd_can_take_and_leads_towards_its_end(
    before: Any, after: Any, known: Any
) -> None:
    found = stepping_stone(before, after, known)
    assert found == before or (found in known and before < found < after and step_refused(before, found) is None)
    better = [one for one in known if found < one < after and step_refused(before, one) is None]
    assert better == []


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ((3, 5, 35), (3, 7, 3), (3, 6, 16)),
        ((3, 6, 5), (3, 7, 3), (3, 6, 16)),
        ((3, 6, 16), (3, 9, 0), (3, 7, 3)),
        ((3, 7, 3), (3, 6, 16), (3, 7, 3)),
        ((3, 3, 0), (3, 7, 3), (3, 3, 0)),
    ],
)
def test_the_way_to_another_minor_goes_over_the_versions_that_are_known(before: Any, after: Any, first: Any) -> None:
    assert stepping_stone(before, after, KNOWN) == first
