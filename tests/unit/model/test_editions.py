"""Editions of defaults: clusters live by them, so that what one says stays."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky.config import dump, loads
from autarky.model import defaults
from autarky.model.defaults import EDITIONS, Had, edition_in, had, with_edition
from autarky.model.versions import Version

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["spec", "defaults", "x"]), below),
    max_leaves=8,
)


def test_what_the_first_edition_says_is_what_clusters_of_before_were_made_with():
    first = EDITIONS[0]
    assert str(first.kubernetes) == "v1.36.4"
    assert dict(first.file) == {
        "selfHosted": "1-4",
        "certificates.keyAlgorithm": "EC",
        "certificates.caDays": 3650,
        "certificates.leafDays": 365,
        "certificates.leafLifetime": None,
        "certificates.kubeletLifetime": None,
        "rollback.enabled": True,
        "rollback.limitSeconds": 90,
    }
    assert dict(first.arguments) == {
        "etcd": {"snapshot-count": "10000"},
        "kube-apiserver": {"profiling": "false"},
        "kube-controller-manager": {"profiling": "false", "kube-api-qps": "100", "kube-api-burst": "200"},
        "kube-scheduler": {"profiling": "false"},
    }


def test_the_second_edition_has_etcd_compare_its_members():
    first, second = EDITIONS[:2]
    checks = {"corrupt-check-time": "4h", "feature-gates": "CompactHashCheck=true"}
    assert (second.kubernetes, dict(second.file)) == (first.kubernetes, dict(first.file))
    assert dict(second.arguments) == {**first.arguments, "etcd": {**first.arguments["etcd"], **checks}}


def test_all_editions_have_the_same_fields_and_none_repeats_the_one_before():
    assert {tuple(edition.file) for edition in EDITIONS} == {tuple(EDITIONS[0].file)}
    assert [(one, other) for one, other in pairwise(EDITIONS) if one == other] == []


@pytest.mark.parametrize("number", range(1, defaults.newest() + 1))
def test_the_values_of_an_edition_are_as_a_kept_file_has_them(number):
    version = defaults.edition(number).kubernetes
    spec = {"defaults": number, "nodes": [{"name": "n1"}]}
    file = {"apiVersion": "autarky.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "x"}, "spec": spec}
    kept = dump(loads(json.dumps(file), "x", default_version=version, known_versions=[version]))["spec"]
    for path, value in defaults.edition(number).file.items():
        part, _, last = path.rpartition(".")
        assert (kept[part] if part else kept)[last] == value, path


@pytest.mark.parametrize("number", [-1, 0, defaults.newest() + 1])
def test_no_other_edition_is_known(number):
    assert not defaults.is_known(number)
    with pytest.raises(ValueError, match=f"there is no edition {number}"):
        defaults.edition(number)


# --- what a cluster has -----------------------------------------------------------------------------------------


def test_a_cluster_of_a_release_without_editions_has_the_first():
    assert had({"spec": {"kubernetesVersion": "1.35.2"}}) == Had(1, Version(1, 35, 2))
    assert had({"spec": {"kubernetesVersion": "1.35.2", "defaults": 7}}) == Had(7, Version(1, 35, 2))
    assert edition_in({"spec": {}}) == 1
    assert with_edition({"kind": "Cluster", "spec": {"a": 1}}) == {"kind": "Cluster", "spec": {"defaults": 1, "a": 1}}
    assert with_edition({"spec": {"defaults": 7}}) == {"spec": {"defaults": 7}}


@given(VALUES)
@example({"spec": {"kubernetesVersion": "1.36.4", "defaults": True}})
@example({"spec": {"kubernetesVersion": 1.36}})
def test_a_kept_file_that_means_nothing_is_as_good_as_none(kept):
    found = had(json.loads(json.dumps(kept)))
    assert found is None or type(found.edition) is int
    if isinstance(kept, dict):
        assert with_edition(with_edition(kept)) == with_edition(kept)
        assert edition_in(with_edition(kept)) == edition_in(kept)
