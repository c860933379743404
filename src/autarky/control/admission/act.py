"""Judging the certificate requests of kubelets against the join inventory.

Contract: a request that cannot be parsed, or is ambiguous, is denied; one that cannot be judged yet is left alone; it
is no error when somebody else judges it meanwhile. `decide.approval` judges; this module fetches what it needs and
writes the verdict.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from autarky.control.admission.decide import approval
from autarky.errors import Conflict, UserError
from autarky.pki.requests import Asked, read_request
from autarky.ports import Kube, Object
from autarky.render import access
from autarky.render.values import SYSTEM

CSR = ("certificates.k8s.io/v1", "CertificateSigningRequest")
SIGNERS = (approval.CLIENT_SIGNER, approval.SERVING_SIGNER)
JUDGED = (approval.Verdict.APPROVE, approval.Verdict.DENY)
BOOTSTRAP_USER = "system:bootstrap:"
_CREDENTIAL_ID, _SHA256 = "authentication.kubernetes.io/credential-id", "X509SHA256="


def is_unjudged(csr: Object) -> bool:
    """Whether nobody has judged it, and it is a kubelet's."""
    return not csr.get("status", {}).get("conditions") and csr["spec"]["signerName"] in SIGNERS


def requester(csr: Object) -> str:
    return str(csr["spec"].get("username", ""))


def node_of(csr: Object) -> str | None:
    """The node that it is for; None where it cannot be parsed."""
    try:
        return asked(csr).common_name.removeprefix("system:node:")
    except UserError:
        return None


def asked(csr: Object) -> Asked:
    """UserError where it cannot be parsed, or is ambiguous."""
    return read_request(base64.b64decode(csr["spec"]["request"]))


def pending(requests: Iterable[Object]) -> list[tuple[str, Object]]:
    """(node, request) of kubelets' requests that nobody has judged and that can be parsed."""
    named = [(node_of(csr), csr) for csr in requests if is_unjudged(csr)]
    return [(node, csr) for node, csr in named if node is not None]


async def judge(
    kube: Kube, csr: Object, inventory: Mapping[str, frozenset[str]], renewals: Mapping[str, str]
) -> approval.Decision:
    """Judge a pending request, and write the verdict if there is one."""
    try:
        wanted = asked(csr)
    except UserError as error:
        decision = approval.Decision(approval.Verdict.DENY, str(error))
    else:
        decision = approval.judge(await request_of(kube, csr, wanted), inventory, renewals)
    if decision.verdict in JUDGED:
        await write_verdict(kube, csr, decision)
    return decision


def inventory_of(config_map: Object | None) -> dict[str, frozenset[str]]:
    """Node → addresses; empty without the ConfigMap, so that every request waits. An entry that cannot be parsed counts
    as absent: its node waits, and the others are not affected."""
    data = (config_map or {}).get("data") or {}
    read = {node: _addresses(entry) for node, entry in data.items()}
    return {node: addresses for node, addresses in read.items() if addresses is not None}


def _addresses(entry: object) -> frozenset[str] | None:
    try:
        found = json.loads(str(entry))["addresses"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    complete = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return frozenset(found) if complete else None


async def read_inventory(kube: Kube) -> dict[str, frozenset[str]]:
    return inventory_of(await kube.get("v1", "ConfigMap", access.INVENTORY, SYSTEM))


def renewals_of(config_map: Object | None) -> dict[str, str]:
    """Node → the fingerprint of its valid renewal credential; see `approval.judge`."""
    return {str(node): str(known) for node, known in ((config_map or {}).get("data") or {}).items()}


async def read_renewals(kube: Kube) -> dict[str, str]:
    return renewals_of(await kube.get("v1", "ConfigMap", access.RENEWALS, SYSTEM))


async def request_of(kube: Kube, csr: Object, wanted: Asked) -> approval.Request:
    """What the request asks for, and who asks."""
    spec = csr["spec"]
    token_node = await _token_node(kube, spec["username"])
    return approval.Request(
        signer=spec["signerName"],
        requestor=spec["username"],
        requestor_groups=frozenset(spec.get("groups", [])),
        usages=frozenset(spec["usages"]),
        common_name=wanted.common_name,
        organizations=wanted.organizations,
        dns_names=wanted.dns_names,
        ip_addresses=wanted.ip_addresses,
        other_names=wanted.other_names,
        token_node=token_node,
        joined=token_node is not None and await kube.get("v1", "Node", token_node) is not None,
        credential=_credential(spec),
    )


def _credential(spec: Object) -> str | None:
    """As the API server writes it into the request; the requester cannot."""
    found = (spec.get("extra") or {}).get(_CREDENTIAL_ID) or []
    hashes = [one.removeprefix(_SHA256).lower() for one in found if one.startswith(_SHA256)]
    return hashes[0] if len(hashes) == 1 else None


async def _token_node(kube: Kube, user: str) -> str | None:
    if not user.startswith(BOOTSTRAP_USER):
        return None
    secret = await kube.get("v1", "Secret", f"bootstrap-token-{user.removeprefix(BOOTSTRAP_USER)}", SYSTEM)
    if secret is None:
        return None
    node: str | None = (secret["metadata"].get("annotations") or {}).get(access.TOKEN_NODE)
    return node


async def write_verdict(kube: Kube, csr: Object, decision: approval.Decision) -> None:
    """Approve or deny it; do nothing where somebody else was first."""
    kind = "Approved" if decision.verdict is approval.Verdict.APPROVE else "Denied"
    condition = {
        "type": kind,
        "status": "True",
        "reason": "AutarkyJoinInventory",
        "message": decision.sentence,
        "lastUpdateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    try:
        await kube.replace({**csr, "status": {"conditions": [condition]}}, subresource="approval")
    except Conflict:
        return  # somebody else judged it meanwhile; the next reconcile sees that
