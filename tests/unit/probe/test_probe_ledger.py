"""Which losses the ledger finds, on a store that forgets on command."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.probe.ledger import Ledger

PROPERTY = settings(deadline=None, max_examples=50)

ANSWERS = ["acknowledged", "lost on the way", "done but not acknowledged"]
writes = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(ANSWERS))


@dataclass
class Store:
    """What is stored, and the ledger of a writer that creates, patches and deletes."""

    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)

    def write(self, name: str, key: str, answer: str) -> None:
        if answer != "lost on the way":
            self.objects.setdefault(name, {})[key] = f"value of {key}"
        if answer == "acknowledged":
            self.ledger.wrote(name, {key: f"value of {key}"})
            self.acknowledged.append((name, key))

    def delete(self, name: str, answer: str) -> None:
        if answer != "lost on the way":
            self.objects.pop(name, None)
        if answer == "acknowledged":
            self.ledger.deleted(name)
        else:
            self.ledger.unsure(name)
        self.acknowledged = [pair for pair in self.acknowledged if pair[0] != name]


def written(steps) -> Store:
    store = Store()
    for number, (name, answer) in enumerate([("a", "acknowledged"), ("b", "acknowledged"), *steps]):
        store.write(name, f"{number:03}", answer)
    return store


@PROPERTY
@given(st.lists(writes))
def test_a_store_that_keeps_what_it_acknowledged_has_lost_nothing(steps):
    store = written(steps)
    assert store.ledger.lost(store.objects) == []


@PROPERTY
@given(st.lists(writes), st.data())
def test_every_single_loss_of_an_acknowledged_write_is_found(steps, data):
    store = written(steps)
    name, key = data.draw(st.sampled_from(store.acknowledged))
    del store.objects[name][key]
    assert store.ledger.lost(store.objects) == [f"{name}: {key}=value of {key}"]


@PROPERTY
@given(st.lists(writes), st.data())
def test_a_wrong_value_is_a_loss_too(steps, data):
    store = written(steps)
    name, key = data.draw(st.sampled_from(store.acknowledged))
    store.objects[name][key] = "something else"
    assert store.ledger.lost(store.objects) == [f"{name}: {key}=value of {key}"]


def test_a_lost_object_has_lost_all_its_writes():
    store = written([("a", "acknowledged")])
    del store.objects["a"]
    assert store.ledger.lost(store.objects) == ["a: 000=value of 000", "a: 002=value of 002"]


@PROPERTY
@given(st.sampled_from(ANSWERS))
def test_after_a_deletion_the_object_is_gone_or_intact(answer):
    store = written([])
    store.delete("a", answer)
    assert store.ledger.lost(store.objects) == []


def test_an_object_whose_deletion_was_acknowledged_must_not_be_there():
    store = written([])
    kept = dict(store.objects)
    store.delete("a", "acknowledged")
    assert store.ledger.lost(kept) == ["a: its deletion"]


def test_an_object_whose_deletion_is_in_doubt_must_be_intact_if_it_is_there():
    store = written([])
    store.ledger.unsure("a")
    store.objects["a"] = {}
    assert store.ledger.lost(store.objects) == ["a: 000=value of 000"]


def test_a_loss_that_was_told_is_not_told_again():
    store = written([])
    store.objects["a"] = {}
    assert store.ledger.missing("a", store.objects["a"]) == ["a: 000=value of 000"]
    store.ledger.settled("a")
    assert store.ledger.lost(store.objects) == []


def test_only_objects_with_acknowledged_writes_have_to_be_looked_at():
    ledger = Ledger()
    ledger.unsure("never created, perhaps")
    ledger.wrote("there", {"a": "1"})
    ledger.wrote("deleted, perhaps", {"a": "1"})
    ledger.unsure("deleted, perhaps")
    ledger.wrote("gone", {"a": "1"})
    ledger.deleted("gone")
    assert sorted(ledger.names) == ["deleted, perhaps", "there"]
