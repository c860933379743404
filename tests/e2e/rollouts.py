"""What the scenarios of rollouts share: changing the control plane as users do, and seeing what came of it."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from direct import hosted_version
from ha import nothing_failed
from harness import TestCluster
from slots import SYSTEM, settled

API = "ds/kube-apiserver"
CONTROLLER_MANAGER = "deploy/kube-controller-manager"
SCHEDULER = "deploy/kube-scheduler"
PROXY = "ds/kube-proxy"
HOSTED = (API, CONTROLLER_MANAGER, SCHEDULER)
NEVER_READY = "--runtime-config=admissionregistration.k8s.io/v1=false"
"""A real flag with which an API server starts, lives, and is never ready: its own admission plugins list these
objects, so some of its informers never have what they wait for."""


_log = logging.getLogger(__name__)


def component(workload: str) -> str:
    return workload.partition("/")[2]


# --- changing ------------------------------------------------------------------------------------------


def edit(cluster: TestCluster, workload: str, script: str) -> None:
    """`kubectl edit` with sed for an editor."""
    with tempfile.NamedTemporaryFile("w", suffix=".sed") as file:
        file.write(script)
        file.flush()
        cluster.kubectl(*SYSTEM, "edit", workload, variables={"KUBE_EDITOR": f"sed -i -f {file.name}"})


def adding_flag(workload: str, *flags: str) -> str:
    """The sed script that puts them right behind the command's name."""
    lines = "".join(f"\\n\\1- {flag}" for flag in flags)
    return f"s#^\\( *\\)- {component(workload)}$#&{lines}#\n"


def set_image(cluster: TestCluster, workload: str, version: str) -> None:
    name = component(workload)
    cluster.kubectl(*SYSTEM, "set", "image", workload, f"{name}=registry.k8s.io/{name}:{version}")


def scale(cluster: TestCluster, workload: str, replicas: int) -> None:
    cluster.kubectl(*SYSTEM, "scale", workload, f"--replicas={replicas}")


def rolled_out(cluster: TestCluster, workload: str) -> None:
    cluster.kubectl(*SYSTEM, "rollout", "status", workload, "--timeout=110s")


def patch_plane(cluster: TestCluster, **spec: Any) -> None:
    cluster.kubectl("patch", "controlplane", "cluster", "--type=merge", "-p", json.dumps({"spec": spec}))


def set_rollback(cluster: TestCluster, **wanted: Any) -> None:
    patch_plane(cluster, rollback=wanted)


@contextmanager
def judged_after(cluster: TestCluster, seconds: int) -> Iterator[None]:
    """What rolls out in the block has so long to be healthy, instead of what the cluster's file says."""
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    before = plane["spec"].get("rollback", {}).get("limitSeconds")
    set_rollback(cluster, limitSeconds=seconds)
    try:
        yield
    finally:
        set_rollback(cluster, limitSeconds=before)


# --- looking -------------------------------------------------------------------------------------------


def live(cluster: TestCluster, workload: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl(*SYSTEM, "get", workload, "-o", "json"))
    return found


def template(cluster: TestCluster, workload: str) -> dict[str, Any]:
    found: dict[str, Any] = live(cluster, workload)["spec"]["template"]
    return found


def generation(cluster: TestCluster, workload: str) -> int:
    """Goes up with each edit, and with each rollback."""
    return int(live(cluster, workload)["metadata"]["generation"])


def ready(cluster: TestCluster, workload: str) -> bool:
    """Whether all pods are Ready and of the template that is wanted now."""
    found = live(cluster, workload)
    status = found["status"]
    if status.get("observedGeneration", 0) < found["metadata"]["generation"]:
        return False
    updated, able, wanted = (
        ("updatedNumberScheduled", "numberReady", "desiredNumberScheduled")
        if workload.startswith("ds/")
        else ("updatedReplicas", "readyReplicas", "replicas")
    )
    return bool(status.get(updated) == status.get(able) == status.get(wanted) != 0)


def _ready_pods(cluster: TestCluster, workload: str) -> list[dict[str, Any]]:
    selector = f"k8s-app={component(workload)},autarky.dev/slot=hosted"
    pods = json.loads(cluster.kubectl(*SYSTEM, "get", "pods", "-l", selector, "-o", "json"))["items"]
    return [pod for pod in pods if any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(pod))]


