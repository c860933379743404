"""Level 4 and kube-proxy: flannel (vxlan), CoreDNS, kube-proxy (nftables).

kube-proxy and flannel run on the host network and reach the API through the node's own load balancer
(127.0.0.1:6443), so that they need no Service and no pod network: what makes Services work must not
need one.
"""

from __future__ import annotations

import json

from autarky.model import ports
from autarky.model.cluster import Cluster
from autarky.model.components import COMPONENTS, COREDNS, FLANNEL, KUBE_PROXY, NAME_LABEL
from autarky.model.patience import ADDON_PROBE, STARTS
from autarky.render import pods
from autarky.render.kubeconfig import token_file_kubeconfig
from autarky.render.values import CONTROL_PLANE_WISH, SYSTEM, Inputs, Object, immutable_config_map, metadata

DNS = COMPONENTS[COREDNS].label_value
"""What everybody knows cluster DNS by, whoever answers: its Service and the label of its pods."""
DNS_REPLICAS = 2
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 # a path, not a token
LOCAL_API = [
    {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
    {"name": "KUBERNETES_SERVICE_PORT", "value": str(ports.NLLB_API)},
]
NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
LOCK_FILE = "/run/xtables.lock"


def service_account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, SYSTEM)}


def _cluster_role(name: str, rules: list[Object]) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata(name),
        "rules": rules,
    }


def _bind(name: str, role: str, account: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}],
    }


# --- kube-proxy ------------------------------------------------------------------------------------


def kube_proxy(inputs: Inputs) -> list[Object]:
    config = immutable_config_map(KUBE_PROXY, _proxy_files(inputs))
    container = pods.command_container(
        KUBE_PROXY,
        inputs.image(KUBE_PROXY),
        ["kube-proxy", "--config=/etc/kube-proxy/config.json", "--hostname-override=$(NODE_NAME)"],
        env=[NODE_NAME],
        resources=pods.requests("20m", "64Mi"),
        startupProbe=pods.http_probe("/livez", ports.PROXY_HEALTH, period=1, failures=STARTS, timeout=ADDON_PROBE),
        livenessProbe=pods.http_probe("/livez", ports.PROXY_HEALTH, period=10, failures=3, timeout=ADDON_PROBE),
        readinessProbe=pods.http_probe("/healthz", ports.PROXY_HEALTH, period=2, failures=3, timeout=ADDON_PROBE),
        volumeMounts=[pods.mount("config", "/etc/kube-proxy")],
        # It writes kernel settings under /proc/sys, which only a privileged container may.
        securityContext={"privileged": True},
    )
    pod: Object = {
        "hostNetwork": True,
        "priorityClassName": pods.NODE_CRITICAL,
        "serviceAccountName": KUBE_PROXY,
        "tolerations": pods.TOLERATE_ALL,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [pods.config_volume("config", config["metadata"]["name"])],
    }
    return [
        service_account(KUBE_PROXY),
        _bind("autarky:kube-proxy", "system:node-proxier", KUBE_PROXY),
        config,
        pods.daemon_set(KUBE_PROXY, pod, strategy=pods.rolling(surge=0, unavailable=1)),
    ]


def _proxy_files(inputs: Inputs) -> dict[str, str]:
    extra = inputs.cluster.extra_args.get(KUBE_PROXY, {})
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(inputs.cluster.network.pod_cidr),
        "clientConnection": {"kubeconfig": "/etc/kube-proxy/kubeconfig"},
        "healthzBindAddress": f"127.0.0.1:{ports.PROXY_HEALTH}",
        "metricsBindAddress": f"127.0.0.1:{ports.PROXY_METRICS}",
        # 0: leave the kernel's table as it is; raising it needs a writable /proc/sys of the real machine.
        "conntrack": {"maxPerCore": 0},
        **extra,
    }
    kubeconfig = token_file_kubeconfig(inputs, KUBE_PROXY, TOKEN_FILE)
    return {"config.json": json.dumps(config, indent=2) + "\n", "kubeconfig": kubeconfig.decode()}


# --- flannel ---------------------------------------------------------------------------------------


