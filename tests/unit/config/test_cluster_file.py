from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky.config import default_cluster, dump, load
from autarky.errors import Problems, UserError
from autarky.model.cluster import Cluster, HostRef, Level, Node
from unit.config.cluster_texts import DEFAULT, HEAD, KNOWN, problem, problems, read, spec

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
LONG = "a" * 64


# --- what a file means ----------------------------------------------------------------------------


def test_a_file_with_a_name_and_a_node_is_enough():
    cluster = spec("nodes: [{name: n1}]")
    assert cluster == default_of(cluster)
    assert cluster.kubernetes_version == DEFAULT
    assert cluster.self_hosted is Level.ETCD
    assert cluster.nodes == (Node("n1", HostRef("lab", "n1"), control_plane=True),)


@pytest.mark.parametrize(("levels", "lowest"), [("0-4", Level.ETCD), ("02-4", Level.API_SERVER)])
def test_the_kubelet_may_be_hosted_with_and_without_etcd(levels, lowest):
    cluster = spec(f"nodes: [{{name: n1}}]\nselfHosted: {levels}")
    assert (cluster.self_hosted, cluster.hosts_kubelet) == (lowest, True)
    assert cluster == default_of(cluster)


def default_of(cluster: Cluster) -> Cluster:
    """The same cluster with all defaults spelled out."""
    return read(json.dumps(dump(cluster)))


def test_without_a_file_there_is_a_default_cluster():
    cluster = default_cluster(default_version=DEFAULT, known_versions=KNOWN)
    assert (cluster.name, [node.name for node in cluster.nodes]) == ("lab-1", ["n1"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_good(path):
    cluster = load(path, default_version=DEFAULT, known_versions=KNOWN)
    assert cluster.name == path.stem


@pytest.mark.parametrize(
    ("host", "expected"),
    [("lab", HostRef("lab", "n1")), ("lab:other", HostRef("lab", "other")), ("local", HostRef("local"))],
)
def test_a_host_names_its_driver(host, expected):
    assert spec(f'nodes: [{{name: n1, host: "{host}"}}]').nodes[0].host == expected


def test_paths_are_relative_to_the_file(tmp_path):
    cluster = read(HEAD + "  nodes: [{name: n1}]\n  certificates: {caDirectory: ca}\n", tmp_path)
    assert cluster.certificates.ca_directory == str(tmp_path / "ca")


def test_paths_are_absolute_so_that_the_kept_file_means_the_same(tmp_path, monkeypatch):
    (tmp_path / "cluster.yaml").write_text(HEAD + "  nodes: [{name: n1}]\n  certificates: {caDirectory: ca}\n")
    monkeypatch.chdir(tmp_path)
    cluster = load(Path("cluster.yaml"), default_version=DEFAULT, known_versions=KNOWN)
    assert cluster.certificates.ca_directory == str(tmp_path / "ca")
    assert read(json.dumps(dump(cluster)), Path("/elsewhere")) == cluster


def test_a_single_node_is_both_and_of_several_the_file_says_which():
    assert [n.control_plane for n in spec("nodes: [{name: n1, roles: [control-plane]}, {name: n2}]").nodes] == [
        True,
        False,
    ]
    assert "no node has the role control-plane" in problem("nodes: [{name: n1}, {name: n2}]")


# --- errors: all at once, with positions ------------------------------------------------------------


def test_all_errors_are_told_at_once_each_with_its_position_and_remedy():
    reported = problems(
        "nodez: []\n"
        "selfHosted: 1-5\n"
        "network: {podCIDR: 10.0.0.0/8, serviceCIDR: 10.96.0.0/16}\n"
        "rollback: {enabled: true, enabled: false}\n"
        "nodes:\n"
        "  - name: N1\n"
        "    lables: {}\n"
        "  - labels: {a: b c}\n"
        "extraArgs:\n"
        "  etcd: {v: 2}\n"
        "  kubelets: {v: '2'}"
    )
    assert {tuple(line.split(": ")[:2]) for line in reported} == {
        ("cluster.yaml:8:29", "duplicate key 'enabled' | remove one of them"),
        ("cluster.yaml:5:3", "spec.nodez"),
        ("cluster.yaml:6:15", "spec.selfHosted"),
        ("cluster.yaml:7:3", "spec.network"),
        ("cluster.yaml:10:13", "spec.nodes[0].name"),
        ("cluster.yaml:11:7", "spec.nodes[0].lables"),
        ("cluster.yaml:12:7", "spec.nodes[1].name"),
        ("cluster.yaml:12:19", "spec.nodes[1].labels.a"),
        ("cluster.yaml:14:15", "spec.extraArgs.etcd.v"),
        ("cluster.yaml:15:5", "spec.extraArgs.kubelets"),
    }
    assert all(" | " in line for line in reported)


def test_of_an_unknown_version_a_later_one_of_its_minor_is_named_and_no_earlier_one():
    """An earlier one would take a cluster back that has the unknown version."""
    later = problems('kubernetesVersion: "1.37.0"\nnodes: [{name: n1}]\n')
    assert '| use "1.37.1"; known: 1.36.4, 1.37.1; for 1.37.0: `autarky payload release add FILE`' in later[0]
    for none_later in ("1.37.2", "1.35.9", "1.38.0"):
        [earlier] = problems(f'kubernetesVersion: "{none_later}"\nnodes: [{{name: n1}}]\n')
        assert "| known: 1.36.4, 1.37.1; for" in earlier


def test_rules_between_nodes_are_told_together_with_what_is_wrong_elsewhere():
    made = "`autarky payload release add FILE`, or `autarky payload release new 1.36.5`"
    reported = problems(
        'kubernetesVersion: "1.36.5"\n'
        "nodes:\n"
        "  - {name: n1, roles: [control-plane], address: 192.0.2.1}\n"
        '  - {name: n1, host: "lab:n1", roles: [control-plane], address: 192.0.2.1}\n'
    )
    assert [line.split(": ", 1)[1] for line in reported] == [
        f"spec.kubernetesVersion: there is no release file for v1.36.5 | known: 1.36.4, 1.37.1; for 1.36.5: {made}",
        "spec.nodes[1].name: a second node n1 | give each node a name of its own",
        "spec.nodes[1].host: a second node on lab:n1 | give each node a machine of its own",
        "spec.nodes[1].address: a second node on 192.0.2.1 | give each node an address of its own",
    ]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("kubernetesVerison: '1.36.4'\nnodes: [{name: n1}]", "kubernetesVersion"),
        ("nodes: [{name: n1, lable: {}}]", "labels"),
        ("nodes: [{name: n1}]\nnetwork: {podCidr: 10.1.0.0/16}", "podCIDR"),
        ("nodes: [{name: n1}]\netcd: {external: {endpoint: []}}\nselfHosted: 2-4", "endpoints"),
        ("nodes: [{name: n1}]\nrollback: {limitSecond: 60}", "limitSeconds"),
        ("nodes: [{name: n1}]\nextraArgs: {kube-api-server: {}}", "kube-apiserver"),
        ("nodes: [{name: n1}]\nself_hosted: '4'", "selfHosted"),
    ],
)
def test_a_misspelt_key_is_told_the_near_name(wrong, near):
    assert f"unknown key | did you mean {near}?" in problem(wrong)


