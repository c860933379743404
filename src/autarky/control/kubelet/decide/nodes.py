"""The Nodes as `turns` decides on them: from the objects in the API. Pure.

Contract: the objects are as on the wire, and a kubelet has written most of its own: nothing is raised for any. That a
node is a control node is by a label that kubelets cannot set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autarky.control.common.pods import is_ready
from autarky.control.common.shapes import items, labels_of, mapping, text, within
from autarky.control.kubelet.decide import hosted_report, order, report, wanted
from autarky.control.kubelet.decide.order import CORDONED, Order
from autarky.control.kubelet.decide.pools import Pool, pool_of
from autarky.control.kubelet.decide.report import Report
from autarky.control.kubelet.decide.turns import Node
from autarky.control.upgrade.decide.path import kubelet_of
from autarky.render.values import CONTROL_PLANE_ACTIVE, canonical_text

MOST_AHEAD = 10**4
"""By so many orders a node may report to be ahead of the operator. Only one that lies is by more: its numbers would
soon be higher than any can be."""
MOST_OF_TARGET = order.MOST_LETTERS - 4096
"""Letters; the rest of an order has less than that."""
NO_BASE = "its agent does not say that the node can change its kubelet: run `autarky up`"


@dataclass(frozen=True, slots=True)
class Around:
    """plane: valid. away, serving: names of nodes; serving: control nodes that serve."""

    plane: Mapping[str, Any]
    pools: Sequence[Pool]
    away: Collection[str] = ()
    serving: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """said: node → why its kubelet stays as it is, or does not get what was asked for."""

    nodes: tuple[Node, ...]
    said: Mapping[str, str]


def found(objects: Iterable[Mapping[str, Any]], around: Around) -> Found:
    """In the order of their names. Nothing is known of any node while there are no pools."""
    nodes, said = [], dict[str, str]()
    for obj in sorted(objects, key=lambda one: text(within(one, "metadata", "name"))):
        pool = pool_of(around.pools, labels_of(obj), control=CONTROL_PLANE_ACTIVE in labels_of(obj))
        if pool is not None:
            node, sentence = _with_wanted(_node(obj, pool, around), obj, around)
            nodes.append(node)
            said |= {node.name: sentence} if sentence else {}
    return Found(tuple(nodes), said)


def _node(obj: Mapping[str, Any], pool: Pool, around: Around) -> Node:
    name, metadata = text(within(obj, "metadata", "name")), mapping(obj.get("metadata"))
    cordoned = text(mapping(metadata.get("annotations")).get(CORDONED))
    unschedulable = within(obj, "spec", "unschedulable") is True
    given = order.read(metadata)
    return Node(
        name=name,
        pool=pool,
        control=pool.control,
        ready=is_ready(dict(obj)),
        away=name in around.away,
        serves=name in around.serving if pool.control else None,
        runs=kubelet_of(obj),
        order=given,
        report=_believed(report.read(metadata), given),
        takes_pods=not _is_tainted(obj) and (not unschedulable or bool(cordoned)),
        unschedulable=unschedulable,
        cordoned=cordoned,
        hosted=hosted_report.read(metadata),
        turn=hosted_report.turn_of(metadata),
    )


def _believed(said: Report | None, given: Order | None) -> Report | None:
    most = MOST_AHEAD + (0 if given is None else given.number)
    return said if said is not None and said.number <= most else None


def _with_wanted(node: Node, obj: Mapping[str, Any], around: Around) -> tuple[Node, str]:
    highest = max(node.versions, default=None)
    asked = wanted.version(around.plane, node.pool, wanted.pin_of(mapping(obj.get("metadata"))), highest)
    if asked.version is None:
        return node, asked.sentence
    if not (base := _base_of(node)):
        return node, NO_BASE
    target = wanted.target(around.plane, node.pool, asked.version, base=base)
    if len(canonical_text(target.written())) > MOST_OF_TARGET:
        return node, "its pool's configuration and spec.componentArguments.kubelet are too large for an order"
    return replace(node, wanted=target), asked.sentence


def _base_of(node: Node) -> str:
    """As it reports it, or, where its report is missing, as it did when it got its order."""
    if node.report is not None:
        return node.report.base
    return "" if node.order is None else node.order.target.base


def _is_tainted(obj: Mapping[str, Any]) -> bool:
    """By a person. Taints of Kubernetes' own come and go with the state of the node."""
    taints = [mapping(one) for one in items(within(obj, "spec", "taints"))]
    keeps_away = [one for one in taints if one.get("effect") in ("NoSchedule", "NoExecute")]
    return any(not text(one.get("key")).startswith("node.kubernetes.io/") for one in keeps_away)
