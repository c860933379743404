from __future__ import annotations

from autarky.decide.etcd_wanted import ControlNode, Existing, Wanted, Write, even_count, guard_budget, wanted


def node(number: int, *, wished: bool = True) -> ControlNode:
    return ControlNode(f"n{number}", f"10.0.0.{number}", wished)


def member(number: int, *, present: bool = True, idea: bool | None = True, gone: bool = False) -> Existing:
    return Existing(f"n{number}", present, idea, gone)


def created(result: Wanted) -> list[str]:
    return [write.name for write in result.writes if write.create]


def test_every_control_node_gets_a_member() -> None:
    assert created(wanted([node(2), node(1), node(3)], [], None)) == ["n1", "n2", "n3"]


def test_at_most_five_get_one_and_those_that_have_one_keep_it() -> None:
    nodes = [node(number) for number in range(1, 8)]
    assert created(wanted(nodes, [], None)) == ["n1", "n2", "n3", "n4", "n5"]
    assert created(wanted(nodes, [member(7)], None)) == ["n1", "n2", "n3", "n4"]


def test_a_list_of_names_says_which_nodes_have_one() -> None:
    result = wanted([node(1), node(2), node(3)], [member(1), member(3)], ["n1", "n2"])
    assert created(result) == ["n2"]
    assert Write("n3", idea=False, present=False) in result.writes


def test_a_node_in_the_list_that_is_no_control_node_gets_none() -> None:
    assert wanted([node(1)], [member(1)], ["n1", "n9"]) == Wanted((), ())


def test_what_a_user_sets_stands_until_the_operators_own_idea_changes() -> None:
    by_user = member(2, present=False)
    assert wanted([node(1), node(2)], [member(1), by_user], None) == Wanted((), ())
    label_gone = wanted([node(1), node(2, wished=False)], [member(1), by_user], None)
    assert label_gone.writes == (Write("n2", idea=False, present=None),)
    label_back = wanted([node(1), node(2)], [member(1), member(2, present=False, idea=False)], None)
    assert label_back.writes == (Write("n2", idea=True, present=True),)


def test_the_wish_label_taken_away_removes_the_member() -> None:
    result = wanted([node(1), node(2, wished=False)], [member(1), member(2)], None)
    assert result.writes == (Write("n2", idea=False, present=False),)


def test_rule_10_a_node_that_is_gone_or_no_control_node_keeps_its_member() -> None:
    assert wanted([node(1)], [member(1), member(2)], None) == Wanted((), ())


def test_an_etcdmember_whose_work_is_done_goes_with_its_control_node() -> None:
    done = member(2, present=False, idea=False, gone=True)
    assert wanted([node(1)], [member(1), done], None).forget == ("n2",)
    assert wanted([node(1), node(2, wished=False)], [member(1), done], None).forget == ()
    assert wanted([node(1)], [member(1), member(2, present=False)], None).forget == ()


def test_an_even_count_is_warned_of() -> None:
    assert even_count(["n1"]) is None
    assert even_count([]) is None
    assert even_count(["n1", "n2", "n3"]) is None
    assert "loss of 0, as 1 would" in str(even_count(["n1", "n2"]))
    assert "loss of 1, as 3 would" in str(even_count(["n1", "n2", "n3", "n4"]))


def test_as_many_guards_may_be_away_as_members() -> None:
    assert [guard_budget(count) for count in (1, 2, 3, 4, 5)] == [0, 0, 1, 1, 2]
