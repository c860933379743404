"""Where default/kubernetes leads to, whatever the nodes say."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.load_balancer.decide.endpoints import ControlNode, endpoints

NODES = st.lists(
    st.builds(
        lambda number, ready: ControlNode(f"n{number}", f"192.0.2.{number}", ready),
        st.integers(1, 5),
        st.sampled_from([True, False, None]),
    ),
    unique_by=lambda node: node.name,
)
BEFORE = st.dictionaries(st.integers(1, 5).map(lambda number: f"192.0.2.{number}"), st.booleans())


def nodes(*ready: bool | None) -> list[ControlNode]:
    return [ControlNode(f"n{n}", f"192.0.2.{n}", one) for n, one in enumerate(ready, 1)]


@given(NODES, BEFORE)
def test_every_control_node_is_listed_and_the_list_never_becomes_empty(found, before):
    wanted = endpoints(found, before)
    if not found:
        assert wanted is None
        return
    assert wanted is not None
    assert [endpoint.node for endpoint in wanted] == sorted(node.name for node in found)


@given(NODES, BEFORE)
def test_rule_2_while_no_node_is_ready_each_stays_as_it_was(found, before):
    wanted = endpoints(found, before) or ()
    if not any(node.ready for node in found):
        assert [endpoint.ready for endpoint in wanted] == [before.get(endpoint.address, True) for endpoint in wanted]


def test_a_node_that_is_not_ready_or_silent_is_marked_while_another_is_ready():
    wanted = endpoints(nodes(True, False, None), {"192.0.2.3": True})
    assert wanted is not None
    assert [endpoint.ready for endpoint in wanted] == [True, False, False]


def test_a_node_that_withdraws_its_servers_serves_no_more_and_is_not_ready():
    wanted = endpoints([replace(node, withdrawn=node.name == "n2") for node in nodes(True, True, True)], {})
    assert wanted is not None
    assert [(endpoint.ready, endpoint.serving) for endpoint in wanted] == [(True, True), (False, False), (True, True)]


@given(NODES, BEFORE)
def test_when_all_withdraw_their_servers_none_is_withdrawn(found, before):
    assert endpoints([replace(node, withdrawn=True) for node in found], before) == endpoints(found, before)
