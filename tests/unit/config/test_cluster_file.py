from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.config import default_cluster, dump, json_schema, load, loads
from autarky.errors import Problems, UserError
from autarky.model.cluster import (
    CertificateSettings,
    Cluster,
    ExternalEtcd,
    HostRef,
    Level,
    Network,
    Node,
    Rollback,
    Taint,
)
from autarky.model.versions import Version
from autarky.render.values import pretty_json

DEFAULT = Version(1, 37, 1)
KNOWN = (Version(1, 36, 4), DEFAULT)
HEAD = "apiVersion: autarky.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n"
REMEDY_CONTROL = " | leave the role control-plane to one node"
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def read(text: str, directory: Path | None = None) -> Cluster:
    return loads(text, "cluster.yaml", default_version=DEFAULT, known_versions=KNOWN, directory=directory)


def spec(text: str) -> Cluster:
    """A cluster file with that spec, whose lines begin at line 5."""
    return read(HEAD + "".join(f"  {line}\n" for line in text.splitlines()))


def problems(text: str) -> list[str]:
    """All errors of a spec, one line each."""
    with pytest.raises(Problems) as caught:
        spec(text)
    return [str(problem).replace("\n  fix: ", " | ") for problem in caught.value.problems]


def problem(text: str) -> str:
    [only] = problems(text)
    return only


# --- what a file means --------------------------------------------------------------------------------


def test_a_file_with_a_name_and_a_node_is_enough():
    cluster = spec("nodes: [{name: n1}]")
    assert cluster == default_of(cluster)
    assert cluster.kubernetes_version == DEFAULT
    assert cluster.self_hosted is Level.ETCD
    assert cluster.nodes == (Node("n1", HostRef("lab", "n1"), control_plane=True),)


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


def test_a_single_node_is_both_and_of_several_the_file_says_which():
    assert [n.control_plane for n in spec("nodes: [{name: n1, roles: [control-plane]}, {name: n2}]").nodes] == [
        True,
        False,
    ]
    assert "no node has the role control-plane" in problem("nodes: [{name: n1}, {name: n2}]")


# --- errors: all at once, with positions ------------------------------------------------------------------


def test_all_errors_of_form_are_told_at_once_each_with_its_position_and_remedy():
    told = problems("nodez: []\nselfHosted: 1-5\nnodes:\n  - name: N1\n    lables: {}\nextraArgs:\n  etcd: {v: 2}")
    assert {line.split(": ")[0]: line.split(": ")[1] for line in told} == {
        "cluster.yaml:5:3": "spec.nodez",
        "cluster.yaml:6:3": "spec.selfHosted",
        "cluster.yaml:8:7": "spec.nodes[0].name",
        "cluster.yaml:9:7": "spec.nodes[0].lables",
        "cluster.yaml:11:12": "spec.extraArgs.etcd.v",
    }
    assert all(" | " in line for line in told)


def test_all_errors_of_meaning_are_told_at_once():
    told = problems(
        'kubernetesVersion: "1.36.5"\n'
        "nodes:\n"
        "  - {name: n1, roles: [control-plane]}\n"
        '  - {name: n1, host: "lab:n1", roles: [control-plane]}\n'
        "network: {podCIDR: 10.0.0.0/8, serviceCIDR: 10.96.0.0/16}\n"
        "extraArgs: {kubelets: {v: '2'}}"
    )
    assert [line.split(": ", 2)[1:] for line in told] == [
        ["spec.nodes[1].name", "a second node n1 | give each node a name of its own"],
        ["spec.nodes[1].host", "a second node on lab:n1 | give each node a machine of its own"],
        [
            "spec.nodes[1].roles",
            f"several control nodes are not built yet (they come with high availability){REMEDY_CONTROL}",
        ],
        ["spec.network", "podCIDR 10.0.0.0/8 and serviceCIDR 10.96.0.0/16 overlap | separate them"],
        ["spec.extraArgs.kubelets", "unknown component | did you mean kubelet?"],
        [
            "spec.kubernetesVersion",
            'there is no release file for v1.36.5 | use "1.36.4"; known: 1.36.4, 1.37.1',
        ],
    ]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("kubernetesVerison: '1.36.4'\nnodes: [{name: n1}]", "kubernetesVersion"),
        ("nodes: [{name: n1, lable: {}}]", "labels"),
        ("nodes: [{name: n1}]\nnetwork: {podCidr: 10.1.0.0/16}", "podCIDR"),
        ("nodes: [{name: n1}]\netcd: {external: {endpoint: []}}", "endpoints"),
        ("nodes: [{name: n1}]\nrollback: {limitSecond: 60}", "limitSeconds"),
    ],
)
def test_a_misspelt_key_is_told_the_near_name(wrong, near):
    assert f"unknown key | did you mean {near}?" in problem(wrong)


