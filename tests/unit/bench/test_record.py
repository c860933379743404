from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime

import pytest
from _figures import Figure
from _record import Machine, Record, Trees, begun, memory_total, read, versions_of, written
from _tree import Tree
from hypothesis import given
from hypothesis import strategies as st

from autarky.payload import default_version, load_release

finite = st.floats(min_value=0, max_value=1e6)
measured = {"s": finite, "MiB": finite.filter(bool)}
"""By the unit. No process has no memory."""


@st.composite
def figures_of_any_unit(draw: st.DrawFn) -> Figure:
    unit = draw(st.sampled_from(sorted(measured)))
    one = st.none() | measured[unit]
    ours, theirs = zip(*draw(st.lists(st.tuples(one, one), min_size=1, max_size=4)), strict=True)
    return Figure(draw(st.text()), draw(st.text()), unit, ours, theirs, draw(st.none() | finite))


trees = st.builds(Tree, st.text(), st.lists(st.text()).map(tuple), st.text())
both = st.builds(Trees, trees, st.none() | trees)
records = st.builds(
    Record,
    date=st.text(),
    began=both,
    machine=st.builds(Machine, st.integers(), st.integers(), st.text(), st.sampled_from([1, 2])),
    versions=st.dictionaries(st.text(), st.text()),
    figures=st.lists(figures_of_any_unit(), max_size=4).map(tuple),
    ended=st.none() | both,
)
TREE, OTHER = Tree("0123abc", (), "feed"), Tree("0123abc", ("run",), "beef")


@given(records)
def test_a_record_is_read_as_it_was_written(record):
    assert read(written(record)) == record


def test_a_memory_of_0_in_a_record_of_before_is_nothing_and_other_zeros_are_measured():
    of_before = {
        **asdict(Record("", Trees(TREE), Machine(1, 1, "", 1), {})),
        "figures": [
            asdict(Figure("up", "memory: haproxy", "MiB", (18.0, 0.0), (0.0, 0.0))),
            asdict(Figure("upgrade", "outage", "s", (0.0,), (5.0,))),
        ],
    }
    found = read(json.dumps(of_before))
    assert [(one.ours, one.theirs) for one in found.figures] == [
        ((18.0, None), (None, None)),
        ((0.0,), (5.0,)),
    ]


# As it was written before trees were looked at again at the end.
OLD = """{"date": "", "commit": "0123abc", "dirty": false, "versions": {}, "figures": [],
"machine": {"cores": 1, "memory": 1, "kernel": "", "cgroup": 1}}"""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"figures": []}', '{"figures": [{"ours": 1}], "machine": {}}', OLD])
def test_what_is_no_record_is_not_read_as_one(text):
    with pytest.raises((ValueError, KeyError, TypeError)):
        read(text)


def test_a_record_tells_the_tree_the_machine_and_the_versions_before_there_is_a_figure():
    record = begun(load_release(default_version()), Trees(TREE))
    assert datetime.fromisoformat(record.date).utcoffset() is not None
    assert record.machine.cores >= 1
    assert record.machine.memory > 2**20
    assert record.versions["kubernetes"] == str(default_version())
    assert (record.began, record.ended) == (Trees(TREE), None)
    assert record.figures == ()


def test_the_versions_are_those_of_autarky_and_of_all_that_is_measured():
    versions = versions_of(load_release(default_version()))
    assert {"autarky", "kubernetes", "etcd", "containerd", "coredns", "flannel", "haproxy"} <= versions.keys()
    assert all(versions.values())


@pytest.mark.parametrize(
    ("now", "reported"),
    [
        (Trees(TREE, TREE), []),
        (Trees(OTHER, TREE), ["the tree"]),
        (Trees(TREE, OTHER), ["the product's tree"]),
        (Trees(OTHER, OTHER), ["the tree", "the product's tree"]),
    ],
)
def test_a_tree_that_is_another_at_the_end_is_told_with_what_it_was_and_is(now, reported):
    record = begun(load_release(default_version()), Trees(TREE, TREE))
    assert record.changes == []
    changed = "has changed: it was commit 0123abc, sources feed; it is commit 0123abc, sources beef, not committed: run"
    assert record.at_end(now).changes == [f"{which} {changed}" for which in reported]


def test_memory_is_what_the_kernel_says_in_bytes():
    assert memory_total("MemFree:   1 kB\nMemTotal:       16384 kB\nMemAvailable: 2 kB\n") == 16 * 2**20
    with pytest.raises(ValueError, match="MemTotal"):
        memory_total("")


def test_what_has_measured_nothing_is_lacking():
    record = begun(load_release(default_version()), Trees(TREE)).extended(
        [Figure("up", "everything Ready", "s", (1.0,), (2.0,))]
    )
    assert record.lacking(["up", "reboot"]) == ["reboot"]


def test_a_benchmark_has_as_many_rounds_as_the_figure_that_was_measured_least_often():
    often, once = (Figure("up", "one", "s", (1.0,) * 3, (2.0,) * 3), Figure("up", "other", "s", (1.0,), (2.0,)))
    record = begun(load_release(default_version()), Trees(TREE)).extended([often])
    assert (record.rounds("up"), record.extended([once]).rounds("up"), record.rounds("reboot")) == (3, 1, 0)
