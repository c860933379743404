"""Causes come before effects, and what a cause explains is not said again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.guards.decide import (
    ANTI_AFFINITY,
    HOST_PORTS,
    PRIORITIES,
    Refused,
    Rules,
    refused,
    sentences_beforehand,
)
from autarky.doctor.diagnosis import (
    LONGEST_EVIDENCE,
    LOW_DISK_BYTES,
    MOST_NAMED,
    ClusterEvidence,
    NodeEvidence,
    PodEvidence,
    diagnose,
)

WELL = NodeEvidence("n1", units={"containerd": True, "kubelet": True}, free={"/": 2**40}, balanced={"n1-hosted": True})


def whats(cluster: ClusterEvidence) -> list[str]:
    return [f"{finding.subject}: {finding.what}" for finding in diagnose(cluster)]


def test_of_a_healthy_cluster_nothing_is_said():
    assert diagnose(ClusterEvidence((WELL,), hosted=frozenset({"kube-apiserver"}))) == []


def test_of_a_host_that_is_off_nothing_else_is_said():
    off = NodeEvidence("n1", problem="its machine does not run", balanced=None, etcd=None)
    assert whats(ClusterEvidence((off,), api="no connection")) == ["n1: its host does not answer"]


def test_without_containerd_the_kubelet_is_not_the_cause():
    down = replace(WELL, units={"containerd": False, "kubelet": False})
    assert whats(ClusterEvidence((down,), api="no connection")) == ["n1: containerd does not run"]


def test_etcd_explains_an_api_that_does_not_answer():
    silent = replace(WELL, etcd=None, balanced={"n1-hosted": False})
    assert whats(ClusterEvidence((silent,), api="/readyz says 500")) == ["n1: etcd is not healthy"]


def test_an_external_etcd_is_not_looked_for_on_nodes():
    assert diagnose(ClusterEvidence((replace(WELL, has_etcd=False, etcd=None),))) == []


def test_a_full_disk_comes_first():
    full = replace(WELL, free={"/": LOW_DISK_BYTES - 1}, etcd=503)
    assert whats(ClusterEvidence((full,), api="down"))[0] == "n1: its disk is nearly full"


def test_an_api_without_another_cause_is_said_to_be_down_with_what_the_balancers_see():
    [finding] = diagnose(ClusterEvidence((replace(WELL, balanced={"n1-hosted": False}),), api="refused"))
    assert finding.subject == "API"
    assert "consider no server ready" in finding.evidence


def test_of_a_node_whose_pods_have_no_network_the_remedy_is_who_gives_them_one():
    why = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
    [finding] = diagnose(ClusterEvidence((WELL,), unready_nodes={"n1": why}, network_remedy="apply one"))
    assert (finding.subject, finding.what, finding.evidence) == ("n1", "its pods have no network", why)
    assert finding.next == "apply one"


def test_with_the_api_leases_nodes_and_pods_are_looked_at_in_this_order():
    pod = PodEvidence("coredns", "coredns-x", "n1", "hosted", "ImagePullBackOff")
    cluster = ClusterEvidence(
        (WELL,),
        unready_nodes={"n2": "no heartbeat"},
        pressed_nodes={"n1": "DiskPressure (kubelet has disk pressure)"},
        unready_pods=(pod,),
        idle_leases={"kube-scheduler": 90.0},
    )
    assert whats(cluster) == [
        "kube-scheduler: nobody leads",
        "n2: the node is not Ready",
        "n1: the node takes no new pods",
        "n1: a pod of coredns is not ready",
    ]


@given(made=st.integers(0, 5 * MOST_NAMED), quiet=st.sampled_from(["n1", "n2", "-"]))
def test_a_node_with_many_pods_hides_no_other_nodes(made: int, quiet: str):
    flood = [PodEvidence("coredns", f"c{number}", "w1", "hosted", f"reason {number}") for number in range(made)]
    last = PodEvidence("coredns", "mine", quiet, "hosted", "ImagePullBackOff")
    lacking = replace(WELL, missing_standby=frozenset({"kube-apiserver"}))
    found = diagnose(ClusterEvidence((lacking,), unready_pods=(*flood, last)))
    of_w1 = [finding for finding in found if finding.subject == "w1"]
    named = min(made, MOST_NAMED)
    assert [finding.evidence for finding in of_w1[:named]] == [f"reason {number}" for number in range(named)]
    rest = [f"{made - named} more than the {named} listed"] if made > named else []
    assert [finding.evidence for finding in of_w1[named:]] == rest
    assert [(finding.subject, finding.evidence) for finding in found if finding not in of_w1] == [
        (quiet, "ImagePullBackOff"),
        ("n1", "nothing would bring it back after a reboot"),
    ]
    assert all(f.subject and f.what and f.evidence and f.next for f in found)


def test_living_on_the_reserve_is_told_only_for_hosted_levels():
    active = replace(WELL, active=frozenset({"kube-apiserver"}))
    assert whats(ClusterEvidence((active,))) == []
    [found] = whats(ClusterEvidence((active,), hosted=frozenset({"kube-apiserver"})))
    assert "does not serve without its standby" in found


@given(
    problem=st.sampled_from(["", "off"]),
    units=st.dictionaries(st.sampled_from(["containerd", "kubelet"]), st.booleans()),
    etcd=st.sampled_from([None, 200, 503]),
    balanced=st.none() | st.dictionaries(st.just("n1-hosted"), st.booleans()),
    api=st.sampled_from(["", "refused"]),
)
def test_an_api_that_is_down_is_always_explained(problem, units, etcd, balanced, api):
    """And every finding names what was seen and how to go on."""
    node = NodeEvidence("n1", problem=problem, units=units, etcd=etcd, balanced=balanced)
    findings = diagnose(ClusterEvidence((node,), api=api))
    assert findings or not api
    assert all(f.subject and f.what and f.evidence and f.next for f in findings)


def three(**down: dict) -> tuple[NodeEvidence, ...]:
    """Three control nodes that are well, but for what is given by name."""
    return tuple(replace(WELL, name=name, **down.get(name, {})) for name in ("n1", "n2", "n3"))


def test_with_one_of_three_control_nodes_gone_it_is_said_that_the_reserve_is_used_up():
    gone = three(n1={"problem": "its machine does not run"})
    unready = {"n1": "no heartbeat"}
    assert whats(ClusterEvidence(gone, unready_nodes=unready)) == [
        "n1: its host does not answer",
        "etcd: it serves, and stops if one more member fails",
    ]


def test_a_host_that_is_off_does_not_hide_a_member_that_is_ill():
    both = three(n1={"problem": "off"}, n2={"etcd": None})
    assert whats(ClusterEvidence(both, api="no answer")) == [
        "n1: its host does not answer",
        "etcd: it has no quorum: nothing can be written, and little read",
        "n2: etcd is not healthy",
    ]


def test_of_five_members_one_may_be_missing_without_a_word_about_the_quorum():
    five = (*three(n1={"problem": "off"}), replace(WELL, name="n4"), replace(WELL, name="n5"))
    assert whats(ClusterEvidence(five)) == ["n1: its host does not answer"]


# --- many nodes ---------------------------------------------------------------------------------------------


def _three(**changes: NodeEvidence) -> ClusterEvidence:
    """Three control nodes whose load balancers see each other's servers; `changes` replace some."""
    servers = {f"{name}-hosted": True for name in ("n1", "n2", "n3")}
    nodes = {
        name: replace(WELL, name=name, balanced=servers, alive=servers, accepting=frozenset({f"{name}-hosted"}))
        for name in ("n1", "n2", "n3")
    }
    return ClusterEvidence(tuple({**nodes, **changes}.values()))


