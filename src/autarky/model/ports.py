"""The ports of a node and who listens on them: TCP, except the tunnels of the pod network. Stable: firewalls
and users rely on them."""

from __future__ import annotations

from typing import Final

NLLB_API: Final = 6443
NLLB_HEALTH: Final = 6444
"""Loopback only: which servers the node-local load balancer considers healthy, as plain HTTP."""
NLLB_ETCD: Final = 2378
API_HOSTED: Final = 7443
API_STANDBY: Final = 7444
API_STANDBY_SPARE: Final = 7445
ETCD_CLIENT: Final = 2379
ETCD_PEER: Final = 2380
ETCD_HEALTH: Final = 2381
"""Loopback only: etcd's health for the kubelet's probes, which cannot present a client certificate."""
ETCD_SECOND_CLIENT: Final = 2479
ETCD_SECOND_PEER: Final = 2480
ETCD_SECOND_HEALTH: Final = 2481
"""Of a second member on the same node, while the only one is changed."""
CONTROLLER_MANAGER_HOSTED: Final = 10257
CONTROLLER_MANAGER_STANDBY: Final = 20257
SCHEDULER_HOSTED: Final = 10259
SCHEDULER_STANDBY: Final = 20259
KUBELET_HEALTH: Final = 10248
"""Loopback only: the kubelet's own health, as plain HTTP."""
KUBELET_HOSTED_HEALTH: Final = 10247
"""Loopback only: that of the kubelet of the DaemonSet, so that neither answers for the other."""
KUBELET: Final = 10250
PROXY_METRICS: Final = 10249
"""Loopback only, unless kube-proxy's configuration says otherwise."""
PROXY_HEALTH: Final = 10256
POD_NETWORK_HEALTH: Final = 10253
OPERATOR: Final = 10300
"""Loopback only: health and metrics of the operator."""
NODE_AGENT: Final = 10301
"""Loopback only: health and metrics of the active node agent."""
POD_NETWORK_VXLAN: Final = 8472
"""UDP."""

ON_HOSTS: Final = frozenset(
    {
        *(NLLB_API, NLLB_HEALTH, NLLB_ETCD),
        *(API_HOSTED, API_STANDBY, API_STANDBY_SPARE),
        *(ETCD_CLIENT, ETCD_PEER, ETCD_HEALTH),
        *(ETCD_SECOND_CLIENT, ETCD_SECOND_PEER, ETCD_SECOND_HEALTH),
        *(CONTROLLER_MANAGER_HOSTED, CONTROLLER_MANAGER_STANDBY, SCHEDULER_HOSTED, SCHEDULER_STANDBY),
        *(KUBELET_HEALTH, KUBELET_HOSTED_HEALTH, KUBELET, PROXY_METRICS, PROXY_HEALTH),
        *(POD_NETWORK_HEALTH, POD_NETWORK_VXLAN, OPERATOR, NODE_AGENT),
    }
)
"""All of them."""
