"""Asks single API servers directly whether they are ready.

Contract: no credentials are sent to them. The server must have a certificate of the cluster's CA for the name that all
API servers have and nothing else gets: a kubelet's serving certificate does not pass.
"""

from __future__ import annotations

from collections.abc import Callable

from autarky.control.api_server.manifests import READY_PATH
from autarky.control.control_nodes.observe import ANSWER_SECONDS
from autarky.kube import KubeClient

NAME = "kubernetes.default.svc"


class ApiServers:
    """ca: reads the CA's certificate; OSError where it cannot. One client per question: they are rare."""

    def __init__(self, ca: Callable[[], bytes]) -> None:
        self._ca = ca

    async def ask(self, url: str) -> str | None:
        """None if the server at this URL is ready, else what was seen."""
        try:
            client = KubeClient([url], ca_pem=self._ca(), server_name=NAME, timeout=ANSWER_SECONDS)
        except OSError as error:
            return f"the CA cannot be read: {error.strerror}"
        try:
            return await client.healthy(READY_PATH, timeout=ANSWER_SECONDS)
        finally:
            await client.close()
