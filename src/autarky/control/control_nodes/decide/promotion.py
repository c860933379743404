"""What is missing until a labelled node is a control node, in the order of the steps.

Contract: pure. The requested label comes from the user (or from us, from the file); the operator and the node agent do
the rest, and this only says how far they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.control_nodes.decide.observed import ANNOTATION

JOINED = "Member"


@dataclass(frozen=True, slots=True)
class Seen:
    """requested, prepared, active: the requested label, the agent's annotation, the active label. serves: whether the
    node's hosted API server is Ready; None where API servers are not hosted. member: the phase of its EtcdMember, ""
    while there is none, None where it gets none. message: the message of the EtcdMember's status."""

    requested: bool
    prepared: bool
    active: bool
    serves: bool | None
    member: str | None
    message: str = ""


def missing(node: str, seen: Seen) -> str | None:
    """One sentence; None: it is a control node."""
    return next((sentence for done, sentence in _steps(node, seen) if not done), None)


def come(seen: Seen) -> tuple[int, str | None]:
    """How far it is: how many steps are done, and the phase of its member. A wait takes changes of this for progress,
    so it has no messages."""
    return sum(done for done, _ in _steps("", seen)), seen.member


def _steps(node: str, seen: Seen) -> tuple[tuple[bool, str], ...]:
    """(whether it is done, what to say where it is not)."""
    log = "kubectl -n kube-system logs deploy/autarky-operator"
    member = f"the EtcdMember {node} is {seen.member}{f': {seen.message}' if seen.message else ''}"
    return (
        (seen.requested, f"{node} does not carry the label of a control node"),
        (seen.prepared, f"the node agent of {node} has not prepared it (then its annotation {ANNOTATION} says so)"),
        (seen.active, f"the operator has not made {node} a control node ({log})"),
        (seen.serves is not False, f"the API server of {node} is not Ready"),
        (seen.member != "", f"there is no EtcdMember {node} yet"),
        (seen.member in (None, "", JOINED), member),
    )
