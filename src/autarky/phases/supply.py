"""The payload and the certificates: what must exist here before a host is prepared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky.engine.phase import Change
from autarky.payload import get_payload, needs
from autarky.phases.context import Context
from autarky.ports import Progress
from autarky.render.certificates import certificate_specs

GROUPS = ("cluster",)


@dataclass(frozen=True, slots=True)
class GetPayload:
    """From the store in a moment, else built; nothing is built twice."""

    name: str = "get-payload"
    title: str = "Get the components"
    timeout: float = 3600

    async def plan(self, context: Context) -> Sequence[Change]:
        missing = needs(context.release, GROUPS)
        if not missing and context.payload is None:
            context.payload = await get_payload(context.release, context.silence, groups=GROUPS)
        return [Change(f"build {name}") for name in missing]

    async def run(self, context: Context, progress: Progress) -> None:
        context.payload = await get_payload(context.release, progress, groups=GROUPS)


@dataclass(frozen=True, slots=True)
class IssueCertificates:
    """CAs (own or given), leafs and the service account key, in the cluster's directory, 0600."""

    name: str = "issue-certificates"
    title: str = "Issue certificates"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known:
            return [Change("issue the certificates of the control plane")]
        specs = certificate_specs(context.whole)
        reasons = context.pki.plan(specs, context.cluster.certificates, datetime.now(UTC))
        return [Change(f"issue {reason}") for reason in reasons]

    async def run(self, context: Context, progress: Progress) -> None:
        specs = certificate_specs(context.whole)
        # In a thread: RSA keys take long enough to stall everything else.
        issued = await asyncio.to_thread(context.pki.ensure, specs, context.cluster.certificates, datetime.now(UTC))
        progress.note(f"issued {len(issued)} keys and certificates in {context.pki.directory}")
