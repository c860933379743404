"""`autarky login`: the state of a cluster, from one of its control nodes."""

from __future__ import annotations

from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.login import KeepFile, SignAdministrators
from autarky.ports import Host


def phases(host: Host, ca: bytes, file: bytes) -> tuple[Phase[Context], ...]:
    """host: a control node's. ca: the cluster's. file: its cluster file."""
    return (SignAdministrators(host, ca), KeepFile(file), WriteKubeconfig())
