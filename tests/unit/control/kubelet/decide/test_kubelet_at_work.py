"""What keeps a control node's kubelet as it is for the moment."""

from __future__ import annotations

import pytest

from autarky.control.control_nodes.decide.procedure import Decision, Step
from autarky.control.kubelet.decide.at_work import clause
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.status.decide import EtcdMembers, Unseen
from autarky.model.components import API_SERVER, COREDNS, KUBE_PROXY, SCHEDULER


def test_where_nothing_is_at_work_nothing_is_said():
    for etcd in (None, EtcdMembers(3)):
        assert clause(etcd, {"n1": Decision(Step.NOTHING, "")}, {API_SERVER: (Verdict.HEALTHY, "")}) == ""


def test_changes_of_etcd_are_and_so_is_an_etcd_that_cannot_be_seen():
    assert clause(EtcdMembers(3, changing=("n1 is Joining",)), {}, {}) == "etcd's members are changing: n1 is Joining"
    assert clause(Unseen("no look"), {}, {}) == "etcd's members cannot be seen: no look"


def test_a_member_that_only_does_not_answer_is_not():
    """Else no kubelet of a control node would change, nor go back, while another one is off."""
    assert clause(EtcdMembers(3, ("n3 is Member: it does not answer",)), {}, {}) == ""


@pytest.mark.parametrize("step", Step)
def test_a_node_that_becomes_a_control_node_or_a_worker_is(step):
    """One that is refused, or settled, may stay so forever."""
    settled = step in (Step.NOTHING, Step.REFUSE, Step.REMEMBER, Step.RESTORE, Step.FORGET)
    assert bool(clause(None, {"n1": Decision(step, "")}, {})) is not settled


@pytest.mark.parametrize(
    ("component", "counts"), [(API_SERVER, True), (SCHEDULER, True), (KUBE_PROXY, False), (COREDNS, False)]
)
def test_so_is_a_rollout_on_trial_that_no_worker_can_hold_up(component, counts):
    assert bool(clause(None, {}, {component: (Verdict.WAIT, "")})) is counts
    assert clause(None, {}, {component: (Verdict.FAILED, "")}) == ""