def _conditions(obj: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["status"].get("conditions", [])
    return found


def ready_on(cluster: TestCluster, workload: str) -> set[str]:
    """The nodes on which a hosted pod of it is Ready."""
    return {pod["spec"]["nodeName"] for pod in _ready_pods(cluster, workload)}


def updated_on(cluster: TestCluster, workload: str) -> set[str]:
    """The same for a pod of the template that is wanted now."""
    wanted = template(cluster, workload)
    return {pod["spec"]["nodeName"] for pod in _ready_pods(cluster, workload) if _is_made_of(pod, wanted)}


def _is_made_of(pod: dict[str, Any], wanted: dict[str, Any]) -> bool:
    annotations = wanted["metadata"].get("annotations") or {}
    same = annotations.items() <= (pod["metadata"].get("annotations") or {}).items()
    return same and all(
        pod["spec"]["containers"][0][part] == wanted["spec"]["containers"][0][part] for part in ("command", "image")
    )


def version_wanted(cluster: TestCluster, workload: str) -> str:
    """Of its template's image."""
    image: str = template(cluster, workload)["spec"]["containers"][0]["image"]
    return image.rpartition(":")[2]


def runs_version(cluster: TestCluster, workload: str, version: str, nodes: set[str]) -> None:
    """The template asks for it, and on each of these nodes it is what the pod was made of, what the runtime has started
    and what the process says of itself. A rollout that went back ends as well as one that did not."""
    name, wanted = component(workload), dict.fromkeys(nodes, version)
    assert version_wanted(cluster, workload) == version
    # Of level 3, the one before shares the port until it has ended.
    cluster.wait(f"the pods are of {version}", lambda: _versions_of_pods(cluster, workload) == wanted, seconds=30)
    said: dict[str, str] = {}

    def say_so() -> bool:
        said.update({node: hosted_version(cluster, name, node) for node in nodes})
        return said == wanted

    try:
        cluster.wait(f"the processes are of {version}", say_so, seconds=30)
    except AssertionError as error:
        raise AssertionError(f"{workload}: {error}; they say {said}") from error


def _versions_of_pods(cluster: TestCluster, workload: str) -> dict[str, str]:
    """Node → the version of its Ready pod; both, where what was asked for is not what its kubelet says that runs."""
    pods = [pod for pod in _ready_pods(cluster, workload) if "deletionTimestamp" not in pod["metadata"]]
    return {pod["spec"]["nodeName"]: " and ".join(sorted(_versions(pod, component(workload)))) for pod in pods}


def _versions(pod: dict[str, Any], name: str) -> set[str]:
    [wanted], [runs] = pod["spec"]["containers"], pod["status"]["containerStatuses"]
    return {image.removeprefix(f"registry.k8s.io/{name}:") for image in (wanted["image"], runs["image"])}


@contextmanager
def nothing_goes_back(cluster: TestCluster, *workloads: str) -> Iterator[None]:
    """During the block, nor in the verdict on what was rolled out in it: each has another revision that is good."""
    judged(cluster)
    told = {workload: explanations(cluster, workload) for workload in workloads}
    good = {workload: last_good(cluster, workload) for workload in workloads}
    yield
    for workload in workloads:
        cluster.wait(
            f"{workload} is good as it is now",
            lambda w=workload: last_good(cluster, w) not in {"", good[w]},
            seconds=150,
        )
    judged(cluster)
    assert {workload: explanations(cluster, workload) for workload in workloads} == told


def judged(cluster: TestCluster) -> None:
    cluster.wait(
        "nothing is on trial", lambda: condition(cluster, "RolloutsSettled").get("status") == "True", seconds=150
    )


def explanations(cluster: TestCluster, workload: str) -> list[str]:
    """The messages of the events that say that it was rolled back, oldest first."""
    kept = ("--field-selector", f"reason=RolledBack,involvedObject.name={component(workload)}")
    found = json.loads(cluster.kubectl(*SYSTEM, "get", "events", *kept, "-o", "json"))["items"]
    return [event["message"] for event in sorted(found, key=lambda event: event["firstTimestamp"])]


def last_good(cluster: TestCluster, workload: str) -> str:
    """The revision that the operator would go back to; empty while there is none."""
    name = f"autarky-last-good-{component(workload)}"
    return cluster.kubectl(*SYSTEM, "get", "secret", name, "--ignore-not-found", "-o", "jsonpath={.data.revision}")


def condition(cluster: TestCluster, kind: str) -> dict[str, Any]:
    """The ControlPlane's condition; empty while there is none."""
    found = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    return next((one for one in found.get("status", {}).get("conditions", []) if one["type"] == kind), {})


def quiet(cluster: TestCluster) -> None:
    """Until all of it is settled and known to be good: where each scenario begins."""
    for workload in (*HOSTED, PROXY):
        cluster.wait(f"{workload} has a last good revision", lambda w=workload: last_good(cluster, w), seconds=90)
    judged(cluster)
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=150)


def rolls_out_one_after_the_other(cluster: TestCluster, workload: str, nodes: set[str]) -> None:
    """Until it has reached these nodes; all of them but one serve at any time."""

    def done() -> bool:
        serving = ready_on(cluster, workload)
        assert len(nodes - serving) <= 1, f"{workload} serves on {sorted(serving)} only"
        return updated_on(cluster, workload) >= nodes

    cluster.wait(f"{workload} has the new revision on {sorted(nodes)}", done, seconds=300)


@dataclass
class Back:
    """How a rollout went back: seconds from the edit until the template was the good one again, and until its
    pods were Ready; and what the event says."""

    template_seconds: float
    ready_seconds: float
    explanation: str


def goes_back(
    cluster: TestCluster,
    workload: str,
    change: Callable[[], None],
    *,
    good: dict[str, Any] | None = None,
    seconds: float = 150,
) -> Back:
    """Make a bad change, and wait until it is taken back and the good revision (that of now) runs."""
    good, told = good or template(cluster, workload), len(explanations(cluster, workload))
    change()
    began = time.monotonic()
    cluster.wait("it is said that it goes back", lambda: len(explanations(cluster, workload)) > told, seconds=seconds)
    cluster.wait("the good template is back", lambda: template(cluster, workload) == good, seconds=seconds)
    template_seconds = time.monotonic() - began
    cluster.wait("its pods are Ready", lambda: ready(cluster, workload), seconds=seconds)
    explained = explanations(cluster, workload)
    assert len(explained) == told + 1, explained
    back = Back(template_seconds, time.monotonic() - began, explained[-1])
    _log.info("%s: template back after %.1f s, Ready after %.1f s", workload, template_seconds, back.ready_seconds)
    return back


@contextmanager
def undisturbed(cluster: TestCluster) -> Iterator[None]:
    """No request fails during the block, nor until everything has settled after it."""
    with cluster.probed() as reports:
        yield
        cluster.wait("everything is settled", lambda: settled(cluster), seconds=150)
    nothing_failed(reports[0], writes=100)
