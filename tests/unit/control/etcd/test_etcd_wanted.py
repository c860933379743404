from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.control_nodes.decide.procedure import Step
from autarky.control.etcd.decide.wanted import (
    ControlNode,
    Existing,
    InForce,
    Standing,
    Wanted,
    Write,
    even_count,
    guard_budget,
    standing,
    wanted,
)

ALL = InForce(None)


def node(number: int, how: Standing = Standing.STAYS) -> ControlNode:
    return ControlNode(f"n{number}", f"10.0.0.{number}", how)


def member(
    number: int, *, present: bool = True, idea: bool | None = True, gone: bool = False, blocked: bool = False
) -> Existing:
    return Existing(f"n{number}", present, idea, gone, blocked)


THREE_NODES = [node(1), node(2), node(3)]
THREE = [member(1), member(2), member(3)]


def found(nodes: list[ControlNode], objects: list[Existing], asked: list[str] | None = None) -> Wanted:
    return wanted(nodes, objects, asked, ALL)


def created(result: Wanted) -> list[str]:
    return [write.name for write in result.writes if write.create]


def asked_to_go(result: Wanted) -> list[str]:
    return [write.name for write in result.writes if write.present is False]


def test_every_control_node_gets_a_member() -> None:
    assert created(found([node(2), node(1), node(3)], [])) == ["n1", "n2", "n3"]


def test_at_most_five_get_one_and_those_that_have_one_keep_it() -> None:
    nodes = [node(number) for number in range(1, 8)]
    assert created(found(nodes, [])) == ["n1", "n2", "n3", "n4", "n5"]
    assert created(found(nodes, [member(7)])) == ["n1", "n2", "n3", "n4"]


def test_seven_that_a_list_named_stay_when_the_list_goes() -> None:
    seven = [node(number) for number in range(1, 8)], [member(number) for number in range(1, 8)]
    assert found(*seven).writes == ()


# --- the list ----------------------------------------------------------------------------------------


def test_a_list_of_names_says_which_nodes_have_one() -> None:
    result = found(THREE_NODES, [member(1), member(3)], ["n1", "n2"])
    assert created(result) == ["n2"]
    assert [write.name for write in result.writes] == ["n2"], "n3 goes when n2 votes"
    result = found(THREE_NODES, [member(1), member(2), member(3)], ["n1", "n2"])
    assert created(result) == []
    assert Write("n3", idea=False, present=False) in result.writes
    assert result.in_force == InForce(("n1", "n2"))


def test_a_name_that_is_no_control_node_is_refused_with_the_near_one_and_nothing_changes() -> None:
    result = found(THREE_NODES, THREE, ["n1", "n9"])
    assert result.writes == ()
    assert "n9 is no control node (did you mean n" in result.refused
    assert "n1, n2, n3" in result.refused
    assert result.in_force == ALL


def test_the_list_before_stays_in_force_while_a_new_one_is_refused() -> None:
    before = InForce(("n1", "n2"))
    result = wanted([*THREE_NODES, node(4)], [member(1), member(2)], ["n1", "worker-1"], before)
    assert result.writes == ()
    assert result.in_force == before
    assert "the previous list stays in force: n1, n2" in result.refused


def test_where_no_list_was_followed_before_a_refused_one_leaves_the_members_as_they_are() -> None:
    result = wanted([*THREE_NODES, node(4)], THREE, ["n1", "n9"], None)
    assert (result.writes, result.in_force) == ((), None)


def test_a_list_that_was_good_stays_good_when_one_of_its_nodes_goes() -> None:
    before = InForce(("n1", "n2", "n3"))
    result = wanted([node(1), node(2)], [member(1), member(2)], ["n3", "n1", "n2"], before)
    assert (result.writes, result.refused) == ((), "")


def test_of_several_that_a_list_does_not_name_one_goes_at_a_time() -> None:
    assert asked_to_go(found(THREE_NODES, THREE, ["n3"])) == ["n1"]
    on_its_way = [member(1, present=False, idea=False), member(2), member(3)]
    assert asked_to_go(found(THREE_NODES, on_its_way, ["n3"])) == []
    confirmed = [member(1, present=False, idea=False, gone=True), member(2), member(3)]
    assert asked_to_go(found(THREE_NODES, confirmed, ["n3"])) == ["n2"]


# --- the label ---------------------------------------------------------------------------------------


def test_what_a_user_sets_stands_until_the_operators_own_idea_changes() -> None:
    by_user = member(2, present=False)
    assert found([node(1), node(2)], [member(1), by_user]).writes == ()
    leaves = found([node(1), node(2, Standing.LEAVES)], [member(1), by_user])
    assert leaves.writes == (Write("n2", idea=False, present=None),)
    label_back = found([node(1), node(2)], [member(1), member(2, present=False, idea=False, gone=True)])
    assert label_back.writes == (Write("n2", idea=True, present=True),)


def test_a_member_goes_by_the_decision_that_lets_its_node_go() -> None:
    result = found([node(1), node(2, Standing.LEAVES)], [member(1), member(2)])
    assert result.writes == (Write("n2", idea=False, present=False),)


def test_a_label_that_is_gone_from_a_node_that_is_not_to_leave_removes_nothing() -> None:
    held = [node(number, Standing.HELD) for number in (1, 2, 3)]
    assert found(held, THREE).writes == ()


