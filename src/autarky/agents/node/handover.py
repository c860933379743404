"""What the kubelet asks before it tells the hosted API server to end: whether the standby serves yet.

The hosted server's preStop hook is a request to the agent, which brings the standby up and answers when it serves.
Without that, the standby would have to start within the time that the hosted server drains, which a busy machine
does not grant.

Contract: the answer is an opinion, not a veto: the kubelet goes on when nobody answers, or after LONGEST_SECONDS,
which leave the hosted server the time to drain within its grace period. `before_stop` is called in threads of the
agent's HTTP server, all else in the agent's loop.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from autarky.decide.slots import Health
from autarky.model.patience import HAND_OVER
from autarky.ports import Clock

LONGEST_SECONDS = HAND_OVER
MOOT_SECONDS = 30.0
"""After the answer the kubelet tells the server to end at once; one that still serves then was not told."""


@dataclass(slots=True)
class HandOver:
    clock: Clock
    _asked: float | None = None
    """Since when (monotonic seconds) the hosted server is to end."""
    _go: threading.Event = field(default_factory=threading.Event)

    def before_stop(self) -> None:
        """Return when the hosted server may be told to end."""
        self._go.clear()
        self._asked = self.clock.monotonic()
        self._go.wait(LONGEST_SECONDS)

    def judged(self, hosted: Health) -> Health:
        """The hosted server's health, given that it may be about to end."""
        if self._asked is None or hosted is Health.UNKNOWN:
            return hosted
        moot = self.clock.monotonic() - self._asked > LONGEST_SECONDS + MOOT_SECONDS
        if moot or hosted is not Health.READY:  # it ends already, or was never told to
            self._asked = None
            self._go.set()
            return hosted
        return Health.TERMINATING

    @property
    def pending(self) -> bool:
        return self._asked is not None

    def go_on(self) -> None:
        """The standby serves, or cannot come to serve."""
        self._go.set()
