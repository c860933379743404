"""`autarky node remove`: take a node out of the cluster, in a safe order."""

from __future__ import annotations

from collections.abc import Callable

from autarky.engine.phase import Phase
from autarky.model.cluster import Node
from autarky.phases.clean_node import CleanNode
from autarky.phases.context import Context
from autarky.phases.distrust import DistrustNode
from autarky.phases.record import KeepRecord
from autarky.phases.removal import CheckRemoval, DrainNode, ForgetNode, TakeLabelAway, TakeOutOfTheFile


def phases(
    node: Node, *, dead: bool, drain: bool, purge: bool, write: Callable[[], None] | None
) -> tuple[Phase[Context], ...]:
    """dead: the machine is gone, and its host is not touched. drain: its pods are evicted first. purge: etcd data and
    CA keys on its host are deleted instead of kept. write: takes the node out of the file that autarky keeps."""
    return (
        CheckRemoval(node, dead=dead),
        TakeOutOfTheFile(node, write),
        DistrustNode(node),
        KeepRecord(node),
        DrainNode(node, evict=drain),
        TakeLabelAway(node),
        CleanNode(node, purge=purge, dead=dead),
        ForgetNode(node),
    )
