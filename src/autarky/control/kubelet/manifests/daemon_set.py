"""The DaemonSet whose pods are the kubelets of level 0, in the hosted slot.

A pod enters the host's mount namespace and runs the supervisor there (`hosted`): paths, mounts and mount programs are
the host's, and nothing of it has to be mounted into the pod. The image has the kubelet, and a shell to get there.

Contract: Ready says that this pod's kubelet is in force and healthy. It has no liveness probe: the supervisor ends a
kubelet that hangs, and the host's kubelet runs on where this one has failed.

Danger: it is root on every node. It has no token: what it does in the API, it does as the node's own kubelet.
"""

from __future__ import annotations

from autarky.control.kubelet.manifests import hosted
from autarky.model import ports
from autarky.model.components import KUBELET
from autarky.model.patience import ADDON_PROBE
from autarky.render import pods
from autarky.render.values import Inputs, Object

SHELL = "/bin/busybox"
"""In the image."""
CPU = "200m"
"""Its share of a node whose processors are taken: as the host's kubelet it would have that of a service."""
STOP_SECONDS = 15
"""The supervisor gives its kubelet 5 s."""
# The first process stays in the container: by it the supervisor finds the kubelet, under its own name. Kubernetes takes
# $$ for a $.
_ENTER = (
    f"{SHELL} nsenter -t 1 -m -- {hosted.SCRIPT_PATH} $$$$ & trap 'kill $!' TERM INT;"
    " wait $!; status=$?; trap - TERM INT; wait $! || status=$?; exit $status"
)


def objects(inputs: Inputs) -> list[Object]:
    container = pods.command_container(
        KUBELET,
        inputs.image(KUBELET),
        [SHELL, "sh", "-c", _ENTER],
        env=[{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        resources=pods.requests(CPU, "64Mi"),
        readinessProbe=pods.http_probe(
            "/healthz", ports.KUBELET_HOSTED_HEALTH, period=2, failures=3, timeout=ADDON_PROBE
        ),
        securityContext={"privileged": True, "readOnlyRootFilesystem": True},
    )
    pod: Object = {
        "hostNetwork": True,
        "hostPID": True,
        "priorityClassName": pods.NODE_CRITICAL,
        "tolerations": pods.TOLERATE_ALL,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "containers": [container],
    }
    return [pods.daemon_set(KUBELET, pod, strategy=pods.rolling(surge=0, unavailable=1))]
