"""What the operator reports to the node agents about scheduler and controller-manager, in the ControlPlane's status.
Pure: writing and reading it.

    "controllers": {"kube-scheduler": {"candidates": [{"node": "n2", "pod": "kube-scheduler-…", "uid": "…"}],
                                       "lastGood": "3f0c…", "content": "91ab…"}, …}

candidates: the hosted pods that are Ready on Ready control nodes, to which a standby that leads gives way. A kubelet
sees only its own node's pods, so its agent can learn this from the operator only. lastGood: the template that was
healthy last; content: that of its Secrets and ConfigMaps at that time (both by `control.rollout.decide.good_revision`).

Contract: only the operator may write that status (RBAC); a kubelet influences it only by the Ready condition of its
pods. A mirror pod is no candidate, since its kubelet writes all of it; nor is a pod on a node that is no control node.
What is malformed counts as absent: then the standby stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autarky.control.common.pods import is_ready
from autarky.model.components import HOSTED, NAME_LABEL, SLOT_LABEL

Object = dict[str, Any]
FIELD = "controllers"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hosted pod that may lead."""

    node: str
    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Reported:
    """What is reported of one component. last_good, content: empty while no revision is known to be good."""

    candidates: tuple[Candidate, ...] = field(default=())
    last_good: str = ""
    content: str = ""

    def elsewhere(self, node: str) -> frozenset[str]:
        """The uids of the candidates of other nodes."""
        return frozenset(one.uid for one in self.candidates if one.node != node)


def candidates(pods: Iterable[Object], ready_control_nodes: Collection[str], component: str) -> tuple[Candidate, ...]:
    """Those among all pods of kube-system, ordered by node."""
    found = [
        Candidate(pod["spec"]["nodeName"], pod["metadata"]["name"], pod["metadata"]["uid"])
        for pod in pods
        if _is_hosted(pod, component) and pod["spec"].get("nodeName") in ready_control_nodes
        if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
    ]
    return tuple(sorted(found, key=lambda one: (one.node, one.pod)))


def _is_hosted(pod: Object, component: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    of_a_kubelet = any(owner.get("kind") == "Node" for owner in pod["metadata"].get("ownerReferences") or ())
    return labels.get(NAME_LABEL) == component and labels.get(SLOT_LABEL) == HOSTED and not of_a_kubelet


def text(reported: Mapping[str, Reported]) -> Object:
    """The field's value: the same observation gives the same text."""
    return {component: _component(one) for component, one in sorted(reported.items())}


def _component(reported: Reported) -> Object:
    listed = [{"node": one.node, "pod": one.pod, "uid": one.uid} for one in reported.candidates]
    good = {"lastGood": reported.last_good, "content": reported.content} if reported.last_good else {}
    return {"candidates": listed, **good}


def read(plane: Object | None, component: str) -> Reported:
    """What a ControlPlane reports of the component."""
    try:
        said = ((plane or {}).get("status") or {}).get(FIELD, {}).get(component, {})
        found = tuple(_candidate(one) for one in _listed(said.get("candidates")))
        return Reported(found, str(said.get("lastGood") or ""), str(said.get("content") or ""))
    except (AttributeError, KeyError, TypeError):
        return Reported()


def _listed(value: object) -> Sequence[Object]:
    return value if isinstance(value, list) else ()


def _candidate(one: Object) -> Candidate:
    return Candidate(str(one["node"]), str(one["pod"]), str(one["uid"]))
