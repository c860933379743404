"""The main path: from nothing to a self-hosted cluster, under load, across a power cut, and back to nothing.

One control node and one worker on lab hosts. The tests of this module build on each other, in order; only that of the
rotation brings its cluster up itself where none has.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from ha import nothing_failed
from harness import AGNHOST, COMMAND, STATE, TestCluster, environment, kill_when
from kubelets import kubelet_process, report_of
from slots import parked_agent_is_a_copy, settled

from autarky.kube import KubeClient
from autarky.lab.network import short_hash
from autarky.ports import Object

NETWORK_LISTS = (["ip", "netns", "list"], ["ip", "-br", "link"], ["nft", "list", "tables"])
TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"  # good for this test's cluster until the test deletes it
TOKEN = f"{TOKEN_ID}.{TOKEN_SECRET}"
JOIN_SECRET = f"""
apiVersion: v1
kind: Secret
type: bootstrap.kubernetes.io/token
metadata:
  name: bootstrap-token-{TOKEN_ID}
  namespace: kube-system
  annotations: {{autarky.dev/node: n2}}
stringData:
  token-id: {TOKEN_ID}
  token-secret: {TOKEN_SECRET}
  usage-bootstrap-authentication: "true"
  auth-extra-groups: system:bootstrappers:autarky
"""

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.timeout(600)]

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
    """Without the agents, which pivot by themselves."""
    needs_the_agents = ("configure-kubelets", "pivot", "retire-hosted", "make-control-nodes", "await-workloads")
    cluster.up(*(f"--skip={phase}" for phase in ("start-agents", "apply-agents", *needs_the_agents)))
    active = [name for name in cluster.static_pods("n1") if name.startswith("standby-")]
    assert len(active) == 3, active


def test_the_pivot_under_load_fails_no_request(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        cluster.up()
        time.sleep(2)
    nothing_failed(reports[0])


STATIC = {"etcd", "node-agent-standby", "node-load-balancer"}


def test_only_etcd_the_load_balancer_and_the_parked_agent_stay_static(cluster: TestCluster) -> None:
    assert {name.rsplit("-", 1)[0] for name in cluster.static_pods("n1")} == STATIC
    assert [name.rsplit("-", 1)[0] for name in cluster.static_pods("n2")] == ["node-load-balancer"]


def test_everything_hosted_is_available_and_the_standby_dormant(cluster: TestCluster) -> None:
    status = cluster.status()
    assert status["healthy"], status
    standby = {row["component"]: row["health"] for row in status["rows"] if row["slot"] == "standby"}
    dormant = dict.fromkeys(["kube-apiserver", "kube-controller-manager", "kube-scheduler"], "dormant")
    assert standby == {**dormant, "node-agent": "ready"}


def test_a_second_up_changes_nothing(cluster: TestCluster) -> None:
    assert "up: unchanged" in cluster.up().stderr


def test_another_version_in_the_file_is_refused_with_nothing_changed_while_the_api_does_not_answer(
    cluster: TestCluster,
) -> None:
    """With an API it is an upgrade (`test_upgrade_by_file`). Without one nobody can make it, and the hosts' own word
    has to keep a newer kubelet from being started."""
    other = TestCluster(cluster.name, {**cluster.spec, "kubernetesVersion": "1.37.1"})
    kept = (cluster.directory / "cluster.json").read_bytes()
    # Until then the agent replaces its manifest at some moment.
    cluster.wait("the parked agent is a copy of the hosted one", lambda: parked_agent_is_a_copy(cluster), seconds=240)
    before = {host: on_disk(cluster, host) for host in ("n1", "n2")}
    cluster.shell("n1", CUT)
    refused = other.up(check=False)
    cluster.shell("n1", "nft delete table inet cut")
    assert (refused.status, "runs Kubernetes v1.36.4, as host n1 says" in refused.stderr) == (2, True), refused
    assert {host: on_disk(cluster, host) for host in ("n1", "n2")} == before
    assert (cluster.directory / "cluster.json").read_bytes() == kept
    assert "up: unchanged" in cluster.up().stderr


CUT = (
    "nft add table inet cut && nft add chain inet cut in '{ type filter hook input priority -10; }' &&"
    " nft add rule inet cut in iifname != lo tcp dport 6443 reject with tcp reset"
)
"""The API is down for all but the host itself."""


def on_disk(cluster: TestCluster, host: str) -> str:
    """What `up` puts on a host, and where the links lead."""
    kubelet = "/var/lib/autarky/kubelet"
    files = f"/var/lib/autarky/state/node.json {kubelet}/base.json {kubelet}/current/* /etc/systemd/system/*.service"
    found = cluster.shell(
        host,
        f"sha256sum {files}; readlink {kubelet}/current /var/lib/autarky/bin/*;"
        " ls -l /var/lib/autarky/store /etc/kubernetes/manifests",
    )
    for seen in ("state/node.json", "current/config.json", "system/kubelet.service", "node-load-balancer"):
        assert seen in found, found
    return found


def test_changed_kubelet_settings_are_applied_with_no_container_restarted_and_no_request_failed(
    cluster: TestCluster,
) -> None:
    """Also those that follow from the host: systemd-resolved is there from now on, and pods get its real servers."""
    running = at_rest(cluster)
    cluster.shell("n2", f"mkdir -p {RESOLVED} && echo 'nameserver {SERVER}' > {RESOLVED}/resolv.conf")
    cluster.shell("n2", "echo 'nameserver 127.0.0.53' > /etc/resolv.conf")
    cluster.spec = {**cluster.spec, "extraArgs": {"kubelet": {"max-pods": "64"}}}
    plan = cluster.autarky("plan", "-f", str(cluster.file)).stdout
    with cluster.probed() as reports:
        cluster.up()
    nothing_failed(reports[0])
    for host in ("n1", "n2"):
        assert f"have the kubelet of {host} changed: its new settings" in plan
        assert containers(cluster, host) == running[host]
        assert cluster.kubectl("get", "node", host, "-o", "jsonpath={.status.capacity.pods}") == "64"
    cluster.kubectl("apply", "-f", "-", stdin=ASKING)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/asking", "--timeout=60s")
    sandboxes = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/*/resolv.conf"
    assert SERVER in cluster.shell("n2", f"cat {sandboxes}")
    cluster.kubectl("delete", "pod", "asking", "--wait=false")
    assert "up: unchanged" in cluster.up().stderr


RESOLVED, SERVER = "/run/systemd/resolve", "192.0.2.53"
ASKING = f"""
apiVersion: v1
kind: Pod
metadata: {{name: asking}}
spec:
  nodeName: n2
  dnsPolicy: Default
  terminationGracePeriodSeconds: 0
  containers: [{{name: asking, image: {AGNHOST}, args: [pause]}}]
