"""Processes of a host that are killed, and are seen to be gone: else what follows may hold of those that lived on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

GONE_SECONDS = 30.0
"""Until whoever started them has taken note."""


class Hosts(Protocol):
    """A TestCluster."""

    def shell(self, host: str, command: str, /) -> str: ...

    def wait(self, what: str, condition: Callable[[], object], seconds: float, /) -> None: ...


def kill(cluster: Hosts, host: str, look: str) -> frozenset[str]:
    """SIGKILL to all processes that the shell command `look` lists ("pgrep -x etcd"); their ids. Fails where there is
    none."""
    found = killed(cluster, host, look)
    assert found, f"on {host} there was nothing to kill: {look}"
    return found


def killed(cluster: Hosts, host: str, look: str) -> frozenset[str]:
    """The same where there may be none: then it is empty."""
    kill_them = f'pids=$({look}); [ -z "$pids" ] || kill -KILL $pids; echo $pids'
    pids = cluster.shell(host, kill_them).split()
    those_left = f"for p in {' '.join(pids)}; do [ ! -d /proc/$p ] || echo $p; done"
    if pids:
        cluster.wait(f"{pids} of {host} are gone", lambda: not cluster.shell(host, those_left).split(), GONE_SECONDS)
    return frozenset(pids)