def _seeing(cluster: ClusterEvidence, sights: dict[str, dict[str, bool]]) -> ClusterEvidence:
    """The same with what some load balancers consider alive."""
    nodes = (replace(node, alive={**node.alive, **sights.get(node.name, {})}) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes))


def test_a_server_that_accepts_and_answers_nobody_hangs():
    hung = _seeing(_three(), {name: {"n2-hosted": False} for name in ("n1", "n2", "n3")})
    assert whats(hung) == ["n2: an API server hangs"]


def test_a_server_that_one_load_balancer_reaches_does_not_hang():
    assert whats(_seeing(_three(), {name: {"n2-hosted": False} for name in ("n1", "n3")})) == []


def test_a_worker_does_not_hide_that_a_server_hangs():
    hung = _seeing(_three(), {name: {"n2-hosted": False} for name in ("n1", "n2", "n3")})
    liar = replace(WELL, name="w", control_plane=False, has_etcd=False, alive={"n1-hosted": True, "n2-hosted": True})
    assert whats(replace(hung, nodes=(*hung.nodes, liar))) == ["n2: an API server hangs"]


def test_a_server_that_is_not_there_does_not_hang():
    gone = _seeing(_three(), {name: {"n2-hosted": False} for name in ("n1", "n2", "n3")})
    nodes = tuple(replace(node, accepting=frozenset()) for node in gone.nodes)
    assert whats(replace(gone, nodes=nodes)) == []


