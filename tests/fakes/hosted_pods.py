"""Live hosted pods: what the controllers create from the rendered templates and the API server completes; and the pods
of their standbys."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping

from autarky.control.api_server import manifests as api_server
from autarky.control.leadership import manifests as controllers
from autarky.control.slots.manifests import Revision
from autarky.model.components import API_SERVER
from autarky.render.values import Inputs, Object

NODE = "n1"


def hosted_objects(inputs: Inputs, component: str) -> list[Object]:
    """The Secrets and ConfigMaps of a component, and its workload."""
    if component == API_SERVER:
        return api_server.hosted(inputs)
    return controllers.hosted(inputs, component)


def contents_of(objects: list[Object]) -> tuple[dict[str, Object | None], dict[str, Object | None]]:
    """The Secrets and the ConfigMaps by name."""
    kinds: Mapping[str, dict[str, Object | None]] = {"Secret": {}, "ConfigMap": {}}
    for obj in objects:
        if obj["kind"] in kinds:
            kinds[obj["kind"]][obj["metadata"]["name"]] = obj
    return kinds["Secret"], kinds["ConfigMap"]


def pod_of_template(objects: list[Object], *, suffix: str = "x7k2p", node: str = NODE) -> Object:
    """The pod that the workload's controller makes of its template, bound to a node."""
    [workload] = [obj for obj in objects if obj["kind"] in ("DaemonSet", "Deployment")]
    template = copy.deepcopy(workload["spec"]["template"])
    labels = {**template["metadata"]["labels"], "controller-revision-hash": "5d4f8c7b9"}
    owner = {"apiVersion": "apps/v1", "kind": workload["kind"], "name": workload["metadata"]["name"], "uid": "u"}
    metadata = {
        "name": f"{workload['metadata']['name']}-{suffix}",
        "namespace": workload["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "nodeName": node}}


def completed(pod: Object) -> Object:
    """With what API server, scheduler and kubelet add to a pod; the contract test compares it to the real thing."""
    full = copy.deepcopy(pod)
    full["metadata"] |= {"uid": "0d6c", "resourceVersion": "4711", "creationTimestamp": "2026-11-21T09:00:00Z"}
    spec = full["spec"]
    spec |= {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 2000001000,
    }
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        container |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
        container.setdefault("resources", {})
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe := container.get(name):
                probe.setdefault("successThreshold", 1)
                probe.setdefault("timeoutSeconds", 1)
                probe.setdefault("failureThreshold", 3)
                if not probe.get("initialDelaySeconds"):
                    probe.pop("initialDelaySeconds", None)
        for variable in container.get("env", []):
            if field := variable.get("valueFrom", {}).get("fieldRef"):
                field.setdefault("apiVersion", "v1")
    full["status"] = {"phase": "Running", "hostIP": "192.0.2.11", "podIP": "192.0.2.11"}
    return full


def pod_of_revision(revision: Revision) -> Object:
    """The pod of a standby's revision."""
    pod: Object = json.loads(revision.files[-1].content)
    return pod
