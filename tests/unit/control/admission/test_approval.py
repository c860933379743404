from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.admission.decide.approval import (
    CLIENT_SIGNER,
    RENEWERS,
    SERVING_SIGNER,
    Decision,
    Request,
    Verdict,
    judge,
    renewal_user,
)

INVENTORY = {"n1": frozenset({"10.0.0.1"}), "n2": frozenset({"10.0.0.2", "192.0.2.2"})}
CLIENT = frozenset({"client auth", "digital signature"})
SERVER = frozenset({"server auth", "digital signature"})
ENCIPHER = frozenset({"key encipherment"})
NODES = frozenset({"system:nodes", "system:authenticated"})


def joining(node: str = "n1", **changes: Any) -> Request:
    """A kubelet that has only its token asks for its first client certificate."""
    asked = {
        "signer": CLIENT_SIGNER,
        "requestor": "system:bootstrap:abcdef",
        "requestor_groups": frozenset({"system:bootstrappers:autarky"}),
        "usages": CLIENT,
        "common_name": f"system:node:{node}",
        "organizations": ("system:nodes",),
        "token_node": node,
    }
    return Request(**{**asked, **changes})


def renewing(node: str = "n1", by: str | None = None, groups: frozenset[str] = NODES) -> Request:
    """A kubelet that has a client certificate asks for the next one."""
    return joining(node, requestor=f"system:node:{by or node}", requestor_groups=groups, token_node=None)


def serving(node: str = "n1", **changes: Any) -> Request:
    """A kubelet asks for its serving certificate."""
    asked = {
        "signer": SERVING_SIGNER,
        "requestor": f"system:node:{node}",
        "requestor_groups": NODES,
        "usages": SERVER,
        "common_name": f"system:node:{node}",
        "organizations": ("system:nodes",),
        "dns_names": frozenset({node}),
        "ip_addresses": INVENTORY.get(node, frozenset()),
    }
    return Request(**{**asked, **changes})


def verdict(request: Request) -> Verdict:
    return judge(request, INVENTORY).verdict


@pytest.mark.parametrize("usages", [CLIENT, CLIENT | ENCIPHER])
def test_a_node_joins_with_the_token_made_for_it(usages):
    assert judge(joining(usages=usages), INVENTORY) == Decision(
        Verdict.APPROVE, "node n1 joins with the token made for it"
    )


def test_a_token_is_good_for_no_other_node():
    assert judge(joining("n1", token_node="n2"), INVENTORY) == Decision(
        Verdict.DENY, "the token was made for node n2, not for n1"
    )


def test_a_token_that_is_not_ours_is_good_for_no_node():
    assert verdict(joining(token_node=None)) is Verdict.DENY


def test_a_token_for_a_node_that_has_joined_makes_no_second_one_of_it():
    """Whoever may make tokens would be any node otherwise."""
    assert judge(joining("n1", joined=True), INVENTORY) == Decision(
        Verdict.DENY, "node n1 has joined already, and a token is valid for one join only"
    )


def test_a_node_that_was_taken_out_of_the_inventory_renews_nothing_and_an_empty_one_denies_nobody():
    renewal = renewing("n1")
    for request in (renewal, serving("n1")):
        assert judge(request, {"n2": INVENTORY["n2"]}).verdict is Verdict.WAIT
        assert judge(request, {}).verdict is Verdict.WAIT


def test_a_node_renews_its_own_certificate_and_nobody_elses():
    assert verdict(renewing("n1")) is Verdict.APPROVE
    assert verdict(renewing("n1", by="n2")) is Verdict.DENY
    assert verdict(renewing("n1", groups=frozenset({"system:authenticated"}))) is Verdict.DENY


def coming_back(node: str = "n1", by: str | None = None, groups: frozenset[str] = frozenset({RENEWERS})) -> Request:
    """A kubelet whose certificate has expired asks for another one with what it was given for that."""
    return joining(node, requestor=renewal_user(by or node), requestor_groups=groups, token_node=None)


