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


def under_way(wanted: Version = NEW, **said: Any) -> dict[str, Any]:
    """Up from OLD, while level 3 is being watched."""
    report = Report(wanted, State.UPGRADING, "it is being rolled out", "kube-scheduler")
    said = {**reported.status(report, {NEW}, kubelets=NEW), **said}
    return a_plane(wanted, version=str(OLD), upgrade=said)


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
    st.none() | st.just(NEW),
)
def test_what_is_written_is_what_is_read(report: Report, versions: set[Version], kubelets: Version | None) -> None:
    plane = a_plane(NEW, version=str(OLD), upgrade=reported.status(report, versions, kubelets=kubelets))
    assert reported.read(plane) == report
    assert reported.for_kubelets(plane) == kubelets
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
            reported.lowest_version,
            reported.for_kubelets,
            reported.said_for_kubelets,
            reported.bars_steps,
            reported.are_kubelets_held,
        ):
            look(plane)


@given(JSON)
def test_nor_does_anything_in_the_place_of_the_version_that_kubelets_may_have(kubelets: Any) -> None:
    plane = under_way(kubelets=kubelets)
    assert reported.for_kubelets(plane) is None
    assert reported.lowest_version(plane) == OLD
    assert reported.bars_steps(plane)
    assert reported.are_kubelets_held(plane)


UP = {"version": "v1.36.4", "upgrade": {"versions": ["v1.37.1"], "kubelets": "v1.37.1"}}
"""What kubelets may have counts from when it is said, and until an earlier minor is wanted."""


@pytest.mark.parametrize(
    ("spec", "status", "lowest"),
    [
        ("v1.37.1", {"version": "v1.37.1"}, Version(1, 37, 1)),
        ("v1.36.4", {"version": "v1.37.1"}, Version(1, 36, 4)),
        ("v1.37.1", {"version": "v1.36.4", "upgrade": {"versions": ["v1.37.1"]}}, Version(1, 36, 4)),
        ("v1.37.1", {"version": "v1.37.1", "upgrade": {"versions": ["v1.36.4", "v1.37.1"]}}, Version(1, 36, 4)),
        ("v1.37.1", {}, Version(1, 37, 1)),
        ("junk", {}, None),
        ("v1.37.1", UP, Version(1, 37, 1)),
        ("v1.37.2", UP, Version(1, 37, 1)),
        ("v1.37.0", UP, Version(1, 37, 0)),
        ("v1.36.4", UP, Version(1, 36, 4)),
        ("v1.36.5", UP, Version(1, 36, 4)),
        ("v1.38.1", UP, Version(1, 37, 1)),
        ("junk", UP, Version(1, 36, 4)),
    ],
)
def test_rule_4_kubelets_go_by_the_lowest_version_that_anything_has_or_goes_to(spec, status, lowest):
    assert reported.lowest_version({"spec": {"version": spec}, "status": status}) == lowest


@pytest.mark.parametrize(
    ("wanted", "allowed"), [(NEW, True), (Version(1, 37, 2), True), (Version(1, 38, 0), True), (OLD, False)]
)
def test_an_earlier_minor_makes_what_kubelets_may_have_void_at_once_and_bars_steps(
    wanted: Version, *, allowed: bool
) -> None:
    """Else it would count again, with API servers that have been lowered, when that one is asked for once more. A later
    one may be a mistake, and is not come to by a step down."""
    plane = under_way(wanted)
    assert (reported.for_kubelets(plane) == NEW) is allowed
    assert reported.bars_steps(plane) is not allowed
    written = reported.status(None, {NEW}, kubelets=reported.for_kubelets(plane))
    assert not reported.bars_steps(a_plane(wanted, version=str(OLD), upgrade=written)), "that is what the next one says"


@pytest.mark.parametrize(
    ("state", "component", "held"),
    [
        *[(State.UPGRADING, component, False) for component in ("kube-controller-manager", "kube-proxy", "")],
        (State.UPGRADING, "kube-apiserver", True),
        *[(state, "kube-scheduler", True) for state in UNDER_WAY if state is not State.UPGRADING],
    ],
)
def test_on_the_way_kubelets_change_only_while_level_3_comes_to_what_they_may_have(
    state: State, component: str, *, held: bool
) -> None:
    """What waits for the API servers, is stopped, or soaks, may have to go back."""
    plane = under_way(state=str(state), component=component)
    assert reported.are_kubelets_held(plane) is held
    del plane["status"]["upgrade"]["kubelets"]
    assert reported.are_kubelets_held(plane)


def test_nor_on_the_way_to_a_version_that_nothing_is_said_of_yet() -> None:
    patched = Version(1, 37, 2)
    assert reported.are_kubelets_held(under_way(patched)), "the API servers have yet to come to it"
    edited = under_way()
    edited["spec"]["version"] = str(patched)
    assert reported.are_kubelets_held(edited)


@pytest.mark.parametrize(
    ("wanted", "state", "held"),
    [(OLD, None, False), (NEW, None, True), (NEW, "Refused", False), (NEW, "Stopped", True)],
)
def test_before_anything_was_begun_only_what_is_refused_holds_no_kubelet(
    wanted: Version, state: str | None, *, held: bool
) -> None:
    said = {} if state is None else {"upgrade": {"wanted": str(wanted), "state": state, "message": "why"}}
    assert reported.are_kubelets_held(a_plane(wanted, version=str(OLD), **said)) is held
