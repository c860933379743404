"""What is written into the status of an upgrade is what is read from it; nothing anybody writes there raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.reported import Report, State
from autarky.model.versions import Version

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
UNDER_WAY = [State.UPGRADING, State.SOAKING, State.PAUSED, State.REFUSED, State.STOPPED]


def a_plane(wanted: Version, **status: Any) -> dict[str, Any]:
    return {"spec": {"version": str(wanted)}, "status": status}


@given(
    st.builds(
        Report,
        st.just(NEW),
        st.sampled_from(UNDER_WAY),
        st.text(),
        st.sampled_from(["", "kube-apiserver"]),
        st.lists(st.text(min_size=1, max_size=3), max_size=3).map(tuple),
        st.none() | st.integers(0, 2**33).map(float),
    ),
    st.sets(st.sampled_from([NEW])),
)
def test_what_is_written_is_what_is_read(report: Report, versions: set[Version]) -> None:
    plane = a_plane(NEW, version=str(OLD), upgrade=reported.status(report, versions))
    assert reported.read(plane) == report
    assert reported.noted_versions(plane) == versions


def test_a_report_about_another_version_than_the_spec_asks_for_now_is_none() -> None:
    said = reported.status(Report(NEW, State.STOPPED, "it failed"), {NEW})
    assert reported.read(a_plane(OLD, version=str(OLD), upgrade=said)) is None


def test_complete_is_what_has_the_wanted_version_and_nothing_to_take_back() -> None:
    found = reported.read(a_plane(NEW, version=str(NEW)))
    assert found is not None
    assert found.state is State.COMPLETE
    assert reported.read(a_plane(NEW, version=str(OLD))) is None
    given_up = a_plane(OLD, version=str(OLD), upgrade={"versions": [str(NEW)]})
    assert reported.read(given_up) is None, "what has been changed for the other version is not taken back yet"


def test_without_anything_to_say_there_is_no_such_part() -> None:
    assert reported.status(None, ()) == {}


@pytest.mark.parametrize(("spec", "paused"), [({"paused": True}, True), ({"paused": "true"}, False), ({}, False)])
def test_paused_is_only_what_says_so(spec: dict[str, object], *, paused: bool) -> None:
    assert reported.is_paused({"spec": spec}) is paused


@given(JSON, JSON)
def test_nothing_that_is_written_there_raises(spec: Any, status: Any) -> None:
    for plane in ({"spec": spec, "status": status}, {"spec": {"version": str(NEW)}, "status": {"upgrade": status}}):
        for look in (
            reported.read,
            reported.complete_version,
            reported.former_version,
            reported.wanted_version,
            reported.noted_versions,
            reported.is_paused,
            reported.soak_seconds,
            reported.emulated,
            reported.soaking,
        ):
            look(plane)


@pytest.mark.parametrize(
    ("spec", "status", "lowest"),
    [
        ("v1.37.1", {"version": "v1.37.1"}, Version(1, 37, 1)),
        ("v1.36.4", {"version": "v1.37.1"}, Version(1, 36, 4)),
        ("v1.37.1", {"version": "v1.36.4", "upgrade": {"versions": ["v1.37.1"]}}, Version(1, 36, 4)),
        ("v1.37.1", {"version": "v1.37.1", "upgrade": {"versions": ["v1.36.4", "v1.37.1"]}}, Version(1, 36, 4)),
        ("v1.37.1", {}, Version(1, 37, 1)),
        ("junk", {}, None),
    ],
)
def test_rule_4_kubelets_go_by_the_lowest_version_that_anything_has_or_goes_to(spec, status, lowest):
    assert reported.lowest_version({"spec": {"version": spec}, "status": status}) == lowest
