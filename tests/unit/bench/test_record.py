from __future__ import annotations

from datetime import datetime

import _record
import pytest
from _figures import Figure
from _record import ROOT, Machine, Record, begun, memory_total, read, versions_of, written
from hypothesis import given
from hypothesis import strategies as st

from autarky.payload import default_version, load_release

finite = st.floats(min_value=0, max_value=1e6)
pairs = st.lists(st.tuples(finite, finite), min_size=1, max_size=4).map(lambda each: tuple(zip(*each, strict=True)))
figures = st.builds(
    lambda benchmark, name, unit, pair, wanted: Figure(benchmark, name, unit, pair[0], pair[1], wanted),
    *(st.text(), st.text(), st.sampled_from(["s", "MiB"]), pairs, st.none() | finite),
)
records = st.builds(
    Record,
    date=st.text(),
    commit=st.text(),
    dirty=st.booleans(),
    machine=st.builds(Machine, st.integers(), st.integers(), st.text(), st.sampled_from([1, 2])),
    versions=st.dictionaries(st.text(), st.text()),
    figures=st.lists(figures, max_size=4).map(tuple),
)


@given(records)
def test_a_record_is_read_as_it_was_written(record):
    assert read(written(record)) == record


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"figures": []}', '{"figures": [{"ours": 1}], "machine": {}}'])
def test_what_is_no_record_is_not_read_as_one(text):
    with pytest.raises((ValueError, KeyError, TypeError)):
        read(text)


def test_a_record_tells_the_tree_the_machine_and_the_versions_before_there_is_a_figure():
    record = begun(load_release(default_version()))
    assert datetime.fromisoformat(record.date).utcoffset() is not None
    assert record.machine.cores >= 1
    assert record.machine.memory > 2**20
    assert record.versions["kubernetes"] == str(default_version())
    assert record.figures == ()


def test_the_versions_are_those_of_autarky_and_of_all_that_is_measured():
    versions = versions_of(load_release(default_version()))
    assert {"autarky", "kubernetes", "etcd", "containerd", "coredns", "flannel", "haproxy"} <= versions.keys()
    assert all(versions.values())


@pytest.mark.parametrize(("status", "dirty"), [("", False), (" M run\n", True)])
def test_a_tree_with_changes_is_told_from_its_commit(monkeypatch, status, dirty):
    said = {"rev-parse": "0123abc", "status": status.strip()}
    monkeypatch.setattr(_record, "_git", lambda verb, *_: said[verb])
    record = begun(load_release(default_version()))
    assert (record.commit, record.dirty) == ("0123abc", dirty)


def test_a_tree_that_is_no_checkout_has_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(_record, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    record = begun(load_release(default_version()))
    assert (record.commit, record.dirty) == ("", False)


def test_memory_is_what_the_kernel_says_in_bytes():
    assert memory_total("MemFree:   1 kB\nMemTotal:       16384 kB\nMemAvailable: 2 kB\n") == 16 * 2**20
    with pytest.raises(ValueError, match="MemTotal"):
        memory_total("")


def test_what_has_measured_nothing_is_lacking():
    record = begun(load_release(default_version())).extended([Figure("up", "everything Ready", "s", (1.0,), (2.0,))])
    assert record.lacking(["up", "reboot"]) == ["reboot"]
    assert (ROOT / "run").exists()
