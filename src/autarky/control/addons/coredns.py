"""Cluster DNS: CoreDNS, under the conventional name kube-dns.

Its configuration is a ConfigMap that users may edit: CoreDNS reads it again by itself (the plugin `reload`) once the
kubelets have it, so that no change of it is a rollout. A Corefile that CoreDNS cannot use is not taken: it goes on with
the one that it has. But a pod that starts then fails, which is why nothing of ours restarts CoreDNS for a Corefile.
"""

from __future__ import annotations

from autarky.control.addons.addon import AddOn, bind, cluster_role, service_account
from autarky.model.cluster import Cluster
from autarky.model.components import COMPONENTS, COREDNS, NAME_LABEL
from autarky.model.patience import ADDON_PROBE
from autarky.render import pods
from autarky.render.values import CONTROL_PLANE_REQUESTED, SYSTEM, Inputs, Object, metadata

DNS = COMPONENTS[COREDNS].label_value
"""The conventional name of cluster DNS: of its Service, and the label of its pods."""
DNS_REPLICAS = 2


def _corefile(cluster: Cluster) -> str:
    return f"""\
.:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {cluster.network.dns_domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    prometheus :9153
    forward . /etc/resolv.conf {{
        max_concurrent 1000
    }}
    cache 30
    loop
    reload
    loadbalance
}}
"""


def objects(inputs: Inputs) -> list[Object]:
    labels = {NAME_LABEL: DNS}
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    deployment = pods.deployment(
        COREDNS,
        _coredns_pod(inputs),
        replicas=DNS_REPLICAS,
        strategy=pods.rolling(surge=1, unavailable=1),
        labels=labels,
    )
    return [
        service_account(COREDNS),
        cluster_role("autarky:coredns", rules),
        bind("autarky:coredns", "autarky:coredns", COREDNS),
        _config(inputs.cluster),
        deployment,
        # With one node the pods have nowhere to go: a budget would block its drain forever.
        pods.disruption_budget(COREDNS, labels, unavailable=1 if _dns_nodes(inputs.cluster) > 1 else DNS_REPLICAS),
        _dns_service(inputs.cluster, labels),
    ]


def _config(cluster: Cluster) -> Object:
    """Under the name that it has with kubeadm, too."""
    meta = metadata(COREDNS, SYSTEM, {NAME_LABEL: DNS})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": _corefile(cluster)}}


def _coredns_pod(inputs: Inputs) -> Object:
    def probe(path: str, port: int, period: int, failures: int) -> Object:
        return {
            "httpGet": {"path": path, "port": port},
            "periodSeconds": period,
            "failureThreshold": failures,
            "timeoutSeconds": ADDON_PROBE,
        }

    container = pods.command_container(
        COREDNS,
        inputs.image(COREDNS),
        ["coredns", "-conf", "/etc/coredns/Corefile"],
        ports=[
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        resources={"requests": {"cpu": "50m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        startupProbe=probe("/health", 8080, 1, 60),
        livenessProbe=probe("/health", 8080, 10, 5),
        readinessProbe=probe("/ready", 8181, 2, 3),
        volumeMounts=[pods.mount("config", "/etc/coredns")],
        securityContext={
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
    )
    return {
        "priorityClassName": pods.CLUSTER_CRITICAL,
        "serviceAccountName": COREDNS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": CONTROL_PLANE_REQUESTED, "operator": "Exists"}, *pods.LEAVE_AFTER_A_MINUTE],
        "topologySpreadConstraints": [_dns_spread(inputs.cluster)],
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [pods.config_volume("config", COREDNS)],
    }


def _dns_spread(cluster: Cluster) -> Object:
    """Over as many nodes as there will be, from the first pod on: until other nodes have joined, the second pod waits.
    Otherwise it would be scheduled to the first node, and nothing would ever move it."""
    return {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "minDomains": min(DNS_REPLICAS, _dns_nodes(cluster)),
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {NAME_LABEL: DNS}},
        "matchLabelKeys": ["pod-template-hash"],
    }


def _dns_nodes(cluster: Cluster) -> int:
    """How many nodes of the file it may run on: at least one, which the validation of the file ensures."""
    return max(1, sum(not any(taint.repels_dns for taint in node.taints) for node in cluster.nodes))


def _dns_service(cluster: Cluster, labels: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(DNS, SYSTEM, {**labels, "kubernetes.io/cluster-service": "true"}),
        "spec": {
            "clusterIP": cluster.network.dns_service_ip,
            "selector": labels,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153},
            ],
        },
    }


ADD_ON = AddOn("coredns", COREDNS, objects, images=(COMPONENTS[COREDNS].image,))
