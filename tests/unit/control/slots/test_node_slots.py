from __future__ import annotations

import json

import pytest

from autarky.control.slots.decide.report import ANNOTATION, Slots, read, revision_of, slot_name, standby_serves, text

SLOTS = {"kube-apiserver": Slots("both", "6c9f", "checkpoint-1", "2026-11-21T10:00:00Z", serves=True, emulates="1.36")}


def node(value):
    return {"metadata": {"name": "n1", "annotations": {ANNOTATION: value}}}


def test_what_is_told_is_read_again():
    assert read(node(text(2, SLOTS))) == {
        "level": 2,
        "slots": {
            "kube-apiserver": {
                "slot": "both",
                "revision": "6c9f",
                "standby": "checkpoint-1",
                "checkpoint": "2026-11-21T10:00:00Z",
                "serves": True,
                "emulates": "1.36",
            }
        },
    }


def test_the_same_slots_give_the_same_text():
    more = {"a": Slots(), **SLOTS}
    assert text(2, more) == text(2, dict(reversed(more.items())))


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"slots": 1}'])
def test_what_cannot_be_understood_is_nothing(broken):
    assert read(node(broken)) == {}


def test_a_word_on_another_level_is_no_word_on_this_one():
    assert standby_serves(node(text(2, SLOTS)), "kube-apiserver", 2) is True
    assert standby_serves(node(text(2, SLOTS)), "kube-apiserver", 4) is None
    assert standby_serves(node(text(2, SLOTS)), "kube-scheduler", 2) is None
    assert standby_serves(node(json.dumps({"level": 2, "slots": {"x": 1}})), "x", 2) is None


def test_slots_and_revisions_have_names():
    assert [slot_name(hosted=h, standby=s) for h in (True, False) for s in (True, False)] == [
        "both",
        "hosted",
        "standby",
        "none",
    ]
    assert revision_of({"metadata": {"labels": {"pod-template-hash": "7"}}}) == "7"
    assert revision_of(None) == ""
