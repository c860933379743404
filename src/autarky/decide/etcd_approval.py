"""Which requests for etcd certificates are approved: those of nodes that are control nodes or are to be. Pure.

An etcd certificate is root over everything that the cluster stores, so nothing about a request is left open: who
asks is the node itself, an administrator has labelled it, and subject, names and usages are exactly those of its
role and of the address that the join inventory has for it. A request is denied for what it says; one whose node is
not known yet waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autarky.decide.approval import Decision, Request, Verdict

SERVER_SIGNER: Final = "autarky.dev/etcd-server"
PEER_SIGNER: Final = "autarky.dev/etcd-peer"
CLIENT_SIGNER: Final = "autarky.dev/etcd-client"
SIGNERS: Final = {SERVER_SIGNER: "server", PEER_SIGNER: "peer", CLIENT_SIGNER: "client"}
"""Signer name → the role of its certificates."""
MEMBER_USAGES: Final = ("digital signature", "server auth", "client auth")
CLIENT_USAGES: Final = ("digital signature", "client auth")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node as the operator sees it. wanted: it is labelled as control node; address: that of its Node, None where
    it has none; inventory: the addresses that it may have, None when it is not in the inventory."""

    name: str
    wanted: bool
    address: str | None
    inventory: frozenset[str] | None


def node_of(requestor: str) -> str | None:
    """The node that asks; None when no node does."""
    name = requestor.removeprefix("system:node:")
    return name if name and name != requestor else None


def judge(request: Request, candidate: Candidate | None) -> Decision:
    """`candidate`: the node that asks; None when it is not known. See the module's contract."""
    role = SIGNERS.get(request.signer)
    if role is None:
        return Decision(Verdict.IGNORE, f"signer {request.signer} is not ours to judge")
    node = node_of(request.requestor)
    if node is None or "system:nodes" not in request.requestor_groups:
        return Decision(Verdict.DENY, f"{request.requestor} is no node")
    if candidate is None or candidate.name != node:
        return Decision(Verdict.WAIT, f"node {node} is not known yet")
    return _judge(request, role, candidate)


def _judge(request: Request, role: str, node: Candidate) -> Decision:
    if not node.wanted:
        return Decision(Verdict.DENY, f"node {node.name} is not labelled as control node")
    if node.inventory is None or node.address is None:
        return Decision(Verdict.WAIT, f"the address of node {node.name} is not known yet")
    if node.address not in node.inventory:
        return Decision(Verdict.DENY, f"{node.address} is not in the join inventory for node {node.name}")
    if wrong := _difference(request, role, node.name, node.address):
        return Decision(Verdict.DENY, wrong)
    return Decision(Verdict.APPROVE, f"control node {node.name} gets its etcd {role} certificate")


def _difference(request: Request, role: str, node: str, address: str) -> str | None:
    """What of the request is not exactly as it must be, as a sentence."""
    if request.common_name != f"etcd-{role}-{node}" or any(request.organizations):
        return f"{request.common_name!r} is not the subject of the etcd {role} certificate of node {node}"
    if request.other_names:
        return "it asks for e-mail or URI names"
    if set(request.usages) != set(CLIENT_USAGES if role == "client" else MEMBER_USAGES):
        return f"usages {sorted(request.usages)} are not those of an etcd {role} certificate"
    names = set() if role == "client" else {"localhost", node}
    addresses = set() if role == "client" else {"127.0.0.1", address}
    if request.dns_names != names or request.ip_addresses != addresses:
        asked = ", ".join(sorted(request.dns_names | request.ip_addresses)) or "nothing"
        return f"it names {asked}, not {', '.join(sorted(names | addresses)) or 'nothing'}"
    return None
