"""Which version a cluster runs, by what its API and its hosts say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.cluster_file.decide.running_version import Runs, by_disks, by_markers, by_the_api
from autarky.model.versions import Version

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
texts = st.one_of(st.none(), st.sampled_from(["v1.36.4", "v1.37.1", "1.36.1", "latest", ""]))


def test_the_api_says_what_was_applied_last():
    assert by_the_api("v1.36.4") == Runs(OLD, "its ControlPlane object")
    assert by_the_api(None) is None


def test_a_marker_of_an_older_release_says_nothing():
    assert by_markers({"n1": None}) is None
    assert by_markers({"n1": None, "n2": "v1.36.4"}) == Runs(OLD, "host n2")


def test_rule_4_a_kubelet_that_was_switched_before_the_refusal_does_not_make_the_cluster_newer():
    assert by_disks({"n1": ("v1.37.1", "v1.36.4"), "w1": ("v1.37.1", None)}) == Runs(OLD, "host n1")


def test_an_api_server_that_was_set_to_a_newer_image_does_not_make_the_cluster_newer():
    found = by_disks({"n1": ("v1.36.4", "v1.37.1")})
    assert found is not None
    assert found.version == OLD


@given(disks=st.dictionaries(st.sampled_from(["n1", "n2", "w1"]), st.tuples(texts, texts)))
def test_rule_4_nothing_that_lies_on_a_disk_is_older_than_what_the_cluster_is_said_to_run(disks):
    found = by_disks(disks)
    readable = [Version.parse(text) for each in disks.values() for text in each if text and text != "latest"]
    assert (found is None) == (not readable)
    assert found is None or (found.version in readable and all(found.version <= version for version in readable))
