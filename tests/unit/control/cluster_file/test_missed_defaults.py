"""The new defaults that a cluster lacks are reported; none that its file sets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.config import dump
from autarky.control.cluster_file.decide.defaults import missed, missed_by, sentence
from autarky.model import defaults
from autarky.model.versions import Version
from fakes.clusters import a_cluster
from fakes.editions import FIRST, TOLD, a_later_release

EDITIONS = st.builds(
    lambda version, leaf_days, flags: replace(
        FIRST,
        kubernetes=version,
        file={**FIRST.file, "certificates.leafDays": leaf_days},
        arguments={"etcd": flags},
    ),
    st.sampled_from([Version(1, 36, 4), Version(1, 37, 1)]),
    st.integers(1, 3),
    st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])),
)


@given(st.lists(EDITIONS, min_size=1, max_size=4))
def test_something_is_missed_exactly_where_the_newest_edition_is_another(editions):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "EDITIONS", tuple(editions))
        for number, edition in enumerate(editions, 1):
            found = missed(number)
            assert bool(found) == (edition != editions[-1])
            assert all(one.here != one.new for one in found)
            assert len({one.what for one in found}) == len(found)
        assert missed(len(editions) + 1) == [], "of a newer release"


def test_the_sentence_names_each_with_both_values_and_the_way_to_take_them(monkeypatch):
    a_later_release(monkeypatch)
    assert sentence(1, missed(1)) == TOLD
    assert missed(2) == []


def test_what_is_the_users_own_in_the_file_is_not_told(monkeypatch):
    a_later_release(monkeypatch)
    complete = dump(replace(a_cluster(), defaults=1))
    assert missed_by(complete, 1) == missed(1)
    own = {**complete["spec"], "kubernetesVersion": "1.37.1", "extraArgs": {"kube-scheduler": {"profiling": "true"}}}
    own["certificates"] = {**own["certificates"], "leafDays": 30}
    assert [one.what for one in missed_by({**complete, "spec": own}, 1)] == [
        "certificates.kubeletLifetime",
        "etcd --snapshot-count",
        "kube-controller-manager --kube-api-qps",
        "kube-apiserver --profiling",
    ]
