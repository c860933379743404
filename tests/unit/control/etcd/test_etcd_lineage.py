"""Which clusters an etcd says that it has replaced. What cannot be understood has replaced none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.lineage import FORMER, Answer, former_of, is_replaced

IDS = st.integers(1, 2**64 - 1)


@given(st.sets(IDS), st.booleans())
def test_the_ids_are_read_as_a_recovery_writes_them(ids: set[int], as_bytes: bool) -> None:
    content = json.dumps([f"{one:x}" for one in sorted(ids)])
    assert former_of(content.encode() if as_bytes else content) == ids


@pytest.mark.parametrize(
    "content",
    [
        *(None, "", b"", "null", "{}", '"c0ffee"', "7", "[", "c0ffee", b"\xff\xfe", "\ud800", '["c0ffee", "no id"]'),
        *('["c0ffee", null]', '["c0ffee", {}]', '["c0ffee", ""]', "[" * 100_000, '["' + "x" * 100_000 + '"]'),
    ],
)
def test_rule_2_what_cannot_be_understood_has_replaced_nothing(content: str | bytes | None) -> None:
    """Not even what is in it and could be: it was written by something else."""
    assert former_of(content) == frozenset()


@given(st.text() | st.binary())
def test_whatever_stands_there_is_read_or_passed_over(content: str | bytes) -> None:
    former_of(content)


def test_the_key_is_none_of_kubernetes() -> None:
    """No API server lists it, and none can be made to write it."""
    assert not FORMER.startswith(("/registry", "registry"))


@given(st.none() | IDS, IDS, st.frozensets(IDS))
def test_a_member_is_of_a_former_cluster_only_where_another_one_says_its_id(cluster: int | None, of: int, said) -> None:
    assert is_replaced(cluster, [Answer(of, said)]) == (cluster is not None and cluster in said and cluster != of)
    assert not is_replaced(None, [Answer(of, said)]), "a node without data has nothing to leave"
    assert not is_replaced(cluster, [Answer(of, frozenset())])
    assert not is_replaced(cluster, [])


FEW = st.integers(1, 4)


@given(FEW, st.lists(st.builds(Answer, FEW | st.just(0), st.frozensets(FEW))))
def test_what_a_cluster_says_of_itself_and_who_does_not_say_of_which_it_is_replaces_nothing(cluster, said) -> None:
    """The owner of an etcd outside may write the key before control nodes join it: the id stays the same."""
    others = [one for one in said if one.cluster not in (0, cluster)]
    assert is_replaced(cluster, said) == any(cluster in one.former for one in others)
