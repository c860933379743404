"""Whose lease may be freed after a reboot: nobody's who may live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.leadership.decide.stale_leases import Noted, holder_is_dead, is_of, to_note

BOOTS = st.sampled_from(["boot 1", "boot 2", "boot 3"])
HOLDERS = st.sampled_from(["n1_a", "n1_b", "n2_a", "n1", "", "n1_x_a", "_a"])


@given(st.lists(st.tuples(st.booleans(), HOLDERS), max_size=20))
def test_no_history_of_boots_and_holders_makes_a_living_process_dead(events: list[tuple[bool, str]]) -> None:
    """A process lives in one boot, and a cut begins another."""
    boot, noted = 0, None
    born: dict[str, int] = {}
    for cut, name in events:
        boot += cut
        holder = f"{name}{boot}" if name else ""  # no identity comes back in another boot
        born.setdefault(holder, boot)
        assert not holder_is_dead(holder, noted, "n1", f"boot {boot}")
        noted = to_note(holder, noted, "n1", f"boot {boot}") or noted
        assert noted is None or noted.boot == f"boot {born[noted.holder]}"
        if noted is not None:
            assert holder_is_dead(noted.holder, noted, "n1", f"boot {boot + 1}")


@given(HOLDERS, BOOTS, BOOTS)
def test_only_the_very_holder_that_was_noted_in_another_boot_is_dead(holder: str, noted: str, boot: str) -> None:
    dead = holder_is_dead(holder, Noted("n1_a", noted), "n1", boot)
    assert dead == (holder == "n1_a" and noted != boot)
    assert not holder_is_dead(holder, None, "n1", boot)


@pytest.mark.parametrize(
    ("holder", "own"), [("n1_a", True), ("n1_x_a", False), ("n11_a", False), ("n1", False), ("", False)]
)
def test_the_host_part_is_compared_exactly(holder: str, own: bool) -> None:
    assert is_of(holder, "n1") is own


def test_a_holder_that_is_noted_keeps_the_boot_that_it_was_seen_in_first() -> None:
    assert to_note("n1_a", Noted("n1_a", "boot 1"), "n1", "boot 2") is None
    assert to_note("n1_b", Noted("n1_a", "boot 1"), "n1", "boot 2") == Noted("n1_b", "boot 2")
