"""Admitting nodes: approving their certificates against the join inventory, and labelling them.

The operator judges requests for as long as the cluster runs; `up` does so while no operator is available, since the
first nodes must be admitted before one can run. Then it only waits, and tells what was denied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky.control.admission import act as certificates
from autarky.control.admission.act import CSR
from autarky.control.admission.decide import approval
from autarky.control.common.slim import slim_request
from autarky.control.common.turns import in_turn
from autarky.engine.deadline import Condition, NotYet, poll_until
from autarky.engine.phase import Change
from autarky.errors import AutarkyError
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.phases.context import Context
from autarky.phases.version_check import live_operator
from autarky.ports import Kube, Object, Progress
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED

NODE_MANAGER = "autarky-nodes"
ROLE_LABELS = {CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE}
JUDGE_SECONDS = 0.5
MOST_AT_ONCE = 20
LONGEST_WHY = 200
"""Characters of the reason for a denial: it quotes what the node has asked for."""


async def plan_admission(context: Context, nodes: Sequence[Node]) -> list[Change]:
    """What is still to be done to admit these nodes."""
    if not await context.api_answers():
        return [Change(f"admit node {node.name}") for node in nodes]
    changes = []
    for node in nodes:
        live = await context.kube().get("v1", "Node", node.name)
        if live is None:
            changes.append(Change(f"wait for node {node.name} to register, and admit it"))
            continue
        if missing := missing_labels(live, node):
            changes.append(Change(f"label node {node.name} with {', '.join(missing)}"))
        if unlisted := unlisted_labels(live, node):
            changes.append(Change(f"remove from node {node.name} labels that left the file: {', '.join(unlisted)}"))
    pending = await pending_requests(context.kube(), {node.name for node in nodes})
    return changes + [Change(f"approve or deny certificate request {csr['metadata']['name']}") for csr in pending]


async def wait_until_registered(context: Context, node: Node, progress: Progress) -> None:
    kube = context.kube()

    async def registered() -> NotYet | None:
        await judge_requests(kube, {node.name}, progress)
        if await kube.get("v1", "Node", node.name):
            return None
        denied = await _denied_joins(kube, node.name)
        return NotYet(f"no Node object {node.name} yet" + (f"; denied: {denied}" if denied else ""), "not registered")

    await _wait(context, f"node {node.name} registers", registered, progress)


async def admit(context: Context, node: Node, progress: Progress) -> None:
    """Label a node that has registered, and wait until its serving certificate is issued."""
    kube, noted = context.kube(), False

    async def certified() -> NotYet | None:
        nonlocal noted
        await judge_requests(kube, {node.name}, progress)
        asked = await _serving_requests(kube, node.name)
        if asked.denied and not noted:  # once, however many there are
            progress.note(f"node {node.name}: not waiting for its denied certificate request {asked.denied}")
            noted = True
        return await _serving_certificate(kube, node.name, asked)

    await kube.apply(_node_labels(node, await kube.get("v1", "Node", node.name)), manager=NODE_MANAGER)
    await _wait(context, f"the kubelet of {node.name} has its serving certificate", certified, progress)
    progress.note(f"node {node.name} is admitted")


async def _wait(context: Context, what: str, condition: Condition, progress: Progress) -> None:
    await poll_until(
        what, condition, timeout=patience.JOINS, still=patience.STILL, progress=progress, clock=context.clock
    )


# --- labels ------------------------------------------------------------------------------------------


def wanted_labels(node: Node) -> dict[str, str]:
    ours = {CONTROL_PLANE_REQUESTED: "", CONTROL_PLANE_ACTIVE: ""} if node.control_plane else {}
    return {**node.labels, **ours}


def missing_labels(live: Object, node: Node) -> list[str]:
    labels = live["metadata"].get("labels", {})
    return [key for key, value in wanted_labels(node).items() if labels.get(key) != value]


def unlisted_labels(live: Object, node: Node) -> list[str]:
    """Labels that an earlier file gave the node and this one no longer has."""
    return sorted(_given(live) - wanted_labels(node).keys() - ROLE_LABELS)


def _given(live: Object) -> set[str]:
    """The labels that an earlier `up` has applied."""
    entries = live["metadata"].get("managedFields") or []
    fields = [entry["fieldsV1"] for entry in entries if entry.get("manager") == NODE_MANAGER]
    return {key.removeprefix("f:") for one in fields for key in one.get("f:metadata", {}).get("f:labels", {})} - {"."}


def _node_labels(node: Node, live: Object | None) -> Object:
    """With the role labels that an earlier `up` applied: when the user removes the requested one, the operator takes
    the role away in a safe order. Leaving them out here would stop the API server of that node at once."""
    role = {} if live is None else dict.fromkeys(_given(live) & ROLE_LABELS, "")
    labels = {**role, **wanted_labels(node)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels}}


# --- certificates --------------------------------------------------------------------------------------


async def pending_requests(kube: Kube, nodes: set[str]) -> list[Object]:
    """Requests of these nodes that are neither approved nor denied."""
    requests = [slim_request(csr) async for csr in kube.each(*CSR) if certificates.is_unjudged(csr)]
    return [csr for node, csr in certificates.pending(requests) if node in nodes]


async def _operator_judges(kube: Kube) -> bool:
    deployment = await live_operator(kube)
    return deployment is not None and bool((deployment.get("status") or {}).get("availableReplicas"))


async def judge_requests(kube: Kube, nodes: set[str], progress: Progress) -> None:
    """Unless the operator does: approve or deny what is pending for these nodes, by the inventory in the cluster; of
    many requests only some, and the rest at the next call. Each call reports one denial per node: a hostile node asks
    without end."""
    noted: set[str] = set()
    waiting = await pending_requests(kube, nodes)
    if not waiting or await _operator_judges(kube):
        return
    for csr in in_turn(waiting, certificates.requester, MOST_AT_ONCE):
        inventory, renewals = await certificates.read_inventory(kube), await certificates.read_renewals(kube)
        decision = await certificates.judge(kube, csr, inventory, renewals)
        by = certificates.requester(csr)
        if decision.verdict is approval.Verdict.APPROVE or (
            decision.verdict in certificates.JUDGED and by not in noted
        ):
            progress.note(f"certificate request {csr['metadata']['name']}: {decision.sentence[:LONGEST_WHY]}")
            noted.add(by)


@asynccontextmanager
async def judging(context: Context, nodes: Sequence[Node], progress: Progress) -> AsyncIterator[None]:
    """Approve or deny requests of these nodes in the background: kubelets need not wait for the other work."""

    async def judge_all() -> None:
        while True:
            with suppress(AutarkyError):  # the phase that waits for the node meets it again
                await judge_requests(context.kube(), {node.name for node in nodes}, progress)
            await context.clock.sleep(JUDGE_SECONDS)

    task = asyncio.create_task(judge_all(), name="judge certificate requests")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Requests:
    """Serving certificate requests of a node. waiting: one that may still be granted. denied: one that was, and why."""

    granted: bool = False
    waiting: str = ""
    denied: str = ""


async def _serving_requests(kube: Kube, node: str) -> _Requests:
    waiting = denied = ""
    async for csr in kube.each(*CSR):
        if csr["spec"]["signerName"] != approval.SERVING_SIGNER or csr["spec"]["username"] != f"system:node:{node}":
            continue
        name, status = csr["metadata"]["name"], csr.get("status", {})
        if status.get("certificate"):
            return _Requests(granted=True)
        if refusal := _refusal(csr):
            denied = refusal
        else:
            waiting = name
    return _Requests(waiting=waiting, denied=denied)


async def _denied_joins(kube: Kube, node: str) -> str:
    """Why a request of the node for its first certificate was denied; "" where none was. Only requests by a join token,
    or by the node's own credential: what another node asks for in its name says nothing of it."""
    async for csr in kube.each(*CSR):
        by, refusal = certificates.requester(csr), _refusal(csr)
        own = by.startswith(certificates.BOOTSTRAP_USER) or by == approval.renewal_user(node)
        if csr["spec"]["signerName"] != approval.CLIENT_SIGNER or not refusal or not own:
            continue
        if certificates.node_of(slim_request(csr)) == node:
            return refusal
    return ""


def _refusal(csr: Object) -> str:
    """What was said to a request that was denied or has failed; else ""."""
    conditions = (csr.get("status") or {}).get("conditions") or ()
    said = [str(one.get("message", "")) for one in conditions if one["type"] in ("Denied", "Failed")]
    return f"{csr['metadata']['name']}: {said[0][:LONGEST_WHY]}" if said else ""


async def _serving_certificate(kube: Kube, node: str, asked: _Requests) -> NotYet | None:
    """None once the node's serving certificate was issued. Requests are garbage-collected after an hour, so a node
    older than that without any got its certificate long ago; so did one with only denied requests, of which it may make
    any number. From a younger node another request is awaited: its address may have been corrected since."""
    if asked.granted:
        return None
    if asked.waiting:
        return NotYet(f"request {asked.waiting} is not signed yet", "asked")
    live = await kube.get("v1", "Node", node)
    created = datetime.fromisoformat(live["metadata"]["creationTimestamp"]) if live else datetime.now(UTC)
    if (datetime.now(UTC) - created).total_seconds() > 3600:
        return None
    if asked.denied:
        return NotYet(f"the kubelet has not asked for another one since its denied request {asked.denied}", "not asked")
    return NotYet("the kubelet has not asked for one yet", "not asked")
