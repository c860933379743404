"""The main path: from nothing to a self-hosted cluster, under load, across a power cut, and back to nothing.

One control node and one worker on lab hosts. The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
from harness import AGNHOST, COMMAND, TestCluster, environment

from autarky.lab.network import short_hash

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

WEB = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {{matchLabels: {{app: web}}}}
      containers:
        - name: web
          image: {AGNHOST}
          args: [netexec, --http-port=8080]
          readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: client}}
spec:
  nodeName: n2
  containers: [{{name: client, image: {AGNHOST}, args: [pause]}}]
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    nodes = [{"name": "n1", "roles": ["control-plane", "worker"]}, {"name": "n2"}]
    return make_cluster("t-up", nodes=nodes)


def test_the_temporary_control_plane_serves_before_the_pivot(cluster: TestCluster) -> None:
    cluster.up("--skip", "pivot")
    active = [name for name in cluster.static_pods("n1") if name.startswith("standby-")]
    assert len(active) == 3, active


def test_the_pivot_under_load_fails_no_request(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        cluster.up()
        time.sleep(2)
    assert reports[0]["failed"] == 0, reports[0]
    assert reports[0]["writes_acknowledged"] > 20


def test_only_etcd_and_the_load_balancer_stay_static(cluster: TestCluster) -> None:
    assert [name.rsplit("-", 1)[0] for name in cluster.static_pods("n1")] == ["etcd", "node-load-balancer"]
    assert [name.rsplit("-", 1)[0] for name in cluster.static_pods("n2")] == ["node-load-balancer"]


def test_everything_hosted_is_available_and_the_standby_dormant(cluster: TestCluster) -> None:
    status = cluster.status()
    assert status["healthy"], status
    standby = {row["component"]: row["health"] for row in status["rows"] if row["slot"] == "standby"}
    assert standby == dict.fromkeys(["kube-apiserver", "kube-controller-manager", "kube-scheduler"], "dormant")


def test_a_second_up_changes_nothing(cluster: TestCluster) -> None:
    assert "up: unchanged" in cluster.up().stderr


def test_a_service_answers_by_name_across_nodes(cluster: TestCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=WEB)
    cluster.kubectl("rollout", "status", "deploy/web", "--timeout=90s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
    nodes = cluster.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(nodes) == ["n1", "n2"]
    address = "web.default.svc.cluster.local:80"
    for _ in range(6):
        cluster.kubectl("exec", "client", "--", "/usr/local/bin/agnhost", "connect", address, "--timeout=5s")


def test_logs_and_port_forward_work(cluster: TestCluster) -> None:
    assert cluster.kubectl("logs", "deploy/web", "--tail=5")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [*COMMAND, "kubectl", "--cluster", cluster.name, "port-forward", "svc/web", f"{port}:80"]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            assert "Forwarding" in forward.stdout.readline()
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"GET /hostname HTTP/1.0\r\nHost: web\r\n\r\n")
                answer = connection.makefile().read()
        finally:
            forward.terminate()
    assert "web-" in answer


def test_logs_of_a_component_are_read_on_its_host(cluster: TestCluster) -> None:
    said = cluster.autarky("logs", "--cluster", cluster.name, "kube-scheduler", "--tail", "3").stdout
    assert "==> kube-scheduler-" in said


def test_a_second_scheduler_with_no_node_for_it_harms_nothing(cluster: TestCluster) -> None:
    scale = ("-n", "kube-system", "scale", "deploy/kube-scheduler")
    cluster.kubectl(*scale, "--replicas=2")
    cluster.wait("one scheduler is pending", lambda: "Pending" in _phases(cluster, "kube-scheduler"))
    assert "Running" in _phases(cluster, "kube-scheduler")
    cluster.kubectl(*scale, "--replicas=1")
    cluster.wait("one scheduler is left", lambda: _phases(cluster, "kube-scheduler") == ["Running"])


def _phases(cluster: TestCluster, component: str) -> list[str]:
    pods = json.loads(cluster.kubectl("-n", "kube-system", "get", "pods", "-l", f"k8s-app={component}", "-o", "json"))
    return sorted(pod["status"]["phase"] for pod in pods["items"])


def test_a_worker_has_no_way_into_etcd(cluster: TestCluster) -> None:
    assert "2378" not in cluster.shell("n2", "ss -lnt")
    assert cluster.shell("n2", "find / -xdev -name '*etcd*' -path '*pki*' 2>/dev/null || true").strip() == ""
    assert cluster.shell("n2", "ls /etc/kubernetes/pki").split() == ["ca.crt"]


def test_anonymous_access_is_for_health_only(cluster: TestCluster) -> None:
    address = cluster.kubectl("get", "node", "n1", "-o", "jsonpath={.status.addresses[0].address}")
    code = "curl -sk -o /dev/null -w '%{http_code}' https://" + address + ":6443"
    assert cluster.shell("n2", f"{code}/readyz") == "200"
    assert cluster.shell("n2", f"{code}/version") == "401"
    assert cluster.shell("n2", f"{code}/api/v1/namespaces") == "401"


def test_after_a_power_cut_the_standby_serves_and_up_pivots_again(cluster: TestCluster) -> None:
    cluster.kubectl("create", "configmap", "written-before-the-cut")
    cluster.autarky("lab", "cut", "--lab", cluster.name, "n1")
    assert not cluster.status()["healthy"]
    cluster.autarky("lab", "start", "--lab", cluster.name, "n1", "-o", "plain")
    cluster.wait("the API answers again", cluster.api_answers, seconds=120)
    assert "written-before-the-cut" in cluster.kubectl("get", "configmaps")
    assert [n for n in cluster.static_pods("n1") if n.startswith("standby-kube-apiserver-")]
    with cluster.probed() as reports:
        cluster.up()
        time.sleep(2)
    assert reports[0]["failed"] == 0, reports[0]
    assert [name.rsplit("-", 1)[0] for name in cluster.static_pods("n1")] == ["etcd", "node-load-balancer"]


def test_down_leaves_nothing(cluster: TestCluster) -> None:
    cluster.down()
    mounts = subprocess.run(["cat", "/proc/self/mounts"], capture_output=True, text=True, check=True).stdout
    assert f"/labs/{cluster.name}/" not in mounts
    assert not cluster.directory.exists()
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    bridges = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert short_hash(cluster.name) not in namespaces + bridges