def test_a_node_that_is_cut_off_is_named_and_not_that_its_node_is_unready():
    sights = {
        "n1": {"n3-hosted": False},
        "n2": {"n3-hosted": False},
        "n3": {"n1-hosted": False, "n2-hosted": False},
    }
    cut = replace(_seeing(_three(), sights), unready_nodes={"n3": "no heartbeat", "n4": "no heartbeat"})
    assert whats(cut) == ["n3: it and the other nodes do not reach each other", "n4: the node is not Ready"]


def test_a_node_that_is_cut_off_is_named_though_its_own_server_could_not_start():
    none = {f"{name}-hosted": False for name in ("n1", "n2", "n3")}
    cut = _seeing(_three(), {"n1": {"n3-hosted": False}, "n2": {"n3-hosted": False}, "n3": none})
    nodes = tuple(replace(node, accepting=frozenset()) if node.name == "n3" else node for node in cut.nodes)
    assert whats(replace(cut, nodes=nodes)) == ["n3: it and the other nodes do not reach each other"]


def test_a_worker_is_no_witness_against_a_control_node():
    """What it says that it sees hides neither etcd nor the node."""
    control = replace(WELL, alive={"n1-hosted": True}, etcd=503)
    liar = replace(WELL, name="w", control_plane=False, has_etcd=False, alive={"n1-hosted": False, "n2-hosted": True})
    found = whats(ClusterEvidence((control, liar), unready_nodes={"n1": "no heartbeat"}))
    assert found == ["n1: etcd is not healthy", "n1: the node is not Ready"]


def test_a_node_whose_own_servers_are_down_is_not_cut_off_while_it_sees_others():
    down = _seeing(_three(), {name: {"n3-hosted": False} for name in ("n1", "n2", "n3")})
    assert not [what for what in whats(down) if "reach" in what]


def test_a_worker_that_sees_no_server_is_cut_off():
    worker = replace(WELL, name="n4", control_plane=False, has_etcd=False)
    none = {f"{name}-hosted": False for name in ("n1", "n2", "n3")}
    found = whats(_three(n4=replace(worker, balanced=none, alive=none)))
    assert found == ["n4: it and the other nodes do not reach each other"]


def test_when_nobody_sees_any_server_nobody_is_cut_off():
    none = {f"{name}-hosted": False for name in ("n1", "n2", "n3")}
    down = _seeing(_three(), dict.fromkeys(("n1", "n2", "n3"), none))
    assert not [what for what in whats(down) if "reach" in what]