@pytest.mark.parametrize("step", [Step.REFUSE, Step.RESTORE])
def test_a_node_that_is_refused_to_leave_stays_and_its_deleted_etcdmember_is_created_again(step: Step) -> None:
    assert standing(step, requested=False) is Standing.STAYS
    assert created(found([node(1, standing(step, requested=False))], [])) == ["n1"]


def test_only_the_decision_to_remove_its_member_makes_a_node_leave() -> None:
    leaving = [step for step in (None, *Step) if standing(step, requested=False) is Standing.LEAVES]
    assert leaving == [Step.REMOVE_MEMBER]
    assert {standing(step, requested=True) for step in (None, *Step)} == {Standing.STAYS}


def test_a_removal_goes_on_while_it_is_not_decided_again() -> None:
    on_its_way = [member(1), member(2, present=False, idea=False)]
    assert found([node(1), node(2, Standing.HELD)], on_its_way).writes == ()


def test_a_node_that_leaves_goes_though_its_etcdmember_was_deleted_or_said_member_again() -> None:
    nodes = [node(1), node(2, Standing.LEAVES)]
    [write] = found(nodes, [member(1)]).writes
    assert (write.name, write.create, write.present) == ("n2", True, False)
    assert asked_to_go(found(nodes, [member(1), member(2, idea=False)])) == ["n2"]


def test_a_list_takes_nobody_away_before_all_that_it_names_vote():
    """They may be off, or etcd cannot start there: three members would become one."""
    nodes = [ControlNode(f"n{number}", f"10.0.0.{number}", Standing.STAYS) for number in range(1, 7)]
    there = [Existing(f"n{number}", True, True) for number in (1, 2, 3)]
    joining = [Existing(f"n{number}", True, True, votes=False) for number in (4, 5, 6)]
    chosen = ["n4", "n5", "n6"]
    for objects in (there, [*there, *joining], [*there, *joining[1:], replace(joining[0], votes=True)]):
        found = wanted(nodes, objects, chosen, None)
        assert [write.name for write in found.writes if write.present is False] == []
    voting = [replace(one, votes=True) for one in joining]
    found = wanted(nodes, [*there, *voting], chosen, None)
    assert [write.name for write in found.writes if write.present is False] == ["n1"]
    leaving = [replace(nodes[0], standing=Standing.LEAVES), *nodes[1:]]
    found = wanted(leaving, [*there, *joining], chosen, None)
    assert [write.name for write in found.writes if write.present is False] == ["n1"], "its node leaves"


def test_a_removal_that_is_refused_gives_way_to_a_node_that_leaves() -> None:
    nodes = [node(1), node(2), node(3, Standing.LEAVES)]
    blocked = [member(1), member(2, present=False, idea=False, blocked=True), member(3)]
    first = found(nodes, blocked, ["n1", "n3"])
    assert first.writes == (Write("n2", idea=True, present=True),)
    assert asked_to_go(found(nodes, THREE, ["n1", "n3"])) == ["n3"]


def test_the_last_that_is_wanted_is_never_asked_to_go() -> None:
    assert asked_to_go(found([node(1, Standing.LEAVES)], [member(1)])) == []
    one_left = [member(1), member(2, present=False), member(3, present=False, idea=False, gone=True)]
    assert asked_to_go(found([node(1, Standing.LEAVES), node(2), node(3)], one_left, ["n1"])) == []


def test_the_last_that_votes_is_not_asked_to_go_for_one_that_is_to_join() -> None:
    nodes = [node(2, Standing.LEAVES), node(3)]
    joining = [member(2), replace(member(3), votes=False)]
    assert asked_to_go(found(nodes, joining, ["n3"])) == []
    assert asked_to_go(found(nodes, [member(2)], ["n3"])) == []
    assert asked_to_go(found(nodes, [member(2), member(3)], ["n3"])) == ["n2"]


def test_rule_10_a_node_that_is_gone_or_no_control_node_keeps_its_member() -> None:
    assert found([node(1)], [member(1), member(2)]).writes == ()


def test_an_etcdmember_whose_work_is_done_goes_with_its_control_node() -> None:
    done = member(2, present=False, idea=False, gone=True)
    assert found([node(1)], [member(1), done]).forget == ("n2",)
    assert found([node(1), node(2, Standing.HELD)], [member(1), done]).forget == ()
    assert found([node(1)], [member(1), member(2, present=False)]).forget == ()


def test_it_stays_while_the_node_is_not_known_to_be_a_worker_again() -> None:
    """Its agent may read EtcdMembers for as long, and stops the process of its member only while the API answers."""
    done = member(2, present=False, idea=False, gone=True)
    assert wanted([node(1)], [member(1), done], None, InForce(None), {"n2"}).forget == ()
    assert wanted([node(1)], [member(1), done], None, InForce(None), {"n3"}).forget == ("n2",)


def test_an_even_count_is_warned_of() -> None:
    assert even_count(["n1"]) is None
    assert even_count([]) is None
    assert even_count(["n1", "n2", "n3"]) is None
    assert "loss of 0, as 1 would" in str(even_count(["n1", "n2"]))
    assert "loss of 1, as 3 would" in str(even_count(["n1", "n2", "n3", "n4"]))


def test_as_many_guards_may_be_away_as_members() -> None:
    assert [guard_budget(count) for count in (1, 2, 3, 4, 5)] == [0, 0, 1, 1, 2]
