"""What a watch must show, on histories that are cut, shuffled and robbed of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.probe.continuity import Continuity
from autarky.probe.outcome import Kind

PROPERTY = settings(deadline=None, max_examples=50)

BEGIN = 100


@dataclass(frozen=True)
class Written:
    """A change as the API has it. Only those that were acknowledged must be shown."""

    version: int
    kind: str
    name: str
    acknowledged: bool


@st.composite
def histories(draw, *, least: int = 0) -> list[Written]:
    """Objects come, change and go; other resources' versions lie between."""
    version, history = BEGIN, []
    live: list[Any] = []
    for number in range(draw(st.integers(least, 12))):
        version += draw(st.integers(1, 3))
        kind = draw(st.sampled_from(["ADDED", "MODIFIED", "DELETED"])) if live else "ADDED"
        name = f"object-{number}" if kind == "ADDED" else draw(st.sampled_from(live))
        if kind == "ADDED":
            live.append(name)
        if kind == "DELETED":
            live.remove(name)
        history.append(Written(version, kind, name, draw(st.booleans())))
    return history


def acknowledge(watch: Continuity, change: Written) -> list[tuple[Kind, str]]:
    if not change.acknowledged:
        return []
    if change.kind == "DELETED":
        watch.removed(change.name, 1.0)
        return []
    return watch.wrote(change.name, change.version, 1.0)


def show(watch: Continuity, change: Written) -> list[tuple[Kind, str]]:
    return watch.event(change.kind, change.name, change.version)[1]


@st.composite
def interleavings(draw, history: list[Written]) -> list[tuple[str, Written]]:
    """Events in their order, each acknowledgement anywhere before or after."""
    steps = [("event", change) for change in history]
    for change in history:
        steps.insert(draw(st.integers(0, len(steps))), ("acknowledgement", change))
    return steps


def run(watch: Continuity, steps) -> list[tuple[Kind, str]]:
    found = []
    for what, change in steps:
        found += show(watch, change) if what == "event" else acknowledge(watch, change)
    return found + watch.end()


@PROPERTY
@given(st.data())
def test_a_watch_that_shows_everything_in_order_is_never_blamed(data):
    history = data.draw(histories())
    assert run(Continuity(BEGIN), data.draw(interleavings(history))) == []


@PROPERTY
@given(st.data())
def test_every_missing_event_of_an_acknowledged_change_is_found(data):
    history = data.draw(histories(least=1))
    missing = data.draw(st.sampled_from(history))
    steps = data.draw(interleavings(history))
    found = run(Continuity(BEGIN), [step for step in steps if step != ("event", missing)])
    assert [kind for kind, _ in found] == ([Kind.MISSED] if missing.acknowledged else [])


@PROPERTY
@given(st.data())
def test_an_event_that_comes_again_later_is_out_of_order(data):
    history = data.draw(histories(least=1))
    again = data.draw(st.integers(0, len(history) - 1))
    later = data.draw(st.integers(again + 1, len(history)))
    watch = Continuity(BEGIN)
    found = []
    for change in [*history[:later], history[again], *history[later:]]:
        found += show(watch, change)
    assert [kind for kind, _ in found] == [Kind.DISORDER]


@PROPERTY
@given(st.data())
def test_a_watch_resumed_anywhere_from_its_position_is_never_blamed(data):
    history = data.draw(histories())
    cut = data.draw(st.integers(0, len(history)))
    watch = Continuity(BEGIN)
    found = [finding for change in history[:cut] for finding in show(watch, change)]
    resumed = [change for change in history if change.version > watch.position]
    assert resumed == history[cut:]
    found += [finding for change in resumed for finding in show(watch, change)]
    assert found + [finding for change in history for finding in acknowledge(watch, change)] + watch.end() == []


@PROPERTY
@given(st.data())
def test_a_bookmark_after_everything_is_never_blamed(data):
    history = data.draw(histories())
    watch = Continuity(BEGIN)
    found = [finding for change in history for finding in acknowledge(watch, change) + show(watch, change)]
    found += watch.bookmark(history[-1].version + 5 if history else BEGIN)
    assert found + watch.end() == []


def test_a_bookmark_before_an_acknowledged_event_is_a_missed_event():
    watch = Continuity(BEGIN)
    watch.wrote("a", 105, 1.0)
    assert watch.bookmark(104) == []
    assert [kind for kind, _ in watch.bookmark(105)] == [Kind.MISSED]
    assert watch.end() == []


def test_an_acknowledgement_that_the_watch_has_passed_already_is_a_missed_event():
    watch = Continuity(BEGIN)
    watch.event("ADDED", "b", 110)
    assert [kind for kind, _ in watch.wrote("a", 105, 1.0)] == [Kind.MISSED]


def test_the_time_since_the_acknowledgement_is_told_with_the_event():
    watch = Continuity(BEGIN)
    watch.wrote("a", 101, 7.0)
    assert watch.oldest == 7.0
    assert watch.event("ADDED", "a", 101) == (7.0, [])
    assert watch.oldest is None


def test_beginning_again_from_a_list_misses_nothing_that_the_list_shows():
    watch = Continuity(BEGIN)
    watch.event("ADDED", "gone", 101)
    watch.wrote("gone", 101, 1.0)
    watch.wrote("changed", 105, 1.0)
    watch.removed("gone", 1.0)
    assert watch.relisted(110, {"changed": 105}) == []
    assert watch.wrote("changed", 111, 2.0) == []
    assert watch.event("MODIFIED", "changed", 111) == (2.0, [])
    assert watch.end() == []


def test_when_it_begins_again_from_a_list_what_was_overwritten_meanwhile_was_overtaken():
    watch = Continuity(BEGIN)
    watch.wrote("a", 103, 1.0)
    watch.wrote("a", 105, 1.0)
    watch.wrote("gone", 106, 1.0)
    watch.deletes("gone")
    assert watch.relisted(110, {"a": 105}) == [
        (Kind.OVERTAKEN, "the event of version 103: a list at 110 shows what came later"),
        (Kind.OVERTAKEN, "the event of version 106: a list at 110 shows what came later"),
    ]
    watch.wrote("a", 112, 2.0)
    assert watch.event("MODIFIED", "a", 113)[1] == [
        (Kind.MISSED, "the event of version 112: the watch passed it and came to 112")
    ], "a list excuses nothing that comes after it"


@pytest.mark.parametrize("listed", [{}, {"a": 103}, {"another": 107}])
def test_what_a_list_lacks_though_nothing_has_covered_it_was_missed(listed):
    """The list is a stale one."""
    watch = Continuity(BEGIN)
    watch.wrote("a", 105, 1.0)
    assert [kind for kind, _ in watch.relisted(110, listed)] == [Kind.MISSED]
    assert watch.end() == []


def test_a_name_that_is_deleted_and_made_again_excuses_no_list_that_lacks_it():
    watch = Continuity(BEGIN)
    watch.deletes("a")
    watch.event("DELETED", "a", 103)
    watch.wrote("a", 105, 1.0)
    assert [kind for kind, _ in watch.relisted(110, {})] == [Kind.MISSED]


def test_a_late_acknowledgement_of_what_a_list_has_shown_is_fine():
    watch = Continuity(BEGIN)
    watch.event("ADDED", "gone", 101)
    watch.relisted(110, {"a": 105})
    assert watch.wrote("gone", 101, 2.0) == watch.wrote("a", 105, 2.0) == []
    watch.removed("gone", 2.0)
    assert watch.end() == []
