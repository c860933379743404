"""The static pod with which a recovery begins another etcd, and what `up` later makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autarky.control.etcd.manifests import pods as etcd
from autarky.render import node as render_node
from autarky.render.values import Inputs, Object
from fakes.clusters import a_cluster, inputs_of

CHANGED = {"--initial-cluster", "--initial-cluster-state", "--initial-cluster-token"}


def three(**changes: Any) -> Inputs:
    return inputs_of(a_cluster(controls=3, **changes))


def command(pod: Object) -> list[str]:
    [container] = pod["spec"]["containers"]
    return list(container["command"])


def founded_again(inputs: Inputs, name: str = "n2", recovery: str = "abc") -> tuple[Object, Object]:
    """(the static pod that was there, the one that a recovery writes)."""
    node = inputs.cluster.node(name)
    old = etcd.member_pod(inputs, node)
    return old, etcd.founded_again(old, name, node.known_address(), f"demo-{recovery}")


def test_it_is_its_only_member_with_the_data_that_is_there() -> None:
    _, pod = founded_again(three())
    assert etcd.founding_of(pod) == etcd.Founding("n2=https://192.0.2.12:2380", "existing", "demo-abc")


def test_everything_else_of_its_command_line_stays_in_its_order() -> None:
    """Also what a user has given, and what an earlier release has written."""
    old, pod = founded_again(three(extra_args={"etcd": {"quota-backend-bytes": "123", "zzz": "1"}}))
    pairs = list(zip(command(old), command(pod), strict=True))
    assert {before.partition("=")[0] for before, after in pairs if before != after} == CHANGED
    assert [word.partition("=")[0] for word in command(old)] == [word.partition("=")[0] for word in command(pod)]
    assert "--quota-backend-bytes=123" in command(pod)
    assert {**old["spec"], "containers": []} == {**pod["spec"], "containers": []}
    assert [{**one, "command": []} for one in old["spec"]["containers"]] == [
        {**one, "command": []} for one in pod["spec"]["containers"]
    ]


def test_the_pod_that_was_there_is_not_touched() -> None:
    inputs = three()
    old, _ = founded_again(inputs)
    assert old == etcd.member_pod(inputs, inputs.cluster.node("n2"))


def test_it_is_another_pod_to_the_kubelet_and_each_recovery_has_its_own() -> None:
    """A kubelet takes half a minute to start a static pod again that it has just ended."""
    old, first = founded_again(three())
    _, second = founded_again(three(), recovery="abd")
    for what in (lambda pod: pod["metadata"]["name"], lambda pod: pod["metadata"]["uid"], render_node.manifest):
        assert len({str(what(pod)) for pod in (old, first, second)}) == 3
    again = founded_again(three())[1]
    assert again == first, "one that was cut writes the same pod again"


@pytest.mark.parametrize("controls", [1, 3])
def test_up_would_write_the_same_pod_so_that_it_restarts_no_member(controls: int) -> None:
    inputs = inputs_of(a_cluster(controls=controls))
    node = inputs.cluster.node("n1")
    _, pod = founded_again(inputs, "n1")
    there = json.loads(render_node.manifest(pod).content)
    by_up = etcd.written_as(etcd.member_pod(inputs, node, etcd.founding_of(there)), there)
    assert render_node.manifest(by_up) == render_node.manifest(pod)


def test_a_second_recovery_on_the_same_node_begins_with_a_token_of_its_own() -> None:
    inputs = three()
    node = inputs.cluster.node("n2")
    _, first = founded_again(inputs)
    second = etcd.founded_again(first, "n2", node.known_address(), "demo-xyz")
    assert "--initial-cluster-token=demo-xyz" in command(second)
    assert second == founded_again(inputs, recovery="xyz")[1]


def test_the_first_etcd_of_a_cluster_has_the_name_of_the_cluster_as_it_always_had() -> None:
    """Another word in its command line would restart each member at the next `up`."""
    inputs = three()
    pod = etcd.member_pod(inputs, inputs.cluster.node("n1"))
    assert "--initial-cluster-token=demo" in command(pod)
    assert etcd.member_pod(inputs, inputs.cluster.node("n1"), etcd.founding_of(pod)) == pod


def test_a_member_of_a_release_without_tokens_is_written_with_the_name_of_the_cluster() -> None:
    inputs = three()
    pod = etcd.member_pod(inputs, inputs.cluster.node("n1"))
    [container] = pod["spec"]["containers"]
    container["command"] = [word for word in container["command"] if not word.startswith("--initial-cluster-token")]
    assert etcd.founding_of(pod).token is None
    again = etcd.member_pod(inputs, inputs.cluster.node("n1"), etcd.founding_of(pod))
    assert "--initial-cluster-token=demo" in command(again)


def test_members_that_join_later_get_no_token_of_a_recovery() -> None:
    """It is read at the very first start of a cluster only; an agent, which knows the template, has none."""
    inputs = three()
    spec = etcd.read_template(etcd.template_object(inputs))
    pod = etcd.filled(spec, "n2", "192.0.2.12", etcd.Founding("n1=https://192.0.2.11:2380", "existing"))
    assert "--initial-cluster-token=demo" in command(pod)
