from __future__ import annotations

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.config import dump, json_schema
from autarky.model.cluster import (
    CertificateSettings,
    Cluster,
    Cni,
    ExternalEtcd,
    HostRef,
    Level,
    Network,
    Node,
    Rollback,
    Taint,
)
from autarky.render.values import pretty_json
from unit.config.cluster_texts import KNOWN, read, spec

labels = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
values = st.text(st.characters(), max_size=12).filter(str.isprintable)
label_values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?)?", fullmatch=True)
taints = st.builds(Taint, labels, label_values, st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]))
paths = labels.map(lambda name: f"/etc/{name}")
NETWORKS = [
    Network(ipaddress.IPv4Network(pods), ipaddress.IPv4Network(services), domain, cni)
    for pods, services, domain, cni in (
        ("10.244.0.0/16", "10.96.0.0/16", "cluster.local", Cni.FLANNEL),
        ("172.16.0.0/22", "192.168.0.0/27", "example.org", Cni.NONE),
    )
]


words = labels.filter(lambda name: name != "kind")
pools = st.fixed_dictionaries(
    {
        "name": labels.map(lambda name: f"{name}-pool"),
        "nodes": st.fixed_dictionaries({"controlPlane": st.just(True)}, optional={"matchLabels": st.just({"a/b": ""})})
        | st.fixed_dictionaries({"matchLabels": st.dictionaries(labels, label_values, min_size=1, max_size=2)}),
        "order": st.integers(0, 1000),
        "atOnce": st.integers(1, 100),
        "drain": st.sampled_from(["Never", "Minor", "Always"]),
        "drainSeconds": st.integers(1, 86400),
    },
    optional={
        "version": st.sampled_from(KNOWN).map(str),
        "runtime": st.just("autarky.dev/container-runtime:v2.3.7-runc-v1.5.2"),
        "kubelet": st.fixed_dictionaries(
            {
                "configuration": st.dictionaries(
                    words, st.booleans() | st.integers(0, 99) | values, min_size=1, max_size=2
                )
            }
        ),
    },
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any cluster that a file may describe today: one control node, any number of workers."""
    names = draw(st.lists(labels, min_size=1, max_size=4, unique=True))
    nodes = tuple(
        Node(
            name,
            draw(st.sampled_from([HostRef("lab", name), HostRef("ssh", f"admin@{name}:22")])),
            control_plane=number == 0,
            labels=draw(st.dictionaries(labels, label_values, max_size=2)),
            taints=tuple(
                draw(st.lists(taints, max_size=2 if number > 0 else 0, unique_by=lambda t: (t.key, t.effect)))
            ),
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
        ssh_config=draw(st.none() | paths),
        extra_args=draw(
            st.dictionaries(st.sampled_from(["etcd", "kubelet"]), st.dictionaries(labels, values, max_size=2))
        ),
        certificates=draw(
            st.builds(
                CertificateSettings,
                st.sampled_from(["EC", "RSA"]),
                st.integers(999, 9999),
                st.integers(1, 999),
                st.none() | paths,
            )
        ),
        rollback=draw(st.builds(Rollback, st.booleans(), st.integers(10, 999))),
        soak_seconds=draw(st.none() | st.integers(1, 43200).map(lambda minutes: minutes * 60)),
        kubelets_follow=draw(st.booleans()),
        container_runtime=draw(st.sampled_from(["", "autarky.dev/container-runtime:v2.3.7-runc-v1.5.2"])),
        pools=tuple(draw(st.lists(pools, max_size=2, unique_by=lambda pool: pool["name"]))),
    )


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_a_dumped_cluster_loads_to_the_same_cluster(cluster):
    assert read(pretty_json(dump(cluster)).decode()) == cluster


def test_the_schema_describes_every_key():
    schema = json_schema()
    parts = [schema, *schema["$defs"].values()]
    undescribed = [
        key for part in parts for key, field in part["properties"].items() if not field.keys() & {"description", "$ref"}
    ]
    assert undescribed == []
    assert all(part["additionalProperties"] is False for part in parts)
    rest = "upgrade: {soak: 24h}\nkubelets: {follow: false}\npools: [{name: workers}]"
    dumped = dump(spec(f"nodes: [{{name: n1}}]\n{rest}"))["spec"]
    assert dumped["upgrade"] == {"soak": "1440m"}
    assert set(dumped) == set(schema["$defs"]["SpecPart"]["properties"])
