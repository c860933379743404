"""What objects of the API say about a run and about the age of content."""

from __future__ import annotations

import copy

from autarky.decide.checkpoint import Instance, Source
from autarky.decide.checkpoint_evidence import instance_of, seconds, source_of

T0 = "2026-11-21T09:00:00Z"
POD = {
    "metadata": {"uid": "u1"},
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
    changed = copy.deepcopy(POD)
    changed["status"]["containerStatuses"][0] |= state
    return changed


def test_a_run_is_that_of_all_containers_that_last():
    start = seconds(T0)
    assert instance_of(POD) == Instance("u1", restarts=3, started=start + 4, pod_started=start)


def test_a_restart_of_any_of_them_is_another_run():
    assert instance_of(pod(restartCount=3)) != instance_of(POD)


def test_while_not_all_of_them_run_nothing_is_known():
    assert instance_of(pod(state={"waiting": {"reason": "CrashLoopBackOff"}})) is None
    assert instance_of(pod(state={})) is None
    assert instance_of({**POD, "status": {}}) is None
    assert instance_of({"metadata": POD["metadata"], "spec": POD["spec"]}) is None


def config_map(**fields: object) -> dict:
    return {"kind": "ConfigMap", "metadata": {"name": "c", "creationTimestamp": T0}, **fields}


def test_immutable_content_is_as_old_as_its_object():
    assert source_of(config_map(immutable=True)) == Source("the ConfigMap c", seconds(T0), immutable=True)


def test_mutable_content_is_as_old_as_its_last_writer():
    obj = config_map()
    obj["metadata"]["managedFields"] = [{"time": "2026-11-21T09:05:00Z"}, {"time": "2026-11-21T09:03:00Z"}]
    assert source_of(obj) == Source("the ConfigMap c", seconds(T0) + 300)


def test_content_whose_writers_are_not_dated_cannot_be_dated():
    assert source_of(config_map()).changed is None
    obj = config_map()
    obj["metadata"]["managedFields"] = [{"time": T0}, {"manager": "x"}]
    assert source_of(obj).changed is None
    assert source_of({"kind": "Secret", "metadata": {"name": "s"}, "immutable": True}).changed is None
