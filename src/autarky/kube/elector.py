"""Leader election over a Lease, in the way of client-go, which the leases of Kubernetes' own components share.

Contract: `run(lead)` campaigns forever. While this process holds the lease `lead` runs; it is cancelled
before anybody else can take the lease, and `run` waits for its end before it campaigns again. When `run` is
cancelled, `lead` ends first, then the lease is released, so that the next leader need not wait for its expiry.

How it is safe:
- No clock of another machine is ever compared: a lease has ended when this process has seen it unchanged for
  the lease's own duration.
- Every write is under the resourceVersion: of two that try at once, one gets a Conflict.
- Fencing: `leads` is true until `renew_seconds` after the last renewal was *sent*. Others wait for at least
  `lease_seconds` from when it arrived, which is later. The clock should go on while the machine sleeps.

Danger: a request of the leader that is under way when its time ends may still arrive. What must not happen
twice is written under a resourceVersion, and through `Fenced`, which starts no write without the lease.
Whoever deletes the Lease lets a second one lead until the first has noticed, by its next renewal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn

from autarky.errors import ApiError, AutarkyError, Conflict
from autarky.model import patience
from autarky.ports import Clock, Kube, Object

LEASE = ("coordination.k8s.io/v1", "Lease")
_ONE_ATTEMPT = patience.RENEWAL / patience.RENEW_DEADLINE
"""Of the time that there is to renew: what hangs is tried again, by another connection, before the lease is lost."""


def _nothing(sentence: str) -> None: ...


@dataclass(slots=True)
class Elector:
    """Campaigns for one lease.

    identity: unique to this process; by custom HOST_UUID.
    lease_seconds, renew_seconds, retry_seconds: as client-go's LeaseDuration, RenewDeadline and RetryPeriod,
    with the same defaults. lease_seconds > renew_seconds > retry_seconds.
    say: hears one sentence per change of who leads.
    jitter: a factor for the pauses of those who do not lead, from the range [1, 2.2].
    """

    kube: Kube
    clock: Clock
    namespace: str
    name: str
    identity: str
    lease_seconds: int = patience.LEASE
    renew_seconds: float = patience.RENEW_DEADLINE
    retry_seconds: float = patience.LEASE_RETRY
    say: Callable[[str], None] = _nothing
    jitter: Callable[[], float] = lambda: random.uniform(1, 2.2)  # noqa: S311 # spreads load, guards nothing
    _until: float | None = None
    _renewed: float | None = None
    _seen: Object | None = None
    _seen_at: float = 0.0
    _said: str = ""
    _held: Object = field(default_factory=dict)
    """The lease as it was last written here; empty between terms."""

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > self.retry_seconds > 0:
            raise ValueError("a lease must outlast its renewal, and a renewal its retry")

    # --- what the leader reads ---

    @property
    def leads(self) -> bool:
        """Whether this process may act now."""
        return self._until is not None and self.clock.monotonic() < self._until

    @property
    def renewal_age(self) -> float:
        """Seconds since the last renewal that went through was sent; infinite before the first."""
        return self.clock.monotonic() - self._renewed if self._renewed is not None else float("inf")

    # --- the campaign ---

    async def run(self, lead: Callable[[], Awaitable[None]]) -> NoReturn:
        """Never returns; raises what `lead` raises, after the lease was released. A `lead` that returns is started
        again with the next term."""
        while True:
            await self._acquire()
            await self._term(lead)

    async def _acquire(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.renew_seconds):
                    led = await self._attempt()
                if led:
                    self._tell(f"{self.identity} leads")
                    return
            except (AutarkyError, TimeoutError) as error:
                self._tell(f"the lease cannot be acquired: {error}")
            await self.clock.sleep(self.retry_seconds * self.jitter())

    async def _term(self, lead: Callable[[], Awaitable[None]]) -> None:
        """From the first renewal to the end of `lead`, whichever side ends it."""
        leading = asyncio.ensure_future(lead())
        keeping = asyncio.create_task(self._keep(), name=f"renewing lease {self.name}")
        try:
            await asyncio.wait({leading, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, keeping):
                task.cancel()
            await asyncio.gather(leading, keeping, return_exceptions=True)
            await self._release()
        for task in (leading, keeping):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _keep(self) -> None:
        """Renew until the time is over or somebody else has the lease."""
        while self.leads:
            await self.clock.sleep(min(self.retry_seconds, self._left()))
            try:
                async with asyncio.timeout(min(self._left(), self.renew_seconds * _ONE_ATTEMPT)):
                    if not await self._attempt():
                        self._until = None
            except (AutarkyError, TimeoutError) as error:
                self._tell(f"the lease was not renewed: {error or 'no answer'}")
        self._until = None
        self._tell("the lease is lost")

    def _left(self) -> float:
        return max(0.0, self._until - self.clock.monotonic()) if self._until is not None else 0.0

    # --- one attempt ---

    async def _attempt(self) -> bool:
        """Create, take or renew the lease; False while somebody else holds it."""
        if self.leads and self._held:
            try:
                return await self._write(self._held)
            except (Conflict, ApiError) as error:
                if isinstance(error, ApiError) and error.status != 404:
                    raise
                # Somebody touched or deleted it: look who.
        live = await self.kube.get(*LEASE, self.name, self.namespace)
        if live is None:
            return await self._create()
        self._observe(live)
        holder = live.get("spec", {}).get("holderIdentity") or ""
        if holder not in ("", self.identity) and not self._has_ended(live):
            self._tell(f"{holder} leads")
            return False
        try:
            return await self._write(live)
        except Conflict:
            return False

    def _observe(self, live: Object) -> None:
        if self._seen != live.get("spec"):
            self._seen, self._seen_at = live.get("spec"), self.clock.monotonic()

    def _has_ended(self, live: Object) -> bool:
        duration = float(live["spec"].get("leaseDurationSeconds") or self.lease_seconds)
        return self.clock.monotonic() - self._seen_at > duration

    async def _create(self) -> bool:
        sent = self.clock.monotonic()
        spec = self._spec({}, transitions=0)
        meta = {"name": self.name, "namespace": self.namespace}
        try:
            self._held = await self.kube.create(
                {"apiVersion": LEASE[0], "kind": LEASE[1], "metadata": meta, "spec": spec}
            )
        except Conflict:
            return False
        self._renew_from(sent)
        return True

    async def _write(self, live: Object) -> bool:
        before = live.get("spec", {})
        mine = before.get("holderIdentity") == self.identity
        transitions = int(before.get("leaseTransitions") or 0)
        spec = self._spec(before if mine else {}, transitions=transitions if mine else transitions + 1)
        sent = self.clock.monotonic()
        self._held = await self.kube.replace({**live, "spec": {**before, **spec}})
        self._renew_from(sent)
        return True

    def _renew_from(self, sent: float) -> None:
        self._until, self._renewed = sent + self.renew_seconds, sent
        self._observe(self._held)

    def _spec(self, before: Object, *, transitions: int) -> Object:
        now = datetime.fromtimestamp(self.clock.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.lease_seconds,
            "acquireTime": before.get("acquireTime") or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    async def _release(self) -> None:
        """Give the lease back, if it is still ours; `lead` has ended. Silence if nobody answers: it runs out."""
        self._until, held, self._held = None, self._held, {}
        if not held:
            return
        try:
            async with asyncio.timeout(self.retry_seconds):
                live = await self.kube.get(*LEASE, self.name, self.namespace)
                if live is not None and live.get("spec", {}).get("holderIdentity") == self.identity:
                    empty = {**live["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self.kube.replace({**live, "spec": empty})
                    self._tell("the lease is released")
        except (AutarkyError, TimeoutError):
            return

    def _tell(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self.say(sentence)
