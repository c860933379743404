"""`autarky node add` and `remove` judge the new cluster by the rules of the file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.cli.node import _pair, with_node, without_node
from autarky.config import default_cluster
from autarky.errors import Problems, UserError
from autarky.model.cluster import CONTROL_PLANE_ROLE, Cluster, Taint
from autarky.payload import default_version, known_versions


def one() -> Cluster:
    return default_cluster(default_version=default_version(), known_versions=known_versions())


def test_the_cluster_has_one_node_more_and_is_else_the_same():
    grown = with_node(one(), {"name": "n2", "host": "lab", "roles": ["worker"], "labels": {"example.org/disk": "ssd"}})
    assert grown.nodes[:-1] == one().nodes
    assert (grown.nodes[-1].name, str(grown.nodes[-1].host)) == ("n2", "lab:n2")
    assert dict(grown.nodes[-1].labels) == {"example.org/disk": "ssd"}


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(UserError, match="a different node named n1 already exists"):
        with_node(one(), {"name": "n1", "host": "lab:other", "roles": ["worker"]})


def test_the_very_same_node_once_more_is_the_cluster_as_it_is():
    entry = {"name": "n2", "host": "lab", "roles": ["worker"], "labels": {"example.org/disk": "ssd"}}
    grown = with_node(one(), entry)
    assert with_node(grown, entry) == grown
    with pytest.raises(UserError, match="a different node named n2 already exists, on lab:n2"):
        with_node(grown, {**entry, "labels": {}})


def test_what_the_file_would_refuse_is_refused():
    with pytest.raises(Problems, match="a second node on lab:n1"):
        with_node(one(), {"name": "n2", "host": "lab:n1", "roles": ["worker"]})


@pytest.fixture
def two() -> Cluster:
    """A tainted control node and a worker."""
    taint = Taint(CONTROL_PLANE_ROLE, "", "NoSchedule")
    grown = with_node(one(), {"name": "n2", "host": "lab", "roles": ["worker"]})
    return replace(grown, nodes=(replace(grown.nodes[0], taints=(taint,)), grown.nodes[1]))


def test_the_cluster_has_one_node_less_and_is_else_the_same():
    grown = with_node(one(), {"name": "n2", "host": "lab", "roles": ["worker"]})
    assert without_node(grown, "n2") == one()


def test_a_removal_after_which_the_file_would_be_refused_is_refused(two: Cluster):
    """Every later command would end with that error."""
    with pytest.raises(Problems, match="a single node must not be tainted"):
        without_node(two, "n2")


def test_the_last_control_node_is_left_to_the_safety_rules(two: Cluster):
    assert [node.name for node in without_node(two, "n1").nodes] == ["n2"]


def test_a_label_has_a_value():
    assert _pair("a=b=c") == ("a", "b=c")
    with pytest.raises(UserError, match="KEY=VALUE"):
        _pair("a")
