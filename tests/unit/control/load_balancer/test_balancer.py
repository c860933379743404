"""What a load balancer leads to, whatever is seen: the contract of `control.load_balancer.decide.servers`, as
properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autarky.control.load_balancer.decide.servers import Seen, decide
from autarky.model.balancer import ApiNode, Balancer, EtcdNode
from autarky.model.endpoint import Endpoint

NAMES = ("n1", "n2", "n3", "n4", "n5")


def address(name: str) -> str:
    return f"192.0.2.{10 + int(name[1:])}"


def endpoint(name: str, *, ready: bool = True, serving: bool = True) -> Endpoint:
    return Endpoint(name, address(name), ready, serving)


def member(name: str) -> EtcdNode:
    return EtcdNode(name, address(name))


def server(name: str, *, withdrawn: bool = False) -> ApiNode:
    return ApiNode(name, address(name), withdrawn)


names = st.lists(st.sampled_from(NAMES), unique=True, max_size=5)
endpoints = st.none() | names.flatmap(
    lambda found: st.tuples(
        *(st.builds(endpoint, st.just(n), ready=st.booleans(), serving=st.booleans()) for n in found)
    )
)
members = st.none() | names.map(lambda found: tuple(member(name) for name in found))


@st.composite
def configurations(draw: st.DrawFn) -> Balancer | None:
    if draw(st.booleans()):
        return None
    control = draw(st.booleans())
    servers = tuple(map(server, sorted(draw(names.filter(bool)))))
    etcd = tuple(map(member, sorted(draw(names)))) if control else ()
    return Balancer("n1", control, servers, etcd)


sights = st.builds(
    Seen,
    node=st.just("n1"),
    current=configurations(),
    endpoints=endpoints,
    control_node=st.none() | st.booleans(),
    etcd=members,
    etcd_certificate=st.booleans(),
)


@given(sights)
def test_what_is_unknown_or_empty_keeps_the_servers_and_the_members_that_are_there(seen: Seen) -> None:
    """Rule 2."""
    assume(seen.current is not None)
    assert seen.current is not None
    found = decide(replace(seen, endpoints=None, control_node=None, etcd=None)).balancer
    assert found is not None
    assert {node.name for node in seen.current.servers} <= {node.name for node in found.servers}
    assert found.etcd == seen.current.etcd
    assert found.control_node == seen.current.control_node


@given(sights)
def test_a_configuration_is_never_emptied(seen: Seen) -> None:
    found = decide(seen).balancer
    if seen.current is not None or seen.endpoints:
        assert found is not None
    if found is not None:
        assert found.servers
        assert not all(node.withdrawn for node in found.servers)


@given(sights)
def test_a_worker_never_leads_to_etcd(seen: Seen) -> None:
    found = decide(seen).balancer
    if found is not None and not found.control_node:
        assert found.etcd == ()


@given(sights)
def test_a_control_node_gets_no_members_without_the_certificate_for_them(seen: Seen) -> None:
    assume(not seen.etcd_certificate)
    found = decide(seen).balancer
    kept = seen.current.etcd if seen.current is not None else ()
    assert found is None or found.etcd in ((), kept)


@given(sights)
def test_a_control_node_always_has_its_own_servers(seen: Seen) -> None:
    found = decide(replace(seen, control_node=True)).balancer
    assert found is not None
    assert "n1" in {node.name for node in found.servers}


@given(sights)
def test_what_was_decided_is_decided_again(seen: Seen) -> None:
    """No reload without a change: neither the order of what is seen nor the decision itself makes one."""
    found = decide(seen).balancer
    shuffled = None if seen.endpoints is None else tuple(reversed(seen.endpoints))
    again = decide(replace(seen, current=found, endpoints=shuffled)).balancer
    assert again == found


SEEN = Seen("n1", None, (endpoint("n1"), endpoint("n2"), endpoint("n3")), True, (member("n1"), member("n2")), True)


def test_a_node_that_is_not_ready_stays_since_checks_know_better() -> None:
    found = decide(replace(SEEN, endpoints=(endpoint("n1"), endpoint("n2", ready=False)))).balancer
    assert found is not None
    assert found.servers == (server("n1"), server("n2"))


def test_a_withdrawn_node_stays_as_the_last_choice() -> None:
    found = decide(replace(SEEN, endpoints=(endpoint("n1"), endpoint("n2", serving=False)))).balancer
    assert found is not None
    assert found.servers == (server("n1"), server("n2", withdrawn=True))


def test_a_node_that_left_the_control_plane_leaves_the_configuration() -> None:
    current = decide(SEEN).balancer
    found = decide(replace(SEEN, current=current, endpoints=(endpoint("n1"), endpoint("n3")))).balancer
    assert found is not None
    assert [node.name for node in found.servers] == ["n1", "n3"]


def test_members_are_those_of_the_list_whatever_nodes_have_an_api_server() -> None:
    found = decide(SEEN).balancer
    assert found is not None
    assert found.etcd == (member("n1"), member("n2"))


def test_a_new_control_node_that_knows_no_members_yet_tries_the_other_control_nodes() -> None:
    found = decide(replace(SEEN, node="n4", etcd=None)).balancer
    assert found is not None
    assert [node.name for node in found.etcd] == ["n1", "n2", "n3"]
    assert found.servers[-1] == ApiNode("n4", "127.0.0.1")


def test_a_control_node_that_becomes_a_worker_loses_its_etcd_port() -> None:
    current = decide(SEEN).balancer
    found = decide(replace(SEEN, current=current, control_node=False)).balancer
    assert found == Balancer("n1", False, (server("n1"), server("n2"), server("n3")))


def test_nothing_is_written_before_anything_is_known() -> None:
    assert decide(Seen("n1", None, None, False, None, False)).balancer is None


def test_a_worker_with_etcd_cannot_even_be_said() -> None:
    with pytest.raises(ValueError, match="worker"):
        Balancer("n1", False, (server("n1"),), (member("n1"),))
