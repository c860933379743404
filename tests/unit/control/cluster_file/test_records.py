"""The record that counts: the newest one, whoever was away when it was written."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.cluster_file.decide.records import API, Record, latest, newest, numbered, without

FILES = st.sampled_from(["a", "b", "c"]).map(lambda name: {"spec": {"nodes": [{"name": name}]}})
HOSTS = ("n1", "n2", "n3")


@given(st.lists(st.tuples(FILES, st.sets(st.sampled_from(HOSTS), min_size=1), st.booleans()), min_size=1, max_size=8))
def test_what_was_applied_last_counts_however_many_were_away_if_whoever_applies_sees_the_newest(applied):
    """`up` demands that all hosts answer while the API does not, and asks the API while it does."""
    seen: dict[str, Record] = {}
    for file, there, api in applied:
        reached = {*there, API} if api else set(HOSTS)
        record = numbered(file, {}, newest({where: seen[where] for where in reached if where in seen}))
        seen |= dict.fromkeys(reached, record)
    assert all(found.file == applied[-1][0] for found in latest(seen).values())


@given(FILES, FILES)
def test_the_same_content_keeps_its_number_and_another_gets_the_next(old, new):
    first = numbered(old, {}, None)
    second = numbered(new, {}, first)
    assert first.number == 1
    assert (second == first) == (old == new)
    assert second.number == 1 + (old != new)
    assert numbered(old, {"n1": {}}, first).number == 2


def test_of_two_with_one_number_the_apis_counts_and_without_it_either_may():
    one, other = Record({"a": 1}, {}, 3), Record({"b": 1}, {}, 3)
    old = replace(one, number=2)
    assert latest({"n1": one, "n2": other, "n3": old}) == {"n1": one, "n2": other}
    assert latest({"n1": one, API: other}) == {API: other}
    assert latest({"n1": one, API: replace(other, number=2)}) == {"n1": one}
    assert (latest({}), newest({})) == ({}, None)


def test_a_record_of_an_older_release_is_numbered_when_it_is_written_again():
    assert numbered({}, {}, Record({}, {}, 0)).number == 1


def test_a_file_without_a_node_is_else_as_it_was():
    file = {"kind": "Cluster", "spec": {"selfHosted": "1-4", "nodes": [{"name": "n1"}, {"name": "n2"}]}}
    assert without(file, "n2") == {"kind": "Cluster", "spec": {"selfHosted": "1-4", "nodes": [{"name": "n1"}]}}
    assert without(file, "n9") == file
    assert Record(file, {}).has("n2")
    assert Record({}, {"n2": {}}).has("n2")
    assert not Record(file, {}).has("n9")
