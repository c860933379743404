"""Which nodes become control nodes and which stop being ones: by a label, in a safe order. Pure.

Becoming one:  requested → permissions are granted → the agent prepares the node → active.
Ceasing:       not requested → its etcd member is removed → `leave` replaces the active label, in one write → the agent
               removes everything and its annotation → the permissions and the record are deleted.

`procedure` has each step of it, and the rules that they keep, in whatever order observations, failures and crashes
come. `decide` looks at all nodes together and gives each its next step; carrying one out again is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from autarky.control.control_nodes.decide import procedure
from autarky.control.control_nodes.decide.observed import Node, OwnNode, Situation
from autarky.control.control_nodes.decide.procedure import Decision, OwnStep, Row, Step, first


def decide(nodes: Iterable[Node], *, unfit: str = "") -> dict[str, Decision]:
    """Node name → its next step. `unfit`: why no node can become a control node now; empty when one can.

    Of several that should leave, first comes one whose member is gone already, then one that is down: as long as it is
    a member, those of the others may be needed.
    """
    all_of_them = sorted(nodes, key=lambda node: (node.member.exists, node.ready is True, node.name))
    staying, someone_leaves = tuple(node for node in all_of_them if node.stays), False
    decisions: dict[str, Decision] = {}
    for node in all_of_them:
        others = tuple(one for one in staying if one.name != node.name) if node.stays else staying
        decision = decisions[node.name] = _one(Situation(node, others, unfit, someone_leaves))
        someone_leaves = someone_leaves or decision.step in (Step.REMOVE_MEMBER, Step.DISMISS)
    return decisions


def _one(seen: Situation) -> Decision:
    row = first(procedure.rows(seen.node), seen)
    return Decision(row.step, row.sentence(seen), row.writes)


def asked_whether_they_serve(nodes: Iterable[Node]) -> frozenset[str]:
    """The nodes whose API servers must be asked now: those that stay and are Ready, while another one should leave."""
    all_of_them = list(nodes)
    if not any(node.is_to_go for node in all_of_them):
        return frozenset()
    return frozenset(node.name for node in all_of_them if node.stays and node.ready)


def forgotten(recorded: Iterable[str], live: Collection[str], inventory: Collection[str]) -> frozenset[str]:
    """The recorded nodes that have no Node object and may not join again either: they will not come back."""
    return frozenset(name for name in recorded if name not in live and name not in inventory)


def own_row(node: OwnNode) -> Row[OwnNode, OwnStep]:
    """What the node's own agent does next."""
    return first(procedure.OWN, node)
