"""Somebody is root on a worker of three control nodes: what each credential there may do, and what comes of it."""

from __future__ import annotations

import json
import shlex
import time
from functools import partial

import pytest
from ha import (
    CONTROL,
    DRAIN_GUARDS,
    WORKER,
    member_phases,
    wait_until_healthy,
)
from harness import Show, TestCluster
from intruder import (
    CONTROL_KEYS,
    CREATED,
    FACT,
    LEAVES,
    PUBLIC_IP,
    REFUSED,
    TUNNEL,
    UNKNOWN,
    Attempt,
    Worker,
    are_judged,
    ask_for_certificates,
    everything_else,
    foreign,
    nested_without_end,
    on_node,
    orders,
    plain_mirror,
    requests_named,
    static_pod,
    told_as_it_runs,
    what_runs,
)
from labels import (
    WISH,
    is_worker,
    parts_of_a_control_node,
)
from slots import SYSTEM, parked_agent_is_a_copy

pytestmark = [pytest.mark.e2e, pytest.mark.shares("three_and_one"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> TestCluster:
    return three_and_one


def test_the_token_of_a_workers_pod_network_makes_no_control_node_of_it(cluster: TestCluster) -> None:
    """It once did: a label by way of the Node's status, and 4 s later the control plane's keys lay on the worker."""
    worker = Worker(cluster, WORKER)
    worker.collect()
    flannel = worker.credential("kube-flannel")
    answers = worker.tries(flannel, [*orders(WORKER), *orders("n1")])
    assert {name: one for name, one in answers.items() if one.status != REFUSED} == {}
    labels = {"metadata": {"labels": {FACT: "", WISH: ""}}}
    both = worker.tries(flannel, [Attempt("both", "PATCH", f"/api/v1/nodes/{WORKER}/status", labels)])
    assert both["both"].status == REFUSED, both
    assert "autarky-" in both["both"].said or "flannel writes" in both["both"].said
    time.sleep(15)
    assert worker.keys_of_the_control_plane() == set()
    assert is_worker(cluster, WORKER)


def test_what_a_worker_is_searched_for_is_on_every_control_node(cluster: TestCluster) -> None:
    for node in CONTROL:
        assert set(CONTROL_KEYS) <= Worker(cluster, node).keys_of_the_control_plane(), node
        assert {LEAVES, f"{LEAVES}/kube-apiserver/apiserver.key"} <= parts_of_a_control_node(cluster, node)
    assert parts_of_a_control_node(cluster, WORKER) == set()


def test_no_credential_on_a_worker_does_more_than_report_of_it(cluster: TestCluster, show: Show) -> None:
    began = time.monotonic()
    worker = Worker(cluster, WORKER)
    found = worker.collect()
    usable = [one for one in worker.credentials if one.name not in _NOT_THE_APIS]
    known = [one for one in usable if worker.is_known(one)]
    names = {one.name.partition("-2")[0] for one in known}
    assert {"kube-flannel", "kube-proxy", "kubelet-client", "bootstrap-kubelet.conf"} <= names, found
    cluster.wait("all members say how they are", lambda: set(member_phases(cluster).values()) == {"Member"})
    parked = "the parked agents are those that stay"
    cluster.wait(parked, lambda: all(parked_agent_is_a_copy(cluster, node) for node in CONTROL), seconds=180)
    cluster.wait("the API tells what runs", lambda: told_as_it_runs(cluster, CONTROL), seconds=180)
    before, ran = _what_must_stay(cluster), what_runs(cluster, CONTROL)
    attempts = _what_must_be_refused(cluster)
    for credential in usable:
        answers = worker.tries(credential, attempts)
        refused = REFUSED if credential in known else UNKNOWN
        let_through = {name: one for name, one in answers.items() if one.status != refused}
        assert let_through == {}, f"{credential.name} may do {let_through}"
    strangers = {one.name.partition("-2")[0] for one in usable if one not in known}
    assert strangers == _NO_CLIENTS, "nothing was refused only since the API server does not know who it is"
    show(f"{', '.join(one.name for one in usable)}: {len(attempts)} attempts each: {time.monotonic() - began:.0f} s")
    _its_requests_are_not_approved(cluster, worker)
    _its_word_on_itself_changes_nothing(cluster, worker)
    assert worker.keys_of_the_control_plane() == set()
    assert _what_must_stay(cluster) == before
    wait_until_healthy(cluster)
    # Its mirror pod goes a moment after its file; a container that has begun anew stays one.
    changes = partial(_changes, cluster, ran)
    cluster.wait("the intruder's pod is gone", lambda: not [line for line in changes() if "intruder" in line])
    assert changes() == []


def test_a_worker_that_calls_itself_as_a_control_node_gets_no_guard_of_the_quorum(cluster: TestCluster) -> None:
    """The name of the host is a label that a kubelet may change. The guard of a node that is drained waits for it."""
    cluster.kubectl(*SYSTEM, "rollout", "status", "deploy/etcd-quorum-guard", "--timeout=60s")
    worker = Worker(cluster, WORKER)
    worker.collect()
    patch = {"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}}
    renames = Attempt("renames", "PATCH", f"/api/v1/nodes/{WORKER}", patch)
    answers = worker.tries(worker.credential("kubelet-client"), [renames])
    assert answers["renames"].status == 200, answers
    try:
        cluster.kubectl("drain", "n1", *DRAIN_GUARDS, "--timeout=60s")
        cluster.wait(
            "the scheduler has found no node for n1's guard", lambda: _guards(cluster).get("nowhere") == ["False"]
        )
        refused = cluster.kubectl_error("drain", "n2", *DRAIN_GUARDS, "--timeout=6s")
        assert "disruption budget" in refused or "timeout" in refused
        assert _guards(cluster) == {"n2": ["True"], "n3": ["True"], "nowhere": ["False"]}
    finally:
        cluster.kubectl("uncordon", "n1", "n2")
        cluster.kubectl("label", "node", WORKER, "--overwrite", f"kubernetes.io/hostname={WORKER}")
    cluster.kubectl(*SYSTEM, "rollout", "status", "deploy/etcd-quorum-guard", "--timeout=60s")
    assert _guards(cluster) == {node: ["True"] for node in CONTROL}


def test_a_worker_whose_node_is_nested_without_end_blinds_nobody(cluster: TestCluster) -> None:
    """Whoever lists Nodes reads it: the operator ended by that, again and again, and so did `status` and `doctor`."""
    worker = Worker(cluster, WORKER)
    worker.collect()
    node = json.loads(cluster.kubectl("get", "node", WORKER, "-o", "json", "--show-managed-fields"))
    before, doctor = _operators(cluster), _doctor(cluster)
    answers = worker.tries(worker.credential("kubelet-client"), [nested_without_end(node)])
    assert answers["fields of fields"].status == 200, answers
    try:
        assert "intruder" in _managers(cluster), "it must be there for this test to say anything"
        _its_requests_are_not_approved(cluster, worker)  # it is the operator that judges them
        told = cluster.status()
        assert told["api"] == "ready", told
        assert {row["node"] for row in told["rows"]} >= set(CONTROL)
        cluster.wait("doctor says what it said before", lambda: _doctor(cluster) == doctor)
        time.sleep(15)
        assert _operators(cluster) == before, "none of them has ended"
        assert "intruder" in _managers(cluster)
    finally:
        former = {"metadata": {"managedFields": node["metadata"]["managedFields"]}}
        cluster.kubectl("patch", "node", WORKER, "--type", "merge", "-p", json.dumps(former))
    assert "intruder" not in _managers(cluster)


FLOOD = 40
"""Pods: in one answer they are 60 MB, which stopped the operator for longer than it may lead without a word."""


@pytest.mark.rotation
def test_a_worker_that_floods_the_api_with_long_pods_neither_ends_nor_blinds_the_operator(
    cluster: TestCluster, show: Show
) -> None:
    """One that starts lists them all. The worker's kubelet is stopped, which would take them away."""
    worker = Worker(cluster, WORKER)
    worker.collect()
    cluster.shell(WORKER, "systemctl stop kubelet")
    names: list[str] = []
    try:
        names = worker.floods(worker.credential("kubelet-client"), FLOOD)
        cluster.kubectl(*SYSTEM, "rollout", "restart", "deploy/autarky-operator")
        cluster.kubectl(*SYSTEM, "rollout", "status", "deploy/autarky-operator", "--timeout=240s")
        began = time.monotonic()
        _its_requests_are_not_approved(cluster, worker)  # it is the operator that judges them
        show(f"{time.monotonic() - began:.1f} s until its requests were judged, beside {FLOOD} long pods")
        operators = _operators(cluster)
        told = cluster.status()
        assert told["api"] == "ready", told
        assert {row["node"] for row in told["rows"]} >= set(CONTROL)
        assert "does not answer" not in _doctor(cluster)
        time.sleep(15)
        assert _operators(cluster) == operators, "none of them has ended"
        assert " 0, " in operators
        there = cluster.kubectl(*SYSTEM, "get", "pods", "-o", "name", "--field-selector", f"spec.nodeName={WORKER}")
        assert {f"pod/{name}" for name in names} <= set(there.split()), "they must be there for this to say anything"
    finally:
        for name in names:
            cluster.kubectl(*SYSTEM, "delete", "pod", name, "--grace-period=0", "--force", "--wait=false", check=False)
        cluster.shell(WORKER, "systemctl start kubelet")
    cluster.wait("all is healthy", lambda: cluster.status()["healthy"], seconds=120)


def _operators(cluster: TestCluster) -> str:
    """Each with how often it has begun."""
    each = "{range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}, {end}"
    return cluster.kubectl(*SYSTEM, "get", "pods", "-l", "k8s-app=autarky-operator", "-o", f"jsonpath={each}")


def _doctor(cluster: TestCluster) -> str:
    return cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout


def _managers(cluster: TestCluster) -> set[str]:
    """Who has written fields of the worker's Node."""
    path = "jsonpath={.metadata.managedFields[*].manager}"
    return set(cluster.kubectl("get", "node", WORKER, "--show-managed-fields", "-o", path).split())


def _guards(cluster: TestCluster) -> dict[str, list[str]]:
    """Node, or nowhere → whether the scheduler has found it for each guard there."""
    pods = cluster.kubectl(*SYSTEM, "get", "pods", "-l", "k8s-app=etcd-quorum-guard", "-o", "json")
    found: dict[str, list[str]] = {}
    for pod in json.loads(pods)["items"]:
        scheduled = [one["status"] for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
        found.setdefault(pod["spec"].get("nodeName", "nowhere"), []).extend(scheduled)
    return found


def _changes(cluster: TestCluster, ran: dict[str, list[str]]) -> list[str]:
    runs = what_runs(cluster, CONTROL)
    assert runs.keys() == ran.keys()
    return sorted(line for place in ran for line in {*ran[place]} ^ {*runs[place]})


_NO_CLIENTS = {"kubelet-server"}
"""What the API server does not take for anybody: the certificate by which the kubelet serves."""
_NOT_THE_APIS = {"ssh_host_ed25519_key", "ssh_host_rsa_key", "ssh_host_ecdsa_key"}
"""Keys of the machine, which no API server knows."""


def _what_must_be_refused(cluster: TestCluster) -> list[Attempt]:
    system = ("-n", "kube-system", "-o", "jsonpath={.items[*].metadata.name}")
    secrets = cluster.kubectl("get", "secrets", *system)
    pods = cluster.kubectl("get", "pods", *system, "-l", "k8s-app=kube-apiserver,autarky.dev/slot=hosted")
    policies = cluster.kubectl("get", "validatingadmissionpolicies", "-o", "jsonpath={.items[*].metadata.name}")
    token = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:autarky",
    }
    live = {"secrets": secrets, "api-server": pods.split()[0], "policies": policies}
    neighbour = cluster.kubectl("get", "node", "n1", "-o", "jsonpath={.metadata.annotations}")
    told = {key: value for key, value in json.loads(neighbour).items() if key.startswith("flannel.")}
    return [
        *orders(WORKER),
        *orders("n1"),
        *foreign("n1"),
        *on_node(WORKER, "the neighbour's public address", {"annotations": {PUBLIC_IP: told[PUBLIC_IP]}}),
        *on_node(WORKER, "the neighbour's tunnel", {"annotations": {TUNNEL: told[TUNNEL]}}),
        Attempt("its own end", "DELETE", f"/api/v1/nodes/{WORKER}"),
        Attempt(
            "another node", "POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "x"}}
        ),
        *everything_else(live, WORKER, token),
    ]


def _what_must_stay(cluster: TestCluster) -> dict[str, str]:
    """What somebody on a worker would like to change."""
    asked = {
        "labels": ("nodes", "-o", "jsonpath={range .items[*]}{.metadata.name}{.metadata.labels}{end}"),
        "endpoints": ("endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses}"),
        "members": ("etcdmembers", "-o", "jsonpath={range .items[*]}{.metadata.name}{.spec}{.status.phase}{end}"),
        "plane": ("controlplanes", "cluster", "-o", "jsonpath={.spec}"),
        "inventory": ("-n", "kube-system", "configmap", "autarky-join-inventory", "-o", "jsonpath={.data}"),
        "rights": ("clusterrolebindings,clusterroles", "-o", "name"),
    }
    return {what: cluster.kubectl("get", *argv) for what, argv in asked.items()}


def _its_requests_are_not_approved(cluster: TestCluster, worker: Worker) -> None:
    """Whoever may ask for certificates: only for what a node is."""
    may_ask = [one for one in worker.credentials if one.name.startswith("kubelet-client") or one.name.endswith(".conf")]
    for credential in may_ask:
        names = ask_for_certificates(worker, credential)
        cluster.wait("the operator has judged the requests of kubelets", partial(are_judged, cluster, names))
        for csr in requests_named(cluster, names):
            conditions = {one["type"] for one in csr["status"].get("conditions", [])}
            assert "Approved" not in conditions, csr
            assert "certificate" not in csr["status"], csr
        cluster.kubectl("delete", "csr", *names)


def _its_word_on_itself_changes_nothing(cluster: TestCluster, worker: Worker) -> None:
    """Its kubelet may say where it is and that it is ready to serve, and may show static pods: nothing follows."""
    n1 = cluster.kubectl("get", "node", "n1", "-o", "jsonpath={.status.addresses[0].address}")
    says = {"annotations": {"autarky.dev/control-node": "ready-intruder", "autarky.dev/withdrawn": "intruder"}}
    lies = {"status": {"addresses": [{"type": "InternalIP", "address": n1}]}}
    attempts = [
        Attempt("says", "PATCH", f"/api/v1/nodes/{WORKER}", {"metadata": says}),
        Attempt("lies", "PATCH", f"/api/v1/nodes/{WORKER}/status", lies),
    ]
    answers = worker.tries(worker.credential("kubelet-client"), attempts)
    assert {name: one.status for name, one in answers.items()} == {"says": 200, "lies": 200}, answers
    plain = plain_mirror(WORKER)
    shown = worker.tries(worker.credential("kubelet-client"), [plain])[plain.name]
    assert shown.status == CREATED, f"the others' refusals show nothing: {shown}"
    cluster.kubectl(*SYSTEM, "delete", "pod", "intruder-plain", "--ignore-not-found", "--force", "--grace-period=0")
    static = "/etc/kubernetes/manifests/intruder.json"
    cluster.shell(WORKER, f"echo {shlex.quote(json.dumps(static_pod()))} > {static}")
    try:
        mirror = f"intruder-{WORKER}"
        cluster.wait("the mirror pod shows", lambda: mirror in cluster.kubectl("get", "pods", *SYSTEM))
        time.sleep(15)
        assert worker.keys_of_the_control_plane() == set()
    finally:
        cluster.shell(WORKER, f"rm -f {static}")
        gone = [f"{key}-" for key in says["annotations"]]
        cluster.kubectl("annotate", "node", WORKER, *gone)
