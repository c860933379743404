"""Having certificates signed on a control node, by a state directory that has no CA key (agents/signer.py).

Contract: only requests and certificates travel. The signer runs in a container of the agent image that is on the
node: no API, no network, nothing of the host but the CAs' directory.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from autarky import places
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.certificates.manifests.specs import ADMINISTRATORS
from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.phases.context import Context
from autarky.phases.prepare import CTR, present_images
from autarky.pki.signing import Request, answered, question
from autarky.ports import Host

SECONDS = 60.0
IMAGE = "autarky.dev/agent:"


async def issue(context: Context, specs: Sequence[CertSpec]) -> list[str]:
    """What `PkiStore.ensure` does where the CA keys are here. The names of what was issued."""
    settings = context.cluster.certificates
    requests = await asyncio.to_thread(context.pki.requests, specs, settings, datetime.now(UTC))
    if requests:
        if context.lender is None:
            raise UserError("no control node that can sign answers", fix="power one on")
        host = context.host(context.cluster.node(context.lender))
        signed = await sign(host, requests, timedelta(days=settings.leaf_days))
        for request, certificate in zip(requests, signed, strict=True):
            context.pki.accept(request, certificate, keep=request.spec.name in ADMINISTRATORS)
    return [request.spec.name for request in requests]


async def sign(host: Host, requests: Sequence[Request], life: timedelta) -> list[bytes]:
    """The certificates, in the order of the requests. CommandFailed says what the signer could not do."""
    mount = f"type=bind,src={places.PKI},dst={places.PKI},options=rbind:ro"
    name = f"autarky-signer-{secrets.token_hex(4)}"
    command = ["/usr/bin/python3", "-m", "autarky.agents.signer"]
    argv = [*CTR, "run", "--rm", "--mount", mount, await _image(host), name, *command]
    done = await host.run(argv, stdin=question(requests, life), timeout=SECONDS)
    return answered(done.stdout, requests)


async def _image(host: Host) -> str:
    """The agent image that the node's own standby agent runs; where it has none, any agent image on the node."""
    images = [name for name in await present_images(host) or {} if name.startswith(IMAGE)]
    if not images:
        raise UserError(
            f"{host.name} has no image {IMAGE}… to sign with, or its containerd does not answer",
            fix="name another control node",
        )
    return next((image for image in await _standby_agent_images(host) if image in images), images[-1])


async def _standby_agent_images(host: Host) -> list[str]:
    found = []
    for name in (await host.run(["ls", places.MANIFESTS], check=False)).text.split():
        if name.startswith(agent.STANDBY_POD):
            try:
                pod = json.loads(await host.read(f"{places.MANIFESTS}/{name}") or b"")
                found.append(str(pod["spec"]["containers"][0]["image"]))
            except (ValueError, KeyError, IndexError, TypeError, RecursionError):
                continue
    return found
