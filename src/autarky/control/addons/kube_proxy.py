"""kube-proxy (nftables). On the host network, it reaches the API through the node-local load balancer: Services need
kube-proxy, so it must not need one."""

from __future__ import annotations

import json

from autarky.control.addons.addon import NODE_NAME, TOKEN_FILE, AddOn, bind, service_account
from autarky.model import ports
from autarky.model.components import COMPONENTS, KUBE_PROXY
from autarky.model.patience import ADDON_PROBE, STARTS
from autarky.render import pods
from autarky.render.kubeconfig import token_file_kubeconfig
from autarky.render.values import Inputs, Object, immutable_config_map


def objects(inputs: Inputs) -> list[Object]:
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
        bind("autarky:kube-proxy", "system:node-proxier", KUBE_PROXY),
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
        # 0: leave the size of the kernel's table; raising it needs a writable /proc/sys of the real machine.
        "conntrack": {"maxPerCore": 0},
        **extra,
    }
    kubeconfig = token_file_kubeconfig(inputs, KUBE_PROXY, TOKEN_FILE)
    return {"config.json": json.dumps(config, indent=2) + "\n", "kubeconfig": kubeconfig.decode()}


ADD_ON = AddOn(
    "kube-proxy",
    KUBE_PROXY,
    objects,
    images=(COMPONENTS[KUBE_PROXY].image,),
    ports=(COMPONENTS[KUBE_PROXY].port,),
    modules=("nf_conntrack", "nf_tables"),
    tables=("kube-proxy",),
)
