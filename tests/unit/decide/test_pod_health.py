"""What a pod's status is worth."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autarky.decide.pods import pod_health
from autarky.decide.slots import Health

BOOTED = datetime(2026, 11, 21, 12, 29, 31, 820_000, UTC)


def running_since(*starts: datetime) -> dict[str, Any]:
    runs = [{"state": {"running": {"startedAt": start.strftime("%Y-%m-%dT%H:%M:%SZ")}}} for start in starts]
    return {
        "metadata": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": runs},
    }


@pytest.mark.parametrize(
    ("seconds", "health"), [(-3600, Health.NOT_READY), (-2, Health.NOT_READY), (0, Health.READY), (9, Health.READY)]
)
def test_a_ready_pod_from_before_the_power_cut_is_not_ready(seconds: int, health: Health) -> None:
    pod = running_since(BOOTED + timedelta(seconds=seconds))
    assert pod_health(pod, BOOTED) is health
    assert pod_health(pod) is Health.READY, "nothing is known of a boot"


def test_one_container_that_cannot_run_any_more_is_enough() -> None:
    assert pod_health(running_since(BOOTED + timedelta(seconds=9), BOOTED - timedelta(days=1)), BOOTED) is (
        Health.NOT_READY
    )


def test_a_container_that_has_ended_says_nothing_about_the_boot() -> None:
    pod = running_since(BOOTED)
    pod["status"]["containerStatuses"].append({"state": {"terminated": {"exitCode": 0}}})
    assert pod_health(pod, BOOTED) is Health.READY
