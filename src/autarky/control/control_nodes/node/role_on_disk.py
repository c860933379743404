"""Whether this node is a control node, according to its own disk: known without the API, and right after a reboot.

    (no file)   as `up` made it: a control node if there are standbys, else a worker
    joining     parts of a control node are being made; it is a worker
    prepared    all parts are in place; the load balancer becomes that of a control node
    ready       it is a control node
    leaving     for the cluster it is no longer one; what runs here is being stopped
    ceasing     no part of it runs here any more; the load balancer becomes that of a worker

Contract: written durably before acting on it, so that an interruption at any point can be resumed.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path

from autarky import places
from autarky.render.node_marker import without_initial_members
from autarky.store import NOT_UNDERSTOOD, sync_directory, write_private

FILE = Path(places.CONTROL_NODE_STATE)
MARKER = Path(places.NODE_MARKER)


class State(Enum):
    JOINING = "joining"
    PREPARED = "prepared"
    READY = "ready"
    LEAVING = "leaving"
    CEASING = "ceasing"


def state() -> State | None:
    """None where there is no file, or it cannot be parsed."""
    try:
        return State(json.loads(FILE.read_text())["state"])
    except NOT_UNDERSTOOD:
        return None


def remember(new: State) -> None:
    if state() is not new:
        write_private(FILE, json.dumps({"state": new.value}).encode())


def forget() -> None:
    """A worker again. Durable on return, as the removal of all parts must be before: without this file nobody resumes
    what a power cut brings back."""
    FILE.unlink(missing_ok=True)
    sync_directory(FILE.parent)


def forget_initial_membership() -> None:
    """From now on an initial control node joins like any other: as an initial member with an empty disk it would start
    a cluster of its own. OSError."""
    try:
        content = MARKER.read_bytes()
    except FileNotFoundError:
        return
    try:
        marker = without_initial_members(content)
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
    """Whether the agent manages slots here."""
    known = state()
    return Path(places.STANDBY).is_dir() if known is None else known in (State.READY, State.LEAVING)


def balances_as_control_node() -> bool:
    """Whether the load balancer is that of a control node: listens on all addresses, and leads to etcd."""
    known = state()
    if known is None:
        return Path(places.STANDBY).is_dir()
    return known in (State.PREPARED, State.READY, State.LEAVING)


def is_unfinished() -> bool:
    """Whether the parts are being made, or removed: no other node relies on them."""
    return state() in (State.JOINING, State.PREPARED, State.CEASING)


def leaves() -> bool:
    """Whether no part of a control node may start here any more."""
    return state() in (State.LEAVING, State.CEASING)
