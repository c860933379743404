"""What objects of the API say about a run and about the age of content."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta

import pytest

from autarky.control.checkpoint.decide.evidence import instance_of, source_of, version_unstarted
from autarky.control.checkpoint.decide.revisions import Instance, Source

T0 = "2026-11-21T09:00:00Z"
POD = {
    "metadata": {"uid": "u1", "resourceVersion": "41"},
    "spec": {
        "containers": [{"name": "main"}],
        "initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}],
    },
    "status": {
        "startTime": T0,
        "containerStatuses": [
            {"name": "main", "restartCount": 2, "state": {"running": {"startedAt": "2026-11-21T09:00:09Z"}}}
        ],
        "initContainerStatuses": [
            {"name": "once", "restartCount": 7, "state": {"terminated": {"exitCode": 0}}},
            {"name": "side", "restartCount": 1, "state": {"running": {"startedAt": "2026-11-21T09:00:04Z"}}},
        ],
    },
}


def pod(**state: object) -> dict:
    changed: dict = copy.deepcopy(POD)
    changed["status"]["containerStatuses"][0] |= state
    return changed


def test_a_run_is_that_of_all_containers_that_last():
    assert instance_of(POD, 40) == Instance("u1", restarts=3, started="2026-11-21T09:00:04Z", version=40)


def test_a_restart_of_any_of_them_is_another_run():
    assert instance_of(pod(restartCount=3), 40) != instance_of(POD, 40)


def test_while_not_all_of_them_run_nothing_is_known():
    assert instance_of(pod(state={"waiting": {"reason": "CrashLoopBackOff"}}), 40) is None
    assert instance_of(pod(state={}), 40) is None
    assert instance_of({**POD, "status": {}}, 40) is None
    assert instance_of({"metadata": POD["metadata"], "spec": POD["spec"]}, 40) is None


@pytest.mark.parametrize("seconds", [-3600, -1, 0, 1, 3600])
def test_no_clock_orders_content_and_pods(seconds: int):
    """Of the API server, of the node, or both: whatever they say, a version is a version."""
    stamp = (datetime.fromisoformat(T0) + timedelta(seconds=seconds)).isoformat()
    obj = config_map()
    obj["metadata"] |= {"creationTimestamp": stamp, "managedFields": [{"time": stamp}]}
    assert source_of(obj, by_content=False) == Source("the ConfigMap c", 77)
    unstarted = {**pod(), "status": {}}
    unstarted["metadata"] |= {"creationTimestamp": stamp}
    assert version_unstarted(unstarted) == 41


def test_a_pod_that_its_kubelet_has_heard_of_tells_no_version():
    assert version_unstarted(POD) is None


def config_map(**fields: object) -> dict:
    return {"kind": "ConfigMap", "metadata": {"name": "c", "resourceVersion": "77"}, **fields}