def test_a_key_like_nothing_known_is_told_what_there_is():
    with pytest.raises(Problems, match=r"metadata\.zzz: unknown key\n *fix: known keys here: name"):
        read(HEAD.replace("name: demo", "name: demo, zzz: 1") + "  nodes: [{name: n1}]")


def test_a_misspelt_value_is_told_the_near_one():
    assert "'control-plan' is not one of control-plane, worker | did you mean control-plane?" in problem(
        "nodes: [{name: n1, roles: [control-plan]}]"
    )


def test_what_is_missing_is_named():
    assert "spec.nodes[0].name: missing | add name" in problem("nodes: [{host: lab}]")
    assert "cluster.yaml:4:1: spec.nodes: missing" in problem("selfHosted: 1-4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: [{name: n1}]\nselfHosted: 03-4", "'03-4' is not one of 0-4, 02-4, 1-4, 2-4, 3-4, 4"),
        ("nodes: [{name: n1}]\nselfHosted: 4", 'must be text | put it in quotes: "4"'),
        ("nodes: [{name: n1, host: 'ssh://'}]", "'' is not a host"),
        ("nodes: [{name: n1, host: 'ssh://-oProxyCommand=x'}]", "'-oProxyCommand=x' is not a host"),
        ("nodes: [{name: n1, host: 'ssh://n1;reboot'}]", "'n1;reboot' is not a host"),
        ("nodes: [{name: n1, host: 'ssh://`id`@n1'}]", "'`id`' is not a user name"),
        ("nodes: [{name: n1, host: 'ssh://@n1'}]", "'' is not a user name"),
        ("nodes: [{name: n1, host: 'ssh://root:secret@n1'}]", "passwords are not allowed in the file"),
        ("nodes: [{name: n1, host: 'ssh://n1/etc'}]", "has a path | write ssh://[USER@]HOST[:PORT]"),
        ("nodes: [{name: n1, host: 'ssh://n1:'}]", "has no valid port"),
        ("nodes: [{name: n1, host: 'ssh://n1:99999'}]", "has no valid port"),
        ("nodes: [{name: n1, host: 'ssh://[::1'}]", "is not a host"),
        ("nodes: [{name: n1, host: 'ssh://[::1]22'}]", "has no valid port"),
        (
            "nodes: [{name: a, roles: [control-plane], host: 'ssh://n1'}, {name: b, host: 'ssh://n1'}]",
            "a second node on ssh://n1",
        ),
        ("nodes: [{name: n1, host: docker}]", "must be lab, lab:NAME, local or ssh://…"),
        ("nodes: [{name: n1, host: 'lab:'}]", "is not a test host"),
        ("nodes: [{name: n1, host: 'lab:../../etc'}]", "is not a test host"),
        ("nodes: [{name: n1, roles: []}]", "must not be empty"),
        ("nodes: []", "spec.nodes: must not be empty"),
        ("nodes:", "spec.nodes: must be a list, not nothing"),
        ("nodes: {name: n1}", "spec.nodes: must be a list, not a mapping"),
        (f"nodes: [{{name: {LONG}}}]", "is not a DNS label"),
        ("nodes: [{name: n1}]\nrollback: {limitSeconds: 1}", "1 is too small | use 10 or more"),
        ("nodes: [{name: n1}]\nrollback: {limitSeconds: 9999}", "9999 is too large | use 3600 or less"),
        ("nodes: [{name: n1}]\nrollback: {limitSeconds: '90'}", "must be a whole number, not '90'"),
        ("nodes: [{name: n1}]\nrollback: {enabled: yes}", "must be true or false, not 'yes'"),
        ("nodes: [{name: n1}]\ncertificates: {caDays: 99, leafDays: 100}", "100 days exceed the CA's 99 days"),
        ("nodes: [{name: n1}]\ncertificates: {caDays: 999999}", "999999 is too large"),
        ("nodes: [{name: n1}]\ncertificates: {caDirectory: ''}", "it is empty"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text, expected):
    assert expected in problem(text)


