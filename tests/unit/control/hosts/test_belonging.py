"""Whose a host is: only what is proven to be of our own cluster is touched."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky.control.hosts.decide.belonging import Ours, Said, refuse, refuse_api

NAMES = st.sampled_from(["demo", "other"])
PRINTS = st.sampled_from(["a" * 64, "b" * 64])
SAID = st.builds(Said, st.none() | NAMES, st.none() | PRINTS, st.none() | PRINTS)
OURS = st.builds(Ours, NAMES, st.none() | PRINTS)
LOGIN = "`autarky login ssh://n1`"


def judged(said, ours, **more):
    return refuse(said, ours, login=LOGIN, **more)


@given(SAID, OURS, st.booleans(), st.booleans())
def test_a_marker_of_another_ca_is_never_ours(said, ours, known, by_name):
    if said.ca is not None and said.ca != ours.ca:
        assert judged(said, ours, known_to_api=known, by_name=by_name) is not None


@given(SAID, NAMES, st.booleans(), st.booleans())
def test_without_a_ca_of_our_own_no_host_that_has_a_marker_is_ours(said, name, known, by_name):
    assert judged(said, Ours(name, None), known_to_api=known, by_name=by_name) is not None


@given(SAID, OURS, st.booleans(), st.booleans())
@example(Said("demo", None, None), Ours("demo", "a" * 64), True, False)
def test_a_host_that_is_ours_was_proven_by_its_ca_or_by_the_api(said, ours, known, by_name):
    if judged(said, ours, known_to_api=known, by_name=by_name) is None:
        assert said.cluster in (None, ours.cluster)
        assert said.proven == ours.ca or (said.proven is None and (known or by_name))


@given(SAID, OURS, st.booleans(), st.booleans())
def test_every_refusal_says_what_was_seen_and_what_goes_on(said, ours, known, by_name):
    refused = judged(said, ours, known_to_api=known, by_name=by_name)
    assert refused is None or (refused.seen and refused.go_on)


def test_a_second_workstation_is_told_how_to_go_on():
    refused = judged(Said("demo", "a" * 64, "a" * 64), Ours("demo", None))
    assert "of which this state directory has nothing" in refused.seen
    assert LOGIN in refused.go_on


def test_a_marker_of_an_older_release_is_taken_over_when_the_ca_on_the_disk_agrees():
    assert judged(Said("demo", None, "a" * 64), Ours("demo", "a" * 64)) is None
    assert judged(Said("demo", None, "b" * 64), Ours("demo", "a" * 64), known_to_api=True) is not None


def test_a_marker_of_an_older_release_without_a_ca_on_the_disk_is_taken_over_when_the_api_knows_the_node():
    older = Said("demo", None, None)
    assert judged(older, Ours("demo", "a" * 64), known_to_api=True) is None
    assert "find out whose it is" in judged(older, Ours("demo", "a" * 64)).go_on


@given(st.binary(max_size=30))
def test_a_marker_that_is_torn_says_nothing_and_proves_nothing(content):
    said = Said.of(content, None)
    assert said.ca is None
    assert judged(said, Ours("demo", "a" * 64), known_to_api=True, by_name=True) is not None


@pytest.mark.parametrize("marker", [b"[" * 100_000, b'{"cluster": ' + b'{"a":' * 100_000])
def test_a_marker_that_is_nested_without_end_says_nothing(marker):
    assert Said.of(marker, "d" * 64) == Said(None, None, "d" * 64)


@pytest.mark.parametrize("name", ["x\n  - nothing goes", "x; reboot", "", "A", "x" * 64, "-x"])
def test_what_is_no_name_of_a_cluster_is_not_told_as_one(name):
    """It appears in a command that people are asked to type."""
    assert Said.of(json.dumps({"cluster": name, "ca": "b" * 64}).encode(), None) == Said(None, "b" * 64, None)


@given(st.integers(0, 60))
def test_any_beginning_of_a_marker_is_either_complete_or_nothing(length):
    complete = json.dumps({"cluster": "demo", "node": "n1", "founders": ["n1"], "ca": "a" * 64}).encode()
    assert Said.of(complete, None) == Said("demo", "a" * 64, None)
    assert Said.of(complete[:length], None) == Said(None, None, None)


@given(st.just("") | PRINTS, OURS)
def test_an_api_is_refused_when_both_name_a_ca_and_they_differ(said, ours):
    assert (refuse_api(said, ours) is not None) == bool(said and ours.ca and said != ours.ca)
