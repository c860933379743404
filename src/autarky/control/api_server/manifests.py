"""Level 2, kube-apiserver, in both slots: DaemonSet on port 7443, standby static pod on 7444.

Both run the same command with the same identities; only the port, the location of the files and the time
to drain differ. No port is declared: a declared host port would make scheduler and kubelet refuse the
other slot. Probes leave etcd out (rule 9): a lost quorum must not get API servers killed or replaced.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import replace

from autarky.control.certificates.manifests import leaves
from autarky.model import ports
from autarky.model.components import API_SERVER
from autarky.model.patience import GRACE, HOSTED_DRAIN, PROBED_GRACE, REQUESTS_END, STANDBY_DRAIN, STARTS
from autarky.render import pods
from autarky.render.values import (
    CONTROL_PLANE_ACTIVE,
    Inputs,
    Object,
    flags,
    immutable_config_map,
    immutable_secret,
    with_given,
)

LEAVES = leaves.directory_of(API_SERVER)
"""In the pod and on the host: the leaf certificates that the node's agent renews. The server rereads them."""
SECRETS = "/etc/kubernetes/secrets"
CONFIG = "/etc/kubernetes/config"
ENCRYPTION_FILE = "encryption-provider-config.yaml"
BEFORE_STOP = "/before-stop/"
"""A path of the node agent, which answers when the standby serves; only the template has the rest of it. Where nobody
answers, the kubelet goes on."""
ENCRYPTION = "encryption-provider-config"
"""The flag that names the file by which what is stored encrypted is read."""
READY_PATH = "/readyz?exclude=etcd&exclude=etcd-readiness"
LIVE_PATH = "/livez?exclude=etcd&exclude=etcd-readiness"

_AUTHENTICATION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "anonymous": {
        "enabled": True,
        "conditions": [{"path": "/livez"}, {"path": "/readyz"}, {"path": "/healthz"}],
    },
}


def secret_files(inputs: Inputs) -> dict[str, str]:
    """The files of its Secret (and of its standby's directory): CAs and keys that do not change. Its leaf certificates
    differ by node, in files that the node's agent renews; the user renews the one for an external etcd."""
    credentials = inputs.credentials
    files = credentials.pick(ca_crt="ca.crt", sa_pub="sa.pub", sa_key="sa.key")
    if inputs.cluster.external_etcd is not None:
        for end in ("crt", "key"):
            files[f"etcd-client.{end}"] = credentials.text(f"apiserver-etcd-client.{end}")
    files["front-proxy-ca.crt"] = credentials.text("front-proxy-ca.crt")
    files["etcd-ca.crt"] = credentials.text("etcd/ca.crt")
    return files


def config_files() -> dict[str, str]:
    return {"authentication.json": json.dumps(_AUTHENTICATION, indent=2) + "\n"}


def arguments(inputs: Inputs, *, port: int, drain: int, secrets: str, config: str) -> list[str]:
    """The command line; $(HOST_IP) stands for the node's address, which the pod fills in."""
    own = own_arguments(inputs, port=port, drain=drain, secrets=secrets, config=config)
    return flags(own, inputs.cluster.extra_args.get(API_SERVER, {}))


def own_arguments(inputs: Inputs, *, port: int, drain: int, secrets: str, config: str) -> dict[str, str]:
    """What autarky sets, without the user's extra arguments."""
    cluster = inputs.cluster
    etcd_client = f"{LEAVES if cluster.external_etcd is None else secrets}/etcd-client"
    return {
        "advertise-address": "$(HOST_IP)",
        "secure-port": str(port),
        "etcd-servers": ",".join(_etcd_servers(inputs)),
        "etcd-cafile": f"{secrets}/etcd-ca.crt",
        "etcd-certfile": f"{etcd_client}.crt",
        "etcd-keyfile": f"{etcd_client}.key",
        "client-ca-file": f"{secrets}/ca.crt",
        "tls-cert-file": f"{LEAVES}/apiserver.crt",
        "tls-private-key-file": f"{LEAVES}/apiserver.key",
        "kubelet-certificate-authority": f"{secrets}/ca.crt",
        "kubelet-client-certificate": f"{LEAVES}/kubelet-client.crt",
        "kubelet-client-key": f"{LEAVES}/kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP,Hostname",
        "requestheader-client-ca-file": f"{secrets}/front-proxy-ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{LEAVES}/front-proxy-client.crt",
        "proxy-client-key-file": f"{LEAVES}/front-proxy-client.key",
        "service-account-issuer": f"https://kubernetes.default.svc.{cluster.network.dns_domain}",
        "service-account-key-file": f"{secrets}/sa.pub",
        "service-account-signing-key-file": f"{secrets}/sa.key",
        "service-cluster-ip-range": str(cluster.network.service_cidr),
        "authentication-config": f"{config}/authentication.json",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "enable-bootstrap-token-auth": "true",
        "allow-privileged": "true",
        **cluster.default_arguments(API_SERVER),
        # Two servers on one node would fight over one address; `up` (later the operator) writes the slice.
        "endpoint-reconciler-type": "none",
        # Without --shutdown-send-retry-after: its 429 makes every client-go client wait for five seconds,
        # for renewals of leases too. A GOAWAY makes them reconnect at once.
        "shutdown-delay-duration": f"{drain}s",
        "shutdown-watch-termination-grace-period": "2s",
    }


