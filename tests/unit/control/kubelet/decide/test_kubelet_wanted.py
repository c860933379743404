"""Which version a node's kubelet is to have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide.pools import IMPLICIT, Pool
from autarky.control.kubelet.decide.wanted import (
    PIN,
    Wanted,
    follows,
    must_go_down,
    not_noted,
    pin_of,
    refusal,
    target,
    version,
)
from autarky.control.upgrade.decide.reported import lowest_version
from autarky.model.versions import Version

V35, V36, V36_5, V37, V38 = (Version(1, *rest) for rest in ((35, 9), (36, 4), (36, 5), (37, 1), (38, 0)))
WORKERS = IMPLICIT[0]


def plane(wanted: Version, complete: Version | None = None, *noted: Version, follow: object = True, **spec: Any) -> Any:
    """complete: None for the wanted one."""
    status = {"version": str(complete or wanted)}
    upgrade = {"upgrade": {"versions": [str(one) for one in noted]}} if noted else {}
    return {"spec": {"version": str(wanted), "kubelets": {"follow": follow}, **spec}, "status": status | upgrade}


def pool(found: Version) -> Pool:
    return replace(WORKERS, version=found)


def test_without_anything_else_it_is_the_control_planes():
    assert version(plane(V37), WORKERS, None, V36) == Wanted(V37)


def test_a_pin_wins_over_the_pool_and_the_pool_over_the_control_plane():
    assert version(plane(V37), pool(V36_5), None, V36).version == V36_5
    assert version(plane(V37), pool(V36_5), str(V36), V37).version == V36


@pytest.mark.parametrize("by", ["the plane", "the pool", "a pin"])
@pytest.mark.parametrize(
    ("where", "lowest"),
    [
        (plane(V37, V36), V36),
        (plane(V37, V36, V37), V36),
        (plane(V36, V37, V36), V36),
        (plane(V37, V37, V36), V36),
        (plane(V37), V37),
    ],
)
def test_none_is_newer_than_any_api_server_is_or_comes_to_be(by, where, lowest):
    """Going up, being given up, going down; and up completely, where 1.38 is too new."""
    asked = V38 if lowest == V37 else V37
    found = {
        "the plane": version(where, WORKERS, None, V36),
        "the pool": version(where, pool(asked), None, V36),
        "a pin": version(where, WORKERS, str(asked), V36),
    }[by]
    assert found.version == lowest
    assert (found.sentence == "") is (by == "the plane")


def test_a_later_patch_is_not_newer():
    assert version(plane(V36), WORKERS, str(V36_5), V36) == Wanted(V36_5)
    assert version(plane(V36_5, V36), WORKERS, None, V36) == Wanted(V36), "the control plane comes first"


@pytest.mark.parametrize("pin", ["v1.33.9", "v0.36.4", "v2.0.0"])
def test_what_kubernetes_does_not_support_stays_as_it_is(pin):
    found = version(plane(V37), WORKERS, pin, V36)
    assert found.version in (None, V37)
    assert "rule 4" in found.sentence
    assert version(plane(V37), WORKERS, "v1.34.0", V36).version == Version(1, 34, 0)


@pytest.mark.parametrize("pin", ["1.37", "", "latest", "v1.37.1\n", "v1.37.1 "])
def test_a_pin_that_cannot_be_understood_changes_nothing(pin):
    found = version(plane(V37), WORKERS, pin, V36)
    assert found.version is None
    assert PIN in found.sentence


def test_but_a_kubelet_that_has_to_go_down_goes_down():
    found = version(plane(V36, V37, V36), WORKERS, "latest", V37)
    assert found.version == V36
    assert PIN in found.sentence
    assert version(plane(V36, V37, V36, follow=False), WORKERS, "latest", V37).version == V36
    assert version(plane(V36, V37, V36, follow=False), WORKERS, None, V36).version is None


def test_nothing_is_wanted_by_a_lower_version_that_the_operator_has_not_noted():
    """It may be refused, or have been typed wrong."""
    for asked in (None, str(V36)):
        found = version(plane(V36, V37), WORKERS, asked, V37)
        assert found.version is None
        assert str(V36) in found.sentence
    assert version(plane(V36, V36_5), WORKERS, None, V36_5).version == V36, "a patch takes nothing down"


NOTHING_SAID = [None, {}, [], {"version": "?"}, {"upgrade": {"versions": []}}, {"nodes": []}]


@pytest.mark.parametrize("status", NOTHING_SAID)
def test_nothing_is_wanted_before_the_operator_has_said_which_version_the_control_plane_has(status):
    """An old manifest that was applied again may ask for any version."""
    for asked in (V36, V37, V38):
        said = {**plane(asked, follow=True), "status": status}
        for by in ((WORKERS, None), (pool(V36), None), (WORKERS, str(V36))):
            found = version(said, *by, V37)
            assert found == Wanted(None, "it is not known yet which version the control plane has")
        assert not_noted(said) == asked
    for known in ({"version": str(V37)}, {"upgrade": {"versions": [str(V37)]}}):
        assert version({**plane(V37), "status": known}, WORKERS, None, V36) == Wanted(V37), "a second later"


@pytest.mark.parametrize("follow", [False, None, "true", {}])
def test_a_cluster_whose_kubelets_do_not_follow_has_only_what_is_asked_for_by_name(follow):
    where = plane(V37, follow=follow)
    assert not follows(where)
    assert version(where, WORKERS, None, V36).version is None
    assert version(where, WORKERS, str(V37), V36).version == V37
    assert version(where, pool(V37), None, V36).version == V37


@pytest.mark.parametrize("where", [{}, {"spec": 7}, {"spec": {"version": "x"}, "status": []}])
def test_a_plane_that_cannot_be_understood_wants_nothing(where):
    assert version(where, WORKERS, str(V37), V36).version is None
    assert refusal(where, V38) is None, "the caller asks for that by itself"
    assert not must_go_down(where, V37)


def test_a_node_in_no_pool_stays_as_it_is():
    assert version(plane(V37), None, str(V37), V36).version is None


def test_a_pin_is_read_from_the_node():
    assert pin_of({"annotations": {PIN: "v1.37.1"}}) == "v1.37.1"
    assert pin_of({"annotations": {PIN: 7}}) == ""
    assert pin_of({"annotations": None}) is None
    assert pin_of({}) is None


def test_the_target_has_the_pools_configuration_and_the_planes_arguments():
    where = plane(V37, componentArguments={"kubelet": {"v": "2"}, "etcd": {"v": "3"}})
    found = target(where, replace(WORKERS, configuration={"maxPods": 50}), V36, base="9f0c")
    assert (found.version, found.base, found.runtime) == (V36, "9f0c", "")
    assert (found.config, found.arguments) == ({"maxPods": 50}, {"v": "2"})
    assert target(plane(V37), WORKERS, V36, base="9f0c").arguments == {}


def test_the_pools_container_runtime_wins_and_without_any_the_nodes_own_stays():
    of_all = plane(V37, kubelets={"runtime": "image:1"})
    assert target(of_all, WORKERS, V36, base="9f0c").runtime == "image:1"
    assert target(of_all, replace(WORKERS, runtime="image:2"), V36, base="9f0c").runtime == "image:2"
    for odd in (None, "", 7, "no image", "a" * 256):
        assert target(plane(V37, kubelets={"runtime": odd}), WORKERS, V36, base="9f0c").runtime == ""


VERSIONS = st.sampled_from([V35, V36, V36_5, V37, V38])


@given(VERSIONS, st.sampled_from(NOTHING_SAID), VERSIONS, st.none() | VERSIONS, st.none() | VERSIONS, st.booleans())
def test_whoever_asks_nothing_changes_while_nothing_is_said(wanted, status, runs, of_pool, pin, follow):
    where = {**plane(wanted, follow=follow), "status": status}
    pools = WORKERS if of_pool is None else pool(of_pool)
    assert version(where, pools, None if pin is None else str(pin), runs).version is None


@given(VERSIONS, VERSIONS, st.lists(VERSIONS, max_size=2), VERSIONS, st.none() | VERSIONS, st.none() | VERSIONS)
def test_whoever_asks_nothing_is_wanted_that_would_be_refused(wanted, complete, noted, runs, of_pool, pin):
    where = plane(wanted, complete, *noted)
    pools = WORKERS if of_pool is None else pool(of_pool)
    found = version(where, pools, None if pin is None else str(pin), runs).version
    lowest = lowest_version(where)
    assert lowest is not None
    assert found is None or (found.major, found.minor) <= (lowest.major, lowest.minor)
    assert found is None or refusal(where, found) is None
    assert must_go_down(where, runs) is (refusal(where, runs) is not None)
    is_noted = (wanted.major, wanted.minor) >= min((one.major, one.minor) for one in (complete, *noted))
    assert not must_go_down(where, runs) or found is not None or not is_noted, "the control plane waits for it"
    assert found is None or is_noted