def test_a_key_like_nothing_known_is_told_what_there_is():
    with pytest.raises(Problems, match=r"metadata\.zzz: unknown key\n *fix: known keys here: name"):
        read(HEAD.replace("name: demo", "name: demo, zzz: 1") + "  nodes: [{name: n1}]")


def test_what_is_missing_is_named():
    assert "spec.nodes[0].name: missing | add name" in problem("nodes: [{host: lab}]")
    assert "spec.nodes: missing" in problem("selfHosted: 1-4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: [{name: n1}]\nselfHosted: 0-4", "0-4 (kubelet as a DaemonSet) is not built yet"),
        ("nodes: [{name: n1, host: 'ssh://root@example.org'}]", "ssh hosts are not built yet"),
        ("nodes: [{name: n1, taints: [{key: a, effect: NoSchedule}]}]", "a single node is never tainted"),
        ("nodes: [{name: n1, host: docker}]", "must be lab, lab:NAME, local or ssh://…"),
        ("nodes: [{name: n1}]\nnetwork: {podCIDR: 10.244.0.0/24}", "10.244.0.0/24 is too small"),
        ("nodes: [{name: n1}]\nnetwork: {serviceCIDR: 10.96.0.1/16}", "has host bits set"),
        ("nodes: [{name: n1}]\nnetwork: {serviceCIDR: 'fd00::/112'}", "spec.network.serviceCIDR"),
        ("nodes: [{name: n1}]\nrollback: {limitSeconds: 1}", "greater than or equal to 10"),
        ("nodes: [{name: n1}]\ncontrolPlaneEndpoint: 'https://x:6443'", "spec.controlPlaneEndpoint"),
        ("nodes: []", "spec.nodes"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text, expected):
    assert expected in problem(text)


@pytest.mark.parametrize(
    ("external", "expected"),
    [
        ("{lab: store, endpoints: ['https://x:2379']}", "lab and endpoints exclude each other"),
        ("{lab: n1}", "n1 is a node"),
        ("{endpoints: ['https://x:2379'], caFile: a}", "missing: certFile, keyFile"),
        ("{endpoints: ['http://x:2379'], caFile: a, certFile: b, keyFile: c}", "not https"),
    ],
)
def test_external_etcd_is_whole_or_refused(external, expected):
    assert expected in problem(f"selfHosted: 2-4\nnodes: [{{name: n1}}]\netcd: {{external: {external}}}")


def test_external_etcd_does_not_go_with_hosted_etcd():
    assert "does not go with selfHosted 1-4" in problem("nodes: [{name: n1}]\netcd: {external: {lab: store}}")


# --- the traps of YAML --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "off", "y", "012", "1:30", "0x1f", "1e3", "2026-11-21", "1_000", "True"]
)
def test_words_that_yaml_takes_for_something_else_stay_text(word):
    assert spec(f"nodes: [{{name: n1, labels: {{key: {word}}}}}]").nodes[0].labels == {"key": word}


@pytest.mark.parametrize("number", ["1.36", "1.4", "2"])
def test_a_version_that_is_not_quoted_is_told_to_be(number):
    assert "it is not quoted" in problem(f"kubernetesVersion: {number}\nnodes: [{{name: n1}}]")


@pytest.mark.parametrize("value", ["true", "1", "1.5", "null"])
def test_a_value_that_must_be_text_is_told_to_be_quoted(value):
    assert "must be text | put it in quotes" in problem(f"nodes: [{{name: n1, labels: {{key: {value}}}}}]")


def test_a_key_that_is_there_twice_is_an_error_with_its_position():
    with pytest.raises(UserError, match=r"^cluster.yaml:6:3: the key 'nodes' is there twice"):
        spec("nodes: [{name: n1}]\nnodes: [{name: n2}]")


