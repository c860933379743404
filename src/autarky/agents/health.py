"""Health and metrics of an agent, as plain HTTP on loopback: /healthz, and the metrics on any other path.

Two of one agent may share the port (SO_REUSEPORT, same user): in a rollout the new one starts beside the old.
Whoever answers then has the lock or the lease and acts, or waits for it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

Problem = Callable[[], str | None]
NO_HOOKS: Mapping[str, Callable[[], None]] = {}


def _well() -> str | None:
    return None


def serve(port: int, problem: Problem = _well, hooks: Mapping[str, Callable[[], None]] = NO_HOOKS) -> None:
    """From now on, until the process ends. `problem` says in a sentence what is wrong, or None. `hooks`: path →
    what must return before a request of it is answered. Both are called in other threads. OSError when somebody
    else has the port."""
    metrics = make_wsgi_app()

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if path in hooks:
            hooks[path]()
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
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name is the library's
        """A probe a second is not worth a line each."""