def test_a_clock_that_differs_is_named_with_what_follows_from_it():
    clocks = {name: replace(WELL, name=name, clock=clock) for name, clock in (("n1", 0.1), ("n2", 93.2), ("n3", 0.3))}
    ahead = ClusterEvidence(tuple(clocks.values()), withdrawn={"n2": "the clock is 93 s ahead of those of n1, n3"})
    [finding] = diagnose(ahead)
    assert (finding.subject, finding.what) == ("n2", "its clock is +93 s off the others'")
    assert "no new connections" in finding.evidence


@given(clocks=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), lies=st.lists(st.floats(-1e6, 1e6), max_size=6))
def test_no_worker_moves_what_a_control_nodes_clock_is_compared_with(clocks: list[float], lies: list[float]):
    controls = tuple(replace(WELL, name=f"n{number}", clock=clock) for number, clock in enumerate(clocks))
    workers = tuple(
        replace(WELL, name=f"w{number}", control_plane=False, has_etcd=False, clock=clock)
        for number, clock in enumerate(lies)
    )
    hosted = frozenset({"etcd"})
    reported = whats(ClusterEvidence((*controls, *workers), hosted=hosted))
    assert [one for one in reported if one.startswith("n")] == whats(ClusterEvidence(controls, hosted=hosted))


def test_where_no_control_node_says_a_time_workers_are_compared_with_each_other():
    clocks = zip(("w1", "w2", "w3"), (1000.0, 1093.0, 1000.0), strict=True)
    workers = tuple(replace(WELL, name=n, control_plane=False, has_etcd=False, clock=clock) for n, clock in clocks)
    silent = replace(WELL, clock=None)
    [finding] = diagnose(ClusterEvidence((silent, *workers)))
    assert (finding.subject, finding.evidence) == ("w2", "it was compared with those of the other nodes")


def test_servers_that_are_withdrawn_though_the_clock_is_right_again_are_named_with_the_reason():
    [finding] = diagnose(ClusterEvidence((replace(WELL, clock=0.0),), withdrawn={"n1": "maintenance"}))
    assert finding.evidence == "maintenance"


def test_a_load_balancer_that_runs_an_old_configuration_is_named():
    assert whats(ClusterEvidence((replace(WELL, stale_balancer=True),))) == [
        "n1: its load balancer runs an old configuration"
    ]


def test_what_the_operator_says_is_wrong_is_told():
    reported = ClusterEvidence((WELL,), conditions={"StandbysCurrent": "kube-apiserver on n1: restart it"})
    (finding,) = diagnose(reported)
    assert finding.evidence == "kube-apiserver on n1: restart it"
    assert finding.next == "autarky kubectl describe controlplane cluster"


# --- workloads that a policy refuses the pods of ------------------------------------------------------------


def test_workloads_without_new_pods_are_named_by_policy_and_namespace_with_the_way_out():
    cluster = ClusterEvidence(
        (WELL,),
        refused=(
            Refused(PRIORITIES, "net", "DaemonSet agent", "priorityClassName system-node-critical (2000001000)"),
            Refused(PRIORITIES, "storage", "DaemonSet csi", "priorityClassName system-node-critical (2000001000)"),
            Refused(PRIORITIES, "storage", "Deployment csi", "priorityClassName system-cluster-critical (2000000000)"),
            Refused(ANTI_AFFINITY, "storage", "Deployment csi", "required podAntiAffinity with a namespaceSelector"),
        ),
    )
    net, storage, apart = diagnose(cluster)
    assert [one.subject for one in (net, storage, apart)] == ["namespace net", "namespace storage", "namespace storage"]
    assert storage.what == f"the policy {PRIORITIES} would refuse new pods; those that run stay until they end"
    assert storage.evidence == (
        "DaemonSet csi has priorityClassName system-node-critical (2000001000);"
        " Deployment csi has priorityClassName system-cluster-critical (2000000000)"
    )
    assert ANTI_AFFINITY in apart.what
    for finding, policy, instead in (
        (storage, PRIORITIES, "another priority class"),
        (apart, ANTI_AFFINITY, "leave out"),
    ):
        assert instead in finding.next
        assert "kube-system" in finding.next
        assert finding.next.endswith(f"autarky kubectl edit validatingadmissionpolicybinding {policy}")


