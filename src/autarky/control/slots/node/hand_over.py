"""What the kubelet asks before it tells the hosted API server to end: whether the standby serves yet.

The hosted server's preStop hook is a request to the agent, which brings the standby up and answers when it serves.
Without that, the standby would have to start within the time that the hosted server drains, which a busy machine
does not grant.

Contract: the answer is an opinion, not a veto: the kubelet goes on when nobody answers, or after HAND_OVER, or, while
the standby is on its way and nobody else serves (`standby_coming` looks), after SLOW_HAND_OVER: so that the hosted
server has the time to drain within its grace period. `before_stop` is called in threads of the agent's HTTP server, all
else in the agent's loop.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from autarky.control.slots.decide.pivot import Health
from autarky.model import patience
from autarky.ports import Clock

QUICK_SECONDS, LONGEST_SECONDS = patience.HAND_OVER, patience.SLOW_HAND_OVER
LOOK_SECONDS = 1.0
"""Between two looks whether the standby is still on its way, once it is late."""
MOOT_SECONDS = 75.0
"""After the answer the kubelet tells the server to end at once; one that still serves then was not told."""


@dataclass(slots=True)
class HandOver:
    clock: Clock
    _asked: float | None = None
    """Since when (monotonic seconds) the hosted server is to end."""
    _answered: float | None = None
    _worth: float = 0.0
    """For how many seconds it is worth to wait, by what was known last of the standby."""
    _go: threading.Event = field(default_factory=threading.Event)

    def before_stop(self) -> None:
        """Return when the hosted server may be told to end. A kubelet that was started anew meanwhile asks again, and
        nobody hears the answer to the question before: it changes nothing."""
        if not self.waits:
            self._worth = 0.0
        self._go.clear()
        self._answered = None
        self._asked = asked = self.clock.monotonic()
        if not self._go.wait(QUICK_SECONDS):
            while self.clock.monotonic() - asked < self._worth and not self._go.wait(LOOK_SECONDS):
                pass
        if self._asked in (asked, None):
            self._answered = self.clock.monotonic()

    def judged(self, hosted: Health) -> Health:
        """The hosted server's health, given that it may be about to end."""
        if self._asked is None or hosted is Health.UNKNOWN:
            return hosted
        moot = self._answered is not None and self.clock.monotonic() - self._answered > MOOT_SECONDS
        if moot or hosted is not Health.READY:  # it ends already, or was never told to
            self._asked = None
            self._go.set()
            return hosted
        return Health.TERMINATING

    @property
    def pending(self) -> bool:
        return self._asked is not None

    @property
    def waits(self) -> bool:
        """Whether the kubelet has no answer yet."""
        return self._asked is not None and self._answered is None

    def is_worth(self, seconds: float) -> None:
        """To wait for the standby, since the kubelet has asked. What was said last holds until it is known anew."""
        self._worth = min(seconds, LONGEST_SECONDS)

    def go_on(self) -> None:
        """The standby serves, or cannot come to serve."""
        self._go.set()
