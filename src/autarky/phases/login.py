"""Fetching the state of a cluster from one of its control nodes (`autarky login`).

Contract: nothing on the host is changed. Keys are created here, and signed there; no key of the cluster is copied here.
What is fetched is trusted because it comes over the connection to the host, which `up` trusts as well. The host's disk
may have an old record, if it was off when another was applied: if the API answers, its record decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from autarky import places
from autarky.control.certificates.manifests.specs import ADMINISTRATORS, administrator
from autarky.control.cluster_file.decide.records import API, Record, newest
from autarky.control.hosts.decide.belonging import Ours, Said
from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model import ports
from autarky.model.files import CertSpec
from autarky.model.fingerprint import fingerprint
from autarky.phases import kept_file, records, signing
from autarky.phases.context import Connect, Context
from autarky.pki import PkiStore
from autarky.pki.signing import Request, is_good
from autarky.ports import SHORT, Host, Progress
from autarky.render import cluster_record
from autarky.store import write_private

CA = "ca.crt"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a control node says. record: None where it has none on its disk."""

    cluster: str
    ca: bytes
    address: str
    record: Record | None


async def fetch(host: Host) -> Fetched:
    """Look at the host. UserError if it is not a control node that can sign."""
    marker = await host.read(places.NODE_MARKER, most=SHORT)
    ca = await host.read(f"{places.PKI}/{CA}", most=SHORT)
    if marker is None or ca is None:
        raise UserError(f"host {host.name} belongs to no cluster", fix="name a control node of the cluster")
    said = Said.of(marker, fingerprint(ca))
    if said.cluster is None:
        raise UserError(f"host {host.name}: {places.NODE_MARKER} cannot be read", fix="name another control node")
    if said.ca is not None and said.ca != said.disk:
        raise UserError(
            f"host {host.name}: its marker names another CA than the one in {places.PKI}",
            fix="name another control node, and find out what was changed on this one",
        )
    if not (await host.digests([f"{places.PKI}/ca.key"])):
        raise UserError(
            f"host {host.name} holds no CA key, so that nothing can be signed there",
            fix="name a control node: each of them has the CA keys",
        )
    record = cluster_record.read(await host.read(places.CLUSTER_RECORD))
    return Fetched(said.cluster, ca, (await host.facts()).address, record)


async def refuse_another_ca(pki: PkiStore, fetched: Fetched) -> None:
    """UserError if this state directory already has a different cluster of that name."""
    ours, theirs = pki.fingerprint(), fingerprint(fetched.ca)
    if ours is not None and ours != theirs:
        raise UserError(
            f"this state directory has a different cluster named {fetched.cluster}: its CA is {ours[:16]}, that of the "
            f"host {str(theirs)[:16]}",
            fix="set XDG_STATE_HOME to another directory, or take the other cluster down first",
        )


def due(pki: PkiStore, ca: bytes, life: timedelta) -> list[CertSpec]:
    """The administrators' certificates that this state directory lacks."""
    now = datetime.now(UTC)
    specs = [administrator(name) for name in ADMINISTRATORS]
    return [s for s in specs if not pki.complete(s.name) or not is_good(pki.read(s.name), ca, now, life)]


async def sign_administrators(host: Host, pki: PkiStore, ca: bytes, life: timedelta) -> None:
    """Create the keys here and have them signed there."""
    requests = [Request.new(spec, "EC") for spec in due(pki, ca, life)]
    if not requests:
        return
    certificates = await signing.sign(host, requests, life)
    await asyncio.to_thread(write_private, pki.directory / CA, ca)
    for request, certificate in zip(requests, certificates, strict=True):
        pki.accept(request, certificate, keep=True)
        if not is_good(pki.read(request.spec.name), ca, datetime.now(UTC), life):
            raise UserError(f"the certificate that {host.name} signed for {request.spec.name} is not usable")


async def ask_the_api(connect: Connect, fetched: Fetched) -> Record | None:
    """The record as the API behind the host's load balancer has it. Unreachable, ApiError; UserError if it is of
    another cluster."""
    kube = connect([f"https://{fetched.address}:{ports.NLLB_API}"], ADMINISTRATORS[1])
    try:
        record = await records.of_the_api(kube)
    finally:
        await kube.close()
    records.refuse_another_cluster(record, Ours(fetched.cluster, fingerprint(fetched.ca)))
    return record


async def record_of_the_api(connect: Connect, fetched: Fetched) -> Record:
    """The record, where the host has none on its disk."""
    try:
        record = await ask_the_api(connect, fetched)
    except (Unreachable, ApiError) as error:
        fix = "name an initial member of the cluster: its disk has the record"
        raise UserError(_no_record(fetched, str(error)), fix=fix) from error
    if record is None:
        raise UserError(
            _no_record(fetched, "the API has none either"), fix="run `autarky up` of this release on the other machine"
        )
    return record


def _no_record(fetched: Fetched, why: str) -> str:
    return f"the host does not have the record of cluster {fetched.cluster} that `autarky up` writes there, and {why}"


@dataclass(frozen=True, slots=True)
class SignAdministrators:
    """This machine's own certificates, with which it acts in the cluster."""

    host: Host
    ca: bytes
    name: str = "sign-administrators"
    title: str = "Have the administrator's certificates signed"
    timeout: float = 120

    async def plan(self, context: Context) -> Sequence[Change]:
        life = timedelta(days=context.cluster.certificates.leaf_days)
        return [Change(f"have {spec.name} signed on {self.host.name}") for spec in due(context.pki, self.ca, life)]

    async def run(self, context: Context, progress: Progress) -> None:
        life = timedelta(days=context.cluster.certificates.leaf_days)
        await sign_administrators(self.host, context.pki, self.ca, life)


@dataclass(frozen=True, slots=True)
class CompareRecord:
    """Take the API's record where it is newer than the host's. `take` puts it into the context."""

    host: str
    fetched: Fetched
    take: Callable[[Record], None]
    name: str = "compare-record"
    title: str = "Compare the host's record with the API's"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if self.fetched.record is None:
            return []  # it is the API's
        try:
            found = await ask_the_api(context.connect, self.fetched)
        except (Unreachable, ApiError) as error:
            warning = (
                f"the file comes from the disk of {self.host}, which is old if that host was off when another one was "
                f"applied, and the API cannot be asked ({error})"
            )
            return [Warn(warning)]
        seen = {self.host: self.fetched.record} | ({} if found is None else {API: found})
        if found is None or newest(seen) is not found or found == self.fetched.record:
            return []
        self.take(found)
        return [Change(f"take the file that the API has, which is newer than that on the disk of {self.host}")]

    async def run(self, context: Context, progress: Progress) -> None:
        """`plan` has taken it already, and the next phase keeps it."""


@dataclass(frozen=True, slots=True)
class KeepFile:
    """The cluster file as it was applied last, in this state directory."""

    name: str = "keep-file"
    title: str = "Keep the cluster file"
    timeout: float = 10

    async def plan(self, context: Context) -> Sequence[Change]:
        path = context.directory / kept_file.NAME
        is_kept = path.exists() and path.read_bytes() == context.file_content
        return [] if is_kept and kept_file.is_settled(context.directory) else [Change(f"write {path}")]

    async def run(self, context: Context, progress: Progress) -> None:
        """Earlier files are deleted first: they would take precedence over this one (`kept_file.applied`)."""
        kept_file.settle(context.directory)
        write_private(context.directory / kept_file.NAME, context.file_content)
