"""What pools of nodes may have whose kubelets change together: limits of `spec.pools`, in the cluster file as in the
ControlPlane."""

from __future__ import annotations

from typing import Literal

WORKERS, CONTROL_NODES = "workers", "control-nodes"
"""The pools that are always there, for all nodes that no other pool has."""
MOST_POOLS, MOST_LABELS, MOST_SETTINGS = 50, 20, 200
MOST_AT_ONCE, MOST_ORDER, MOST_DRAIN_SECONDS = 100, 1000, 86400
DRAIN_SECONDS = 300
DrainName = Literal["Never", "Minor", "Always"]
REFERENCE = "[a-z0-9][a-z0-9.:/_@-]{0,254}"
"""Of the image with containerd and runc, as of any that a node has."""
NOT_OURS = frozenset(
    {
        *("apiVersion", "kind", "staticPodPath", "staticPodURL", "staticPodURLHeader", "containerRuntimeEndpoint"),
        *("authentication", "authorization", "cgroupDriver", "healthzPort", "healthzBindAddress"),
    }
)
"""Settings of a kubelet's configuration without which a node is no node of this cluster, or nobody sees how it is."""
