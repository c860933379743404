"""Random tests try something else in each run, and the same again when they are asked to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import core, settings


def test_hypothesis_goes_by_the_seed_that_the_run_has_printed(seed):
    assert seed.isdecimal()
    assert str(core.global_force_seed) == seed


@pytest.fixture
def choose(request):
    """What chooses this run's seed: the seed that it gives to another run, which has that one on its command line."""
    [plugin] = [one for one in request.config.pluginmanager.get_plugins() if hasattr(one, "_choose_a_seed")]

    def chosen(given=None):
        config = SimpleNamespace(option=SimpleNamespace(hypothesis_seed=given))
        plugin._choose_a_seed(config)
        return config.option.hypothesis_seed

    return chosen


def test_each_run_has_a_fresh_seed_unless_it_is_given_one(choose, monkeypatch):
    monkeypatch.delenv("AUTARKY_SEED", raising=False)
    assert len({choose() for _ in range(5)}) > 1
    assert choose(given="3") == "3"
    monkeypatch.setenv("AUTARKY_SEED", "7")
    assert choose() == "7"


def test_no_profile_of_a_machine_makes_every_run_the_same():
    """In CI Hypothesis would load one of its own that does, and remembers nothing that has failed."""
    assert not settings.default.derandomize
    assert settings.default.database is not None


def test_no_property_tries_the_same_examples_in_each_run():
    sources = {
        path: path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py") if path != Path(__file__)
    }
    assert len(sources) > 100
    assert [str(path) for path, source in sources.items() if "derandomize" in source] == []
