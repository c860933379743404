"""What the API has of one node, and its removal: in an order in which nothing of it comes back.

First what would let it join again (inventory, renewals, tokens: of a worker long before the rest, see distrust.py),
then its requests and its etcd member's object, then the Node, and the pods after it: on an existing Node a DaemonSet
would create them again, and it counts them until the garbage collection of pods runs (a minute). Its lease is last,
which shows whether somebody still answers in its name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from autarky.control.admission.act import CSR, read_renewals
from autarky.control.admission.decide.approval import renewal_user
from autarky.errors import ApiError
from autarky.phases import renewals
from autarky.phases.promote import ETCD_MEMBER, etcd_members
from autarky.ports import Kube, Object
from autarky.render import access
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM, with_rendered_hash


@dataclass(frozen=True, slots=True)
class _Thing:
    """An object to delete. Pods are deleted without a grace period: no kubelet is left to stop them."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


async def trust_in(kube: Kube, node: str) -> list[str]:
    """What makes the node a member, or would let it join again, as names."""
    entries = [f"{node} in the join inventory"] if await _is_in_inventory(kube, node) else []
    if node in await read_renewals(kube):
        entries.append(f"the credential that {node} can renew an expired certificate with")
    return [*entries, *(f"Secret {SYSTEM}/{token}" for token in await _tokens(kube, node))]


async def distrust(kube: Kube, node: str) -> None:
    """Delete all of that; what does not exist is skipped. The inventory is first: without the node in it, its
    certificates and tokens are worthless, and the entry of its credential is no longer consulted."""
    await _take_out_of_inventory(kube, node)
    await renewals.forget(kube, node)
    for token in await _tokens(kube, node):
        await kube.delete("v1", "Secret", token, SYSTEM)


async def left_of(kube: Kube, node: str) -> list[str]:
    """What exists of the node, as names."""
    entry = [f"{node} in the join inventory"] if await _is_in_inventory(kube, node) else []
    return [*entry, *[str(thing) async for thing in _things(kube, node)]]


async def forget(kube: Kube, node: str) -> None:
    """Delete all of it; what does not exist is skipped."""
    await distrust(kube, node)
    await forget_objects(kube, node)


async def forget_objects(kube: Kube, node: str) -> None:
    """Delete all but what makes it a member: each object as it is found, so that an interrupted run leaves less to
    do."""
    async for thing in _things(kube, node):
        grace = 0 if thing.kind == "Pod" else None
        await kube.delete(thing.api_version, thing.kind, thing.name, thing.namespace, grace_seconds=grace)


async def _take_out_of_inventory(kube: Kube, node: str) -> None:
    """As if it had been rendered without the node: the next `up` finds it as wanted if the node is gone from the file,
    and applies it if the node is still there (another machine takes its place)."""
    live = await kube.get("v1", "ConfigMap", access.INVENTORY, SYSTEM)
    entries = (live or {}).get("data") or {}
    if node in entries:
        rest = {name: entry for name, entry in entries.items() if name != node}
        annotations = with_rendered_hash(access.inventory_with(rest))["metadata"]["annotations"]
        patch = {"data": {node: None}, "metadata": {"annotations": annotations}}
        await kube.patch("v1", "ConfigMap", access.INVENTORY, patch, namespace=SYSTEM)


async def _is_in_inventory(kube: Kube, node: str) -> bool:
    inventory = await kube.get("v1", "ConfigMap", access.INVENTORY, SYSTEM)
    return node in ((inventory or {}).get("data") or {})


async def _things(kube: Kube, node: str) -> AsyncGenerator[_Thing, None]:
    """One by one: the node may have created any number of requests and pods, of any size."""
    for token in await _tokens(kube, node):
        yield _Thing("v1", "Secret", token, SYSTEM)
    async for csr in kube.each(*CSR):
        if _asked_by(csr, node):
            yield _Thing(*CSR, csr["metadata"]["name"])
    if any(member["metadata"]["name"] == node for member in await etcd_members(kube)):
        yield _Thing(API_VERSION, ETCD_MEMBER, node)
    for thing in await _there(kube, _Thing("v1", "Node", node)):
        yield thing
    async for pod in kube.each("v1", "Pod", fields=f"spec.nodeName={node}"):
        yield _Thing("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    lease = _Thing("coordination.k8s.io/v1", "Lease", node, "kube-node-lease")
    for thing in await _there(kube, _Thing("storage.k8s.io/v1", "CSINode", node), lease):
        yield thing


async def _there(kube: Kube, *things: _Thing) -> list[_Thing]:
    return [thing for thing in things if await _exists(kube, thing)]


async def _exists(kube: Kube, thing: _Thing) -> bool:
    try:
        return await kube.get(thing.api_version, thing.kind, thing.name, thing.namespace) is not None
    except ApiError as error:
        if error.status == 404:  # the kind is not served
            return False
        raise


async def _tokens(kube: Kube, node: str) -> list[str]:
    """Join tokens that were made for the node."""
    secrets = await kube.list("v1", "Secret", namespace=SYSTEM, fields="type=bootstrap.kubernetes.io/token")
    return [
        secret["metadata"]["name"]
        for secret in secrets
        if (secret["metadata"].get("annotations") or {}).get(access.TOKEN_NODE) == node
    ]


def _asked_by(csr: Object, node: str) -> bool:
    return csr["spec"].get("username") in (f"system:node:{node}", renewal_user(node))
