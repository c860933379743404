"""What the ControlPlane's status says of kubelets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.shapes import MOST_NAMED, MOST_SHOWN
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.decide.telling import (
    Hosted,
    Pool,
    Reported,
    hosted,
    is_used,
    read,
    reported,
    sentence,
    status,
)
from autarky.control.kubelet.decide.wanted import NOT_FOLLOWED
from unit.control.kubelet.decide.test_kubelet_order import any_json
from unit.control.kubelet.decide.turns_scene import V37, node, ordered, turns

LONG = "x\n" * 10_000
TEXT = st.text(min_size=1, max_size=20).filter(lambda one: one.isprintable() and one.split() == [one])
REASONS = st.dictionaries(TEXT, TEXT, max_size=MOST_NAMED)
POOLS = st.builds(Pool, TEXT, st.lists(TEXT, max_size=2).map(tuple), st.integers(0, 9), st.integers(0, 9), TEXT)


def of_plane(said: object) -> dict[str, Any]:
    return {"status": {"kubelets": said}}


def test_it_says_how_far_each_pool_is_and_who_waits_for_what():
    nodes = [ordered(node("w1"), State.WENT_BACK, why="no pods"), node("w2"), node("c1"), node("w3", V37)]
    found = reported(turns(*nodes), {"w4": "its pin is no version"})
    assert found.pools == (
        Pool("control-nodes", (str(V37),), 0, 1),
        Pool("workers", (str(V37),), 1, 3, "w1: no pods"),
    )
    assert (found.failed, found.waits) == ({"w1": "no pods"}, {"w2": "w1 failed before"})
    assert (found.changing, found.said) == (("c1",), {"w4": "its pin is no version"})
    assert not found.is_current
    assert sentence(found) == (
        "control-nodes: 0 of 1 have v1.37.1; workers: 1 of 3 have v1.37.1; w1 failed: no pods; c1 changes;"
        " w2 waits: w1 failed before; w4: its pin is no version"
    )


def test_it_is_current_when_each_has_what_is_wanted_of_it():
    assert reported(turns(node("w1", V37), node("c1", V37)), {}).is_current
    assert reported(turns(replace(node("w1"), wanted=None)), {"w1": NOT_FOLLOWED}).is_current, "nothing is"
    assert not reported(turns(node("w1", V37)), {"w2": "its pin is no version"}).is_current
    assert not reported(turns(node("w1")), {}).is_current
    assert not reported(turns(ordered(node("w1"), State.REFUSED)), {}).is_current
    assert not Reported(trouble="spec.pools is not valid").is_current


def test_a_daemon_set_that_stays_back_is_said_and_hosted_kubelets_behind_which_the_hosts_are_hold_up_nothing():
    done = reported(turns(node("w1", V37)), {})
    found = replace(done, hosted=hosted("it was rolled back; to try again: kubectl", {"w1": "it exits"}, {"w2": "w1"}))
    assert not found.is_current
    assert sentence(found) == ("it was rolled back; to try again: kubectl; the hosted kubelet of w1 failed: it exits")
    assert status(found)["hosted"] == {
        "behind": "it was rolled back; to try again: kubectl",
        "failed": [{"node": "w1", "why": "it exits"}],
        "waits": [{"node": "w2", "why": "w1"}],
    }
    assert replace(found, hosted=replace(found.hosted, behind="")).is_current
    assert "hosted" not in status(done)


def test_no_list_of_nodes_and_no_text_grows():
    many = [ordered(node(f"w{number:02}"), State.REFUSED, why=LONG) for number in range(40)]
    others = [node(f"c{number:02}") for number in range(40)]
    found = reported(turns(*many, *others), {f"n{number}": LONG for number in range(40)})
    of_hosted = hosted("", *({f"w{number:02}": LONG for number in range(40)} for _ in range(2)))
    for part in (found.failed, found.waits, found.said, of_hosted.failed, of_hosted.waits):
        assert len(part) == MOST_NAMED
        assert all("\n" not in why and len(why) <= MOST_SHOWN for why in part.values())
    assert len(found.changing) <= MOST_NAMED


def test_control_nodes_are_named_first_and_the_rest_is_counted():
    """However many workers say that theirs have failed."""
    workers = [f"a{number}" for number in range(1, 7)]
    control = {"z-cp1"}
    failed = [ordered(replace(node("c1"), name="z-cp1"), State.WENT_BACK, why="no pods")]
    failed += [ordered(node(name), State.REFUSED, why="a lie") for name in workers]
    found = reported(turns(*failed, node("w1"), node("w2")), dict.fromkeys([*workers, "z-cp1"], "no base"), control)
    assert list(found.failed) == ["z-cp1", "a1", "a2", "a3", "a4"]
    assert next(iter(found.said)) == "z-cp1"
    assert (found.more["failed"], found.more["said"]) == (2, 2)
    assert "z-cp1 failed: no pods; a1 failed: a lie" in sentence(found)
    assert "and 2 more failed" in sentence(found)
    changing = [ordered(one, State.PROVING) for one in (*map(node, workers), replace(node("c1"), name="z-cp1"))]
    found = reported(turns(*changing), {}, control)
    assert (found.changing, found.more) == (("z-cp1", "a1", "a2", "a3", "a4"), {"changing": 2})
    of_hosted = hosted("", dict.fromkeys([*workers, "z-cp1"], "it exits"), {}, control)
    assert (next(iter(of_hosted.failed)), of_hosted.more) == ("z-cp1", {"failed": 2})
    assert sentence(Reported(hosted=of_hosted)).endswith("; and 2 more hosted ones failed")


def test_what_is_in_the_way_is_named_before_what_nobody_asks_for():
    said = {**{f"a{number}": NOT_FOLLOWED for number in range(9)}, "z": "no base"}
    assert "z" in reported(turns(node("w1", V37)), said).said


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        ({}, False),
        ({"kubelets": {}}, False),
        ({"kubelets": {"follow": False}}, True),  # a node may have a pin
        ({"kubelets": {"follow": True}}, True),
        ({"pools": []}, True),
        ({"pools": "odd"}, True),
        ({"pools": None}, False),
    ],
)
def test_a_cluster_uses_it_that_asks_for_something(spec, used):
    assert is_used({"spec": spec}) is used


@given(
    st.builds(
        Reported,
        pools=st.lists(POOLS, max_size=3).map(tuple),
        changing=st.lists(TEXT, max_size=MOST_NAMED).map(tuple),
        failed=REASONS,
        waits=REASONS,
        said=REASONS,
        hosted=st.builds(Hosted, st.just("") | TEXT, REASONS, REASONS, st.just({}) | st.just({"waits": 7})),
        more=st.dictionaries(st.sampled_from(["changing", "failed", "waits", "said"]), st.integers(1, 10**6)),
    )
)
def test_what_is_written_is_read(found):
    assert read(of_plane(status(found))) == found


def test_trouble_is_all_there_is():
    assert read(of_plane(status(Reported(trouble="spec.pools is a mess")))) == Reported(trouble="spec.pools is a mess")
    assert read({"status": {}}) is None


@given(any_json)
def test_reading_never_raises_and_what_is_read_is_small(said):
    found = read(of_plane(said))
    assert found is None or read(of_plane(status(found))) == found
    for key in ("pools", "changing", "failed", "waits", "said", "trouble", "hosted", "more"):
        found = read(of_plane({key: said}))
        assert found is not None
        assert len(str(found)) < 200_000
        sentence(found)
