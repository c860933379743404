"""Which API server is at the other end of a connection.

Behind a TCP load balancer, neither the address nor the certificate identifies it: all servers of a cluster share
both, and the headers of an answer are the same from each. What does is the start time of the process with
its version, from `/statusz` (on by default since Kubernetes 1.36), asked on the very connection in question:
then there is no doubt who held it. `/metrics` has a start time too, in a megabyte of text. Where `/statusz`
is not served, `/version` at least tells an old release from a new one.

Contract: this never takes part in what is measured. It is asked after an answer was judged, has a short time
limit of its own, and if it fails, nothing is known and nothing has failed.
"""

from __future__ import annotations

import asyncio

from autarky.probe.http import JSON, Connection, Request
from autarky.probe.outcome import Fault

PATIENCE = 1.0
"""Seconds."""
_VERSIONS = ("v1", "v1beta1", "v1alpha1")
_STATUSZ = Request(
    "GET", "/statusz", accept=",".join(f"{JSON};v={version};g=config.k8s.io;as=Statusz" for version in _VERSIONS)
)
_VERSION = Request("GET", "/version")


_SINCE = " since "


def is_one_process(server: str) -> bool:
    """Whether the result of `identify` belongs to one process only, and not to all of a version."""
    return _SINCE in server


async def identify(connection: Connection) -> str:
    """ "v1.36.4 since 2026-11-21T06:26:57Z", "v1.35.4" if the start time is not reported, or "". Never raises.

    The answer is remembered with the connection. One that fails while it is asked is closed.
    """
    if connection.server or not connection.usable:
        return connection.server
    try:
        connection.server = await _asked(connection)
    except Fault:
        connection.close()
    return connection.server


async def _asked(connection: Connection) -> str:
    until = asyncio.get_running_loop().time() + PATIENCE
    answer = await connection.exchange(_STATUSZ, until=until)
    status = answer.object() if answer.ok else {}
    if status.get("binaryVersion") and status.get("startTime"):
        return f"v{status['binaryVersion']}{_SINCE}{status['startTime']}"
    if not connection.usable:
        return ""
    answer = await connection.exchange(_VERSION, until=until)
    return str(answer.object().get("gitVersion", "")) if answer.ok else ""
