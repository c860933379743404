from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.hosts.decide.preflight import CHECKS, GIB, MIB, Finding, checks, judge, needed_ports
from autarky.model.cluster import CertificateSettings, Cni, ExternalEtcd, HostRef, Network
from fakes.clusters import a_cluster, facts_of

ONE = a_cluster()
EXTERNAL = ExternalEtcd(("https://192.0.2.99:2379",), "ca", "crt", "key")


def found(cluster=ONE, *, ours=(), demoted=(), **changes):
    """(check, severity) of everything found when the first host is changed like that."""
    findings = checks(cluster, facts_of(cluster, **changes), ours=ours, demoted=demoted)
    return [(finding.name, finding.severity) for finding in findings]


def only(name, cluster=ONE, **changes):
    """The one finding of that check."""
    [finding] = [finding for finding in checks(cluster, facts_of(cluster, **changes)) if finding.name == name]
    return finding


def test_on_ordinary_machines_nothing_is_found():
    assert found() == []
    assert found(a_cluster(controls=3, workers=2)) == []


def test_all_that_is_wrong_is_found_in_one_pass():
    everything = found(
        architecture="aarch64",
        init="runit",
        swap_total=1,
        disk_free=0,
        memory_total=0,
        missing_programs=("ip", "nft"),
        missing_features=("vxlan", "overlay"),
        listening_ports=frozenset({6443, 10250}),
        networks=("10.96.0.0/16",),
    )
    assert everything == [
        ("networks", "error"),
        ("ports", "error"),
        ("ports", "error"),
        ("kernel", "error"),
        ("kernel", "error"),
        ("programs", "error"),
        ("init", "error"),
        ("architecture", "error"),
        ("disk", "error"),
        ("memory", "error"),
        ("swap", "warning"),
    ]


def test_every_finding_says_where_what_and_how_to_fix_it():
    wrong = facts_of(ONE, init="", swap_total=1, disk_free=0, memory_total=0, missing_features=("vxlan",))
    for finding in checks(ONE, wrong):
        assert finding.host == "n1"
        assert finding.what
        assert finding.remedy


@pytest.mark.parametrize(("key", "address"), [("serviceCIDR", "10.96.0.9"), ("podCIDR", "10.244.255.255")])
def test_a_host_inside_a_network_of_the_cluster_is_an_error(key, address):
    finding = only("networks", address=address, addresses=(address,), networks=())
    assert finding.severity == "error"
    assert f"its address {address} lies inside {key}" in finding.what


@pytest.mark.parametrize("route", ["10.0.0.0/8", "10.96.7.0/24", "10.96.7.1/32"])
def test_a_route_that_overlaps_a_network_of_the_cluster_is_an_error(route):
    cluster = a_cluster(network=Network(ipaddress.IPv4Network("172.20.0.0/16"), ONE.network.service_cidr, "x"))
    assert f"its route to {route} overlaps serviceCIDR" in only("networks", cluster, networks=(route,)).what


@pytest.mark.parametrize(("cni", "ours", "reported"), [("none", ["n1"], 0), ("none", [], 1), ("flannel", ["n1"], 1)])
def test_routes_of_a_pod_network_that_the_user_brings_are_no_fault_of_hosts_that_are_ours(cni, ours, reported):
    cluster = a_cluster(network=replace(ONE.network, cni=Cni(cni)))
    assert found(cluster, ours=ours, networks=("10.244.0.0/24",)).count(("networks", "error")) == reported
    assert found(cluster, ours=ours, networks=("10.96.0.0/24",)).count(("networks", "error")) == 1


def test_the_route_of_a_host_inside_a_network_is_not_told_twice():
    assert found(address="10.96.0.9", networks=("10.96.0.0/24",)).count(("networks", "error")) == 1


@pytest.mark.parametrize("route", ["0.0.0.0/1", "128.0.0.0/1", "blackhole", "192.0.2.0/24"])
def test_a_route_that_pods_and_services_go_before_is_no_matter(route):
    assert found(networks=(route,)) == []


