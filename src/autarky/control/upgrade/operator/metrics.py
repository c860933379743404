"""What the operator's metrics say of an upgrade."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import Counter, Gauge

from autarky.control.upgrade.decide.reported import Report, State

STATE = Gauge(
    "autarky_operator_upgrade_state", "1 for the state of the upgrade that this operator carries out", ["state"]
)
STEPS = Counter("autarky_operator_upgrade_steps_total", "Steps of upgrades that were taken", ["component"])
STATES = tuple(state for state in State if state is not State.COMPLETE)


def observe(report: Callable[[], Report | None]) -> None:
    """From now on the gauges show at every scrape what is reported then."""
    for state in STATES:
        STATE.labels(str(state)).set_function(partial(_is, state, report))


def _is(state: State, report: Callable[[], Report | None]) -> float:
    found = report()
    return float(found is not None and found.state is state)
