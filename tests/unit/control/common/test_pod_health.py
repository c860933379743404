"""What a pod's status is worth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.pods import pod_health, said_to_run
from autarky.control.slots.decide.pivot import Health


def a_pod(*containers: str, started: str = "2026-11-21T12:29:31Z") -> dict[str, Any]:
    statuses = [
        {"containerID": f"containerd://{name}", "state": {"running": {"startedAt": started}}} for name in containers
    ]
    return {
        "metadata": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": statuses},
    }


@pytest.mark.parametrize(("runs", "health"), [(True, Health.READY), (False, Health.NOT_READY), (None, Health.UNKNOWN)])
def test_a_ready_pod_is_ready_when_the_runtime_runs_it(runs: bool | None, health: Health) -> None:
    assert pod_health(a_pod("a"), runs=runs) is health


def test_what_is_not_ready_needs_no_word_of_the_runtime() -> None:
    pod = a_pod("a")
    pod["status"]["conditions"][0]["status"] = "False"
    assert pod_health(pod, runs=None) is Health.NOT_READY
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:29:31Z"
    assert pod_health(pod, runs=False) is Health.TERMINATING


@given(st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ")), st.sampled_from([True, False, None]))
def test_no_clock_decides(started: str, runs: bool | None) -> None:
    assert pod_health(a_pod("a", started=started), runs=runs) is pod_health(a_pod("a"), runs=runs)


def test_only_containers_that_run_count() -> None:
    pod = a_pod("a", "b")
    pod["status"]["containerStatuses"] += [
        {"containerID": "containerd://c", "state": {"terminated": {"exitCode": 0}}},
        {"state": {"waiting": {}}},
        {},
    ]
    assert said_to_run(pod) == {"a", "b"}
    assert said_to_run({"metadata": {}}) == frozenset()