@pytest.mark.parametrize(
    "target", ["n1", "root@192.0.2.11", "admin_1@node-1.example.org:2222", "my_alias", "[2001:db8::1]", "u@[::1]:22"]
)
def test_a_host_is_reached_by_ssh_as_the_user_writes_it(target):
    [node] = spec(f"nodes: [{{name: n1, host: 'ssh://{target}'}}]").nodes
    assert node.host == HostRef("ssh", target)
    assert str(node.host) == f"ssh://{target}"


def test_an_ssh_config_beside_the_file_is_found_from_anywhere():
    cluster = read(HEAD + "  nodes: [{name: n1}]\n  sshConfig: ssh_config\n", Path("/etc/clusters"))
    assert cluster.ssh_config == "/etc/clusters/ssh_config"
    assert spec("nodes: [{name: n1}]").ssh_config is None


def test_the_users_own_ca_may_live_shorter_than_the_default():
    assert spec("nodes: [{name: n1}]\ncertificates: {caDays: 99, leafDays: 100, caDirectory: ca}").name == "demo"


# --- labels, taints, arguments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("bad key: x", "is not a label's key"),
        ("a/b/c: x", "is not a domain name"),
        (f"{LONG}: x", "is not a label's key"),
        ("key: -x", "is not a label's value"),
        (f"key: {LONG}", "is not a label's value"),
        ("node-role.kubernetes.io/control-plane: ''", "cannot be set here | give the node the role control-plane"),
        ("kubernetes.io/hostname: n1", "cannot be set here | leave it out"),
    ],
)
def test_a_label_that_the_api_would_refuse_is_refused_here(label, expected):
    assert expected in problem(f"nodes: [{{name: n1, labels: {{{label}}}}}]")


def test_labels_may_have_a_domain_and_an_empty_value():
    labels = {"example.org/disk": "ssd", "plain_Name.1": ""}
    assert spec(f"nodes: [{{name: n1, labels: {json.dumps(labels)}}}]").nodes[0].labels == labels


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (
            "{key: a, effect: NoSchedule}",
            "{key: a, effect: NoExecute}",
            "cluster DNS could not run: every node has a taint that it does not tolerate",
        ),
        ("{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}", "", "a second taint a"),
        ("{key: a b, effect: NoSchedule}", "", "is not a label's key"),
        ("{key: a}", "", "taints[0].effect: missing"),
    ],
)
def test_taints_must_be_possible_and_leave_room(first, second, expected):
    nodes = f"nodes: [{{name: n1, roles: [control-plane], taints: [{first}]}}, {{name: n2, taints: [{second}]}}]"
    assert expected in problem(nodes)


