"""`autarky login`: fetch the state of a cluster from one of its control nodes."""

from __future__ import annotations

from collections.abc import Callable

from autarky.control.cluster_file.decide.records import Record
from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.login import CompareRecord, Fetched, KeepFile, SignAdministrators
from autarky.ports import Host


def phases(host: Host, fetched: Fetched, take: Callable[[Record], None]) -> tuple[Phase[Context], ...]:
    """host: a control node's. take: puts another record of the cluster into the context."""
    return (
        SignAdministrators(host, fetched.ca),
        CompareRecord(host.name, fetched, take),
        KeepFile(),
        WriteKubeconfig(),
    )
