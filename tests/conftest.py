"""What all tests share: the seed of everything random, and how Hypothesis goes about its work.

Contract: every run has a fresh seed, which is printed; AUTARKY_SEED makes the same run again. It is the seed of
Hypothesis (which also tries first what failed the last time) and of the moments at which scenarios strike.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    _say_that_there_is_no_event_loop()
    _choose_a_seed(config)
    _load_our_profile()
    _leave_out_the_users_own_releases()


def _say_that_there_is_no_event_loop() -> None:
    """Before the first test.

    Otherwise looptime, which asks for it around every test, makes one that nobody closes, and some later
    test fails by its ResourceWarning.
    """
    asyncio.set_event_loop(None)


def _choose_a_seed(config: pytest.Config) -> None:
    """A worker of pytest-xdist has the options of the run that it belongs to, and so its seed."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ.get("AUTARKY_SEED") or str(secrets.randbits(32))


def _load_our_profile() -> None:
    """Hypothesis has a profile of its own for CI, by which every run would try the same examples."""
    settings.register_profile(
        "autarky",
        parent=settings.get_profile("default"),
        deadline=None,
        derandomize=False,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # the machine is shared
    )
    settings.load_profile("autarky")


def _leave_out_the_users_own_releases() -> None:
    """Which releases there are is said by the tree, not by the machine: the product's, and those of `releases/`, which
    scenarios come from. AUTARKY_RELEASES, given, is honoured."""
    os.environ.setdefault("AUTARKY_RELEASES", str(Path(__file__).with_name("releases")))


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.option.hypothesis_seed
    return f"seed: {seed} (AUTARKY_SEED={seed} makes the same examples and moments again)"


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> str:
    """Of this run; a scenario makes its own numbers of it, and names it where it fails."""
    return str(request.config.option.hypothesis_seed)
