"""A lease is freed only where its holder cannot live."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.decide.dead_leases import SILENT_SECONDS, Boot, holder_is_dead, holder_may_be_dead

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOOT = Boot("this", BEGAN, "the last")
LONG_BEFORE = BEGAN - timedelta(minutes=1)


def test_a_holder_of_the_last_boot_that_is_silent_is_dead():
    """A clock that was set back meanwhile makes any renewal look old: only silence tells."""
    assert not holder_is_dead("n1_a-b-c", LONG_BEFORE, "n1", BOOT, silent=SILENT_SECONDS - 0.1)
    assert holder_is_dead("n1_a-b-c", LONG_BEFORE, "n1", BOOT, silent=SILENT_SECONDS)


@pytest.mark.parametrize("holder", ["n2_a", "n11_a", "n1.example.org_a", "n1", "", "_n1", "n1_a_b"])
def test_a_holder_on_another_host_may_live(holder):
    assert not holder_is_dead(holder, LONG_BEFORE, "n1", BOOT, silent=1000)


@pytest.mark.parametrize("last", [None, "this"])
def test_within_one_boot_every_holder_may_live(last):
    assert not holder_is_dead("n1_a", LONG_BEFORE, "n1", replace(BOOT, last_id=last), silent=1000)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=1)), st.floats(0, 1000))
def test_a_holder_that_renewed_in_this_boot_lives(later, silent):
    assert not holder_is_dead("n1_a", BEGAN + later, "n1", BOOT, silent)


def test_a_lease_that_was_never_renewed_says_nothing():
    assert not holder_may_be_dead("n1_a", None, "n1", BOOT)
