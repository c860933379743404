"""The node agent's metrics, served on loopback by `control.base.health`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

from prometheus_client import Counter, Gauge

DECISIONS = Counter("autarky_agent_decisions_total", "Decisions that said something new", ["component"])
ACTIVATIONS = Counter("autarky_agent_activations_total", "Standbys that were brought up", ["component"])
WITHDRAWALS = Counter("autarky_agent_withdrawals_total", "Standbys that were taken away", ["component"])
ACTIVE = Gauge("autarky_agent_standby_active", "Whether the standby's manifest is in place", ["component"])
CHECKPOINT_AGE = Gauge(
    "autarky_agent_checkpoint_age_seconds", "Since when the standby's revision is the current one", ["component"]
)
RELOADS = Counter("autarky_agent_load_balancer_reloads_total", "Times the load balancer was asked to reload")
RENEWALS = Counter("autarky_agent_certificate_renewals_total", "Certificates that were renewed", ["certificate"])
CERTIFICATE_END = Gauge(
    "autarky_agent_certificate_expiry_seconds", "Seconds until a certificate of this node ends", ["certificate"]
)
ETCD_UPKEEP = Counter("autarky_agent_etcd_upkeep_total", "What was done to keep etcd in shape", ["action"])
API = Gauge("autarky_agent_api_reachable", "Whether the agent's watches of the API work")


def observe(
    components: Iterable[str],
    api_reachable: Callable[[], bool],
    active_standbys: Callable[[], Mapping[str, bool] | None],
    checkpoint_time: Callable[[str], float | None],
) -> None:
    """From now on the gauges show current values at every scrape. active_standbys: component → whether its standby is
    in place; checkpoint_time: of a component, in seconds since the epoch; None where that could not be read."""
    API.set_function(lambda: float(api_reachable()))
    for component in components:
        DECISIONS.labels(component)
        ACTIVATIONS.labels(component)
        WITHDRAWALS.labels(component)
        ACTIVE.labels(component).set_function(partial(_is_active, active_standbys, component))
        CHECKPOINT_AGE.labels(component).set_function(partial(_age, checkpoint_time, component))


def certificates(ends: Mapping[str, datetime]) -> None:
    """From now on the gauge shows how long these are valid for, at every scrape."""
    CERTIFICATE_END.clear()
    for name, end in ends.items():
        CERTIFICATE_END.labels(name).set_function(partial(_left, end.timestamp()))


def _left(end: float) -> float:
    return end - time.time()


def _is_active(active_standbys: Callable[[], Mapping[str, bool] | None], component: str) -> float:
    active = active_standbys()
    return float("nan") if active is None else float(active[component])


def _age(checkpoint_time: Callable[[str], float | None], component: str) -> float:
    when = checkpoint_time(component)
    return float("nan") if when is None else max(0.0, time.time() - when)