@pytest.mark.parametrize("port", [6443, 6444, 7443, 7444, 2378, 2379, 2380, 10250, 10257, 10259, 20257, 20259])
def test_every_port_we_need_must_be_free(port):
    assert only("ports", listening_ports=frozenset({port})).what == f"port {port} is in use"


def test_a_worker_needs_fewer_ports_and_external_etcd_none_of_its_own():
    two = a_cluster(controls=1, workers=1)
    busy = replace(facts_of(two)["n2"], listening_ports=frozenset({2379, 7443, 10257}))
    assert [f for f in checks(two, {"n2": busy}) if f.name == "ports"] == []
    assert found(a_cluster(external_etcd=EXTERNAL), listening_ports=frozenset({2379})) == []


def test_a_hosted_kubelet_needs_a_port_of_its_own_on_every_node():
    cluster = a_cluster(workers=1)
    hosting = replace(cluster, hosts_kubelet=True)
    for node in cluster.nodes:
        assert needed_ports(hosting, node) - needed_ports(cluster, node) == {10247}


def test_our_own_ports_are_no_surprise_on_a_host_that_is_ours():
    assert found(listening_ports=frozenset({6443}), ours=("n1",)) == []


@pytest.mark.parametrize(
    ("free", "ours", "severity"),
    [(5 * GIB, (), None), (5 * GIB - 1, (), "warning"), (2 * GIB - 1, (), "error"), (0, ("n1",), "warning")],
)
def test_a_full_disk_stops_a_new_node_and_only_warns_on_one_of_ours(free, ours, severity):
    assert found(disk_free=free, ours=ours) == ([("disk", severity)] if severity else [])


@pytest.mark.parametrize(
    ("driver", "total", "ours", "severity"),
    [
        ("local", 60 * GIB, (), None),
        ("local", 70 * GIB, (), "error"),
        ("local", 70 * GIB, ("n1",), "warning"),
        ("ssh", 70 * GIB, (), "error"),
        ("lab", 70 * GIB, (), None),
        ("local", 0, (), None),
    ],
)
def test_a_disk_of_which_the_kubelet_would_take_no_pods_is_found(driver, total, ours, severity):
    cluster = a_cluster()
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], host=HostRef(driver, "n1")),))
    assert found(cluster, disk_free=10 * GIB, disk_total=total, ours=ours) == ([("disk", severity)] if severity else [])


@pytest.mark.parametrize(("memory", "severity"), [(1700, None), (1699, "warning"), (999, "error")])
def test_a_control_node_wants_memory(memory, severity):
    assert found(memory_total=memory * MIB) == ([("memory", severity)] if severity else [])


def test_a_worker_may_be_small():
    two = a_cluster(controls=1, workers=1)
    facts = facts_of(two)
    facts["n2"] = replace(facts["n2"], memory_total=512 * MIB)
    assert [f for f in checks(two, facts) if f.name == "memory"] == []


@pytest.mark.parametrize(("off", "severity"), [(1.9, None), (-2.1, "warning"), (31, "error"), (-3600, "error")])
def test_clocks_that_differ_are_found(off, severity):
    three = a_cluster(controls=3)
    clock = facts_of(three)["n2"].clock + off
    assert found(three, clock=clock) == ([("clock", severity)] if severity else [])


def test_one_host_alone_has_no_clock_to_compare():
    assert found(clock=0.0) == []


@pytest.mark.parametrize(
    ("shared", "severity", "expected"),
    [
        ({"address", "boot_id", "hostname"}, "error", "it has the same address as n1: 192.0.2.11"),
        ({"boot_id", "hostname"}, "error", "it is the same machine as n1: one boot id"),
        ({"hostname"}, "warning", "it has the same host name as n1: n1"),
    ],
)
def test_two_nodes_on_one_machine_are_found_by_what_they_share(shared, severity, expected):
    two = a_cluster(controls=1, workers=1)
    facts = facts_of(two)
    facts["n2"] = replace(facts["n2"], **{key: getattr(facts["n1"], key) for key in shared})
    [finding] = [f for f in checks(two, facts) if f.name == "machines"]
    assert (finding.host, finding.severity, finding.what) == ("n2", severity, expected)


