"""Random tests try something else in each run, and the same again when they are asked to."""

from __future__ import annotations

from hypothesis import core, settings


def test_hypothesis_goes_by_the_seed_that_the_run_has_printed(seed):
    assert str(core.global_force_seed) == seed


def test_no_profile_of_a_machine_makes_every_run_the_same():
    """In CI Hypothesis would load one of its own that does, and remembers nothing that has failed."""
    assert not settings.default.derandomize
    assert settings.default.database is not None
