"""Three control nodes and a worker from one file: any one of them may go, come back, or be replaced.

The tests of this module build on each other, in order: each leaves the cluster healthy.
"""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from ha import (
    CONTROL,
    EVERYBODY,
    WORKER,
    a_static_pod_that_passes_for_an_api_server,
    cut,
    etcd_leader,
    etcd_members,
    hosted_server_killed_again_and_again,
    lab_hosts,
    longest_outage,
    member_phases,
    start,
    survived,
    three_and_one,
    wait_until_healthy,
)
from harness import AGNHOST, TestCluster, kill_at
from intruder import (
    CONTROL_KEYS,
    FACT,
    LEAVES,
    PUBLIC_IP,
    REFUSED,
    TUNNEL,
    Attempt,
    Worker,
    ask_for_certificates,
    ask_in_its_own_name,
    everything_else,
    foreign,
    on_node,
    orders,
    static_pod,
    what_runs,
)
from labels import (
    WISH,
    all_vote,
    endpoints,
    is_worker,
    label,
    nothing_has_left,
    parts_of_a_control_node,
    standbys_that_serve,
    unlabel,
)
from power import Client, Writer
from rollouts import (
    API,
    PROXY,
    SCHEDULER,
    condition,
    explanations,
    last_good,
    live,
    patch_plane,
    rolled_out,
    rolls_out_one_after_the_other,
    set_image,
    updated_on,
)
from slots import SYSTEM, hosted_on
from survival import schedules

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

