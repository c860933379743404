"""What a recovery must not do, decided by what answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.refusing import (
    LONGEST_AGO,
    Answer,
    Begun,
    Then,
    Voter,
    cannot_be_fenced,
    then,
    why_not_back,
)

ADDRESSES = ("192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14", "192.0.2.15")
VOTERS = [Voter(f"n{number}", address) for number, address in enumerate(ADDRESSES[:3], 1)]


def answers(*names: str, reads: bool = True, leads: bool = True) -> list[Answer]:
    return [Answer(name, f"192.0.2.1{name[1:]}", 0xC1, leads=leads, reads=reads) for name in names]


# --- members that cannot be fenced ----------------------------------------------------------------------------------


def test_a_member_that_serves_elsewhere_is_named() -> None:
    named = cannot_be_fenced(answers("n1", "n2", "n3"), VOTERS, ["192.0.2.11", "192.0.2.12"])
    assert named == ["n3 (192.0.2.13)"]


@pytest.mark.parametrize("how", [{"reads": False}, {"leads": False}])
def test_it_serves_by_either_sign(how: dict[str, bool]) -> None:
    assert cannot_be_fenced(answers("n2", **how), [], ["192.0.2.11"]) == ["n2 (192.0.2.12)"]


def test_one_that_only_answers_does_not_serve() -> None:
    """A single member that is left has no leader."""
    assert cannot_be_fenced(answers("n2", reads=False, leads=False), [], ["192.0.2.11"]) == []


def test_where_there_is_a_quorum_and_too_few_answer_the_others_are_its_members() -> None:
    """No host reaches their ports, but n1 reads by them."""
    assert cannot_be_fenced(answers("n1"), VOTERS, ["192.0.2.11"]) == ["n2 (192.0.2.12)", "n3 (192.0.2.13)"]
    assert cannot_be_fenced(answers("n1", "n2"), VOTERS, ["192.0.2.11", "192.0.2.12"]) == [], "n3 may be off"


@given(st.sets(st.sampled_from(ADDRESSES)), st.sets(st.sampled_from(ADDRESSES)), st.booleans())
def test_where_nothing_is_named_what_is_left_after_the_fence_is_no_majority(
    running: set[str], hosts: set[str], connected: bool
) -> None:
    """Rule 3. Those outside that run are seen by others, or by nobody."""
    voters = [Voter(address, address) for address in ADDRESSES]
    has_quorum = 2 * len(running) > len(voters)
    seen = running if connected else running & hosts
    said = [Answer(one, one, 1, leads=has_quorum, reads=has_quorum) for one in seen]
    reads = any(one.reads for one in said)
    named = cannot_be_fenced(said, voters if reads else [], hosts)
    if not named and reads:
        assert 2 * len(running & hosts) > len(voters)
        assert 2 * len(running - hosts) <= len(voters)


# --- a recovery that was cut ----------------------------------------------------------------------------------------


@given(
    st.builds(Begun, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, 1, 2])),
    st.sets(st.sampled_from([1, 2])),
)
def test_nothing_is_resumed_beside_an_etcd_that_serves_unless_it_is_its_own(begun: Begun, serving: set[int]) -> None:
    what = then(begun, serving)
    if what is Then.RESUME:
        assert serving <= ({begun.own} if begun.placed else set())
        assert begun.placed or (begun.same and not begun.replaced)
    if begun.placed:
        assert what in (Then.RESUME, Then.OTHER_SERVES)


def test_something_else_than_what_was_begun_waits_for_a_person() -> None:
    assert then(Begun(placed=False, same=False, replaced=False, own=1), set()) is Then.REFUSE
    assert then(Begun(placed=False, same=False, replaced=False, own=1), {1}) is Then.REFUSE
    assert then(Begun(placed=False, same=True, replaced=False, own=1), {1}) is Then.AGAIN
    assert then(Begun(placed=False, same=True, replaced=True, own=1), set()) is Then.IGNORE


# --- a recovery that is taken back ------------------------------------------------------------------------------------


def test_only_the_last_one_is_taken_back_and_only_where_that_is_meant() -> None:
    at = "2027-01-15T08:00:00Z"

    def why(ago: float | None = 60.0, *, is_undo: bool = False, again: bool = False, made: str | None = None) -> str:
        return why_not_back(at, ago, is_undo=is_undo, again=again, made=made)

    assert why() == ""
    assert "has taken one back" in why(is_undo=True)
    assert why(is_undo=True, again=True) == ""
    assert "has taken one back" in why(is_undo=True, made=at), "the time alone does not say that"
    for ago in (LONGEST_AGO + 1, None):
        assert "more than a day" in why(ago)
        assert why(ago, made=at) == ""
    assert why(made="2027-01-01T00:00:00Z") == f"the last recovery is that of {at}, and none of 2027-01-01T00:00:00Z"