def test_a_machine_that_is_called_otherwise_is_told_but_a_test_host_is_not():
    local = a_cluster(nodes=(replace(ONE.nodes[0], host=HostRef("local")),))
    assert found(local, hostname="workshop") == [("hostname", "warning")]
    assert found(local) == []
    assert found(hostname="workshop") == []


def test_an_address_in_the_file_must_be_one_of_the_hosts():
    assert only("address", address="198.51.100.7", addresses=("198.51.100.7",)).severity == "error"
    assert found(address="198.51.100.7", addresses=("198.51.100.7", "192.0.2.11")) == []


def test_cgroup_v1_is_told_and_never_stops():
    assert only("cgroup", cgroup_version=1).severity == "warning"
    assert "cgroup" not in [finding.name for finding in checks(ONE, facts_of(ONE, cgroup_version=2))]


@pytest.mark.parametrize("name", CHECKS)
def test_any_check_can_be_demoted_to_a_warning_by_its_name(name):
    wrong = {
        "architecture": "aarch64",
        "init": "runit",
        "disk_free": 0,
        "memory_total": 0,
        "missing_programs": ("ip",),
        "missing_features": ("vxlan",),
        "listening_ports": frozenset({6443}),
        "address": "10.96.0.9",
        "addresses": (),
    }
    assert (name, "error") not in found(demoted=(name,), **wrong)
    assert len(found(demoted=(name,), **wrong)) == len(found(**wrong))


SOME_FACTS = {
    "address": st.sampled_from(["192.0.2.11", "10.96.0.9", "10.244.0.1"]),
    "networks": st.lists(st.sampled_from(["10.96.0.0/12", "0.0.0.0/1", "unreachable", "192.0.2.0/24"])).map(tuple),
    "listening_ports": st.frozensets(st.sampled_from([22, 2379, 6443, 10250])),
    "clock": st.floats(0, 2e9),
    "disk_free": st.integers(0, 10 * GIB),
    "memory_total": st.integers(0, 4 * GIB),
    "cgroup_version": st.sampled_from([1, 2]),
    "architecture": st.sampled_from(["x86_64", "aarch64"]),
    "boot_id": st.sampled_from(["a", "b"]),
    "hostname": st.sampled_from(["n1", "localhost"]),
    "missing_programs": st.lists(st.just("ip"), max_size=1).map(tuple),
}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.fixed_dictionaries(SOME_FACTS), min_size=3, max_size=3), st.sets(st.sampled_from(sorted(CHECKS))))
def test_demoting_changes_the_severity_of_what_is_named_and_nothing_else(changes, demoted):
    three = a_cluster(controls=1, workers=2)
    healthy = facts_of(three)
    facts = {name: replace(healthy[name], **changed) for name, changed in zip(healthy, changes, strict=True)}
    strict = checks(three, facts)
    expected = [replace(f, severity="warning") if f.name in demoted else f for f in strict]
    assert checks(three, facts, demoted=demoted) == expected
    assert {f.severity for f in checks(three, facts, demoted=CHECKS)} <= {"warning"}
    assert set(checks(three, facts, ours=healthy)) <= {
        *strict,
        *(replace(f, severity="warning") for f in strict),
    }


def test_an_unknown_check_to_demote_is_an_error_with_the_near_name():
    [finding] = [f for f in checks(ONE, facts_of(ONE), demoted=("port",)) if f.name == "ignore"]
    assert (finding.severity, finding.what) == ("error", "there is no check port")
    assert finding.remedy == f"did you mean ports? The checks are: {', '.join(CHECKS)}"
    [finding] = [f for f in checks(ONE, facts_of(ONE), demoted=("zzz",)) if f.name == "ignore"]
    assert finding.remedy == f"the checks are: {', '.join(CHECKS)}"


@pytest.mark.parametrize(("controls", "said"), [(1, None), (2, "survives the loss of 0"), (3, None), (4, "loss of 1")])
def test_an_even_number_of_control_nodes_is_warned_of(controls, said):
    cluster = a_cluster(controls=controls)
    reported = [f"{f.severity}: {f.what}" for f in checks(cluster, facts_of(cluster)) if f.name == "members"]
    assert bool(reported) == (said is not None)
    assert all(line.startswith("warning: ") and said in line for line in reported)