def _etcd_servers(inputs: Inputs) -> tuple[str, ...]:
    """The load balancer's local port, so that membership changes restart no API server. External etcd
    is dialled as the file says: its certificates need not name 127.0.0.1."""
    if inputs.cluster.external_etcd is not None:
        return inputs.cluster.external_etcd.endpoints
    return (f"https://127.0.0.1:{ports.NLLB_ETCD}",)


def _container(inputs: Inputs, *, port: int, drain: int, secrets: str, config: str) -> Object:
    command = ["kube-apiserver", *arguments(inputs, port=port, drain=drain, secrets=secrets, config=config)]
    return pods.command_container(
        API_SERVER,
        inputs.image(API_SERVER),
        command,
        env=[{"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        resources=pods.requests("200m", "512Mi"),
        startupProbe=pods.https_probe(LIVE_PATH, port, period=1, failures=STARTS),
        livenessProbe=pods.https_probe(LIVE_PATH, port, period=10, failures=8),
        readinessProbe=pods.https_probe(READY_PATH, port, period=1, failures=3),
        securityContext=pods.restricted_container(),
    )


def before_stop_path(inputs: Inputs) -> str:
    """Any pod can make the kubelet request a path of 127.0.0.1, by a probe: so this one cannot be guessed. It is
    derived from a key that does not change, since a new path changes the template and causes a rollout."""
    secret = hmac.digest(inputs.credentials["sa.key"], BEFORE_STOP.encode(), "sha256").hex()
    return f"{BEFORE_STOP}{secret[:32]}"


def hosted(inputs: Inputs) -> list[Object]:
    """Secret, ConfigMap and DaemonSet."""
    secret = immutable_secret(API_SERVER, secret_files(inputs))
    config = immutable_config_map(API_SERVER, config_files())
    own = own_arguments(inputs, port=ports.API_HOSTED, drain=HOSTED_DRAIN, secrets=SECRETS, config=CONFIG)
    container = _container(inputs, port=ports.API_HOSTED, drain=HOSTED_DRAIN, secrets=SECRETS, config=CONFIG)
    places = {"secrets": SECRETS, "config": CONFIG, leaves.VOLUME: LEAVES}
    container["volumeMounts"] = [pods.mount(name, path) for name, path in places.items()]
    before_stop = {"host": "127.0.0.1", "port": ports.NODE_AGENT, "path": before_stop_path(inputs), "scheme": "HTTP"}
    container["lifecycle"] = {"preStop": {"httpGet": before_stop}}
    for probe in ("startupProbe", "livenessProbe"):
        container[probe]["terminationGracePeriodSeconds"] = PROBED_GRACE
    pod: Object = {
        "hostNetwork": True,
        "priorityClassName": pods.NODE_CRITICAL,
        "nodeSelector": {CONTROL_PLANE_ACTIVE: ""},
        "tolerations": pods.TOLERATE_ALL,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": pods.nonroot_pod(),
        "containers": [container],
        "volumes": [
            pods.secret_volume("secrets", secret["metadata"]["name"]),
            pods.config_volume("config", config["metadata"]["name"]),
            pods.host_volume(leaves.VOLUME, LEAVES, "Directory"),
        ],
    }
    # One at a time, the old one first: two hosted servers cannot share the port. The standby covers the gap.
    daemon_set = pods.daemon_set(API_SERVER, pod, strategy=pods.rolling(surge=0, unavailable=1))
    return [secret, config, with_given(daemon_set, own, inputs.cluster.extra_args.get(API_SERVER, {}))]


def standby_spec(inputs: Inputs, directory: str) -> Object:
    """The pod spec of the standby whose files lie in `directory` on the host (root only)."""
    reading = _able_to_read(inputs)
    container = _container(reading, port=ports.API_STANDBY, drain=STANDBY_DRAIN, secrets=SECRETS, config=SECRETS)
    container["volumeMounts"] = [pods.mount("files", SECRETS), pods.mount(leaves.VOLUME, LEAVES)]
    container["resources"] = pods.standby_share(API_SERVER)
    return {
        "terminationGracePeriodSeconds": STANDBY_DRAIN + REQUESTS_END,
        "containers": [container],
        "volumes": [
            pods.host_volume("files", directory, "Directory"),
            pods.host_volume(leaves.VOLUME, LEAVES, "Directory"),
        ],
    }


def _able_to_read(inputs: Inputs) -> Inputs:
    """Whatever file the cluster file names: that may be one of a Secret, which nobody can read yet."""
    if not inputs.encryption:
        return inputs
    given = {**inputs.cluster.extra_args.get(API_SERVER, {}), ENCRYPTION: f"{SECRETS}/{ENCRYPTION_FILE}"}
    extra_args = {**inputs.cluster.extra_args, API_SERVER: given}
    return replace(inputs, cluster=replace(inputs.cluster, extra_args=extra_args))


def standby_files(inputs: Inputs) -> dict[str, str]:
    encryption = {ENCRYPTION_FILE: inputs.encryption} if inputs.encryption else {}
    return {**secret_files(inputs), **config_files(), **encryption}
