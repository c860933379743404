"""The pod network: flannel with vxlan. On the host network, it reaches the API through the node-local load balancer."""

from __future__ import annotations

import json

from autarky.control.addons.addon import LOCAL_API, NODE_NAME, bind, cluster_role, service_account
from autarky.model import ports
from autarky.model.components import FLANNEL
from autarky.model.patience import ADDON_PROBE, STARTS
from autarky.render import pods
from autarky.render.values import Inputs, Object, immutable_config_map

RUN = "/run/flannel"
SUBNET = f"{RUN}/subnet.env"
CONFIGURATION = "/etc/cni/net.d/10-flannel.conflist"


def objects(inputs: Inputs) -> list[Object]:
    net_conf = {
        "Network": str(inputs.cluster.network.pod_cidr),
        "EnableNFTables": True,
        "Backend": {"Type": "vxlan", "Port": ports.POD_NETWORK_VXLAN},
    }
    config = immutable_config_map(FLANNEL, {"net-conf.json": json.dumps(net_conf, indent=2) + "\n"})
    container = pods.command_container(
        FLANNEL,
        inputs.image("flannel"),
        [
            "flanneld",
            "--net-conf=/etc/kube-flannel/net-conf.json",
            f"--subnet-file={SUBNET}",
            f"--cni-conf={CONFIGURATION}",
            "--iface=$(HOST_IP)",
            f"--healthz-port={ports.POD_NETWORK_HEALTH}",
            "--ip-masq",
        ],
        env=[*LOCAL_API, NODE_NAME, {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        resources=pods.requests("50m", "50Mi"),
        startupProbe=pods.http_probe(
            "/livez", ports.POD_NETWORK_HEALTH, period=1, failures=STARTS, timeout=ADDON_PROBE
        ),
        livenessProbe=pods.http_probe("/livez", ports.POD_NETWORK_HEALTH, period=10, failures=6, timeout=ADDON_PROBE),
        readinessProbe=pods.http_probe("/healthz", ports.POD_NETWORK_HEALTH, period=1, failures=3, timeout=ADDON_PROBE),
        volumeMounts=[
            pods.mount("config", "/etc/kube-flannel"),
            pods.mount("run", RUN, read_only=False),
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
            pods.host_volume("run", RUN, "DirectoryOrCreate"),
            pods.host_volume("cni", "/etc/cni/net.d", "DirectoryOrCreate"),
        ],
    }
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    return [
        service_account(FLANNEL),
        cluster_role("autarky:flannel", rules),
        bind("autarky:flannel", "autarky:flannel", FLANNEL),
        config,
        pods.daemon_set(FLANNEL, pod, strategy=pods.rolling(surge=0, unavailable=1)),
    ]
