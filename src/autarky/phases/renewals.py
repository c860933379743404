"""The credential with which a kubelet whose certificate has expired comes back: issued for a node, given to its host,
and noted in the API as the only valid one (`control.admission.decide.approval`).

Contract: before a node is added to the join inventory, it is noted that no credential is valid for it, so that what an
earlier machine of that name had is worthless from the start. A credential is noted before it is written to the host:
after a kill the host has none, or one that is not valid, and is given another.

Nodes that joined under an earlier release have one that is not noted: any is valid until one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from autarky.control.admission.act import read_renewals
from autarky.control.admission.decide.approval import NO_CREDENTIAL
from autarky.control.certificates.manifests.specs import renewal_certificate
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.deadline import poll_until
from autarky.errors import Conflict
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.fingerprint import fingerprint
from autarky.phases import signing
from autarky.phases.context import Context
from autarky.ports import SHORT, Host, Kube, Progress
from autarky.render import access
from autarky.render.kubeconfig import embedded_certificate
from autarky.render.values import SYSTEM


async def refuse_former(context: Context, progress: Progress) -> None:
    """Before the inventory names them: note that nodes which it does not have yet have no valid credential."""

    async def attempt() -> None:
        live = await context.kube().get("v1", "ConfigMap", access.INVENTORY, SYSTEM)
        known = (live or {}).get("data") or {}
        new = [node.name for node in context.complete.nodes if node.name not in known]
        if new:
            await note(context.kube(), dict.fromkeys(new, NO_CREDENTIAL))

    # An API server that has just started has no namespaces yet.
    what = "new nodes are noted as having no renewal credential"
    await poll_until(what, attempt, timeout=patience.WRITTEN, progress=progress, clock=context.clock)


async def due(context: Context, node: Node) -> str | None:
    """What is to be done for a node that has joined, as a sentence."""
    held = await _held(context.host(node))
    good = (await read_renewals(context.kube())).get(node.name) if await context.api_answers() else held
    if held is None or good not in (held, None):
        return f"give {node.name} a credential to renew an expired certificate with"
    return None if good == held else f"note which credential {node.name} can renew an expired certificate with"


async def give(context: Context, node: Node) -> None:
    """Give the host its credential, in place of the token."""
    host, kube = context.host(node), context.kube()
    held, good = await _held(host), (await read_renewals(kube)).get(node.name)
    if held is not None and good == held:
        return
    if held is not None and good is None:
        await note(kube, {node.name: held})
        return
    if context.pki.borrows:  # no CA key here: a control node signs it
        await signing.issue(context, [renewal_certificate(node.name)])
    file = kubelet_credentials.renewal_kubeconfig(context.inputs(), node)
    await note(kube, {node.name: _fingerprint(file.content) or NO_CREDENTIAL})
    await host.write_files([file])


async def forget(kube: Kube, node: str) -> None:
    """After it was taken out of the inventory."""
    if node in await read_renewals(kube):
        await note(kube, {node: None})


async def _held(host: Host) -> str | None:
    """The fingerprint of what the host has; None for a token, too."""
    content = await host.read(kubelet_credentials.BOOTSTRAP_KUBECONFIG, most=SHORT)
    return None if content is None else _fingerprint(content)


def _fingerprint(kubeconfig: bytes) -> str | None:
    return fingerprint(embedded_certificate(kubeconfig))


async def note(kube: Kube, entries: Mapping[str, str | None]) -> None:
    """None removes the entry."""
    if not entries:
        return
    if await kube.get("v1", "ConfigMap", access.RENEWALS, SYSTEM) is None:
        with suppress(Conflict):  # another run was first
            await kube.create(access.renewals({}))
    await kube.patch("v1", "ConfigMap", access.RENEWALS, {"data": dict(entries)}, namespace=SYSTEM)