Show = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-ha", **three_and_one())
    cluster.up()
    return cluster


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Print although nothing failed: times are what these scenarios are read for."""

    def printed(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)  # noqa: T201

    return printed


def test_one_run_brings_up_three_control_nodes_and_a_worker(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    hosted = [row for row in cluster.status()["rows"] if row["slot"] == "hosted"]
    assert {row["node"] for row in hosted if row["component"] == "kube-apiserver"} == set(CONTROL)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


def test_labels_that_go_from_all_control_nodes_at_once_cost_neither_a_control_node_nor_a_member(
    cluster: TestCluster,
) -> None:
    all_vote(cluster)
    with cluster.probed() as reports:
        cluster.kubectl("label", "node", "--all", f"{WISH}-")
        try:
            said = "no control node would be left"
            for node in CONTROL:
                cluster.wait(f"{node} stays", lambda: said in condition(cluster, "NodesAsLabelled")["message"])
                cluster.wait("it is said", lambda: said in cluster.kubectl("describe", "node", node))  # noqa: B023
            time.sleep(5)  # two more rounds of the operator
            nothing_has_left(cluster)
        finally:
            label(cluster, *CONTROL)
    nothing_has_left(cluster)
    assert reports[0]["failed"] == 0, reports[0]


def test_a_typo_in_the_list_of_members_is_refused_and_all_deleted_etcdmembers_come_back(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        patch_plane(cluster, etcd={"members": ["n1", "n9"]})
        try:
            said = "n9 is no control node (did you mean"
            cluster.wait("it is refused", lambda: said in condition(cluster, "SpecApplied")["message"])
            cluster.kubectl("delete", "etcdmembers", "--all")
            cluster.wait("they are written anew", lambda: set(member_phases(cluster)) == set(CONTROL))
        finally:
            patch_plane(cluster, etcd={"members": None})
        cluster.wait("it is applied", lambda: condition(cluster, "SpecApplied")["status"] == "True")
        all_vote(cluster)
        nothing_has_left(cluster)
    assert reports[0]["failed"] == 0, reports[0]


def test_a_power_cut_of_etcds_leader_is_hardly_noticed_from_the_worker(cluster: TestCluster, show: Show) -> None:
    leader = etcd_leader(cluster)
    left = [node for node in CONTROL if node != leader]
    with cluster.probed(inside=WORKER) as reports:
        time.sleep(2)
        cut(cluster, leader)
        cluster.wait("another member leads", lambda: etcd_leader(cluster, left))
        time.sleep(10)
    show(f"cut of {leader}, etcd's leader: {reports[0]['verdict']}; outage {longest_outage(reports[0]):.1f} s")
    survived(reports[0])
    _is_named_while_it_is_gone(cluster, leader)
    start(cluster, leader)
    show(f"{leader} is back where it belongs after {wait_until_healthy(cluster):.1f} s")
    assert "up: unchanged" in cluster.up().stderr


def _is_named_while_it_is_gone(cluster: TestCluster, node: str) -> None:
    """Every command works through the nodes that are left, and says which one is not there."""
    status = cluster.status()
    assert status["api"] == "ready", status
    assert list(status["absent"]) == [node]
    findings = json.loads(cluster.autarky("doctor", "--cluster", cluster.name, "-o", "json", check=False).stdout)
    assert findings[0]["subject"] == node, findings
    assert any("stops if one more member fails" in finding["what"] for finding in findings), findings
    plan = cluster.autarky("plan", "-f", str(cluster.file), "-o", "plain")
    assert f"create or power on lab host {node}" in plan.stdout
    assert "Start the temporary control plane" not in plan.stdout
    assert f"node {node}: its machine does not run" in plan.stderr
    without = cluster.up("--skip", "create-hosts", check=False)
    assert without.status == 3, without.stderr
    assert f"node {node}: its machine does not run" in without.stderr
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"


def test_a_workers_static_pod_that_passes_for_an_old_api_server_vetoes_no_rollout(cluster: TestCluster) -> None:
    """Beside an API server of 1.30 no scheduler of today could run: its rollout would go back at once."""
    good, told = last_good(cluster, SCHEDULER), explanations(cluster, SCHEDULER)
    with a_static_pod_that_passes_for_an_api_server(cluster, WORKER, "v1.30.0"):
        cluster.kubectl(*SYSTEM, "rollout", "restart", SCHEDULER)
        cluster.wait("it is good", lambda: last_good(cluster, SCHEDULER) not in {"", good}, seconds=100)
        rows = cluster.status()["rows"]
    assert explanations(cluster, SCHEDULER) == told
    assert {row["node"] for row in rows if row["component"] == "kube-apiserver"} == set(CONTROL)


@pytest.mark.slow
def test_a_workers_agent_that_stands_still_is_ended_by_its_kubelet(cluster: TestCluster) -> None:
    """No other one waits there."""
    of_worker = ("-n", "kube-system", "get", "pods", "-l", "k8s-app=node-agent", "--field-selector=spec.nodeName=w1")
    told = (*of_worker, "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
    before = cluster.kubectl(*told)
    cluster.shell("w1", "pkill -STOP -f '[a]utarky.agents.node$'")
    cluster.wait("it is started anew", lambda: cluster.kubectl(*told) != before, seconds=300)
    wait_until_healthy(cluster)


def test_the_token_of_a_workers_pod_network_makes_no_control_node_of_it(cluster: TestCluster) -> None:
    """It once did: a label by way of the Node's status, and 4 s later the control plane's keys lay on the worker."""
    worker = Worker(cluster, WORKER)
    worker.collect()
    flannel = worker.credential("kube-flannel")
    answers = worker.tries(flannel, [*orders(WORKER), *orders("n1")])
    assert {name: one for name, one in answers.items() if one.status not in REFUSED} == {}
    labels = {"metadata": {"labels": {FACT: "", WISH: ""}}}
    both = worker.tries(flannel, [Attempt("both", "PATCH", f"/api/v1/nodes/{WORKER}/status", labels)])
    assert both["both"].status == 403, both
    assert "autarky-" in both["both"].said or "flannel writes" in both["both"].said
    time.sleep(5)
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
    names = {one.name.partition("-2")[0] for one in usable if worker.is_known(one)}
    assert {"kube-flannel", "kube-proxy", "kubelet-client", "bootstrap-kubelet.conf"} <= names, found
    cluster.wait("all members say how they are", lambda: set(member_phases(cluster).values()) == {"Member"})
    before, ran = _what_must_stay(cluster), what_runs(cluster, CONTROL)
    attempts = _what_must_be_refused(cluster)
    for credential in usable:
        answers = worker.tries(credential, attempts)
        let_through = {name: one for name, one in answers.items() if one.status not in REFUSED}
        assert let_through == {}, f"{credential.name} may do {let_through}"
    show(f"{', '.join(one.name for one in usable)}: {len(attempts)} attempts each: {time.monotonic() - began:.0f} s")
    _its_requests_are_not_approved(cluster, worker)
    _its_word_on_itself_changes_nothing(cluster, worker)
    assert worker.keys_of_the_control_plane() == set()
    assert _what_must_stay(cluster) == before
    wait_until_healthy(cluster)
    # Its mirror pod goes a moment after its file; a container that has begun anew stays one.
    cluster.wait("all runs that ran before, and nothing else", lambda: what_runs(cluster, CONTROL) == ran)


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
        cluster.wait("the operator has judged the requests of kubelets", partial(_judged, cluster, names))
        for csr in _requests(cluster, names):
            conditions = {one["type"] for one in csr["status"].get("conditions", [])}
            assert "Approved" not in conditions, csr
            assert "certificate" not in csr["status"], csr
        cluster.kubectl("delete", "csr", *names)


def _judged(cluster: TestCluster, names: list[str]) -> bool:
    """Those of kubelets that the API took: of one node in another's name it takes none. Those of other signers nobody
    approves."""
    signers = {"kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"}
    ours = [csr for csr in _requests(cluster, names) if csr["spec"]["signerName"] in signers]
    return all(csr["status"].get("conditions") for csr in ours)


def _requests(cluster: TestCluster, names: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "csr", "-o", "json"))["items"]
    return [csr for csr in found if csr["metadata"]["name"] in names]


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
    static = "/etc/kubernetes/manifests/intruder.json"
    cluster.shell(WORKER, f"echo {shlex.quote(json.dumps(static_pod()))} > {static}")
    try:
        mirror = f"intruder-{WORKER}"
        cluster.wait("the mirror pod shows", lambda: mirror in cluster.kubectl("get", "pods", *SYSTEM))
        time.sleep(5)
        assert worker.keys_of_the_control_plane() == set()
    finally:
        cluster.shell(WORKER, f"rm -f {static}")
        gone = [f"{key}-" for key in says["annotations"]]
        cluster.kubectl("annotate", "node", WORKER, *gone)


@pytest.mark.slow
def test_a_worker_whose_machine_was_replaced_joins_anew_under_its_name(cluster: TestCluster) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{WORKER}", "--timeout=60s")
    before = _uid(cluster, WORKER)
    former = cluster.shell(WORKER, f"base64 -w0 {BOOTSTRAP}")
    cluster.autarky("lab", "remove", "--lab", cluster.name, WORKER)
    said = cluster.up().stderr
    assert f"the machine that was {WORKER} before is forgotten" in said
    assert _uid(cluster, WORKER) != before
    wait_until_healthy(cluster)
    _comes_back_with_its_own_credential_only(cluster, former)


BOOTSTRAP = "/etc/kubernetes/bootstrap-kubelet.conf"


def _comes_back_with_its_own_credential_only(cluster: TestCluster, former: str) -> None:
    """What the machine before had for that, which was of the same name, is denied."""
    worker = Worker(cluster, WORKER)
    cluster.shell(WORKER, f"mkdir -p /run/former && echo {former} | base64 -d > /run/former/former.conf")
    for path, expected in (("/run/former/former.conf", "Denied"), (BOOTSTRAP, "Approved")):
        name = f"asks-{expected.lower()}"
        answer = ask_in_its_own_name(worker, worker.take(path), name)
        assert answer.status == 201, answer
        cluster.wait("it is judged", partial(_judged, cluster, [name]))
        [csr] = _requests(cluster, [name])
        assert [one["type"] for one in csr["status"]["conditions"]] == [expected], csr
        cluster.kubectl("delete", "csr", name)


def test_a_worker_is_reported_when_the_file_lacks_it_and_goes_when_it_is_asked_for(cluster: TestCluster) -> None:
    smaller = TestCluster(cluster.name, {"nodes": [n for n in three_and_one()["nodes"] if n["name"] != WORKER]})
    assert f"node {WORKER}: membership is kept" in smaller.up().stderr
    assert _uid(cluster, WORKER)
    smaller.autarky("node", "remove", "-f", str(smaller.file), WORKER, "--drain", "--yes", "-o", "plain")
    assert _traces(cluster, WORKER) == []
    assert WORKER not in cluster.kubectl("-n", "kube-system", "get", "cm", "autarky-join-inventory", "-o", "yaml")
    assert WORKER not in lab_hosts(cluster)
    assert "up: unchanged" in smaller.up().stderr
    cluster.autarky("node", "add", "--cluster", cluster.name, WORKER, "--host", "lab", "-o", "plain")
    wait_until_healthy(cluster)
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.slow
def test_a_control_node_that_is_gone_for_good_leaves_nothing_when_it_is_removed_as_dead(cluster: TestCluster) -> None:
    node = _lease_holder(cluster, "autarky-operator")  # who removes it must not need it
    left = {name for name in CONTROL if name != node}
    one = min(left)
    with cluster.probed(600, inside=WORKER) as reports:
        cut(cluster, node)
        cluster.autarky(
            "node", "remove", "--cluster", cluster.name, node, "--dead", "--yes", "-o", "plain", timeout=400
        )
        assert etcd_members(cluster, one) == left
        cluster.wait("nothing of it is left", lambda: not _traces(cluster, node))
    survived(reports[0])
    cluster.autarky("lab", "remove", "--lab", cluster.name, node, check=False)
    cluster.autarky(
        "node", "add", "--cluster", cluster.name, node, "--host", "lab", "--control-plane", "-o", "plain", timeout=600
    )
    wait_until_healthy(cluster)
    assert etcd_members(cluster, one) == set(CONTROL)


def _traces(cluster: TestCluster, node: str) -> list[str]:
    """What the API still has of a node that is gone."""
    kinds = ("nodes", "etcdmembers", "csinodes")
    named = {kind: cluster.kubectl("get", kind, "-o", "name").split() for kind in kinds}
    found = [name for names in named.values() for name in names if name.endswith(f"/{node}")]
    pods = cluster.kubectl("get", "pods", "-A", f"--field-selector=spec.nodeName={node}", "-o", "name").split()
    leases = cluster.kubectl("-n", "kube-node-lease", "get", "leases", "-o", "name").split()
    found += [*pods, *(lease for lease in leases if lease.endswith(f"/{node}"))]
    if node in endpoints(cluster):
        found.append("default/kubernetes")
    listed = cluster.autarky("node", "list", "--cluster", cluster.name).stdout.splitlines()
    return [*found, *(line for line in listed if line.split()[0] == node)]


def _lease_holder(cluster: TestCluster, name: str) -> str:
    """The node whose process leads: all of ours are on the host network, and name themselves HOST_UUID."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl(*SYSTEM, "get", "lease", name, "-o", path).partition("_")[0]