"""


def at_rest(cluster: TestCluster) -> dict[str, str]:
    """What runs on each host, once nothing is about to go: a standby that is withdrawn, the agent that was parked."""
    cluster.wait("the standbys are dormant", lambda: settled(cluster), seconds=150)
    cluster.wait("the parked agent is the one that stays", lambda: parked_agent_is_a_copy(cluster), seconds=180)
    hosts = ("n1", "n2")
    seen: list[dict[str, str]] = []

    def the_same_twice() -> bool:
        seen.append({host: containers(cluster, host) for host in hosts})
        time.sleep(5)
        return len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]

    cluster.wait("nothing comes or goes", the_same_twice, seconds=150)
    return seen[-1]


def containers(cluster: TestCluster, host: str) -> str:
    """The processes that run in containers, with when they were started: in ticks since the machine began, since a date
    is made of that anew each time, and off by one now and then."""
    pids = "$(/var/lib/autarky/bin/ctr -n k8s.io tasks ls | awk 'NR > 1 { print $2 }')"
    found = cluster.shell(host, f"for pid in {pids}; do awk '{{ print $1, $2, $22 }}' /proc/$pid/stat; done | sort")
    assert "kube-proxy" in found, found
    return found


def test_a_bad_flag_of_the_kubelet_is_taken_back_and_the_error_has_its_last_words(cluster: TestCluster) -> None:
    running = at_rest(cluster)
    on_disks = {host: on_disk(cluster, host) for host in ("n1", "n2")}
    bad = TestCluster(cluster.name, {**cluster.spec, "extraArgs": {"kubelet": {"max-pods": "64", "nonsense": "1"}}})
    with cluster.probed() as reports:
        refused = bad.up(check=False)
    nothing_failed(reports[0])
    assert refused.status == 2
    assert "its kubelet is not healthy with its new settings (the kubelet has exited 3 times" in refused.stderr
    assert "unknown flag: --nonsense" in refused.stderr
    assert {host: containers(cluster, host) for host in ("n1", "n2")} == running
    assert {host: on_disk(cluster, host) for host in ("n1", "n2")} == on_disks
    # A kubelet that has just begun calls a pod with a readiness probe not ready until it has asked for the first time.
    cluster.wait("the kubelet has asked all pods", lambda: cluster.status()["healthy"], seconds=30)
    before = {host: kubelet_process(cluster, host) for host in ("n1", "n2")}
    cluster.up()
    assert {host: containers(cluster, host) for host in ("n1", "n2")} == running
    assert {host: kubelet_process(cluster, host) for host in ("n1", "n2")} == before
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.rotation(alone=True)
@pytest.mark.timeout(900, func_only=True)
def test_a_bad_flag_whose_up_was_killed_is_taken_back_without_it(cluster: TestCluster) -> None:
    running = at_rest(cluster)
    on_disks = {host: on_disk(cluster, host) for host in ("n1", "n2")}
    numbers = {host: report_of(cluster, host).get("number", 0) for host in ("n1", "n2")}
    bad = TestCluster(cluster.name, {**cluster.spec, "extraArgs": {"kubelet": {"max-pods": "64", "nonsense": "2"}}})

    def tried() -> None:
        """Looked for on the host, so that it is seen at once."""
        look = "for n in $(seq 300); do [ ! -e /var/lib/autarky/kubelet/trial ] || { echo yes; exit; }; sleep 0.1; done"
        cluster.wait("the new settings are tried", lambda: "yes" in cluster.shell("n2", look), seconds=240)

    def went_back(host: str) -> bool:
        said = report_of(cluster, host)
        return said.get("number", 0) > numbers[host] and said.get("state") == "WentBack"

    assert kill_when(["up", "-f", str(bad.file), "-o", "plain"], tried) < 0
    for host in ("n1", "n2"):
        cluster.wait(f"{host} has gone back", partial(went_back, host), seconds=150)
        assert active(cluster, host) == "active"
    assert {host: on_disk(cluster, host) for host in ("n1", "n2")} == on_disks
    assert {host: containers(cluster, host) for host in ("n1", "n2")} == running
    refused = bad.up(check=False)
    assert "so that it has the former ones again" in refused.stderr
    cluster.up()
    assert {host: on_disk(cluster, host) for host in ("n1", "n2")} == on_disks
    assert {host: containers(cluster, host) for host in ("n1", "n2")} == running
    assert "up: unchanged" in cluster.up().stderr


def active(cluster: TestCluster, host: str) -> str:
    return cluster.shell(host, "systemctl is-active kubelet || true").strip()


def test_a_service_answers_by_name_across_nodes(cluster: TestCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=WEB)
    cluster.kubectl("rollout", "status", "deploy/web", "--timeout=90s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
    nodes = cluster.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(nodes) == ["n1", "n2"]
    address = "web.default.svc.cluster.local:80"
    connect = ("exec", "client", "--", "/usr/local/bin/agnhost", "connect", address, "--timeout=5s")
    # Pods are ready a moment before the client's kube-proxy has heard of it; until then it refuses for them.
    cluster.wait("kube-proxy of n2 knows the service", lambda: "REFUSED" not in cluster.kubectl_error(*connect))
    for _ in range(6):
        cluster.kubectl(*connect)


def test_pods_of_different_nodes_reach_each_other_by_their_own_addresses(cluster: TestCluster) -> None:
    address = "jsonpath={.items[*].status.podIP}"
    addresses = cluster.kubectl("get", "pods", "-l", "app=web", "-o", address).split()
    assert len(addresses) == 2
    for found in addresses:
        cluster.kubectl("exec", "client", "--", "/usr/local/bin/agnhost", "connect", f"{found}:8080", "--timeout=5s")


def test_what_a_command_in_a_pod_says_comes_back(cluster: TestCluster) -> None:
    assert "Available Commands" in cluster.kubectl("exec", "client", "--", "/usr/local/bin/agnhost", "help")


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
    assert cluster.shell("n2", "find /etc/kubernetes/pki ! -type d").split() == ["/etc/kubernetes/pki/ca.crt"]


def test_anonymous_access_is_for_health_only(cluster: TestCluster) -> None:
    address = cluster.kubectl("get", "node", "n1", "-o", "jsonpath={.status.addresses[0].address}")
    code = "curl -sk -o /dev/null -w '%{http_code}' https://" + address + ":6443"
    assert cluster.shell("n2", f"{code}/readyz") == "200"
    assert cluster.shell("n2", f"{code}/version") == "401"
    assert cluster.shell("n2", f"{code}/api/v1/namespaces") == "401"


def test_a_token_is_good_for_its_own_node_only(cluster: TestCluster) -> None:
    """Asked for as a joining kubelet does, with a token made for n2."""
    cluster.kubectl("apply", "-f", "-", stdin=JOIN_SECRET)
    asked = _ask_for_certificate(cluster, "n1")
    assert asked["spec"]["username"] == "system:bootstrap:abcdef"
    cluster.wait("the request is judged", lambda: _conditions_of_request(cluster))
    [condition] = _conditions_of_request(cluster)
    assert condition["type"] == "Denied"
    assert "the token was made for node n2, not for n1" in condition["message"]
    cluster.kubectl("-n", "kube-system", "delete", "secret", "bootstrap-token-abcdef")


def _conditions_of_request(cluster: TestCluster) -> list[Object]:
    found: list[Object] = json.loads(cluster.kubectl("get", "csr", "stolen", "-o", "json"))["status"].get("conditions")
    return found or []


def _ask_for_certificate(cluster: TestCluster, node: str) -> Object:
    """A request for the node's identity, as the bearer of the token."""
    identity = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(identity)).sign(key, hashes.SHA256())
    server = cluster.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")

    async def ask() -> Object:
        kube = KubeClient([server], ca_pem=(cluster.directory / "pki/ca.crt").read_bytes(), token=TOKEN)
        try:
            return await kube.create(
                {
                    "apiVersion": "certificates.k8s.io/v1",
                    "kind": "CertificateSigningRequest",
                    "metadata": {"name": "stolen"},
                    "spec": {
                        "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
                        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                        "usages": ["digital signature", "client auth"],
                    },
                }
            )
        finally:
            await kube.close()

    return asyncio.run(ask())


