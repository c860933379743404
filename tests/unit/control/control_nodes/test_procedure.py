"""The table of what makes and unmakes a control node, as a whole: single rows are in test_control_nodes, sequences of
them in test_control_nodes_machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.control_nodes.decide.observed import JOINING, LEAVE, READY, Member, Node, OwnNode, Record, State
from autarky.control.control_nodes.decide.procedure import (
    BECOMES,
    LEAVES,
    OWN,
    STAYS,
    OwnStep,
    Step,
    Write,
    first,
    table,
)
from autarky.control.control_nodes.decide.roles import decide, own_row
from autarky.control.control_nodes.node.role import ControlNode

OPERATORS = (*BECOMES, *STAYS, *LEAVES)
REPORTED = st.sampled_from([None, LEAVE, f"{READY}0123", f"{JOINING}the image x is not on the node", "anything"])
RECORDS = st.none() | st.builds(Record, st.sampled_from(["uid-1", "uid-2"]), st.sampled_from(State))
MAYBE = st.sampled_from([None, False, True])


def nodes(name: str) -> st.SearchStrategy[Node]:
    fields = {"requested": st.booleans(), "active": st.booleans(), "reported": REPORTED, "ready": MAYBE, "fits": MAYBE}
    more = {"member": st.sampled_from(Member), "recorded": RECORDS, "obstacle": st.sampled_from([None, "refused"])}
    return st.builds(Node, st.just(name), st.just("uid-1"), **fields, **more)


CLUSTERS = st.tuples(nodes("n1"), nodes("n2"), nodes("n3"))
OWN_NODES = st.builds(
    OwnNode, st.booleans(), st.booleans(), REPORTED, st.sampled_from([None, f"{READY}0123"]), st.booleans()
)


@given(CLUSTERS, st.sampled_from(["", "kube-apiserver is not hosted"]))
def test_every_node_has_a_step_and_says_why(cluster, unfit):
    found = decide(cluster, unfit=unfit)
    assert set(found) == {"n1", "n2", "n3"}
    assert all(decision.sentence for decision in found.values())


@given(CLUSTERS)
def test_what_removes_the_active_label_comes_after_its_record_and_what_deletes_the_record_comes_last(cluster):
    for decision in decide(cluster).values():
        writes = decision.writes
        if Write.SAY_LEAVE in writes:
            assert writes[0] is Write.RECORD_DISMISSED
            assert writes[-1] is Write.SAY_LEAVE
        if Write.FORGET in writes:
            assert writes[-1] is Write.FORGET
        if Write.SET_ACTIVE in writes:
            assert writes[0] is Write.RECORD_CONTROL_NODE


@given(CLUSTERS)
def test_no_step_takes_the_active_label_from_the_last_that_stays(cluster):
    others = {node.name: [one for one in cluster if one is not node and one.stays] for node in cluster}
    for name, decision in decide(cluster).items():
        if Write.SAY_LEAVE in decision.writes and next(n for n in cluster if n.name == name).active:
            assert any(one.ready and one.obstacle is None for one in others[name])


@given(OWN_NODES)
def test_an_agent_removes_nothing_but_for_the_word_or_what_is_unfinished(node):
    removes = Write.REMOVE_PARTS in first(OWN, node).writes
    assert (
        removes
        == (own_row(node).step is OwnStep.CEASE)
        == ((node.reported == LEAVE or node.unfinished) and not node.requested and not node.active)
    )


def test_each_step_and_each_write_is_in_some_row():
    assert {row.step for row in OPERATORS} == set(Step)
    assert {row.step for row in OWN} == set(OwnStep)
    assert {write for row in (*OPERATORS, *OWN) for write in row.writes} == set(Write)


def test_the_last_row_of_each_part_always_applies():
    for part in (BECOMES, STAYS, LEAVES):
        assert part[-1].applies(None)
    assert OWN[-1].applies(None)


def test_each_row_is_in_the_document_with_what_it_writes():
    shown = table()
    for row in (*OPERATORS, *OWN):
        assert row.when in shown
        assert all(write.value in shown for write in row.writes)


def test_the_agent_carries_out_each_write_of_its_rows():
    agent = object.__new__(ControlNode)
    hands = {OwnStep.BECOME: agent._makes({}), OwnStep.CEASE: agent._unmakes({})}
    for row in OWN:
        if row.step in hands:
            assert list(hands[row.step]) == list(row.writes)
        else:
            assert set(row.writes) <= {Write.REPORT}
