"""All that is rendered, byte by byte: a change of any of it shows in review as a change of tests/golden."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.model.cluster import Cluster, ExternalEtcd, Level, Taint
from autarky.render.objects import agent_parts, parts
from fakes.clusters import a_cluster, facts_of, inputs_of
from fakes.golden import assert_golden
from unit.render.rendered import HOSTED_LEVELS, host_files, objects


@pytest.mark.parametrize("level", HOSTED_LEVELS, ids=lambda level: f"{level:d}-4")
def test_the_api_objects_of_each_level(level):
    cluster = a_cluster(level, controls=3, workers=1)
    assert_golden(f"objects-{cluster.self_hosted_text}.yaml", objects(inputs_of(cluster)))


def test_the_objects_of_level_0_are_applied_last_and_all_others_are_as_without_it():
    without, hosted = inputs_of(a_cluster()), inputs_of(a_cluster(hosts_kubelet=True))
    changed = [one.name for one, other in zip(parts(hosted), parts(without), strict=True) if one != other]
    assert changed == ["control-plane"]
    *before, kubelet = agent_parts(hosted)
    assert before == agent_parts(without)
    assert_golden("objects-kubelet.yaml", [*kubelet.objects])


def test_the_api_objects_of_one_node_with_extra_arguments():
    cluster = a_cluster(extra_args={"kube-apiserver": {"v": "2", "profiling": "true"}, "kube-proxy": {"mode": "x"}})
    interesting = [obj for obj in objects(inputs_of(cluster)) if obj["kind"] in ("Deployment", "ControlPlane")]
    proxy = [obj for obj in objects(inputs_of(cluster)) if obj["metadata"]["name"].startswith("kube-proxy-")]
    assert_golden("objects-one-node.yaml", interesting + proxy)


def files_of(cluster: Cluster, *names: str) -> list[dict[str, str]]:
    """The files of these hosts, with what the content is when it is a text."""
    files = [(host, file) for host, file in host_files(inputs_of(cluster, facts_of(cluster))) if host in names]
    return [
        {"host": host, "path": file.path, "mode": oct(file.mode), "content": file.content.decode()}
        for host, file in files
    ]


def test_the_files_of_a_control_node_and_of_a_worker():
    cluster = a_cluster(controls=3, workers=1)
    tainted = replace(cluster.nodes[-1], taints=(Taint("dedicated", "gpu", "NoSchedule"),))
    cluster = replace(cluster, nodes=(*cluster.nodes[:-1], tainted))
    assert_golden("files-control-node.yaml", files_of(cluster, "n1"))
    assert_golden("files-worker.yaml", files_of(cluster, "n4"))


def test_the_files_of_a_lab_host_for_external_etcd_and_of_the_node_that_uses_it():
    etcd = ExternalEtcd(("https://192.0.2.99:2379",), "", "", "", lab_host="store", lab_address="192.0.2.99")
    cluster = a_cluster(Level.API_SERVER, external_etcd=etcd)
    assert_golden("files-external-etcd.yaml", files_of(cluster, "store"))
    names = {file["path"] for file in files_of(cluster, "n1")}
    assert_golden("paths-with-external-etcd.yaml", [sorted(names)])


def test_the_certificates():
    cluster = a_cluster(controls=3, workers=1, control_plane_endpoint="api.example.org:6443")
    first = [spec for spec, _ in leaves.first_specs(cluster, cluster.control_nodes)]
    specs = [*certificate_specs(cluster), *first]
    fields = ("name", "ca", "common_name", "organizations", "dns_names", "ip_addresses", "usages")
    documents = [
        {name: list(value) if isinstance(value := getattr(spec, name), tuple) else value for name in fields}
        for spec in specs
    ]
    assert_golden("certificates.yaml", documents)
