"""The duty of issuing etcd certificates to control nodes that a label makes: judged by `decide.etcd_approval`.

Contract: a request is approved and signed in one go; one that somebody else has approved is judged all the same
before it is signed. What cannot be read is left alone.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky.agents.operator.authorities import Authorities
from autarky.agents.operator.duty import Duty
from autarky.agents.operator.endpoints import internal_address
from autarky.agents.operator.view import View, current
from autarky.decide import approval, etcd_approval
from autarky.duties import certificates
from autarky.errors import Conflict, UserError
from autarky.pki.issue import sign_leaf
from autarky.pki.requests import read_request
from autarky.ports import Kube, Object
from autarky.render.access import INVENTORY
from autarky.render.certificates import etcd_certificate
from autarky.render.values import CONTROL_PLANE_FACT, CONTROL_PLANE_WISH, SYSTEM


@dataclass(slots=True)
class EtcdCertificates(Duty):
    view: View
    kube: Kube
    authorities: Authorities
    counted: Callable[[str], None]
    """Hears of each verdict that was written: "approve" or "deny"."""
    name: str = "etcd-certificates"

    async def round(self) -> None:
        if not current([self.view.requests, self.view.inventory, self.view.nodes]):
            return
        for csr in list(self.view.requests.items.values()):
            if csr["spec"]["signerName"] in etcd_approval.SIGNERS and _is_open(csr):
                await self._judge(csr)

    async def _judge(self, csr: Object) -> None:
        name = csr["metadata"]["name"]
        try:
            asked = await certificates.asked_of(self.kube, csr)
        except UserError as error:
            self.tell(f"left alone: {error.what}", name)
            return
        candidate = self._candidate(etcd_approval.node_of(asked.requestor))
        decision = etcd_approval.judge(asked, candidate)
        self.tell(f"{decision.verdict.value}: {decision.sentence}", name)
        if decision.verdict not in certificates.JUDGED:
            return
        if not _conditions(csr):
            await certificates.write_verdict(self.kube, csr, decision)
            self.counted(decision.verdict.value)
        if decision.verdict is approval.Verdict.APPROVE and candidate is not None and candidate.address is not None:
            await self._sign(name, etcd_approval.SIGNERS[asked.signer], candidate.name, candidate.address)

    def _candidate(self, node: str | None) -> etcd_approval.Candidate | None:
        live = self.view.nodes.items.get((None, node or ""))
        if live is None or node is None:
            return None
        inventory = certificates.inventory_of(self.view.inventory.items.get((SYSTEM, INVENTORY)))
        labels = live["metadata"].get("labels") or {}
        wanted = CONTROL_PLANE_WISH in labels or CONTROL_PLANE_FACT in labels
        return etcd_approval.Candidate(node, wanted, internal_address(live), inventory.get(node))

    async def _sign(self, name: str, role: str, node: str, address: str) -> None:
        """The request as it is now: the verdict was just written. Its key is all that is taken from it."""
        csr = await self.kube.get(*certificates.CSR, name)
        if csr is None or "Approved" not in _conditions(csr) or not _is_open(csr):
            return
        key = read_request(base64.b64decode(csr["spec"]["request"])).key
        spec = etcd_certificate(role, node, address)
        authority = self.authorities.read("etcd-ca")
        pem = sign_leaf(spec, authority, key, datetime.now(UTC), self.authorities.leaf_life)
        status = {**csr.get("status", {}), "certificate": base64.b64encode(pem).decode()}
        try:
            await self.kube.replace({**csr, "status": status}, subresource="status")
        except Conflict:
            return  # the next round sees what has changed


def _conditions(csr: Object) -> frozenset[str]:
    return frozenset(one["type"] for one in csr.get("status", {}).get("conditions") or ())


def _is_open(csr: Object) -> bool:
    """Neither signed nor turned down."""
    return not csr.get("status", {}).get("certificate") and not _conditions(csr) & {"Denied", "Failed"}