def test_a_node_whose_certificate_has_expired_comes_back_with_the_credential_made_for_it_and_as_no_other_node():
    assert judge(coming_back(), INVENTORY) == Decision(
        Verdict.APPROVE, "node n1 comes back with the credential that was made for it"
    )
    assert verdict(coming_back("n1", by="n2")) is Verdict.DENY
    assert verdict(coming_back(groups=frozenset({"system:authenticated"}))) is Verdict.DENY


@pytest.mark.parametrize(
    ("good", "shown", "expected"),
    [
        ("aa", "aa", Verdict.APPROVE),
        ("aa", "bb", Verdict.DENY),
        ("", "aa", Verdict.DENY),
        ("", None, Verdict.DENY),
        ("aa", None, Verdict.WAIT),
        (None, "bb", Verdict.APPROVE),
        (None, None, Verdict.APPROVE),
    ],
)
def test_only_the_credential_that_was_given_last_is_good_for_a_node_that_got_the_name_of_a_removed_one(
    good: str | None, shown: str | None, expected: Verdict
):
    noted = {"n2": "cc"} | ({} if good is None else {"n1": good})
    assert judge(replace(coming_back("n1"), credential=shown), INVENTORY, noted).verdict is expected


def test_what_is_noted_of_lasting_credentials_is_asked_of_nothing_else():
    for request in (joining("n1"), renewing("n1"), serving("n1")):
        assert judge(replace(request, credential="bb"), INVENTORY, {"n1": ""}).verdict is Verdict.APPROVE


def test_the_credential_of_a_node_that_was_removed_is_worthless():
    assert verdict(coming_back("n9")) is Verdict.WAIT


def test_with_that_credential_nobody_gets_a_serving_certificate():
    request = serving(requestor=renewal_user("n1"), requestor_groups=frozenset({RENEWERS}))
    assert verdict(request) is Verdict.DENY


def test_a_client_certificate_names_no_hosts():
    assert verdict(joining(dns_names=frozenset({"n1"}))) is Verdict.DENY
    assert verdict(joining(ip_addresses=frozenset({"10.0.0.1"}))) is Verdict.DENY


def test_a_node_serves_at_its_own_name_and_addresses():
    assert verdict(serving("n1")) is Verdict.APPROVE
    assert verdict(serving("n2", usages=SERVER | ENCIPHER)) is Verdict.APPROVE
    assert verdict(serving("n2", ip_addresses=frozenset({"192.0.2.2"}), dns_names=frozenset())) is Verdict.APPROVE


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "0.0.0.0", "10.96.0.1", "10.96.0.10", "10.0.0.2", "10.244.0.7", "203.0.113.9"],
    ids=["loopback", "loopback v6", "any", "service", "dns", "neighbour", "pod", "foreign"],
)
def test_a_serving_certificate_for_somebody_elses_address_is_denied(address):
    decision = judge(serving("n1", ip_addresses=frozenset({"10.0.0.1", address})), INVENTORY)
    assert decision == Decision(Verdict.DENY, f"{address} is not in the join inventory for node n1")


@pytest.mark.parametrize("name", ["localhost", "kubernetes", "kubernetes.default.svc", "n2", "*", "N1", "n1."])
def test_a_serving_certificate_for_another_name_is_denied(name):
    assert verdict(serving("n1", dns_names=frozenset({"n1", name}))) is Verdict.DENY


def test_a_serving_certificate_must_name_its_host():
    assert verdict(serving(dns_names=frozenset(), ip_addresses=frozenset())) is Verdict.DENY


def test_only_the_node_itself_asks_for_its_serving_certificate():
    assert verdict(serving("n1", requestor="system:node:n2")) is Verdict.DENY
    assert verdict(serving("n1", requestor="system:bootstrap:abcdef", token_node="n1")) is Verdict.DENY
    assert verdict(serving("n1", requestor_groups=frozenset())) is Verdict.DENY