def test_control_nodes_with_their_usual_taint_need_no_worker():
    """DNS tolerates it, and workers may join later, or leave."""
    taint = "{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}"
    nodes = ", ".join(f"{{name: n{number}, roles: [control-plane], taints: [{taint}]}}" for number in (1, 2, 3))
    assert len(spec(f"nodes: [{nodes}]").nodes) == 3


def test_a_single_node_is_never_tainted():
    assert "a single node must not be tainted" in problem("nodes: [{name: n1, taints: [{key: a, effect: NoSchedule}]}]")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--v: '2'", "write it without dashes: v"),
        ("'a b': '2'", "is not an argument's name"),
        ('v: "2\\nExecStartPre=/bin/true"', "control characters or line breaks"),
    ],
)
def test_an_argument_cannot_become_another_line_of_a_unit(argument, expected):
    assert expected in problem(f"nodes: [{{name: n1}}]\nextraArgs: {{kubelet: {{{argument}}}}}")


# --- networks and addresses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("{podCIDR: 10.244.0.0/24}", "10.244.0.0/24 is too small"),
        ("{podCIDR: 10.0.0.0/7, serviceCIDR: 192.168.0.0/16}", "10.0.0.0/7 is too large"),
        ("{serviceCIDR: 10.96.0.0/28}", "10.96.0.0/28 is too small"),
        ("{serviceCIDR: 10.96.0.1/16}", "it has host bits set: write 10.96.0.0/16"),
        ("{serviceCIDR: 'fd00::/112'}", "is not an IPv4 network"),
        ("{serviceCIDR: 127.0.0.0/16}", "is not for hosts or pods"),
        ("{podCIDR: 10.0.0.0/8}", "podCIDR 10.0.0.0/8 and serviceCIDR 10.96.0.0/16 overlap"),
        ("{dnsDomain: cluster..local}", "is not a domain name"),
    ],
)
def test_a_network_must_be_usable(network, expected):
    assert expected in problem(f"nodes: [{{name: n1}}]\nnetwork: {network}")


def test_every_node_must_get_its_block_of_the_pod_network():
    nodes = ", ".join(f"{{name: w{number}}}" for number in range(2))
    reported = problem(f"nodes: [{{name: n1, roles: [control-plane]}}, {nodes}]\nnetwork: {{podCIDR: 10.1.0.0/23}}")
    assert "spec.network.podCIDR: 10.1.0.0/23 has room for 2 nodes, but there are 3" in reported


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("999.1.1.1", "is not an IPv4 address"),
        ("127.0.0.1", "is not an address that other nodes can reach"),
        ("10.96.0.7", "10.96.0.7 lies inside serviceCIDR 10.96.0.0/16"),
        ("10.244.9.9", "10.244.9.9 lies inside podCIDR 10.244.0.0/16"),
    ],
)
def test_an_address_must_be_a_hosts(address, expected):
    assert expected in problem(f"nodes: [{{name: n1, address: {address}}}]")


@pytest.mark.parametrize("good", ["api.example.org:6443", "192.0.2.1:443"])
def test_an_endpoint_is_a_host_and_a_port(good):
    assert spec(f"nodes: [{{name: n1}}]\ncontrolPlaneEndpoint: {good}").control_plane_endpoint == good


@pytest.mark.parametrize("bad", ["https://x:6443", "host", "host:0", "host:99999", "300.1.1.1:6443", "-x:6443"])
def test_what_is_no_endpoint_is_refused(bad):
    assert "is not host:port" in problem(f"nodes: [{{name: n1}}]\ncontrolPlaneEndpoint: {bad}")


# --- certificates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["leafLifetime", "kubeletLifetime"])
@pytest.mark.parametrize(
    ("certificates", "expected"),
    [
        ("{%s: 5m}", "5m is too short"),
        ("{%s: 87601h}", "exceeds the CA's 3650 days"),
        ("{caDirectory: /ca, %s: 876001h}", "876001h is too long | use 876000h or less"),
        ("{caDirectory: /ca, %s: 9999999h}", "is too long"),
        ("{caDays: 30, leafDays: 30, %s: 721h}", "721h exceeds the CA's 30 days | use less than caDays"),
        *(("{%s: " + odd + "}", "is not a lifetime") for odd in ("1d", "0m", "-5m", "1h30m")),
        ("{%s: 90}", "must be text"),
    ],
)
def test_a_life_that_no_certificate_can_have_is_refused(key, certificates, expected):
    assert expected in problem(f"nodes: [{{name: n1}}]\ncertificates: {certificates % key}")