@pytest.mark.parametrize(
    ("text", "where"),
    [("a: [1", "cluster.yaml:2:1"), ("a: b: c", "cluster.yaml:1:5"), ("\t- x", "cluster.yaml:1:1")],
)
def test_what_is_not_yaml_is_told_where(text, where):
    with pytest.raises(UserError, match="not YAML") as caught:
        read(text)
    assert caught.value.where == where


def test_an_empty_file_is_told_where_to_look():
    with pytest.raises(UserError, match="the file is empty"):
        read("# nothing but a comment\n")


@pytest.mark.parametrize("text", ["[]", "just text", "42"])
def test_a_file_that_is_something_else_is_an_error_of_the_user(text):
    with pytest.raises(UserError):
        read(text)


def test_a_file_that_is_not_there_or_not_text_is_an_error_of_the_user(tmp_path):
    with pytest.raises(UserError, match="cannot read it: No such file"):
        load(tmp_path / "none.yaml", default_version=DEFAULT, known_versions=KNOWN)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load(tmp_path / "binary.yaml", default_version=DEFAULT, known_versions=KNOWN)


# --- there and back -------------------------------------------------------------------------------------------

labels = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
values = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=12)
taints = st.builds(Taint, labels, values, st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]))
paths = labels.map(lambda name: f"/etc/{name}")
NETWORKS = [
    Network(ipaddress.IPv4Network(pods), ipaddress.IPv4Network(services), domain)
    for pods, services, domain in (
        ("10.244.0.0/16", "10.96.0.0/16", "cluster.local"),
        ("172.16.0.0/23", "192.168.0.0/27", "example.org"),
    )
]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any cluster that a file may describe today: one control node, any number of workers."""
    names = draw(st.lists(labels, min_size=1, max_size=4, unique=True))
    most_taints = 2 if len(names) > 1 else 0
    nodes = tuple(
        Node(
            name,
            HostRef("lab", name),
            control_plane=number == 0,
            labels=draw(st.dictionaries(labels, values, max_size=2)),
            taints=tuple(draw(st.lists(taints, max_size=most_taints))),
            address=draw(st.sampled_from([None, f"192.0.2.{number + 1}"])),
        )
        for number, name in enumerate(names)
    )
    level = draw(st.sampled_from([Level.ETCD, Level.API_SERVER, Level.CONTROLLERS, Level.ADD_ONS]))
    own_host = ExternalEtcd((), "", "", "", lab_host="etcd-host")
    foreign = st.builds(ExternalEtcd, st.just(("https://192.0.2.9:2379",)), paths, paths, paths)
    return Cluster(
        name=draw(labels),
        kubernetes_version=draw(st.sampled_from(KNOWN)),
        self_hosted=level,
        nodes=nodes,
        network=draw(st.sampled_from(NETWORKS)),
        external_etcd=None if level is Level.ETCD else draw(st.none() | st.just(own_host) | foreign),
        control_plane_endpoint=draw(st.sampled_from([None, "api.example.org:6443"])),
        extra_args=draw(
            st.dictionaries(st.sampled_from(["etcd", "kubelet"]), st.dictionaries(labels, values, max_size=2))
        ),
        certificates=draw(
            st.builds(
                CertificateSettings,
                st.sampled_from(["EC", "RSA"]),
                st.integers(30, 9999),
                st.integers(1, 999),
                st.none() | paths,
            )
        ),
        rollback=draw(st.builds(Rollback, st.booleans(), st.integers(10, 999))),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(clusters())
def test_a_dumped_cluster_loads_to_the_same_cluster(cluster):
    assert read(pretty_json(dump(cluster)).decode()) == cluster


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(alphabet="abn1-:[]{},'\"#&*!|>%@ \n\t", max_size=40))
def test_no_text_makes_anything_but_an_error_of_the_user(text):
    with pytest.raises(UserError):
        read(text)


def test_the_schema_describes_every_key():
    schema = json_schema()
    parts = [schema, *schema["$defs"].values()]
    undescribed = [
        key for part in parts for key, field in part["properties"].items() if not field.keys() & {"description", "$ref"}
    ]
    assert undescribed == []
    assert all(part["additionalProperties"] is False for part in parts)
    assert set(dump(spec("nodes: [{name: n1}]"))["spec"]) == set(schema["$defs"]["SpecPart"]["properties"])