def test_with_external_etcd_two_control_nodes_are_as_good_as_any_number():
    cluster = a_cluster(controls=2, external_etcd=EXTERNAL)
    assert [f for f in checks(cluster, facts_of(cluster)) if f.name == "members"] == []


@pytest.mark.parametrize(
    ("leaves", "kubelets", "reported"), [(None, None, []), (3600, 3600, []), (360, None, ["leafLifetime is 6m"])]
)
def test_certificates_that_live_for_less_than_an_hour_are_warned_of(leaves, kubelets, reported):
    settings = CertificateSettings(leaf_seconds=leaves, kubelet_seconds=kubelets)
    cluster = replace(ONE, certificates=settings)
    findings = [finding for finding in checks(cluster, facts_of(cluster)) if finding.name == "lifetimes"]
    assert [finding.what.partition(":")[0].removeprefix("spec.certificates.") for finding in findings] == reported
    assert all(finding.severity == "warning" for finding in findings)


def test_kubelets_certificates_are_warned_of_as_well():
    cluster = replace(ONE, certificates=CertificateSettings(leaf_seconds=3599, kubelet_seconds=600))
    assert len([finding for finding in checks(cluster, facts_of(cluster)) if finding.name == "lifetimes"]) == 2


# --- an address that is another node's ------------------------------------------------------------------------------


def n4_says(address, *, also=None, controls=3):
    """What is found where n2 is off, and n4 says this address."""
    cluster = a_cluster(controls=controls, workers=4 - controls)
    facts = {name: seen for name, seen in facts_of(cluster).items() if name != "n2"}
    facts["n4"] = replace(facts["n4"], address=address, addresses=(address,))
    # What `observe` makes of it: a host's own word goes before what is remembered of it.
    cluster = cluster.with_addresses({"n4": address})
    return [f for f in checks(cluster, facts, elsewhere=also or {}) if f.name == "machines"]


@pytest.mark.parametrize("controls", [3, 1])
def test_the_address_of_a_node_that_is_off_is_not_another_ones(controls):
    [finding] = n4_says("192.0.2.12", controls=controls)
    assert (finding.host, finding.severity) == ("n4", "error")
    assert finding.what == "its address 192.0.2.12 is also recorded for n2"
    assert "n2" in finding.remedy
    assert n4_says("192.0.2.44") == []


def test_the_address_of_a_node_that_is_not_in_the_file_is_not_another_ones():
    [finding] = n4_says("192.0.2.90", also={"n9": "192.0.2.90", "n8": None})
    assert (finding.host, finding.severity) == ("n4", "error")
    assert finding.what == "its address 192.0.2.90 is also recorded for n9"
    assert n4_says("192.0.2.91", also={"n9": "192.0.2.90"}) == []


def test_two_nodes_of_the_file_that_both_answer_are_told_once():
    cluster = a_cluster(controls=1, workers=1)
    facts = facts_of(cluster)
    facts["n2"] = replace(facts["n2"], address="192.0.2.11")
    assert [f.name for f in checks(cluster, facts) if f.severity == "error"].count("machines") == 1


# --- for whom they count -----------------------------------------------------------------------------------------


NAMES = st.sampled_from(["", "n1", "n2", "w1", "w2", "new"])
ERRORS = st.builds(Finding, st.just("x"), st.just("error"), NAMES, st.just(""), st.just(""), NAMES)


@given(st.lists(ERRORS))
def test_every_error_refuses_the_command_or_leaves_out_a_worker_that_it_is_about(errors):
    workers, joined = {"w1", "w2"}, {"n1", "n2", "w1", "w2"}
    refusing, left_out = judge(errors, workers=workers, joined=joined)
    assert left_out.keys() <= workers
    for error in errors:
        hosts = {error.host, error.other} - {""}
        assert (error in refusing) == (not hosts & workers or not hosts <= joined)
        assert error in refusing or hosts & left_out.keys()
    assert all(name in (error.host, error.other) for name, error in left_out.items())


@given(st.lists(ERRORS))
def test_without_an_api_that_knows_who_joined_every_error_refuses(errors):
    assert judge(errors, workers=(), joined=()) == (errors, {})
