"""Health and metrics of an agent, as plain HTTP on loopback: any path answers with the metrics.

Whoever answers has the lock or the lease and acts; an agent that hangs is ended by its own watchdog.
"""

from __future__ import annotations

from prometheus_client import start_http_server


def serve(port: int) -> None:
    """From now on, until the process ends. OSError when the port is taken."""
    start_http_server(port, addr="127.0.0.1")