def test_nobody_is_advised_to_give_a_namespace_the_ports_of_the_control_plane():
    """A tenant's workload with the API's port is enough for the finding."""
    wanted = Refused(HOST_PORTS, "web", "Deployment mine", "hostPort 6443")
    [finding] = diagnose(ClusterEvidence((WELL,), refused=(wanted,)))
    [beforehand] = sentences_beforehand([wanted], {HOST_PORTS})
    assert "another hostPort" in finding.next
    assert "whose it is" in finding.next
    assert finding.next in beforehand
    for said in (finding.what, finding.evidence, finding.next, beforehand):
        assert "except" not in said
        assert "edit" not in said


@given(made=st.integers(1, 3 * MOST_NAMED))
def test_whoever_makes_many_workloads_hides_no_others(made: int):
    flood = [Refused(PRIORITIES, "flood", f"Job j{number}", "a class") for number in range(made)]
    quiet = Refused(PRIORITIES, "quiet", "DaemonSet csi", "a class")
    first, second = diagnose(ClusterEvidence((WELL,), refused=(*flood, quiet)))
    reported = first.evidence.split("; ")
    assert reported[:MOST_NAMED] == [f"{one.workload} has a class" for one in flood[:MOST_NAMED]]
    assert reported[MOST_NAMED:] == ([f"and {made - MOST_NAMED} more"] if made > MOST_NAMED else [])
    assert second.evidence == "DaemonSet csi has a class"


def test_that_workloads_could_not_be_looked_at_is_all_that_follows_from_it():
    [finding] = diagnose(ClusterEvidence((WELL,), unseen="503: too much"))
    assert (finding.subject, finding.what) == ("workloads", "they could not be looked at")
    assert finding.evidence == "503: too much"


@given(letters=st.integers(0, 3 * LONGEST_EVIDENCE))
def test_what_others_say_without_end_is_cut(letters: int):
    said = "x" * letters
    cluster = ClusterEvidence((WELL,), unready_nodes={"n2": said}, withdrawn={"n1": said}, unseen=said)
    for finding in diagnose(replace(cluster, nodes=(replace(WELL, clock=0.0),))):
        kept = said if letters <= LONGEST_EVIDENCE else said[: LONGEST_EVIDENCE - 1] + "…"
        assert finding.evidence == kept


def test_a_template_with_a_hundred_thousand_names_is_told_in_a_few_and_hides_no_other_namespace():
    term = {"topologyKey": "x", "namespaces": [f"name-{number}" for number in range(100_000)]}
    away = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    def a_deployment(namespace: str, name: str) -> dict:
        metadata = {"name": name, "namespace": namespace}
        return {"kind": "Deployment", "metadata": metadata, "spec": {"template": {"spec": away}}}

    flood = [a_deployment("flood", f"d{number}") for number in range(MOST_NAMED)]
    found = refused([*flood, a_deployment("quiet", "mine")], Rules([], [], []))
    first, second = diagnose(ClusterEvidence((WELL,), refused=found))
    assert "d0 has required podAntiAffinity with pods of namespace name-0, name-1, name-2 and 99997 " in first.evidence
    assert [f"Deployment d{number} has" in first.evidence for number in range(MOST_NAMED)] == [True] * MOST_NAMED
    assert len(first.evidence) < 3_000
    assert second.subject == "namespace quiet"


def test_what_tenants_do_comes_after_what_is_wrong_with_the_cluster():
    evidence = ClusterEvidence(
        (replace(WELL, missing_standby=frozenset({"kube-apiserver"})),),
        unready_nodes={"n2": "no heartbeat"},
        conditions={"RolloutFailed": "it failed"},
        admin="it ends tomorrow",
        refused=(Refused(PRIORITIES, "storage", "DaemonSet csi", "a class"),),
    )
    subjects = [finding.subject for finding in diagnose(evidence)]
    assert (len(subjects), subjects[-1]) == (5, "namespace storage")
