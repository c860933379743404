"""`autarky down`: stop everything, then leave nothing behind."""

from __future__ import annotations

from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.teardown import CleanHosts, ForgetCluster, RemoveLabHosts


def phases(*, purge: bool, leave: frozenset[str] = frozenset()) -> tuple[Phase[Context], ...]:
    """purge: delete etcd data and CA keys of hosts that are not ours to remove, instead of keeping them. leave: nodes
    whose hosts are left alone."""
    return (CleanHosts(purge, leave), RemoveLabHosts(), ForgetCluster(purge=purge))
