"""Whether this node is a control node, as its own disk says: known with no API, and right after a reboot.

    (no file)   as `up` made it: a control node where there are standbys, else a worker
    joining     parts of a control node are being made; it is a worker
    prepared    all parts are there; the load balancer is to be that of a control node
    ready       it is a control node
    leaving     it is one no more for the cluster; what runs here ends
    ceasing     nothing of it runs here any more; the load balancer is to be that of a worker

Contract: written durably before what it stands for is done, so that a cut at any point is gone on from.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path

from autarky import places
from autarky.render.node_marker import without_founders
from autarky.store import NOT_UNDERSTOOD, write_private

FILE = Path(places.CONTROL_NODE_STATE)
MARKER = Path(places.NODE_MARKER)


class State(Enum):
    JOINING = "joining"
    PREPARED = "prepared"
    READY = "ready"
    LEAVING = "leaving"
    CEASING = "ceasing"


def state() -> State | None:
    """None where the file does not say: there is none, or it cannot be understood."""
    try:
        return State(json.loads(FILE.read_text())["state"])
    except NOT_UNDERSTOOD:
        return None


def remember(new: State) -> None:
    if state() is not new:
        write_private(FILE, json.dumps({"state": new.value}).encode())


def forget() -> None:
    """A worker again. (Removing a file needs no sync: a state that comes back is gone on from.)"""
    FILE.unlink(missing_ok=True)


def forget_founding() -> None:
    """What founded the cluster joins it like any other from now on: as a founder it would begin a cluster of its own
    on its empty disk. OSError."""
    try:
        content = MARKER.read_bytes()
    except FileNotFoundError:
        return
    try:
        marker = without_founders(content)
    except NOT_UNDERSTOOD:
        return
    if marker is not None:
        write_private(MARKER, marker.content, mode=marker.mode)


def cluster() -> str | None:
    """The name of the cluster that this host belongs to; None where its marker does not say."""
    try:
        return str(json.loads(MARKER.read_text())["cluster"])
    except NOT_UNDERSTOOD:
        return None


def acts_as_control_node() -> bool:
    """Whether the agent has slots to care for here."""
    known = state()
    return Path(places.STANDBY).is_dir() if known is None else known in (State.READY, State.LEAVING)


def balances_as_control_node() -> bool:
    """Whether the load balancer is that of a control node: it listens on all addresses, and leads to etcd."""
    known = state()
    if known is None:
        return Path(places.STANDBY).is_dir()
    return known in (State.PREPARED, State.READY, State.LEAVING)


def leaves() -> bool:
    """Whether nothing of a control node is to start here any more."""
    return state() in (State.LEAVING, State.CEASING)