@pytest.mark.parametrize("extra", ["client auth", "server auth", "cert sign", "any"])
def test_usages_beyond_its_own_are_denied(extra):
    for request in (joining, serving):
        usages = CLIENT if request is joining else SERVER
        if extra not in usages:
            assert verdict(request(usages=usages | {extra})) is Verdict.DENY


@pytest.mark.parametrize("request_", [joining(other_names=True), serving(other_names=True)])
def test_mail_and_uri_names_are_denied(request_):
    assert verdict(request_) is Verdict.DENY


@pytest.mark.parametrize("make", [joining, serving])
@pytest.mark.parametrize(
    "identity",
    [
        {"common_name": "admin"},
        {"common_name": "system:kube-scheduler"},
        {"organizations": ("system:masters",)},
        {"organizations": ("system:nodes", "system:masters")},
        {"organizations": ()},
    ],
    ids=str,
)
def test_what_is_not_a_nodes_identity_is_denied(make, identity):
    assert verdict(make(**identity)) is Verdict.DENY


@pytest.mark.parametrize("make", [joining, serving])
def test_a_node_that_is_not_in_the_inventory_waits(make):
    assert verdict(make("n9")) is Verdict.WAIT
    assert verdict(make("")) is Verdict.WAIT


def test_other_signers_are_not_ours_to_judge():
    assert verdict(joining(signer="kubernetes.io/kube-apiserver-client")) is Verdict.IGNORE


def test_an_address_that_two_nodes_of_the_inventory_have_is_nobodys_until_that_is_corrected():
    """Neither is denied: which of them is wrong, the request does not say."""
    twice = {**INVENTORY, "n4": frozenset({"10.0.0.2"})}
    for node in ("n2", "n4"):
        asked = serving(node, ip_addresses=frozenset({"10.0.0.2"}))
        decision = judge(asked, twice)
        assert decision.verdict is Verdict.WAIT
        assert decision.sentence == "10.0.0.2 is in the join inventory for n2 and for n4"
    assert judge(serving("n2", ip_addresses=frozenset({"192.0.2.2"})), twice).verdict is Verdict.APPROVE
    assert judge(serving("n1"), twice).verdict is Verdict.APPROVE
    assert judge(renewing("n4"), twice).verdict is Verdict.APPROVE, "a client certificate has no address"


def test_a_request_that_is_wrong_in_itself_is_denied_whatever_two_nodes_have():
    twice = {**INVENTORY, "n4": frozenset({"10.0.0.2"})}
    for asked in (serving("n4", dns_names=frozenset({"n2"})), serving("n4", requestor="system:node:n1")):
        assert judge(replace(asked, ip_addresses=frozenset({"10.0.0.2"})), twice).verdict is Verdict.DENY


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["n1", "n2", "n4"]), st.frozensets(st.sampled_from(["a", "b", "c"]))), st.data())
def test_no_two_nodes_get_a_certificate_for_one_address(inventory, data):
    asked = {node: data.draw(st.frozensets(st.sampled_from(["a", "b", "c"]))) for node in inventory}
    got = [
        address
        for node, addresses in asked.items()
        if judge(serving(node, ip_addresses=addresses), inventory).verdict is Verdict.APPROVE
        for address in addresses
    ]
    assert len(got) == len(set(got))


