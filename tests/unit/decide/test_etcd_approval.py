"""Etcd certificates go to labelled nodes, each to itself, and name exactly what they must."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.decide.approval import Request, Verdict
from autarky.decide.etcd_approval import CLIENT_SIGNER, PEER_SIGNER, SERVER_SIGNER, Candidate, judge

NODE = Candidate("n2", wanted=True, address="192.0.2.12", inventory=frozenset({"192.0.2.12"}))
SERVER = Request(
    signer=SERVER_SIGNER,
    requestor="system:node:n2",
    requestor_groups=frozenset({"system:nodes", "system:authenticated"}),
    usages=frozenset({"digital signature", "server auth", "client auth"}),
    common_name="etcd-server-n2",
    organizations=("",),
    dns_names=frozenset({"localhost", "n2"}),
    ip_addresses=frozenset({"127.0.0.1", "192.0.2.12"}),
)
PEER = replace(SERVER, signer=PEER_SIGNER, common_name="etcd-peer-n2")
CLIENT = replace(
    SERVER,
    signer=CLIENT_SIGNER,
    common_name="etcd-client-n2",
    usages=frozenset({"digital signature", "client auth"}),
    dns_names=frozenset(),
    ip_addresses=frozenset(),
)


@pytest.mark.parametrize("request_", [SERVER, PEER, CLIENT])
def test_a_labelled_node_gets_its_own(request_: Request):
    assert judge(request_, NODE).verdict is Verdict.APPROVE


@pytest.mark.parametrize("request_", [SERVER, PEER, CLIENT])
def test_a_node_that_is_not_labelled_gets_none(request_: Request):
    assert judge(request_, replace(NODE, wanted=False)).verdict is Verdict.DENY


@pytest.mark.parametrize(
    "changes",
    [
        {"requestor": "system:node:n1"},
        {"requestor": "system:serviceaccount:default:default"},
        {"requestor": "system:node:"},
        {"requestor_groups": frozenset({"system:authenticated"})},
        {"common_name": "etcd-server-n1"},
        {"common_name": "etcd-peer-n2"},
        {"common_name": "root"},
        {"organizations": ("system:masters",)},
        {"usages": frozenset({"digital signature", "server auth"})},
        {"usages": frozenset({"digital signature", "server auth", "client auth", "cert sign"})},
        {"dns_names": frozenset({"localhost", "n2", "n1"})},
        {"dns_names": frozenset({"localhost"})},
        {"ip_addresses": frozenset({"127.0.0.1", "192.0.2.12", "192.0.2.11"})},
        {"ip_addresses": frozenset({"127.0.0.1"})},
        {"other_names": True},
    ],
)
def test_whatever_is_not_exactly_as_it_must_be_is_not_approved(changes: dict[str, object]):
    assert judge(replace(SERVER, **changes), NODE).verdict in (Verdict.DENY, Verdict.WAIT)


def test_a_client_names_no_hosts():
    assert judge(replace(CLIENT, dns_names=frozenset({"n2"})), NODE).verdict is Verdict.DENY


@pytest.mark.parametrize("candidate", [None, replace(NODE, address=None), replace(NODE, inventory=None)])
def test_what_is_not_known_yet_waits(candidate: Candidate | None):
    assert judge(SERVER, candidate).verdict is Verdict.WAIT


def test_an_address_that_is_not_in_the_inventory_is_denied():
    assert judge(SERVER, replace(NODE, inventory=frozenset({"192.0.2.11"}))).verdict is Verdict.DENY


def test_other_signers_are_not_ours():
    assert judge(replace(SERVER, signer="kubernetes.io/kubelet-serving"), NODE).verdict is Verdict.IGNORE


@given(
    requestor=st.sampled_from(["system:node:n1", "system:node:n2", "system:node:n3", "admin"]),
    subject=st.sampled_from(["etcd-server-n1", "etcd-server-n2", "etcd-peer-n2", "etcd-client-n2"]),
    names=st.frozensets(st.sampled_from(["localhost", "n1", "n2", "kubernetes"])),
    addresses=st.frozensets(st.sampled_from(["127.0.0.1", "192.0.2.11", "192.0.2.12", "10.96.0.1"])),
    wanted=st.booleans(),
)
def test_nothing_is_approved_but_the_one_request_of_each_role(
    requestor: str, subject: str, names: frozenset[str], addresses: frozenset[str], wanted: bool
):
    asked = replace(SERVER, requestor=requestor, common_name=subject, dns_names=names, ip_addresses=addresses)
    if judge(asked, replace(NODE, wanted=wanted)).verdict is Verdict.APPROVE:
        assert wanted
        assert asked == SERVER