def test_a_kubelets_certificate_lives_for_ten_minutes_at_least_and_a_leaf_for_six():
    short = "nodes: [{name: n1}]\ncertificates: {leafLifetime: %s, kubeletLifetime: %s}"
    found = spec(short % ("6m", "10m")).certificates
    assert (found.leaf_seconds, found.kubelet_seconds) == (360, 600)
    assert "kubeletLifetime: 9m is too short | use 10m or more" in problem(short % ("6m", "9m"))
    assert "leafLifetime: 5m is too short | use 6m or more" in problem(short % ("5m", "10m"))


@pytest.mark.parametrize("key", ["leafLifetime", "kubeletLifetime"])
def test_a_life_may_be_as_long_as_the_cas(key):
    found = spec(f"nodes: [{{name: n1}}]\ncertificates: {{caDays: 30, leafDays: 30, {key}: 720h}}").certificates
    assert 720 * 3600 in (found.leaf_seconds, found.kubelet_seconds)


# --- etcd -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("external", "expected"),
    [
        ("{lab: store, endpoints: ['https://x:2379']}", "lab and endpoints are mutually exclusive"),
        ("{lab: n1}", "n1 is already a node"),
        ("{lab: other}", "other is already a node"),
        ("{}", "missing: endpoints, caFile, certFile, keyFile"),
        ("{endpoints: ['https://x:2379'], caFile: a}", "missing: certFile, keyFile"),
        ("{endpoints: ['http://x:2379'], caFile: a, certFile: b, keyFile: c}", "not https"),
        ("{endpoints: ['https://x'], caFile: a, certFile: b, keyFile: c}", "is not the URL of an etcd member"),
        (
            "{endpoints: ['https://x:1', 'https://x:1'], caFile: a, certFile: b, keyFile: c}",
            "duplicate endpoint https://x:1",
        ),
    ],
)
def test_external_etcd_is_complete_or_refused(external, expected):
    nodes = "nodes: [{name: n1, roles: [control-plane]}, {name: n2, host: 'lab:other'}]"
    assert expected in problem(f"selfHosted: 2-4\n{nodes}\netcd: {{external: {external}}}")


@pytest.mark.parametrize(
    "name",
    ["name", "data-dir", "wal-dir", "initial-cluster", "initial-cluster-state", "force-new-cluster", "discovery"],
)
def test_who_etcds_members_are_and_where_their_data_is_cannot_be_given(name):
    """A member whose log is elsewhere counts as lost; one that starts empty, as a healthy one of another cluster."""
    said = problem(f'nodes: [{{name: n1}}]\nextraArgs: {{etcd: {{{name}: "x", quota-backend-bytes: "123"}}}}')
    assert f"--{name} of etcd cannot be set" in said
    assert "leave it out" in said


def test_external_etcd_does_not_go_with_hosted_etcd():
    assert "cannot be combined with selfHosted 1-4" in problem("nodes: [{name: n1}]\netcd: {external: {lab: store}}")


def test_without_external_etcd_every_level_goes():
    assert [spec(f'nodes: [{{name: n1}}]\nselfHosted: "{level}"').external_etcd for level in ("2-4", "4")] == [None] * 2


# --- the file itself --------------------------------------------------------------------------------


def test_a_file_that_is_not_there_or_not_text_is_an_error_of_the_user(tmp_path):
    with pytest.raises(UserError, match="cannot read it: No such file"):
        load(tmp_path / "none.yaml", default_version=DEFAULT, known_versions=KNOWN)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load(tmp_path / "binary.yaml", default_version=DEFAULT, known_versions=KNOWN)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    (tmp_path / "bom.yaml").write_text(HEAD + "  nodes: [{name: n1}]\n", encoding="utf-8-sig")
    assert load(tmp_path / "bom.yaml", default_version=DEFAULT, known_versions=KNOWN).name == "demo"


@pytest.mark.parametrize("text", ["[]", "just text", "42"])
def test_a_file_that_is_something_else_is_told_what_it_should_be(text):
    with pytest.raises(Problems, match=r"cluster.yaml:1:1: the file: must be a mapping"):
        read(text)