names = st.sampled_from(["n1", "n2", "n9", "", "localhost", "kubernetes.default"])
hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "192.0.2.2", "127.0.0.1", "10.96.0.1"]) | st.ip_addresses().map(str)
usages = st.frozensets(
    st.sampled_from(["client auth", "server auth", "digital signature", "key encipherment", "cert sign"])
)
BOOTSTRAPPER = "system:bootstrap:abcdef"
AS_A_NODE = "system:nodes"
users = names.map(lambda name: f"system:node:{name}") | names.map(renewal_user) | st.just(BOOTSTRAPPER) | names
groups = st.frozensets(st.sampled_from([AS_A_NODE, RENEWERS, "system:bootstrappers:autarky", "system:authenticated"]))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A valid one with any number of invalid fields."""
    node = draw(names)
    signer = draw(st.sampled_from([CLIENT_SIGNER, SERVING_SIGNER]))
    client = signer == CLIENT_SIGNER
    requestor = draw(st.sampled_from([f"system:node:{node}", *((renewal_user(node), BOOTSTRAPPER) if client else ())]))
    right = Request(
        signer=signer,
        requestor=requestor,
        requestor_groups=draw(groups),
        usages=draw(st.sampled_from([CLIENT, CLIENT | ENCIPHER] if client else [SERVER, SERVER | ENCIPHER])),
        common_name=f"system:node:{node}",
        organizations=("system:nodes",),
        dns_names=frozenset(),
        ip_addresses=frozenset() if client else INVENTORY.get(node, frozenset()),
        other_names=False,
        token_node=node if requestor == BOOTSTRAPPER else None,
        joined=draw(st.booleans()),
    )
    odd: dict[str, st.SearchStrategy[object]] = {
        "requestor": users,
        "usages": usages,
        "common_name": names.map(lambda name: f"system:node:{name}") | names,
        "organizations": st.sampled_from([("system:masters",), ()]),
        "dns_names": st.frozensets(names, max_size=2),
        "ip_addresses": st.frozensets(hosts, max_size=2),
        "other_names": st.booleans(),
        "token_node": st.none() | names,
    }
    about = draw(st.sets(st.sampled_from(sorted(odd)), max_size=draw(st.integers(0, 3))))
    changes: dict[str, Any] = {field: draw(odd[field]) for field in sorted(about)}
    asked = replace(right, **changes)
    return asked if asked.requestor == BOOTSTRAPPER else replace(asked, token_node=None)


def test_nothing_is_approved_unless_everything_in_it_matches_the_inventory_and_who_asks():
    ways: set[str] = set()

    @settings(max_examples=1000, deadline=None)
    @given(requests())
    def each(request_: Request) -> None:
        if verdict(request_) is Verdict.APPROVE:
            ways.add(the_way(request_))

    each()
    assert ways == {"renewal", "coming back", "token", "serving"}, "each way is tried, and is open"


def the_way(request_: Request) -> str:
    """By which this may be approved; that there is one."""
    node = request_.common_name.removeprefix("system:node:")
    assert node in INVENTORY
    assert request_.organizations == ("system:nodes",)
    assert not request_.other_names
    assert request_.ip_addresses <= INVENTORY[node]
    assert request_.dns_names <= {node}
    assert not any(ipaddress.ip_address(address).is_loopback for address in request_.ip_addresses)
    if request_.signer == SERVING_SIGNER:
        assert request_.usages - ENCIPHER == SERVER
        assert request_.requestor == request_.common_name
        assert AS_A_NODE in request_.requestor_groups
        return "serving"
    assert request_.usages - ENCIPHER == CLIENT
    if request_.requestor == request_.common_name:
        assert AS_A_NODE in request_.requestor_groups
        return "renewal"
    if request_.requestor != BOOTSTRAPPER:
        assert request_.requestor == f"renew:node:{node}"
        assert RENEWERS in request_.requestor_groups
        return "coming back"
    assert request_.token_node == node
    assert not request_.joined, "a token makes no second one of a node"
    return "token"


@pytest.mark.parametrize("who", [("system:node:w1", NODES), (renewal_user("w1"), frozenset({RENEWERS}))])
def test_a_node_that_asks_in_an_unknown_ones_name_is_denied_and_one_that_asks_in_its_own_waits(who):
    """What waits is looked at again and again: one node could fill the list."""
    user, groups = who
    asked = joining("nobody", token_node=None, requestor=user, requestor_groups=groups)
    assert verdict(asked) is Verdict.DENY
    own = joining("w1", token_node=None, requestor=user, requestor_groups=groups)
    assert verdict(own) is Verdict.WAIT