def test_with_the_api_down_status_and_logs_still_answer_and_the_standby_takes_over(cluster: TestCluster) -> None:
    cluster.shell("n1", "systemctl stop kubelet; pkill -KILL -x kube-apiserver")
    status = cluster.status()
    assert not status["healthy"]
    assert status["api"] != "ready"
    health = {(row["component"], row["slot"]): row["health"] for row in status["rows"] if row["node"] == "n1"}
    assert health["kube-apiserver", "hosted"] == "down"
    assert "ready" not in health.values() or health.get(("etcd", "static")) == "listening", health
    assert "==> " in cluster.autarky("logs", "--cluster", cluster.name, "kube-apiserver", "--tail", "2").stdout
    found = cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout
    assert "n1: kubelet does not run" in found.splitlines()[0], found
    cluster.shell("n1", "systemctl start kubelet")
    cluster.wait("the API answers again", cluster.api_answers, seconds=60)
    cluster.up()
    cluster.wait("everything is healthy", lambda: cluster.status()["healthy"])


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
    nothing_failed(reports[0])
    assert {name.rsplit("-", 1)[0] for name in cluster.static_pods("n1")} == STATIC


def test_down_leaves_nothing(cluster: TestCluster) -> None:
    cluster.down()
    mounts = subprocess.run(["cat", "/proc/self/mounts"], capture_output=True, text=True, check=True).stdout
    assert f"/labs/{cluster.name}/" not in mounts
    assert not cluster.directory.exists()
    lab = STATE / "autarky/labs" / cluster.name
    assert not lab.exists()
    found = [subprocess.run(argv, capture_output=True, text=True, check=True).stdout for argv in NETWORK_LISTS]
    assert not [text for text in found if short_hash(str(lab)) in text]
