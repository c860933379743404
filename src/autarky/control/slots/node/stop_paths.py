"""The paths by which the kubelet asks, before it stops a hosted API server, whether the standby serves.

Any pod can make its kubelet send requests to 127.0.0.1, by a probe. So each template has a path that cannot be guessed,
and the agent answers those of the API server's pods on its node, whichever release rendered them. They are kept in a
file that only root can read, for an agent that starts while there is no API.

Contract: `remember` is called in the agent's loop, `include` in threads of its HTTP server. While no pod is known,
the last known paths stay valid.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from autarky import places
from autarky.control.api_server.manifests import BEFORE_STOP
from autarky.control.base.health import Hook, HookOf
from autarky.model import ports
from autarky.model.components import API_SERVER
from autarky.ports import Object
from autarky.store import NOT_UNDERSTOOD, write_private

FILE = Path(places.HOST_STATE) / "stop-paths.json"


def of_pods(pods: Iterable[Object]) -> list[str]:
    """The paths in the preStop hooks of these pods of the API server."""
    containers = (one for pod in pods for one in pod["spec"]["containers"] if one["name"] == API_SERVER)
    asked = [((one.get("lifecycle") or {}).get("preStop") or {}).get("httpGet") or {} for one in containers]
    paths = {str(ask.get("path", "")) for ask in asked if ask.get("port") == ports.NODE_AGENT}
    return sorted(path for path in paths if path.startswith(BEFORE_STOP))


class StopPaths:
    """The paths that are answered now."""

    def __init__(self) -> None:
        self._known = _kept()

    def remember(self, pods: Iterable[Object]) -> None:
        paths = of_pods(pods)
        if paths and paths != self._known:
            self._known = paths
            with suppress(OSError):  # a full disk: this process still knows them
                write_private(FILE, json.dumps(paths).encode())

    def include(self, path: str) -> bool:
        """Compared in constant time."""
        return any(hmac.compare_digest(path.encode(), one.encode()) for one in self._known)

    def hook_of(self, hook: Hook) -> HookOf:
        """For the agent's HTTP server: this hook for one of the paths, none for any other."""
        return lambda path: hook if self.include(path) else None


def _kept() -> list[str]:
    try:
        found = json.loads(FILE.read_text())
    except NOT_UNDERSTOOD:
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
