"""What the checks before an upgrade must find: a cluster is prepared for each of them, and set right again after it.

Contract: each is a context manager, named by what is wrong. In the block it is seen to be so: what is prepared and not
there would have the checks refuse for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harness import TestCluster
from leaves import KUBELET_CERTIFICATES, reissued, told_ends
from rollouts import API, CONTROLLER_MANAGER, SCHEDULER, adding_flag, condition, edit, last_good, quiet, template
from slots import SYSTEM

from autarky.control.kubelet.manifests.files import CONFIG, CURRENT

KUBELET_CONFIG = f"{CURRENT}/{CONFIG}"

NODE = "n1"
REMOVED_FLAG, REMOVED_GATE = "--concurrent-service-syncs=2", "--feature-gates=SidecarContainers=true"
REMOVED_API = "networking.k8s.io/v1beta1"
REMOVED_VERSION = "scheduling.k8s.io/v1alpha2"
"""Of 1.36; 1.37 does not know them."""
Unwell = Callable[[TestCluster], AbstractContextManager[None]]


@contextmanager
def a_removed_flag(cluster: TestCluster) -> Iterator[None]:
    with _by_hand(cluster, CONTROLLER_MANAGER, REMOVED_FLAG):
        yield


@contextmanager
def a_removed_gate(cluster: TestCluster) -> Iterator[None]:
    with _by_hand(cluster, SCHEDULER, REMOVED_GATE):
        yield


@contextmanager
def removed_apis_in_use(cluster: TestCluster) -> Iterator[None]:
    """APIs that are served where somebody asks the API servers for them: one that some client uses then, and one in
    whose only version something is stored."""
    asked = (f"--runtime-config={REMOVED_API}=true,{REMOVED_VERSION}=true", "--feature-gates=GenericWorkload=true")
    with _by_hand(cluster, API, *asked), _stored(cluster):
        cluster.kubectl("get", "--raw", f"/apis/{REMOVED_API}/ipaddresses")
        yield


@contextmanager
def _stored(cluster: TestCluster) -> Iterator[None]:
    templates = [{"name": "pods", "schedulingPolicy": {"basic": {}}}]
    kind = {"apiVersion": REMOVED_VERSION, "kind": "Workload", "metadata": {"name": "stored"}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({**kind, "spec": {"podGroupTemplates": templates}}))
    counted = 'apiserver_resource_objects{group="scheduling.k8s.io",resource="workloads"} 1'
    try:
        # It counts once a minute.
        cluster.wait("it is counted", lambda: counted in cluster.kubectl("get", "--raw", "/metrics"), seconds=120)
        yield
    finally:
        cluster.kubectl("delete", "workloads.scheduling.k8s.io", "stored")


@contextmanager
def _by_hand(cluster: TestCluster, workload: str, *flags: str) -> Iterator[None]:
    good = last_good(cluster, workload)
    edit(cluster, workload, adding_flag(workload, *flags))
    try:
        assert {*flags} <= {*template(cluster, workload)["spec"]["containers"][0]["command"]}
        cluster.wait(f"{workload} is good with {flags}", lambda: last_good(cluster, workload) != good, seconds=120)
        yield
    finally:
        cluster.kubectl(*SYSTEM, "rollout", "undo", workload)
        quiet(cluster)


@contextmanager
def a_webhook_that_nothing_answers(cluster: TestCluster) -> Iterator[None]:
    """For pods in kube-system, as many an operator has one for all pods. Nothing else is refused by it meanwhile."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": "gone.example.org",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [rule],
        "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, "metadata": {"name": "gone"}, "webhooks": [webhook]}))
    try:
        yield
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", "gone")


@contextmanager
def a_full_disk(cluster: TestCluster) -> Iterator[None]:
    """By a threshold that no disk reaches; nothing is evicted within the hour."""
    before = cluster.shell(NODE, f"cat {KUBELET_CONFIG}")
    soft = {"evictionSoft": {"nodefs.available": "99.9%"}, "evictionSoftGracePeriod": {"nodefs.available": "1h"}}
    _restart_kubelet(cluster, json.dumps({**json.loads(before), **soft}))
    try:
        cluster.kubectl("wait", "--for=condition=DiskPressure=True", f"node/{NODE}", "--timeout=60s")
        yield
    finally:
        # It counts as pressed for five minutes after it was, to a kubelet that goes on.
        _restart_kubelet(cluster, before)
        cluster.kubectl("wait", "--for=condition=DiskPressure=False", f"node/{NODE}", "--timeout=60s")


def _restart_kubelet(cluster: TestCluster, config: str) -> None:
    cluster.shell(NODE, f"cat > {KUBELET_CONFIG} <<'END'\n{config}\nEND\nsystemctl restart kubelet")


@contextmanager
def an_expired_certificate(cluster: TestCluster) -> Iterator[None]:
    """That kubelets serve with, on the disk: the process has read the one before, and goes on with it."""
    [(name, on_disk)] = [one for one in KUBELET_CERTIFICATES.items() if one[0] == "kubelet-server"]
    end = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    kept = f"{Path(on_disk.path).parent}/kept.pem"
    cluster.shell(NODE, f"cp -p $(readlink -f {on_disk.path}) {kept}")
    cluster.shell(NODE, reissued(cluster, NODE, {name: on_disk}, {name: end}))
    try:
        told = f"{end:%Y-%m-%dT%H:%M:%SZ}"
        cluster.wait("its end is told", lambda: told_ends(cluster)[NODE].get(name) == told, seconds=120)
        cluster.wait("it is missed", lambda: condition(cluster, "CertificatesCurrent")["status"] == "False")
        yield
    finally:
        cluster.shell(NODE, f"mv {kept} $(readlink -f {on_disk.path})")
        cluster.wait("it is good", lambda: condition(cluster, "CertificatesCurrent")["status"] == "True", seconds=120)
