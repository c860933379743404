"""Rule 1, rule 2 and rule 10 for hosted workloads whose level moves."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.levels.decide.moves import SETTLE_SECONDS, Memory, Seen, Step, decide

_MAYBE = st.sampled_from([True, False, None])
_SIGHTS = st.builds(Seen, _MAYBE, _MAYBE, st.integers(0, 2), st.dictionaries(st.sampled_from(["n1", "n2"]), _MAYBE))
_KUBELETS = st.builds(
    lambda seen, names: replace(seen, in_force=names), _SIGHTS, st.sets(st.sampled_from(["n1", "n2"]))
)


def settled(seen):
    """The decision when the same was seen for long enough."""
    return decide(seen, decide(seen, Memory(), 0.0).memory, SETTLE_SECONDS)


def test_a_workload_goes_when_its_standby_has_served_on_every_control_node_for_a_while():
    seen = Seen(hosted=False, workload=True, standbys={"n1": True, "n2": True})
    first = decide(seen, Memory(), 100.0)
    assert first.step is Step.WAIT
    assert decide(seen, first.memory, 100.0 + SETTLE_SECONDS - 0.1).step is Step.WAIT
    assert decide(seen, first.memory, 100.0 + SETTLE_SECONDS).step is Step.RETIRE


def test_a_break_restarts_the_wait():
    serving = Seen(hosted=False, workload=True, standbys={"n1": True})
    broken = Seen(hosted=False, workload=True, standbys={"n1": None})
    assert decide(broken, Memory(0.0), 100.0).memory == Memory()
    assert decide(serving, decide(broken, Memory(0.0), 100.0).memory, 101.0).step is Step.WAIT


def test_the_one_that_does_not_serve_is_named():
    found = decide(Seen(hosted=False, workload=True, standbys={"n1": True, "n2": False}), Memory(), 0.0)
    assert found.sentence == "its standby does not serve yet on n2"


@given(_SIGHTS)
def test_nothing_goes_but_for_a_level_that_is_known_not_to_be_hosted_with_every_standby_serving(seen):
    if settled(seen).step is Step.RETIRE:
        assert seen.hosted is False
        assert seen.workload is True
        assert seen.standbys
        assert all(serves is True for serves in seen.standbys.values())


@given(_SIGHTS)
def test_nothing_goes_at_the_first_sight(seen):
    assert decide(seen, Memory(), 0.0).step is not Step.RETIRE


@given(_KUBELETS)
def test_kubelets_go_once_they_have_stepped_aside_and_only_for_a_level_that_is_known_not_to_be_hosted(seen):
    found = decide(seen, Memory(), 0.0)
    goes = seen.hosted is False and seen.workload is True
    assert (found.step is Step.RETIRE) == (goes and not seen.in_force)
    assert found.step is settled(seen).step
    assert not (goes and seen.in_force) or all(name in found.sentence for name in seen.in_force)


@given(_SIGHTS | _KUBELETS)
def test_only_a_level_that_is_hosted_comes_back_and_only_where_nothing_is(seen):
    if settled(seen).step is Step.BRING_BACK:
        assert seen.hosted is True
        assert seen.workload is False


def test_what_is_still_kept_of_a_workload_that_is_back_is_used_up():
    back = Seen(hosted=True, workload=True, kept=True)
    assert decide(back, Memory(), 0.0).step is Step.FINISH
    assert decide(replace(back, kept=False), Memory(), 0.0).settled
    assert decide(replace(back, hosted=False), Memory(), 0.0).step is not Step.FINISH


@given(_SIGHTS | _KUBELETS)
def test_a_copy_is_used_up_only_beside_a_workload_that_is_known_to_be_hosted(seen):
    if decide(replace(seen, kept=True), Memory(), 0.0).step is Step.FINISH:
        assert seen.hosted is True
        assert seen.workload is True


def test_pods_that_are_ending_are_waited_for():
    assert decide(Seen(hosted=False, workload=False, leaving=1), Memory(), 0.0).step is Step.WAIT
    assert decide(Seen(hosted=False, workload=False), Memory(), 0.0).settled
