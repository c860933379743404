"""What a node reports of its hosted kubelet (level 0), in an annotation of its Node, and the turn that it has. Pure.

JSON, by the node's agent, written when it changes:

    {"pod": "b3f1…", "version": "v1.37.1", "state": "InForce", "why": "…"}

pod: the uid of the DaemonSet's pod that it is about. version: of the kubelet in its image, as that says itself. why:
what it waits for, or why it is not in force.

The turn is an annotation, too, which only administrators and the operator may write: the uid of the pod whose kubelet
may take over from the host's. It stays while that pod does, so that its kubelet comes back after a restart by itself.

Contract: whoever has a worker may report anything. Reading returns for any JSON, and never raises; what is returned is
short, in one line. A state that this release does not know is no report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autarky.control.common.shapes import mapping, plain
from autarky.control.kubelet.decide.fields import NOT_UNDERSTOOD, annotation, fitting, version
from autarky.model.versions import Version
from autarky.render.values import canonical_text

ANNOTATION = "autarky.dev/kubelet-hosted"
TURN = "autarky.dev/kubelet-turn"
MOST_LETTERS = 2 * 1024
POD = re.compile("[0-9a-f-]{1,64}")
"""The uid of a pod."""


class State(StrEnum):
    """The values are the words in the annotation. Only in PROVING and IN_FORCE is the node's kubelet the hosted one."""

    WAITING = "Waiting"
    """For its turn, or until something else has ended: why says which."""
    REFUSED = "Refused"
    """It may not be in force on this node, as the ControlPlane and the Node are."""
    PROVING = "Proving"
    IN_FORCE = "InForce"
    FAILED = "Failed"
    """It was tried, and the host's kubelet is in force again. This pod's is not tried any more."""

    @property
    def is_of_node(self) -> bool:
        """Whether the hosted kubelet is the node's."""
        return self in (State.PROVING, State.IN_FORCE)


@dataclass(frozen=True, slots=True)
class Report:
    """See the module's docstring."""

    pod: str
    version: Version
    state: State
    why: str = ""


def text(report: Report) -> str:
    """The annotation: the same report gives the same text."""
    said = {
        "pod": report.pod,
        "version": str(report.version),
        "state": str(report.state),
        "why": plain(report.why),
    }
    return canonical_text({key: value for key, value in said.items() if value})


def read(metadata: Mapping[str, Any]) -> Report | None:
    """What a Node's annotation reports; None where it reports nothing that can be understood. Not trusted."""
    value = annotation(metadata, ANNOTATION, MOST_LETTERS)
    if value is None:
        return None
    try:
        said = json.loads(value)
        return Report(
            fitting(POD, said["pod"]), version(said["version"]), State(said["state"]), plain(said.get("why", ""))
        )
    except NOT_UNDERSTOOD:
        return None


def turn_of(metadata: Mapping[str, Any]) -> str:
    """The uid of the pod that has its turn; empty where none has."""
    found = mapping(metadata.get("annotations")).get(TURN)
    return found if isinstance(found, str) and POD.fullmatch(found) else ""
