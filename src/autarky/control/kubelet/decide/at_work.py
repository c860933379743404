"""What is at work on the control plane, so that no kubelet of a control node changes meanwhile. Pure.

Contract: what workers can hold up is left out: kube-proxy and add-ons on trial. So is what stays as it is until a
person acts, such as a node that is refused as a control node, and a member of etcd that does not answer: whether enough
others serve is asked of the nodes (`standing`).
"""

from __future__ import annotations

from collections.abc import Mapping

from autarky.control.common.shapes import some
from autarky.control.control_nodes.decide.procedure import Decision, Step
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.status.decide import EtcdMembers, Unseen
from autarky.model.components import WITH_STANDBY

_UNDER_WAY = (Step.WAIT, Step.GRANT, Step.REMOVE_MEMBER, Step.DISMISS, Step.MARK)


def clause(
    etcd: EtcdMembers | Unseen | None,
    control_nodes: Mapping[str, Decision],
    verdicts: Mapping[str, tuple[Verdict, str]],
) -> str:
    """etcd: None where nobody describes its members. control_nodes: by node. verdicts: by component. Empty where
    nothing is at work."""
    if isinstance(etcd, Unseen):
        return f"etcd's members cannot be seen: {etcd.why}"
    if etcd is not None and etcd.changing:
        return f"etcd's members are changing: {etcd.changing[0]}"
    if changing := [name for name, one in control_nodes.items() if one.step in _UNDER_WAY]:
        return f"{some(changing)} is becoming a control node, or a worker"
    on_trial = [name for name, (verdict, _) in verdicts.items() if verdict is Verdict.WAIT and name in WITH_STANDBY]
    return f"a new revision of {some(on_trial)} is on trial" if on_trial else ""
