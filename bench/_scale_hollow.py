"""Hollow nodes: Nodes without machines, which kwok keeps as kubelets would. Pure.

A hollow Node has what the cluster's real Node says of its machine (versions, images, capacity), so that it is as large
as that of a worker: of the same release, it makes the operator order no kubelet. What autarky's agent would report in
annotations is left out, which is some hundred bytes.

The DaemonSets of the cluster tolerate every taint, and get a pod on each hollow Node as on any other; kwok says that it
runs. That is meant: such pods belong to a node, and whoever watches kube-system's pods has them to hold as well. A
taint keeps CoreDNS away. Deployments of the control plane tolerate it, but select control nodes.

Every hollow node renews its lease every 10 s, as the kubelet's defaults have it, and writes its status every
HEARTBEAT_SECONDS: each of these is news to everybody who watches Nodes. kwok waits as long after each; so the moments
at which Nodes are created decide when that is, and they are spread over one such time.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence

from autarky.ports import Object

HEARTBEAT_SECONDS = 300
LEASE_SECONDS = 40
MANAGED, FAKE = "kwok.x-k8s.io/node", "fake"
SELECTOR = f"{MANAGED}={FAKE}"
LABEL = "bench.autarky.dev/hollow"
"""Of all hollow Nodes."""
ADDRESSES = ipaddress.IPv4Network("198.18.0.0/15")
"""For benchmarks (RFC 2544): nobody has one of these."""
_OF_THE_MACHINE = ("capacity", "allocatable", "conditions", "daemonEndpoints", "images", "nodeInfo")
_WORKERS = 16
"""Of each kind that kwok has, instead of 4: a thousand leases in 10 s are renewed in time."""

_HEARTBEAT = """\
{{ $now := Now }}
conditions:
{{ range .status.conditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastTransitionTime: {{ .lastTransitionTime | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
{{ end }}
"""
_RUNS = """\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "Ready" "ContainersReady" "PodScheduled" }}
- type: {{ $type | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"""


def node_name(number: int) -> str:
    return f"hollow-{number:04}"


def hollow_node(real: Object, number: int) -> Object:
    """The Node of that number (from 1), which looks like a worker on a machine like the real one's."""
    name = node_name(number)
    labels = {
        key: value
        for key, value in (real["metadata"].get("labels") or {}).items()
        if key.partition("/")[0] in ("kubernetes.io", "beta.kubernetes.io")
    }
    addresses = [
        {"type": "InternalIP", "address": str(ADDRESSES[number])},
        {"type": "Hostname", "address": name},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels, "kubernetes.io/hostname": name, LABEL: ""},
            "annotations": {MANAGED: FAKE},
        },
        "spec": {"taints": [{"key": MANAGED, "value": FAKE, "effect": "NoSchedule"}]},
        "status": {
            **{key: real["status"][key] for key in _OF_THE_MACHINE if key in real["status"]},
            "addresses": addresses,
        },
    }


def configuration(heartbeat_seconds: int = HEARTBEAT_SECONDS) -> str:
    """kwok's: what becomes of Nodes and of pods on them, and how fast."""
    pending = [_is(".metadata.deletionTimestamp", "DoesNotExist"), _is(".status.phase", "In", "Pending")]
    deleted = [_is(".metadata.deletionTimestamp", "Exists")]
    workers = ("nodeLeaseParallelism", "nodePlayStageParallelism", "podPlayStageParallelism")
    options: Object = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": dict.fromkeys(workers, _WORKERS),
    }
    documents = [
        options,
        _stage(
            "heartbeat",
            "Node",
            {"matchAnnotations": {MANAGED: FAKE}},
            {"statusTemplate": _HEARTBEAT},
            delay={"durationMilliseconds": heartbeat_seconds * 1000},
        ),
        _stage("runs", "Pod", {"matchExpressions": pending}, {"statusTemplate": _RUNS}),
        _stage("goes", "Pod", {"matchExpressions": deleted}, {"delete": True}),
    ]
    return "\n---\n".join(json.dumps(document) for document in documents) + "\n"


def arguments(configuration_file: str, kubeconfig: str) -> list[str]:
    return [
        f"--config={configuration_file}",
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-annotation-selector={SELECTOR}",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
    ]


def spread(count: int, seconds: float) -> Sequence[float]:
    """The moments at which so many are created, evenly: seconds from the first one on."""
    return [number * seconds / count for number in range(count)]


def _stage(name: str, kind: str, selector: Object, following: Object, *, delay: Object | None = None) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"bench-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": selector,
            **({} if delay is None else {"delay": delay}),
            "next": following,
        },
    }


def _is(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
