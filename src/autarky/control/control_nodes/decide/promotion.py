"""What is missing until a labelled node is a control node, in the order in which it comes.

Contract: pure. The wish label is the user's (or ours, from the file); the rest is done by the operator and the node
agent, and this only says how far they have come.
"""

from __future__ import annotations

from dataclasses import dataclass

JOINED = "Member"
PREPARED = "autarky.dev/control-node"
"""Annotation by which a node's agent says that everything of a control node is in place."""


@dataclass(frozen=True, slots=True)
class Seen:
    """requested, prepared, active: the wish label, the agent's annotation, the operator's label. serves: whether the
    node's hosted API server is Ready; None where API servers are not hosted. member: the phase of its EtcdMember, ""
    while there is none, None where it gets none. message: what the EtcdMember's status says beside that."""

    requested: bool
    prepared: bool
    active: bool
    serves: bool | None
    member: str | None
    message: str = ""


def missing(node: str, seen: Seen) -> str | None:
    """One sentence, or None: it is a control node."""
    return next((sentence for done, sentence in _steps(node, seen) if not done), None)


def come(seen: Seen) -> tuple[int, str | None]:
    """How far it is: how many steps are done, and the phase of its member. What a wait takes for progress, so without
    anybody's words."""
    return sum(done for done, _ in _steps("", seen)), seen.member


def _steps(node: str, seen: Seen) -> tuple[tuple[bool, str], ...]:
    """(whether it is done, what to say where it is not)."""
    log = "kubectl -n kube-system logs deploy/autarky-operator"
    member = f"the EtcdMember {node} is {seen.member}{f': {seen.message}' if seen.message else ''}"
    return (
        (seen.requested, f"{node} does not carry the label of a control node"),
        (seen.prepared, f"the node agent of {node} has not prepared it (then its annotation {PREPARED} says so)"),
        (seen.active, f"the operator has not made {node} a control node ({log})"),
        (seen.serves is not False, f"the API server of {node} is not Ready"),
        (seen.member != "", f"there is no EtcdMember {node} yet"),
        (seen.member in (None, "", JOINED), member),
    )
