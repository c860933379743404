"""The vocabulary of the probe: what a client may experience, as frozen values. stdlib only, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autarky.errors import Unreachable


class Stream(StrEnum):
    """The kinds of load. The values are the names in the report."""

    NEW = "new-connections"
    KEPT = "kept-alive"
    WRITES = "writes"
    KEPT_WRITES = "kept-writes"
    WATCH = "watch"


class Kind(StrEnum):
    """How something failed. The values are the words in the report; `docs/probe.md` explains each."""

    REFUSED = "connection-refused"
    CONNECT_TIMEOUT = "connect-timeout"
    NO_CONNECTION = "no-connection"
    TLS = "tls"
    RESET = "connection-reset"
    CLOSED = "closed-without-answer"
    TIMEOUT = "timeout"
    MALFORMED = "malformed-answer"
    STATUS = "http-status"
    MISSED = "watch-event-missed"
    OVERTAKEN = "watch-event-overtaken"
    DISORDER = "watch-event-out-of-order"
    NOT_RESUMED = "watch-not-resumed"
    LOST = "acknowledged-write-lost"
    UNVERIFIED = "writes-not-verified"

    @property
    def is_request(self) -> bool:
        """Whether one request failed; the others are promises that span many requests."""
        return self not in _PROMISES


_PROMISES = {Kind.MISSED, Kind.OVERTAKEN, Kind.DISORDER, Kind.NOT_RESUMED, Kind.LOST, Kind.UNVERIFIED}


class Fault(Unreachable):
    """An exchange without a complete answer.

    `detail` says at which stage and in whose words. `begun` is whether any byte of the answer had come:
    if so, the cut is never an idle-close race. `after` is how many seconds after the request the server ended
    the connection; 0 where it is not known, or no request was sent.
    """

    def __init__(self, kind: Kind, address: str, detail: str, *, begun: bool = False) -> None:
        super().__init__(f"{address}: {kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.begun = begun
        self.after = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing a client would have noticed.

    time:    when it began, Unix seconds
    seconds: how long it took to fail
    address: what was dialled ("127.0.0.1:6443"); of a lost write, what acknowledged it is not known: empty
    local:   the client's end, for the logs of a load balancer; empty where no connection came about
    server:  which API server answered or held the connection ("v1.36.4 since 2026-11-21T06:26:57Z"); empty
             where nothing answered, or what answered did not say
    """

    time: float
    stream: Stream
    kind: Kind
    detail: str
    seconds: float = 0.0
    address: str = ""
    local: str = ""
    server: str = ""

    def __str__(self) -> str:
        where = f" at {self.address}" if self.address else ""
        who = f" by {self.server}" if self.server else ""
        return f"{self.stream}: {self.kind}{where}{who}: {self.detail}"