def flannel(inputs: Inputs) -> list[Object]:
    net_conf = {
        "Network": str(inputs.cluster.network.pod_cidr),
        "EnableNFTables": True,
        "Backend": {"Type": "vxlan", "Port": ports.FLANNEL_VXLAN},
    }
    config = immutable_config_map(FLANNEL, {"net-conf.json": json.dumps(net_conf, indent=2) + "\n"})
    container = pods.command_container(
        FLANNEL,
        inputs.image("flannel"),
        [
            "flanneld",
            "--net-conf=/etc/kube-flannel/net-conf.json",
            "--subnet-file=/run/flannel/subnet.env",
            "--cni-conf=/etc/cni/net.d/10-flannel.conflist",
            "--iface=$(HOST_IP)",
            f"--healthz-port={ports.FLANNEL_HEALTH}",
            "--ip-masq",
        ],
        env=[*LOCAL_API, NODE_NAME, {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        resources=pods.requests("50m", "50Mi"),
        startupProbe=pods.http_probe("/livez", ports.FLANNEL_HEALTH, period=1, failures=STARTS, timeout=ADDON_PROBE),
        livenessProbe=pods.http_probe("/livez", ports.FLANNEL_HEALTH, period=10, failures=6, timeout=ADDON_PROBE),
        readinessProbe=pods.http_probe("/healthz", ports.FLANNEL_HEALTH, period=1, failures=3, timeout=ADDON_PROBE),
        volumeMounts=[
            pods.mount("config", "/etc/kube-flannel"),
            pods.mount("run", "/run/flannel", read_only=False),
            pods.mount("cni", "/etc/cni/net.d", read_only=False),
        ],
        securityContext={
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
        },
    )
    pod: Object = {
        "hostNetwork": True,
        "priorityClassName": pods.NODE_CRITICAL,
        "serviceAccountName": FLANNEL,
        "tolerations": pods.TOLERATE_ALL,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            pods.config_volume("config", config["metadata"]["name"]),
            pods.host_volume("run", "/run/flannel", "DirectoryOrCreate"),
            pods.host_volume("cni", "/etc/cni/net.d", "DirectoryOrCreate"),
        ],
    }
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    return [
        service_account(FLANNEL),
        _cluster_role("autarky:flannel", rules),
        _bind("autarky:flannel", "autarky:flannel", FLANNEL),
        config,
        pods.daemon_set(FLANNEL, pod, strategy=pods.rolling(surge=0, unavailable=1)),
    ]


# --- CoreDNS ---------------------------------------------------------------------------------------


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


def coredns(inputs: Inputs) -> list[Object]:
    labels = {NAME_LABEL: DNS}
    config = immutable_config_map(COREDNS, {"Corefile": _corefile(inputs.cluster)})
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    deployment = pods.deployment(
        COREDNS,
        _coredns_pod(inputs, config["metadata"]["name"]),
        replicas=DNS_REPLICAS,
        strategy=pods.rolling(surge=1, unavailable=1),
        labels=labels,
    )
    return [
        service_account(COREDNS),
        _cluster_role("autarky:coredns", rules),
        _bind("autarky:coredns", "autarky:coredns", COREDNS),
        config,
        deployment,
        # With one node there is nowhere to go: a budget would hold up its drain for ever.
        pods.disruption_budget(COREDNS, labels, unavailable=1 if _dns_nodes(inputs.cluster) > 1 else DNS_REPLICAS),
        _dns_service(inputs.cluster, labels),
    ]


def _coredns_pod(inputs: Inputs, config_map: str) -> Object:
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
        "tolerations": [{"key": CONTROL_PLANE_WISH, "operator": "Exists"}, *pods.LEAVE_AFTER_A_MINUTE],
        "topologySpreadConstraints": [_dns_spread(inputs.cluster)],
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [pods.config_volume("config", config_map)],
    }


def _dns_spread(cluster: Cluster) -> Object:
    """Over as many nodes as there will be, from the first pod on: while the others have not joined yet the second one
    waits for them. Left to itself it would go to the first node, and nothing would ever move it."""
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
    """How many nodes of the file it may run on: at least one, says the check of the file."""
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
