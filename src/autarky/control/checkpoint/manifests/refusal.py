"""The rules by which a pod is refused as a standby. A refused checkpoint changes nothing: the existing one stays."""

from __future__ import annotations

from enum import Enum

from autarky.errors import Refused


class Rule(Enum):
    """What holds for every standby; the value is the sentence that a refusal shows."""

    SELF_CONTAINED = "a standby needs nothing but the disk of its node"
    """The kubelet runs no static pod that refers to API objects (PreventStaticPodAPIReferences)."""
    COMPLETE = "a checkpoint is complete or absent"
    UNDISCLOSED = "only root can read secrets"
    """Safety rule 7: the kubelet publishes a static pod, its environment included, as a mirror pod."""
    SAME_FILES = "what one slot writes, the other can use"
    OWN_PORT = "both slots of a component can run side by side"


def refused(rule: Rule, field: str, seen: str, fix: str) -> Refused:
    """`field` is the path in the pod, `fix` one imperative sentence. Neither ever holds a secret."""
    return Refused(rule.value, f"{field}: {seen}; the existing checkpoint stays", fix)
