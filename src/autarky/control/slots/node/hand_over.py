"""What the kubelet asks before it stops the hosted API server: whether the standby serves yet.

The hosted server's preStop hook is a request to the agent, which activates the standby and answers when it serves.
Without that, the standby would have to start while the hosted server drains, which is too short on a busy machine.

Contract: the answer is advice, not a veto. The kubelet goes on when nobody answers, or after HAND_OVER; while the
standby is starting and no other node serves (`standby_coming` watches this), after SLOW_HAND_OVER. So the hosted server
has time to drain within its grace period. `before_stop` is called in threads of the agent's HTTP server, everything
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
"""Between two checks whether the standby is still starting, once it is late."""
MOOT_SECONDS = 75.0
"""The kubelet stops the server right after the answer; a server that still serves after this time was not stopped."""


@dataclass(slots=True)
class HandOver:
    clock: Clock
    _asked: float | None = None
    """Since when (monotonic seconds) the hosted server is to stop."""
    _answered: float | None = None
    _worth: float = 0.0
    """How many seconds it is worth waiting for the standby, as far as known."""
    _go: threading.Event = field(default_factory=threading.Event)

    def before_stop(self) -> None:
        """Return when the hosted server may be stopped. A kubelet that restarts meanwhile asks again, and nobody
        receives the answer to its first request: that one changes nothing."""
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
        """The hosted server's health, given that it may be about to stop."""
        if self._asked is None or hosted is Health.UNKNOWN:
            return hosted
        moot = self._answered is not None and self.clock.monotonic() - self._answered > MOOT_SECONDS
        if moot or hosted is not Health.READY:  # it is stopping already, or was never stopped
            self._asked = None
            self._go.set()
            return hosted
        return Health.TERMINATING

    @property
    def pending(self) -> bool:
        return self._asked is not None

    @property
    def waits(self) -> bool:
        """Whether the kubelet still waits for an answer."""
        return self._asked is not None and self._answered is None

    def is_worth(self, seconds: float) -> None:
        """How many seconds to wait for the standby, counted from the kubelet's request. The last value stays valid
        until the next one."""
        self._worth = min(seconds, LONGEST_SECONDS)

    def go_on(self) -> None:
        """The standby serves, or will not."""
        self._go.set()
