"""Which kubelets the control plane waits for before it goes down a minor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autarky.control.kubelet.decide import turns
from autarky.control.kubelet.decide.down import FAILED_SECONDS, LAGS_SECONDS, Decision, decide
from autarky.control.kubelet.decide.order import Target, made
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.decide.standing import LATE_SECONDS, Node
from autarky.model.versions import Version
from unit.control.kubelet.decide import turns_scene
from unit.control.kubelet.decide.turns_scene import V36, WORKERS, ordered, request, situation

CONTROL = {"c1", "c2"}


def down(
    *above: str,
    before: Decision | None = None,
    now: float = 0.0,
    away: str = "",
    minor: str = "1.36",
    under_way: str = "",
    failed: str = "",
    claimed: str = "",
    ordered: str = "",
    said: str = "",
    owed: str = "",
    wait: str = "",
) -> Decision:
    memory = None if before is None else before.memory
    found = turns.Decision(
        *(turns.Memory(), Version(1, 36, 4), (), (), {}, {}),
        above=frozenset(above),
        under_way=frozenset(under_way.split()),
        claimed=frozenset(claimed.split()),
        failed=dict.fromkeys(failed.split(), "why"),
        ordered=frozenset(ordered.split()),
        said=dict.fromkeys(said.split(), "no room"),
        owed=frozenset(owed.split()),
    )
    found = replace(found, waits=dict.fromkeys(wait.split(), "c9 has its turn"))
    return decide(found, CONTROL, away.split(), memory, now, minor=minor, drain_seconds=100)


def test_it_waits_for_all_that_are_above():
    assert down("w1", "c1").waits == ("c1", "w1")
    assert down("w1", under_way="w2").waits == ("w1", "w2"), "it may go back to what it had"
    assert down().waits == ()


def test_not_for_a_worker_that_is_away_but_for_a_control_node_that_is():
    found = down("w1", "c1", away="w1 c1")
    assert (found.waits, found.passed) == (("c1",), ("w1",))


def test_but_for_a_worker_that_fell_silent_on_its_way():
    """Its kubelet does not work, and the one of before follows."""
    found = down("w1", away="w1", under_way="w1")
    assert found.waits == ("w1",)
    assert down("w1", away="w1", under_way="w1", before=found, now=LAGS_SECONDS + 100).passed == ("w1",)


def test_of_control_nodes_it_says_why_and_of_no_worker_which_may_say_anything():
    found = down("w1", "w2", "c1", "c2", failed="w1 c1", said="w2 c2")
    asks = "once the cause is removed: `autarky up`, or another text in spec.kubelets.asked"
    assert found.why == {"c1": f"why; {asks}", "c2": "it waits: no room"}
    assert down("w1", failed="c1", said="c2").why == {}, "nobody waits for these"


def test_of_control_nodes_that_get_no_order_it_says_why():
    found = down("w1", "c1", "c2", wait="w1 c1 c2", said="c2")
    assert found.why == {"c1": "it waits: c9 has its turn", "c2": "it waits: no room"}


def test_what_a_control_node_said_of_an_earlier_order_is_no_reason():
    before = ordered(turns_scene.down("c1"), State.WENT_BACK, why="it was there already")
    silent = replace(before, order=made(request(before), 2))
    for one in (silent, replace(silent, report=None), replace(silent, report=Report(base="base-c1"))):
        decision = turns_scene.turns(one, lowest=V36, moves=True)
        assert decision.said == {"c1": "its agent has not taken the order up"}
    says = ordered(turns_scene.down("c1"), State.STAGING, why="no room")
    assert turns_scene.turns(says, lowest=V36, moves=True).said == {"c1": "no room"}
    removed = replace(says, order=None)
    assert turns_scene.turns(removed, lowest=V36, moves=True).said == {"c1": "no room"}, "it goes on with that"


def test_nor_for_long_for_a_worker_that_has_failed():
    first = down("w1", "w2", "c1", failed="w1 c1")
    assert down("w1", "w2", "c1", failed="w1 c1", before=first, now=FAILED_SECONDS - 1).passed == ()
    found = down("w1", "w2", "c1", failed="w1 c1", before=first, now=FAILED_SECONDS)
    assert (found.waits, found.passed) == (("c1", "w2"), ("w1",))


def test_not_for_workers_of_whom_none_has_come_down_for_long_and_for_control_nodes_without_end():
    first = down("w1", "w2", "c1")
    late = LAGS_SECONDS + 100
    assert down("w1", "w2", "c1", before=first, now=late - 1).passed == ()
    found = down("w1", "w2", "c1", before=first, now=late)
    assert (found.waits, found.passed) == (("c1",), ("w1", "w2"))


def test_each_that_comes_down_gives_the_others_more_time_but_only_once():
    found = down("w2", before=down("w1", "w2"), now=LAGS_SECONDS)
    assert down("w2", before=found, now=LAGS_SECONDS + 200).waits == ("w2",)
    again = down("w2", before=down("w1", "w2", before=found, now=2 * LAGS_SECONDS), now=2 * LAGS_SECONDS + 100)
    assert again.passed == ("w2",), "w1 was up again and down again"


def test_who_is_waited_for_only_by_its_word_gives_nobody_more_time():
    """However many workers say in turn that they are above, and then that they are not."""
    found, late = down("w0", "w1", claimed="w1"), LAGS_SECONDS + 100
    for number in range(1, 6):
        found = down("w0", f"w{number}", claimed=f"w{number}", before=found, now=number * late / 6)
        assert found.waits == ("w0", f"w{number}")
    assert down("w0", "w6", claimed="w6", before=found, now=late).passed == ("w0", "w6")


def test_another_minor_is_another_way():
    late = LAGS_SECONDS + 100
    assert down("w1", before=down("w1"), now=late, minor="1.35").waits == ("w1",)


def test_a_worker_that_lags_has_lost_its_turn_long_before_that():
    assert LAGS_SECONDS >= 2 * LATE_SECONDS


def test_by_order_are_control_nodes_and_whom_the_operator_has_ordered_up():
    found = down("c1", "w1", "w2", under_way="w3", ordered="w1 w3 w4")
    assert found.waits == ("c1", "w1", "w2", "w3")
    assert found.by_order == {"c1", "w1", "w3"}, "not who only shows it, nor who is not waited for"


def test_nor_who_is_passed_over():
    assert down("c1", "w1", away="c1 w1", ordered="w1").by_order == {"c1"}


def test_nor_is_one_passed_over_before_it_has_had_its_turn():
    late = LAGS_SECONDS + 100
    found = down("w1", "w2", "w3", owed="w2 w3", before=down("w1", "w2", "w3"), now=late, away="w3")
    assert (found.waits, found.passed) == (("w2",), ("w1", "w3")), "but one that is off"


# --- with the turns that they get --------------------------------------------------------------------------

ROUND = 20.0
LIMIT = LATE_SECONDS + WORKERS.drain_seconds


def drains_without_end(one: Node, _now: float) -> Node:
    return ordered(one, State.DRAINING, one.order.number) if one.order is not None else one


def says_nothing(one: Node, _now: float) -> Node:
    return one


def went_back_and_wants_something_else(one: Node, now: float) -> Node:
    """Always right before it would be late, so that it gets another order."""
    if one.order is None or now % (LIMIT - 2 * ROUND) >= ROUND:
        return drains_without_end(one, now)
    said = ordered(one, State.WENT_BACK, one.order.number)
    return replace(said, wanted=Target(V36, f"base-{now}"))


def is_not_ready_for_long(one: Node, now: float) -> Node:
    """But not for so long that it would count as away."""
    return replace(one, ready=now % 60 == 0)


def is_ready_while_the_others_are_not(one: Node, now: float) -> Node:
    return replace(one, ready=now / ROUND % 2 == int(one.name[1:]) % 2)


LIARS = [drains_without_end, says_nothing, went_back_and_wants_something_else, is_not_ready_for_long]
LIARS.append(is_ready_while_the_others_are_not)


@pytest.mark.parametrize("lies", LIARS)
@pytest.mark.parametrize(("bad", "count"), [({"w1", "w2"}, 6), ({"w1", "w3", "w4"}, 6), ({"w1", "w2"}, 2)])
def test_no_worker_that_had_no_turn_is_passed_over_whatever_others_say(
    lies: Callable[..., Node], bad: set[str], count: int
):
    """And the step is taken in the time that all their turns take, at the latest."""
    nodes = {f"w{number}": turns_scene.down(f"w{number}") for number in range(1, count + 1)}
    memory, lacking, ordered_once = turns.Memory(), None, set[str]()
    most = (len(bad) + 2) * LIMIT + LAGS_SECONDS + len(nodes) * 5 * ROUND
    now = 0.0
    while now <= most:
        decision = turns.decide(situation(*nodes.values(), lowest=V36, moves=True), memory, now)
        memory = decision.memory
        found = decide(decision, set(), set(), lacking, now, minor="1.36", drain_seconds=WORKERS.drain_seconds)
        lacking = found.memory
        assert set(found.passed) <= bad | ordered_once
        if not found.waits:
            break
        for write in decision.writes:
            ordered_once.add(write.node)
            nodes[write.node] = replace(nodes[write.node], order=write.order)
        nodes = {name: lies(one, now) if name in bad else changes(one) for name, one in nodes.items()}
        now += ROUND
    assert now <= most, found.waits
    assert {name for name, one in nodes.items() if one.runs == V36} == nodes.keys() - bad, "all others came down"


def changes(one: Node) -> Node:
    return one if one.order is None else ordered(one, State.DONE, one.order.number)
