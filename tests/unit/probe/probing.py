"""What the tests of the streams share: loads of one kind, and conditions to wait for."""

from __future__ import annotations

from collections.abc import Callable

from autarky.probe import Probe, Rates, Stream
from unit.probe.misbehaving import Misbehaviour

NEW_ONLY = Rates(100, 0, 0, 0)
KEPT_ONLY = Rates(0, 100, 0, 0)
WRITES_ONLY = Rates(0, 0, 150, 0)
KEPT_WRITES_ONLY = Rates(0, 0, 0, 50)  # one worker
SOON, LATER = 0.6, 3.0
"""Seconds for a request, where the test waits for them to pass: for every request, and for one among good ones."""


def done(probe: Probe, stream: Stream, number: int = 3) -> Callable[[], bool]:
    """A condition: the stream has had this many more requests than now."""
    begin = probe.report().streams[stream].requests
    return lambda: probe.report().streams[stream].requests >= begin + number


def time_for(what: str) -> float:
    """Less where silence is what is waited for, but enough for the requests beside it, also on a busy machine."""
    return LATER if what == "stall" else 5.0


def happened(misbehaviour: Misbehaviour) -> Callable[[], bool]:
    return lambda: misbehaviour.times == 0
