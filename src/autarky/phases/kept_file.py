"""The cluster's own file, `cluster.json` in its directory: what later commands know of the cluster.

Contract: written only if nothing in it was refused and, if a cluster is known already, only if all of its hosts that
exist could be asked. A file that was refused would mislead every later command.

Another machine may apply another file. A command that uses the kept one is then refused (`records.refuse_old_file`).
For that, what was kept here before, back to the last `up` that succeeded, is remembered: after an interrupted command
the cluster may have either. Where a file says nothing, what that `up` applied takes precedence over what is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autarky.control.cluster_file.decide.records import without
from autarky.engine.phase import Change
from autarky.model.defaults import with_edition
from autarky.phases.context import Context
from autarky.render.cluster_record import portable, with_machine
from autarky.render.values import pretty_json
from autarky.store import write_private

NAME = "cluster.json"
_BEFORE = "cluster.before.json"


def changes(context: Context, *, all_seen: bool) -> list[Change]:
    """What `keep` would do. all_seen: whether every host was asked."""
    there = _there(context)
    if context.file_content in (b"", there) or (there is not None and not all_seen):
        return []
    return [Change(f"keep the cluster file as {context.directory / NAME}")]


def keep(context: Context, *, all_seen: bool) -> None:
    if changes(context, all_seen=all_seen):
        write(context.directory, context.file_content)


def write(directory: Path, content: bytes) -> None:
    """Keep this file, and remember what was kept before it."""
    old = _file(directory)
    if old is not None and pretty_json(old) != content:
        write_private(directory / _BEFORE, pretty_json([*_before(directory), portable(old)]))
    write_private(directory / NAME, content)


def take_out(directory: Path, node: str, left: bytes) -> None:
    """Keep this file, which no longer has the node. The cluster may have any file that was known, with the node or
    without it: its record of what was applied loses this one node and nothing else."""
    old = _file(directory)
    known = [*_before(directory), *([] if old is None else [portable(old)])]
    both = [*known, *(without(document, node) for document in known if isinstance(document, dict))]
    before = [document for number, document in enumerate(both) if document not in both[:number]]
    write_private(directory / _BEFORE, pretty_json(before))
    write_private(directory / NAME, left)


def take_back(directory: Path) -> None:
    """What was kept before counts again; what was kept since was never applied. Nothing is remembered where nothing was
    kept since."""
    before, now = _before(directory), _file(directory)
    if not before or now is None or not isinstance(before[-1], dict):
        return
    write_private(directory / NAME, pretty_json(with_machine(before[-1], now)))
    if before[:-1]:
        write_private(directory / _BEFORE, pretty_json(before[:-1]))
    else:
        settle(directory)


def settle(directory: Path) -> None:
    """What is kept is what was applied."""
    (directory / _BEFORE).unlink(missing_ok=True)


def is_settled(directory: Path) -> bool:
    return not (directory / _BEFORE).exists()


def known(context: Context) -> list[dict[str, Any]]:
    """The files that this machine knows the cluster by: the one to be applied, the one that is kept, those before."""
    applied = [] if context.document is None else [portable(context.document)]
    return [*applied, *kept(context.directory)]


def kept(directory: Path) -> list[dict[str, Any]]:
    """The one that is kept, and those before it."""
    found = _file(directory)
    before = [with_edition(document) for document in _before(directory) if isinstance(document, dict)]
    return [*([] if found is None else [portable(found)]), *before]


def applied(directory: Path) -> list[Any]:
    """What the cluster has as far as this machine knows, the likeliest first: what the last successful `up` applied,
    and what is kept. Neither is validated."""
    return [*_before(directory)[:1], _read(directory / NAME)]


def every(directory: Path) -> list[Any]:
    """What was applied last, what was begun since, and what is kept. None is validated."""
    return [*_before(directory), _read(directory / NAME)]


def _there(context: Context) -> bytes | None:
    try:
        return (context.directory / NAME).read_bytes()
    except FileNotFoundError:
        return None


def _file(directory: Path) -> dict[str, Any] | None:
    found = _read(directory / NAME)
    return found if isinstance(found, dict) and "spec" in found else None


def _before(directory: Path) -> list[Any]:
    found = _read(directory / _BEFORE)
    return found if isinstance(found, list) else []


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