@pytest.mark.slow
def test_a_removal_that_would_cost_the_quorum_is_refused(cluster: TestCluster) -> None:
    cut(cluster, "n3")
    refused = cluster.autarky("node", "remove", "--cluster", cluster.name, "n2", "--yes", "-o", "plain", check=False)
    assert refused.status == 6, refused.stderr
    assert "etcd keeps its quorum" in refused.stderr
    unsure = cluster.autarky("node", "remove", "--cluster", cluster.name, "n3", "--yes", "-o", "plain", check=False)
    assert "--dead" in unsure.stderr
    start(cluster, "n3")
    wait_until_healthy(cluster)


def _leaders(cluster: TestCluster) -> dict[str, str]:
    """Which node leads what."""
    leases = ("autarky-operator", "kube-controller-manager", "kube-scheduler")
    return {"etcd": etcd_leader(cluster), **{name: _lease_holder(cluster, name) for name in leases}}


def _uid(cluster: TestCluster, node: str) -> str:
    return cluster.kubectl("get", "node", node, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


# --- longer ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("node", CONTROL)
def test_a_power_cut_of_each_control_node_in_turn(cluster: TestCluster, show: Show, node: str) -> None:
    other = next(name for name in CONTROL if name != node)
    with cluster.probed(inside=WORKER) as from_worker, cluster.probed(inside=other) as from_control:
        time.sleep(2)
        roles = [role for role, leader in _leaders(cluster).items() if leader == node]
        cut(cluster, node)
        time.sleep(60)
        start(cluster, node)
        back = wait_until_healthy(cluster)
    show(f"{node} led: {', '.join(roles) or 'nothing'}")
    show(f"cut of {node}: from {WORKER}: {from_worker[0]['verdict']}; from {other}: {from_control[0]['verdict']}")
    kinds = Counter((f["stream"], f["kind"]) for report in (*from_worker, *from_control) for f in report["failures"])
    show(f"{node} was back where it belongs {back:.1f} s after its power; what failed: {dict(kinds)}")
    survived(from_worker[0])
    survived(from_control[0])


@pytest.mark.slow
@pytest.mark.parametrize("order", [EVERYBODY, EVERYBODY[::-1], ("n2", "w1", "n3", "n1")])
def test_a_power_cut_of_all_started_in_any_order(cluster: TestCluster, show: Show, order: tuple[str, ...]) -> None:
    writer = Writer(Client(cluster))
    with writer.writing():
        time.sleep(2)
        cut(cluster, *EVERYBODY)
    began = time.monotonic()
    for node in order:
        start(cluster, node)
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    answered = time.monotonic() - began
    show(f"all four cut, started as {', '.join(order)}: /readyz after {answered:.1f} s")
    wait_until_healthy(cluster)
    assert len(writer.acknowledged) > 20
    assert writer.lost() == set()


@pytest.mark.slow
@pytest.mark.parametrize("missing", CONTROL)
def test_a_power_cut_of_all_with_one_control_node_missing(cluster: TestCluster, show: Show, missing: str) -> None:
    cut(cluster, *EVERYBODY)
    began = time.monotonic()
    start(cluster, *(node for node in EVERYBODY if node != missing))
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    answered = time.monotonic() - began
    schedules(cluster, f"without-{missing}", AGNHOST)
    show(f"all four cut, {missing} stays off: /readyz after {answered:.1f} s, a pod {time.monotonic() - began:.1f} s")
    start(cluster, missing)
    wait_until_healthy(cluster)


@pytest.mark.slow
def test_a_control_node_that_up_has_made_loses_all_its_keys_with_its_label_and_up_makes_it_one_again(
    cluster: TestCluster,
) -> None:
    with cluster.probed(600, inside=WORKER) as reports:
        unlabel(cluster, "n3")
        cluster.wait("n3 is a worker", lambda: is_worker(cluster, "n3"), seconds=180)
        assert not parts_of_a_control_node(cluster, "n3")
        assert etcd_members(cluster, "n1") == {"n1", "n2"}
        cluster.up()  # whose file has it as a control node
        wait_until_healthy(cluster)
    assert reports[0]["failed"] == 0, reports[0]
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.slow
def test_a_rolling_upgrade_of_three_api_servers_fails_no_request(cluster: TestCluster) -> None:
    cluster.autarky("payload", "push", "--cluster", cluster.name, "v1.37.1", timeout=600)
    with cluster.probed(600, inside=WORKER) as from_worker, cluster.probed(600, inside="n2") as from_control:
        set_image(cluster, API, "v1.37.1")
        cluster.wait("the rollout has begun", lambda: "v1.37.1" in cluster.kubectl("get", "pods", "-A", "-o", "yaml"))
        for _ in itertools.repeat(None, 3):  # one node after the other
            rolled_out(cluster, API)
    for reports in (from_worker, from_control):
        assert reports[0]["failed"] == 0, reports[0]


@pytest.mark.slow
def test_rollouts_of_daemon_sets_go_on_while_a_control_node_is_off(cluster: TestCluster, show: Show) -> None:
    off, restarted = "n3", (API, PROXY)
    left = {node for node in CONTROL if node != off}
    wait_until_healthy(cluster)
    cut(cluster, off)
    cluster.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{off}", "--timeout=120s")
    with cluster.probed(900, inside=WORKER) as from_worker, cluster.probed(900, inside="n1") as from_control:
        began = time.monotonic()
        cluster.kubectl(*SYSTEM, "rollout", "restart", *restarted)
        for workload, nodes in ((API, left), (PROXY, {*left, WORKER})):
            rolls_out_one_after_the_other(cluster, workload, nodes)
            show(
                f"{off} is off: {workload} has the new revision everywhere else after {time.monotonic() - began:.0f} s"
            )
        start(cluster, off)
        wait_until_healthy(cluster)
        assert updated_on(cluster, API) == set(CONTROL)
    for reports in (from_worker, from_control):
        assert reports[0]["failed"] == 0, reports[0]
    for workload in restarted:
        assert live(cluster, workload)["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
    assert condition(cluster, "Drifted")["status"] == "False"
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.slow
def test_a_control_node_that_is_added_later_joins_by_its_label_and_leaves_when_it_is_asked_for(
    cluster: TestCluster,
) -> None:
    add = ("node", "add", "--cluster", cluster.name, "n4", "--host", "lab", "--control-plane", "-o", "plain")
    with cluster.probed(900, inside=WORKER) as reports:
        for seconds in (4, 12):  # a join that is killed is run again
            kill_at(add, seconds)
        cluster.autarky(*add, timeout=400)
        wait_until_healthy(cluster)
        assert etcd_members(cluster, "n1") == {*CONTROL, "n4"}
        cluster.autarky("node", "remove", "--cluster", cluster.name, "n4", "--yes", "-o", "plain", timeout=400)
        assert etcd_members(cluster, "n1") == set(CONTROL)
    assert reports[0]["failed"] == 0, reports[0]
    assert _uid(cluster, "n4") == ""
    cluster.up()
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.slow
def test_back_by_rollout_undo_while_only_a_standby_serves_on_one_node_fails_no_request(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    before = _hosted_servers(cluster, "n3")
    with hosted_server_killed_again_and_again(cluster, "n3") as let_it_live:
        serves = "kube-apiserver on n3"
        cluster.wait("only the standby serves on n3", lambda: standbys_that_serve(cluster) == [serves], seconds=90)
        with cluster.probed(600, inside=WORKER) as from_worker, cluster.probed(600, inside="n3") as from_there:
            cluster.kubectl(*SYSTEM, "rollout", "undo", API)
            cluster.wait("n3 has its new pod", lambda: _hosted_servers(cluster, "n3") - before, seconds=120)
            let_it_live()
            for _ in itertools.repeat(None, 3):  # one node after the other
                rolled_out(cluster, API)
            wait_until_healthy(cluster)
    for reports in (from_worker, from_there):
        assert reports[0]["failed"] == 0, reports[0]


def _hosted_servers(cluster: TestCluster, node: str) -> set[str]:
    return set(cluster.kubectl(*SYSTEM, "get", "pods", *hosted_on(node), "-o", "name").split())


@pytest.mark.slow
def test_a_control_node_whose_machine_burnt_down_is_replaced_under_its_name(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    cluster.autarky("lab", "remove", "--lab", cluster.name, "n3")
    said = cluster.autarky("up", "--cluster", cluster.name, "-o", "plain", timeout=600).stderr
    assert "the machine that was n3 before is forgotten" in said
    wait_until_healthy(cluster)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr
