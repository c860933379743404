"""The hosted API server is told to end when its standby serves, and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autarky.agents.node.handover import LONGEST_SECONDS, MOOT_SECONDS, HandOver
from autarky.clock import SystemClock
from autarky.decide.slots import Health


class AheadClock(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@contextmanager
def asked(hand_over: HandOver) -> Iterator[threading.Thread]:
    """A kubelet that asks, and waits for the answer."""
    kubelet = threading.Thread(target=hand_over.before_stop)
    kubelet.start()
    while not hand_over.pending:
        pass
    try:
        yield kubelet
    finally:
        hand_over.go_on()
        kubelet.join(timeout=60)


def test_who_is_about_to_end_is_judged_as_if_it_did():
    hand_over = HandOver(SystemClock())
    assert hand_over.judged(Health.READY) is Health.READY
    with asked(hand_over):
        assert hand_over.judged(Health.READY) is Health.TERMINATING
        assert hand_over.judged(Health.UNKNOWN) is Health.UNKNOWN


def test_the_kubelet_waits_until_the_standby_serves():
    hand_over = HandOver(SystemClock())
    with asked(hand_over) as kubelet:
        kubelet.join(timeout=0.05)
        assert kubelet.is_alive()
        hand_over.go_on()
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()
        assert hand_over.judged(Health.READY) is Health.TERMINATING  # it is told in a moment


def test_a_server_that_ends_anyway_is_not_waited_for():
    hand_over = HandOver(SystemClock())
    with asked(hand_over) as kubelet:
        assert hand_over.judged(Health.ABSENT) is Health.ABSENT
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()
    assert hand_over.judged(Health.READY) is Health.READY


def test_a_server_that_serves_long_after_the_answer_was_not_told_to_end():
    clock = AheadClock()
    hand_over = HandOver(clock)
    with asked(hand_over):
        clock.ahead = LONGEST_SECONDS + MOOT_SECONDS + 1
        assert hand_over.judged(Health.READY) is Health.READY
        assert not hand_over.pending
