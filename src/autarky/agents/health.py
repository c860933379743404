"""Health and metrics of an agent, as plain HTTP on loopback: /healthz, hooks, and the metrics on any other path.

Two of one agent may share the port (SO_REUSEPORT, same user): in a rollout the new one starts beside the old.
Whoever answers then has the lock or the lease and acts, or waits for it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

SILENCE_SECONDS = 10.0
"""A connection that says nothing for so long is closed: any user of the host may open one."""
Problem = Callable[[], str | None]
Hook = Callable[[], None]
HookOf = Callable[[str], Hook | None]
"""Path → what must return before a request of it is answered; None where the path is no hook."""


def _well() -> str | None:
    return None


def _no_hook(_path: str) -> Hook | None:
    return None


def serve(port: int, problem: Problem = _well, hook_of: HookOf = _no_hook) -> None:
    """From now on, until the process ends. `problem` says in a sentence what is wrong, or None. Both are called in
    other threads, and so are hooks. OSError when somebody else has the port.

    Danger: any pod may have its kubelet ask here, by a probe. A hook that does something has a path that nobody else
    knows."""
    metrics = make_wsgi_app()

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        hook = hook_of(path)
        if hook is not None:
            hook()
            start("200 OK", [("Content-Type", "text/plain")])
            return [b"ok\n"]
        if path != "/healthz":
            answered: Iterable[bytes] = metrics(environment, start)
            return answered
        found = problem()
        start("200 OK" if found is None else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [f"{found or 'ok'}\n".encode()]

    server = make_server("127.0.0.1", port, answer, _Server, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


class _Quiet(WSGIRequestHandler):
    timeout = SILENCE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name is the library's
        """A probe a second is not worth a line each."""
