"""A member's static pod: by `up` or by a node agent, it is the same, and stays so when members come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import UserError
from autarky.model.cluster import HostRef, Node
from autarky.render.values import Inputs
from fakes.clusters import a_cluster, inputs_of


def with_nodes(count: int) -> Inputs:
    nodes = tuple(
        Node(f"n{n}", HostRef("lab", f"n{n}"), control_plane=True, address=f"192.0.2.1{n}") for n in range(1, count + 1)
    )
    return inputs_of(replace(a_cluster(), nodes=nodes))


def test_a_member_that_is_there_keeps_its_generation_when_nodes_are_added() -> None:
    small, large = with_nodes(1), with_nodes(3)
    first = etcd.member_pod(small, small.cluster.node("n1"))
    reported = etcd.founding_of(first)
    assert reported == etcd.Founding("n1=https://192.0.2.11:2380", "new", small.cluster.name)
    assert etcd.member_pod(large, large.cluster.node("n1"), reported) == first
    assert etcd.member_pod(large, large.cluster.node("n1")) != first


def test_an_agent_writes_by_the_template_what_up_would_write() -> None:
    inputs = with_nodes(3)
    spec = etcd.read_template(etcd.template_object(inputs))
    reported = etcd.Founding("n1=https://192.0.2.11:2380,n3=https://192.0.2.13:2380", "existing")
    by_agent = etcd.filled(spec, "n3", "192.0.2.13", reported, written_for=0xABC)
    by_up = etcd.member_pod(inputs, inputs.cluster.node("n3"), reported)
    assert etcd.written_as(by_up, by_agent) == by_agent
    assert by_agent["metadata"]["annotations"] == {etcd.WRITTEN_FOR: "abc"}


def test_the_template_names_no_member() -> None:
    text = str(etcd.template(with_nodes(2)))
    assert "192.0.2.1" not in text
    assert "n1" not in text


def test_nothing_is_left_of_the_placeholders() -> None:
    inputs = with_nodes(1)
    assert "@" not in str(etcd.member_pod(inputs, inputs.cluster.node("n1"))["spec"])


def test_a_learner_is_not_restarted_for_not_being_ready() -> None:
    (container,) = etcd.template(with_nodes(1))["containers"]
    assert container["startupProbe"]["httpGet"]["path"] == "/livez"


@pytest.mark.parametrize("pod", [{}, {"spec": {"containers": []}}, {"spec": {"containers": [{"command": ["etcd"]}]}}])
def test_what_says_nothing_of_its_founding_has_none(pod: dict[str, object]) -> None:
    assert etcd.founding_of(pod) is None


@pytest.mark.parametrize("data", [{}, {etcd.TEMPLATE_KEY: "no json"}, {etcd.TEMPLATE_KEY: "[]"}])
def test_a_template_that_somebody_broke_is_told_of(data: dict[str, str]) -> None:
    with pytest.raises(UserError, match="autarky up"):
        etcd.read_template({"data": data})


def test_rule_3_a_member_needs_a_file_that_goes_with_its_data() -> None:
    """So that it never starts from scratch under its old id where its data is gone: not even when only its container
    is restarted, when no volume is looked at again."""
    (container,) = etcd.template(with_nodes(1))["containers"]
    assert f"--peer-trusted-ca-file={etcd.MEMBER_DIRECTORY}/peer-ca.crt" in container["command"]
