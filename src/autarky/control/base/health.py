"""Health and metrics of an agent, as plain HTTP on loopback: /healthz, hooks, and metrics on any other path.

Two processes of one agent may share the port (SO_REUSEPORT, same user): in a rollout the new one starts beside the
old. Either may answer: the one that holds the lock or lease and acts, or the one that waits for it. Where that would
let a process that hangs pass for ready, probes have an address of their own.

Danger: any user of the host may connect here, or take the port while no agent has it. Neither may keep the agent from
its work: the number of connections and the time of each request are limited, and a port in use is retried in the
background.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

from autarky.ports import Clock

SILENCE_SECONDS = 10.0
"""A connection without a complete request by then is closed."""
MOST_CONNECTIONS = 64
"""At the same time. One more closes the connection that has been sending its request for longest: a probe sends its
request at once."""
RETRY_SECONDS = 5.0
SHARED = "127.0.0.1"
PORT_TAKEN = "PortTaken"
"""The reason of an event."""
Problem = Callable[[], str | None]
Hook = Callable[[], None]
HookOf = Callable[[str], Hook | None]
"""Path → what must return before a request for it is answered; None where the path is not a hook."""


def _well() -> str | None:
    return None


def _no_hook(_path: str) -> Hook | None:
    return None


def _to_nobody(_subject: str, _sentence: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Answering:
    """Run it as a task. `problem` says what is wrong in a sentence, or None. It and hooks are called in other threads.

    `tell(subject, sentence)` and `happened(reason, sentence)` are called when another process has the port. own: one
    more loopback address, which processes of other revisions do not share.

    Danger: any pod may make its kubelet send requests here, by a probe. A hook with an effect needs a secret path.
    """

    port: int
    clock: Clock
    problem: Problem = _well
    hook_of: HookOf = _no_hook
    tell: Callable[[str, str], None] = _to_nobody
    happened: Callable[[str, str], None] = _to_nobody
    own: str = ""

    async def run(self) -> None:
        """Return when it listens everywhere. From then on threads answer until the process exits."""
        waiting, said = [address for address in (self.own, SHARED) if address], dict[str, str]()
        while waiting := [address for address in waiting if not self._listens(address, said)]:
            await self.clock.sleep(RETRY_SECONDS)

    def _listens(self, address: str, said: dict[str, str]) -> bool:
        """Whether it does now. said: address → why it did not before."""
        trouble, before = self._begin(address), said.get(address)
        if trouble is None:
            if before is not None:
                self.tell("health port", f"this agent listens on {address}:{self.port} now")
            return True
        sentence = f"{address}:{self.port} is not available, trying again: {trouble}"
        if before is None:
            self.happened(PORT_TAKEN, sentence)
        if sentence != before:
            self.tell("health port", sentence)
        said[address] = sentence
        return False

    def _begin(self, address: str) -> str | None:
        """Start to listen. Returns None, or why that is not possible."""
        try:
            server = make_server(address, self.port, self._answer(), _Server, handler_class=_Quiet)
        except OSError as error:
            return error.strerror or str(error)
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        return None

    def _answer(self) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
        metrics = make_wsgi_app()

        def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            path = environment.get("PATH_INFO", "")
            hook = self.hook_of(path)
            if hook is not None:
                hook()
                start("200 OK", [("Content-Type", "text/plain")])
                return [b"ok\n"]
            if path != "/healthz":
                answered: Iterable[bytes] = metrics(environment, start)
                return answered
            found = self.problem()
            start("200 OK" if found is None else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [f"{found or 'ok'}\n".encode()]

        return answer


class _Server(ThreadingMixIn, WSGIServer):
    """One thread per connection. Some of the open ones are still sending their request (`_asking`)."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._asking: dict[socket.socket, float] = {}
        """Connection → its deadline (monotonic seconds); the oldest first."""
        super().__init__(*arguments)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._open) >= MOST_CONNECTIONS
            slowest = next(iter(self._asking), None) if full else None
            self._open.add(request)
            self._asking[request] = time.monotonic() + SILENCE_SECONDS
        if slowest is not None:
            self._cut(slowest)
        elif full:  # all of them are being answered
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [one for one, until in self._asking.items() if until <= now]
        for one in late:
            self._cut(one)

    def has_asked(self, request: socket.socket) -> bool:
        """Its request is complete, so it is not closed any more; False when it has been closed already."""
        with self._lock:
            return self._asking.pop(request, None) is not None

    def _cut(self, request: socket.socket) -> None:
        """Its thread, which waits for data, sees the end of the connection and closes it."""
        with self._lock:
            self._asking.pop(request, None)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
            self._asking.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects before its answer is not worth a log line."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Quiet(WSGIRequestHandler):
    server: _Server
    timeout = SILENCE_SECONDS

    def get_environ(self) -> WSGIEnvironment:
        """Called when the request is complete, or the connection was closed in the middle of its headers."""
        if not self.server.has_asked(self.connection):
            raise ConnectionAbortedError
        return super().get_environ()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name is the library's
        """Probes come every second: not logged."""
