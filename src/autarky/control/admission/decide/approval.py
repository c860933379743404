"""Which certificate requests of kubelets are approved: those that match the join inventory, and no others.

Contract: pure. A request is denied only for its own content; one that cannot be judged yet (its node is not in the
inventory that we could read, or another node has the same address there) is left pending.

The built-in approval does not compare names, so a token would be valid for any node name; it renews forever, also for
a node that was removed; and it never approves serving certificates. Ours
- binds a token to the one node that it was made for, until that node has joined: otherwise whoever makes a token for a
  node that has joined could take over its identity;
- renews for nodes of the inventory only: a removed node stays one no longer than its certificate lasts;
- accepts the renewal credential of a node only if it is the last one that was issued: that of a removed machine is
  worthless, also when another machine gets its name;
- binds a serving certificate to the addresses and the name of its node: loopback, service and foreign addresses are
  refused, because the holder of such a certificate could impersonate another server. An address that two nodes have in
  the inventory is not certified for either until that is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_CLIENT_USAGES = ({"client auth", "digital signature"}, {"client auth", "digital signature", "key encipherment"})
_SERVING_USAGES = ({"server auth", "digital signature"}, {"server auth", "digital signature", "key encipherment"})


NODES = "system:nodes"
"""The group of all kubelets that have a certificate."""
RENEWERS = "autarky:kubelet-renewals"
"""The group of the renewal credentials, with which a kubelet whose certificate has expired requests a new one."""


def renewal_user(node: str) -> str:
    """The user of a node's renewal credential. Short: X.509 allows 64 characters for all of it."""
    return f"renew:node:{node}"


class Verdict(Enum):
    APPROVE = "approve"
    DENY = "deny"
    WAIT = "wait"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Request:
    """What a CertificateSigningRequest asks for, and who asks.

    requestor: the authenticated user; token_node: the node that the requestor's bootstrap token was made for, or None
    when the requestor is not a bootstrap token of ours. joined: whether a Node of the requested name exists.
    credential: SHA-256 of the certificate with which the requestor has authenticated, as the API server reports; None
    where it reports none.
    """

    signer: str
    requestor: str
    requestor_groups: frozenset[str]
    usages: frozenset[str]
    common_name: str
    organizations: tuple[str, ...]
    dns_names: frozenset[str] = frozenset()
    ip_addresses: frozenset[str] = frozenset()
    other_names: bool = False
    token_node: str | None = None
    joined: bool = False
    credential: str | None = None


NOTED_NOTHING: Mapping[str, str] = MappingProxyType({})
NO_CREDENTIAL = ""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    sentence: str


def judge(
    request: Request, inventory: Mapping[str, frozenset[str]], renewals: Mapping[str, str] = NOTED_NOTHING
) -> Decision:
    """`inventory`: node name → its addresses. `renewals`: node name → SHA-256 of its valid renewal credential,
    NO_CREDENTIAL where none is valid; for a node that is missing there (as in earlier releases) any is. See the
    module's contract."""
    if request.signer not in (CLIENT_SIGNER, SERVING_SIGNER):
        return Decision(Verdict.IGNORE, f"signer {request.signer} is not ours to judge")
    node = request.common_name.removeprefix("system:node:")
    if node == request.common_name or request.organizations != (NODES,):
        return Decision(Verdict.DENY, f"{request.common_name!r} is not a node's identity")
    if node not in inventory:
        return _judge_unknown(request, node)
    if request.other_names:
        return Decision(Verdict.DENY, "it asks for e-mail or URI names")
    if request.signer == CLIENT_SIGNER:
        return _judge_client(request, node, renewals.get(node))
    return _judge_serving(request, node, inventory)


def _judge_unknown(request: Request, node: str) -> Decision:
    """A node that asks in another's name (with its certificate or renewal credential) is denied at once: otherwise it
    could fill the list of waiting requests."""
    of_a_node = {NODES, RENEWERS} & request.requestor_groups
    if of_a_node and request.requestor not in (f"system:node:{node}", renewal_user(node)):
        return Decision(Verdict.DENY, f"{request.requestor} may not ask for node {node}")
    return Decision(Verdict.WAIT, f"node {node} is not in the join inventory")


def _judge_client(request: Request, node: str, renewal: str | None) -> Decision:
    if request.dns_names or request.ip_addresses:
        return Decision(Verdict.DENY, "a client certificate must not name hosts")
    if set(request.usages) not in _CLIENT_USAGES:
        return Decision(Verdict.DENY, f"usages {sorted(request.usages)} are not those of a client")
    if request.requestor == request.common_name and NODES in request.requestor_groups:
        return Decision(Verdict.APPROVE, f"node {node} renews its own certificate")
    if request.requestor == renewal_user(node) and RENEWERS in request.requestor_groups:
        return _judge_return(request, node, renewal)
    return _judge_joining(request, node)


def _judge_return(request: Request, node: str, good: str | None) -> Decision:
    if good is None or request.credential == good:
        return Decision(Verdict.APPROVE, f"node {node} comes back with the credential that was made for it")
    if request.credential is None and good != NO_CREDENTIAL:
        return Decision(Verdict.WAIT, "the API server does not say which credential the request was made with")
    return Decision(Verdict.DENY, f"it was made with a credential that node {node} had before it was removed")


def _judge_joining(request: Request, node: str) -> Decision:
    if request.token_node is None:
        return Decision(Verdict.DENY, f"{request.requestor} may not ask for node {node}")
    if request.token_node != node:
        return Decision(Verdict.DENY, f"the token was made for node {request.token_node}, not for {node}")
    if request.joined:
        return Decision(Verdict.DENY, f"node {node} has joined already, and a token is valid for one join only")
    return Decision(Verdict.APPROVE, f"node {node} joins with the token made for it")


def _judge_serving(request: Request, node: str, inventory: Mapping[str, frozenset[str]]) -> Decision:
    if request.requestor != request.common_name or NODES not in request.requestor_groups:
        return Decision(Verdict.DENY, f"{request.requestor} may not ask for node {node}")
    if set(request.usages) not in _SERVING_USAGES:
        return Decision(Verdict.DENY, f"usages {sorted(request.usages)} are not those of a server")
    foreign = sorted((request.ip_addresses - inventory[node]) | (request.dns_names - {node}))
    if foreign:
        return Decision(Verdict.DENY, f"{', '.join(foreign)} is not in the join inventory for node {node}")
    if not (request.ip_addresses or request.dns_names):
        return Decision(Verdict.DENY, "a serving certificate must name its host")
    for address in sorted(request.ip_addresses):
        owners = sorted(name for name, theirs in inventory.items() if address in theirs)
        if len(owners) > 1:  # the claim of one of them does not decide whose it is
            return Decision(Verdict.WAIT, f"{address} is in the join inventory for {' and for '.join(owners)}")
    return Decision(Verdict.APPROVE, f"node {node} serves at {', '.join(sorted(request.ip_addresses))}")
