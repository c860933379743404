"""What a file leaves out is as its cluster has it: a later release imposes none of its own defaults."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky.config import dump, json_schema, loads
from autarky.config.filling import Filled, filled, nothing_is_there
from autarky.errors import Problems
from autarky.model import defaults
from autarky.model.cluster import Cluster
from autarky.model.defaults import Had
from autarky.model.versions import Version
from autarky.payload import default_version
from fakes.editions import SECOND, a_later_release
from unit.config.cluster_texts import HEAD, KNOWN, problem, read

OLD = Had(1, Version(1, 36, 4))
NODES = "  nodes: [{name: n1}]\n"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["spec", "certificates", "rollback", "defaults", "leafDays"]), below)
    ),
    max_leaves=8,
)


@pytest.fixture
def _later(monkeypatch):
    a_later_release(monkeypatch)


def of(text: str, had: Had | None) -> Cluster:
    return loads(
        HEAD + NODES + text,
        "cluster.yaml",
        default_version=default_version(),
        known_versions=KNOWN,
        founded=lambda _: had,
    )


def facts(cluster: Cluster) -> tuple[int, str, int, int | None]:
    return (
        cluster.defaults,
        str(cluster.kubernetes_version),
        cluster.certificates.leaf_days,
        cluster.certificates.kubelet_seconds,
    )


@pytest.mark.usefixtures("_later")
def test_new_defaults_are_for_new_clusters_and_one_that_is_there_keeps_its_own():
    assert facts(of("", None)) == (2, "v1.37.1", 90, 43200 * 60)
    assert facts(of("", OLD)) == (1, "v1.36.4", 365, None)


@pytest.mark.usefixtures("_later")
@pytest.mark.parametrize("had", [None, OLD])
def test_what_the_file_says_counts_whatever_the_edition(had):
    said = of('  kubernetesVersion: "1.37.1"\n  certificates: {leafDays: 30}\n', had)
    assert (str(said.kubernetes_version), said.certificates.leaf_days) == ("v1.37.1", 30)
    assert said.certificates.kubelet_seconds == (43200 * 60 if had is None else None), "beside what it says"


@pytest.mark.usefixtures("_later")
def test_a_file_takes_another_edition_by_its_number_and_the_version_stays():
    assert facts(of("  defaults: 2\n", OLD)) == (2, "v1.36.4", 90, 43200 * 60)
    assert facts(of("  defaults: 1\n", Had(2, Version(1, 37, 1)))) == (1, "v1.37.1", 365, None)
    assert facts(of("  defaults: 1\n", None)) == (1, "v1.37.1", 365, None)


def _always(had: Had | None, _: object) -> Had | None:
    return had


@pytest.mark.usefixtures("_later")
@pytest.mark.parametrize("had", [None, OLD])
def test_the_kept_file_means_the_same_wherever_it_is_read(had):
    cluster = of("", had)
    kept = json.dumps(dump(cluster))
    for founded in (None, OLD, Had(2, Version(1, 37, 1))):
        again = loads(
            kept, "kept", default_version=default_version(), known_versions=KNOWN, founded=partial(_always, founded)
        )
        assert again == cluster


def test_an_edition_that_is_not_known_is_refused_with_what_is():
    reported = problem(f"nodes: [{{name: n1}}]\ndefaults: {defaults.newest() + 1}\n")
    assert reported.startswith(
        f"cluster.yaml:6:13: spec.defaults: there is no edition {defaults.newest() + 1} of defaults"
    )
    assert "a newer autarky may know more of them" in reported
    assert "must be a whole number" in problem('nodes: [{name: n1}]\ndefaults: "1"\n')


def test_a_cluster_with_an_edition_of_a_newer_release_is_refused_rather_than_given_another():
    with pytest.raises(Problems) as refused:
        of("", Had(7, Version(1, 36, 4)))
    assert "there is no edition 7 of defaults" in str(refused.value.problems[0])


@pytest.mark.parametrize("name", ["../../etc", "", "UPPER", 7, None, ["x"]])
def test_only_what_is_a_name_is_looked_for(name):
    def never(_: str) -> Had | None:
        raise AssertionError

    filled({"metadata": {"name": name}, "spec": {}}, never, OLD.version)
    filled({"metadata": name, "spec": {}}, never, OLD.version)


@given(VALUES, st.none() | st.builds(Had, st.integers(-1, 9), st.just(OLD.version)))
@example({"spec": {"certificates": None, "rollback": "x"}}, None)
def test_any_file_is_filled_in_and_nothing_that_it_says_is_changed(data, had):
    data = {"metadata": {"name": "demo"}, **data} if isinstance(data, dict) else data
    before = copy.deepcopy(data)
    found = filled(data, lambda _: had, Version(9, 9, 9))
    assert data == before
    assert found.version == (OLD.version if had is not None and isinstance(data, dict) else Version(9, 9, 9))
    assert _without_defaults_of(found.data, data) == data


def _without_defaults_of(complete: Any, said: Any) -> Any:
    """What was said, as it is in the complete document."""
    if not isinstance(said, dict) or not isinstance(complete, dict):
        return complete
    named = {name: _without_defaults_of(complete[name], value) for name, value in said.items()}
    if said.get("defaults", 0) is None and "defaults" in complete:
        named["defaults"] = None  # an empty number is as good as none
    return named


def test_the_published_defaults_are_those_of_the_newest_edition():
    schema = json_schema()

    def published(path: str) -> Any:
        part, _, last = path.rpartition(".")
        name = f"{part.capitalize()}Part" if part else "SpecPart"
        return schema["$defs"][name]["properties"][last]["default"]

    newest = defaults.edition(defaults.newest())
    assert {path: published(path) for path in newest.file} == dict(newest.file)


def test_a_text_of_no_cluster_in_particular_is_filled_in_as_a_new_one():
    assert read(HEAD + NODES).defaults == defaults.newest()
    assert filled("no mapping", nothing_is_there, SECOND.kubernetes) == Filled("no mapping", SECOND.kubernetes)
