"""Clusters whose kubelets change: agents, scripts and the operator together, from the beginning to the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autarky.control.kubelet.decide.down import FAILED_SECONDS, LAGS_SECONDS
from autarky.control.kubelet.decide.report import State
from autarky.model.versions import Version
from unit.control.kubelet.decide.simulated import World, world
from unit.control.kubelet.decide.simulated_node import MOST_SECONDS, V36, V36_5, V37
from unit.control.kubelet.decide.test_kubelets_machine import LIARS, says


def want(found: World, version: Version) -> None:
    found.plane["spec"]["version"] = str(version)


def versions(found: World) -> set[Version]:
    return {one.runs for one in found.machines.values()}


def until(found: World, holds: Callable[[], bool], seconds: float = 2000.0) -> float:
    """How long it takes."""
    begin = found.now
    while not holds():
        assert found.now - begin < seconds, (found.plane, found.last)
        found.go_on(1)
    return found.now - begin


def ordered(found: World) -> list[str]:
    """Those who ever got an order."""
    return [name for name, one in found.machines.items() if one.ordered]


@pytest.mark.parametrize(("control", "workers"), [(1, 0), (1, 1), (3, 2)])
@pytest.mark.parametrize(("has", "wants"), [(V36, V37), (V37, V36), (V36, V36_5), (V36_5, V36)])
def test_all_get_the_version_one_order_each_and_then_nothing_happens(control, workers, has, wants):
    found = world(control, workers, version=has)
    want(found, wants)
    until(found, lambda: versions(found) == {wants} and found.plane["status"] == {"version": str(wants)})
    found.go_on(20)
    for one in found.machines.values():
        assert len(one.ordered) == 1
        assert one.report is not None
        assert one.report.state is State.DONE
        assert one.node["spec"] == {}
        stays = has.minor == wants.minor or control + workers == 1
        if one.control and workers == 1 and wants.minor < has.minor:
            stays = True  # side by side: nobody takes its pods while the worker is drained
        assert one.pods == (2 if stays else 0), "drained for a minor"


@pytest.mark.parametrize("wants", [V36, V36_5, V37])
def test_while_nobody_knows_what_the_control_plane_has_nobody_gets_an_order(wants):
    """Its object was made again by an old manifest."""
    found = world(3, 2, version=V37, pools=[{"name": "workers", "version": str(V36)}])
    want(found, wants)
    found.plane["status"] = {}
    found.go_on(50)
    assert (ordered(found), versions(found)) == ([], {V37})
    found.plane["spec"].pop("pools")
    found.plane["status"] = {"version": str(V37)}
    until(found, lambda: versions(found) == {wants} and found.plane["status"] == {"version": str(wants)})


def test_a_cluster_as_up_left_it_gets_no_order():
    found = world(3, 2)
    found.go_on(30)
    assert ordered(found) == []


@pytest.mark.parametrize("how", ["broken", "harmful"])
def test_the_first_worker_that_fails_stops_the_others_and_no_control_node(how):
    found = world(3, 3)
    getattr(found.machines["w1"], how).add(V37)
    want(found, V37)
    until(found, lambda: "w1 failed before" in ((found.last and found.last.waits) or {}).get("w2", ""))
    found.go_on(200)
    assert ordered(found) == ["c1", "c2", "c3", "w1"], "no worker stops control nodes"
    assert len(found.machines["w1"].ordered) == 1, "nor is it tried again"
    assert {name for name, one in found.machines.items() if one.runs == V37} == {"c1", "c2", "c3"}
    assert found.machines["w1"].node["spec"] == {}
    assert found.plane["status"] == {"version": str(V37)}
    want(found, V36)
    until(found, lambda: found.plane["status"] == {"version": str(V36)})
    assert ordered(found) == ["c1", "c2", "c3", "w1"], "the others have it still"


def test_what_is_asked_for_again_is_tried_again():
    found = world(1, 2)
    found.machines["w1"].broken.add(V37)
    want(found, V37)
    found.go_on(100)
    found.machines["w1"].broken.clear()
    found.plane["metadata"]["asked"] = "1"
    until(found, lambda: versions(found) == {V37})


def test_a_machine_that_restarts_in_the_middle_has_the_former_one_and_tries_again():
    found = world(1, 2)
    want(found, V37)
    until(found, lambda: found.machines["w1"].disk.trial is not None)
    found.cut("w1")
    found.go_on(30)
    assert ordered(found) == ["w1"], "nobody knows what has become of it"
    found.start("w1")
    assert found.machines["w1"].runs == V36
    until(found, lambda: versions(found) == {V37})
    assert [one.attempt for one in found.machines["w1"].ordered.values()] == [1, 2]


def test_an_api_that_is_away_in_the_middle_is_waited_for():
    found = world(1, 1)
    want(found, V37)
    until(found, lambda: found.machines["w1"].disk.trial is not None)
    found.api = False
    found.go_on(60)
    assert found.machines["w1"].results == {}
    found.api = True
    until(found, lambda: versions(found) == {V37})


def test_but_not_without_end():
    found = world(1, 1)
    want(found, V37)
    until(found, lambda: found.machines["w1"].disk.trial is not None)
    found.api = False
    found.go_on(int(MOST_SECONDS / 4) + 30)
    assert found.machines["w1"].runs == V36
    found.api = True
    found.go_on(30)
    report = found.machines["w1"].report
    assert report is not None
    assert report.state is State.WENT_BACK


def test_a_version_that_is_given_up_in_the_middle_goes_back_from_where_it_has_come_to():
    found = world(3, 3)
    want(found, V37)
    until(found, lambda: found.machines["w2"].runs == V37)
    want(found, V36)
    until(found, lambda: found.plane["status"] == {"version": str(V36)})
    assert versions(found) == {V36}
    assert set(ordered(found)) == {"w1", "w2"}


@pytest.mark.parametrize("lie", LIARS)
def test_a_worker_that_lies_blocks_nobodys_way_down(lie):
    found = world(3, 3, version=V37)
    found.machines["w1"].lies = lie
    want(found, V36)
    until(found, lambda: found.plane["status"] == {"version": str(V36)}, 2 * LAGS_SECONDS)
    assert {one.runs for one in found.machines.values() if one.lies is None} == {V36}
    assert found.passed <= {"w1"}


@pytest.mark.parametrize("how", ["broken", "harmful"])
def test_a_worker_that_cannot_go_down_is_passed_over_only_when_it_has_been_waited_for(how):
    """While it tries it is not Ready, and then it has the later one again."""
    found = world(3, 3, version=V37)
    getattr(found.machines["w3"], how).add(V36)
    want(found, V36)

    def is_down() -> bool:
        later = {name for name, one in found.machines.items() if one.runs.minor > found.servers.minor}
        assert later <= found.passed, later
        return found.plane["status"] == {"version": str(V36)}

    assert FAILED_SECONDS <= until(found, is_down, 2 * LAGS_SECONDS) < LAGS_SECONDS
    assert found.passed == {"w3"}
    found.machines["w3"].broken.clear()
    found.machines["w3"].harmful.clear()
    found.plane["metadata"]["asked"] = "1"
    until(found, lambda: versions(found) == {V36})


@pytest.mark.parametrize(("how", "state"), [("broken", State.WENT_BACK), ("full", State.REFUSED)])
def test_a_worker_that_fails_first_on_the_way_down_stops_nobody(how, state):
    found = world(3, 3, version=V37)
    first = found.machines["w1"]
    first.full, first.broken = how == "full", {V36} if how == "broken" else set()
    want(found, V36)
    until(found, lambda: first.report is not None and first.report.state is state)
    assert not found.machines["w3"].ordered, "it comes after that"
    until(found, lambda: found.plane["status"] == {"version": str(V36)}, 2 * LAGS_SECONDS)
    assert {name for name, one in found.machines.items() if one.runs == V37} == {"w1"} == found.passed


def test_two_workers_that_never_end_keep_no_other_one_above_the_api_servers():
    """By when they have lost their turns, nobody has come down for so long that workers are passed over."""
    found = world(1, 5, version=V37)
    for name in ("w1", "w2"):
        found.machines[name].lies = says(State.PROVING)
    want(found, V36)
    until(found, lambda: found.plane["status"] == {"version": str(V36)}, 3 * LAGS_SECONDS)
    assert found.passed <= {"w1", "w2"}
    assert {one.runs for one in found.machines.values() if one.lies is None} == {V36}


def test_a_worker_that_is_off_is_passed_over_and_follows():
    found = world(3, 2, version=V37)
    found.cut("w1")
    want(found, V36)
    until(found, lambda: found.plane["status"] == {"version": str(V36)})
    found.start("w1")
    until(found, lambda: versions(found) == {V36})


def test_a_control_node_that_is_off_is_waited_for():
    found = world(3, 1, version=V37)
    found.cut("c2")
    want(found, V36)
    found.go_on(600)
    assert found.servers == V37
    assert {name for name, one in found.machines.items() if one.runs == V37} == {"c2"}, "it holds up no kubelet"
    found.start("c2")
    until(found, lambda: found.plane["status"] == {"version": str(V36)})
