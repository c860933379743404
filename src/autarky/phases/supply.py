"""The payload and the certificates: what must exist here before a host is prepared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky import places
from autarky.control.certificates.manifests.specs import authorities, certificate_specs
from autarky.engine.phase import Change
from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.payload import get_payload, needs
from autarky.phases import belonging, signing
from autarky.phases.context import Context
from autarky.phases.hosts import look, refuse_foreign_hosts
from autarky.ports import Progress

GROUPS = ("cluster",)
ETCD_CA = "etcd/ca"


@dataclass(frozen=True, slots=True)
class GetPayload:
    """Taken from the store, else built; nothing is built twice."""

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
class GetFollowed(GetPayload):
    """The components of the version that the cluster was upgraded to through the API, where its file has another."""

    name: str = "get-followed"
    title: str = "Get the components of the version that the cluster has"

    async def plan(self, context: Context) -> Sequence[Change]:
        in_file = context.version_in_file
        follows = in_file is not None and in_file != context.cluster.kubernetes_version
        return await GetPayload.plan(self, context) if follows else []


async def _is_nowhere(context: Context, path: str) -> bool:
    """Whether no control node has it; all of them must answer."""
    hosts = [context.host(node) for node in context.control_nodes]
    return not [host for host in hosts if await host.read(path) is not None]


@dataclass(frozen=True, slots=True)
class IssueCertificates:
    """CAs (own or given), administrators' certificates and the service account key, in the cluster's directory."""

    name: str = "issue-certificates"
    title: str = "Issue certificates"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.facts:  # the phase that checks the hosts was skipped
            await look(context)
        await refuse_foreign_hosts(context)
        if not context.addresses_known:
            return [Change("issue the certificates of the control plane")]
        specs, cas = certificate_specs(context.complete), authorities(context.complete)
        await self._refuse_to_start_over(context, specs, cas)
        reasons = context.pki.plan(specs, context.cluster.certificates, datetime.now(UTC), cas)
        return [Change(f"issue {reason}") for reason in reasons]

    async def _refuse_to_start_over(self, context: Context, specs: Sequence[CertSpec], cas: Sequence[str]) -> None:
        """All CAs are issued before the first host gets its marker: one that is missing later was lost here, while
        the cluster has it. Nobody would trust a new one in its place. Only etcd's is made later, where etcd moves into
        the cluster from one with another CA."""
        lost = context.pki.missing_roots(specs, cas)
        if context.moves_etcd and set(lost) == {ETCD_CA} and not context.pki.borrows:
            lost = [] if await _is_nowhere(context, f"{places.PKI}/{ETCD_CA}.crt") else lost
        if context.owners and lost:
            raise UserError(
                f"{context.pki.directory} lacks {', '.join(lost)}, which the cluster already has",
                fix=f"move {context.directory} away, and fetch the cluster's state with "
                + belonging.login_command(context, next(iter(context.owners))),
            )

    async def run(self, context: Context, progress: Progress) -> None:
        specs, cas = certificate_specs(context.complete), authorities(context.complete)
        settings = context.cluster.certificates
        if context.pki.borrows:
            issued = await signing.issue(context, specs)
            progress.note(f"{context.lender} has signed {len(issued)} certificates")
            return
        # In a thread: RSA keys take long enough to stall everything else.
        issued = await asyncio.to_thread(context.pki.ensure, specs, settings, datetime.now(UTC), cas)
        progress.note(f"issued {len(issued)} keys and certificates in {context.pki.directory}")
