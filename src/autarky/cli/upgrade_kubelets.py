"""What `autarky upgrade status` shows of kubelets: `status.kubelets` and a condition of the ControlPlane, and what
Nodes say of their hosted kubelets (level 0).

Contract: returns for any JSON. What nodes say is short, in one line, and of a few of them: a worker may say anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from autarky.control.common.shapes import MOST_NAMED, condition, mapping, name_of
from autarky.control.kubelet.decide import hosted, telling
from autarky.control.kubelet.decide.hosted_report import Report, State, read
from autarky.control.kubelet.decide.wanted import is_hosted
from autarky.control.status.decide import KUBELETS_CURRENT
from autarky.control.upgrade.decide.checks_of_nodes import is_control_node
from autarky.phases.hosted_kubelets import followed_version
from autarky.ports import Object
from autarky.status import kubelets

STILL_SECONDS = 60.0
"""Without a change, after which what is left is taken not to come by itself: a node that is off, or has failed."""


def are_awaited(plane: Object, nodes: Sequence[Object], still: float) -> bool:
    """Whether kubelets have yet to follow, and may. still: for how many seconds nothing has changed."""
    found = fields(plane, nodes)
    if found is None:
        return False
    if found["current"] is False and found.get("changing"):
        return True
    hosted = found.get("hosted") or {}
    left = found["current"] is False or hosted.get("inForce", 0) < hosted.get("total", 0)
    return left and still < STILL_SECONDS


def fields(plane: Object, nodes: Sequence[Object] = ()) -> dict[str, Any] | None:
    """As in the status; None where nothing is asked of kubelets. current: whether each has what is wanted of it, None
    while that is not known. hosted: how many are in force with the version that they follow to as well."""
    found = telling.read(plane)
    if found is None:
        return None
    current = {"True": True, "False": False}.get(str(condition(plane, KUBELETS_CURRENT).get("status")))
    shown = {"current": current, **telling.status(found)}
    if is_hosted(plane):
        shown["hosted"] = {**shown.get("hosted", {}), **_counted(plane, nodes)}
    return shown


def sentences(plane: Object, nodes: Sequence[Object] = ()) -> Iterator[str]:
    """A line for each pool, and for each node of which there is something to say."""
    found = telling.read(plane) or telling.Reported()
    if found.trouble:
        yield f"no kubelet is changed: {found.trouble}"
    for pool in found.pools:
        stopped = f"; stopped by {pool.stopped}" if pool.stopped else ""
        yield f"kubelets of {pool.name}: {pool.done} of {pool.total} have {', '.join(pool.wanted)}{stopped}"
    if found.changing:
        yield f"kubelets that change: {', '.join(found.changing)}"
    yield from (f"kubelet of {node} failed: {why}" for node, why in found.failed.items())
    yield from (f"kubelet of {node} waits: {why}" for node, why in found.waits.items() if node not in found.failed)
    yield from (f"kubelet of {node}: {why}" for node, why in found.said.items())
    yield from (f"kubelets: {line}" for line in telling.not_named(found))
    if is_hosted(plane):
        yield from _of_hosted(plane, nodes, found.hosted)


# --- level 0 -----------------------------------------------------------------------------------------------------


def _counted(plane: Object, nodes: Sequence[Object]) -> dict[str, Any]:
    """Without nodes that are to have another version."""
    version, said = followed_version(plane), [read(mapping(node.get("metadata"))) for node in nodes]
    if version is not None:
        may = [hosted.allowed(plane, mapping(node.get("metadata")), version).may is not False for node in nodes]
        said = [one for one, counts in zip(said, may, strict=True) if counts]
    have = [one for one in said if one is not None and one.state is State.IN_FORCE and version in (None, one.version)]
    return {"wanted": None if version is None else str(version), "inForce": len(have), "total": len(said)}


def _of_hosted(plane: Object, nodes: Sequence[Object], found: telling.Hosted) -> Iterator[str]:
    count = _counted(plane, nodes)
    version = f" with {count['wanted']}" if count["wanted"] else ""
    yield f"hosted kubelets: {count['inForce']} of {count['total']} are in force{version}"
    if found.behind:
        yield found.behind
    control_first = sorted(nodes, key=lambda node: (not is_control_node(node), name_of(node)))
    said = {name_of(node): read(mapping(node.get("metadata"))) for node in control_first}
    rest = {name: line for name, one in said.items() if (line := _line(one, found.waits.get(name, "")))}
    yield from (f"kubelet of {name}: {line}" for name, line in islice(rest.items(), MOST_NAMED))
    if len(rest) > MOST_NAMED:
        yield f"and {len(rest) - MOST_NAMED} more hosted kubelets"


def _line(said: Report | None, waits: str) -> str:
    """waits: why the operator gives it no turn, which says more than that it has none."""
    if said is not None and said.state is State.WAITING and waits:
        return f"the hosted one waits: {waits}"
    return kubelets.hosted(said, "")
