from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings

from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.model.cluster import ExternalEtcd
from autarky.model.files import CertSpec
from fakes.clusters import a_cluster
from unit.render.rendered import EXTERNAL, some_inputs


def specs_of(**cluster) -> dict[str, CertSpec]:
    return {spec.name: spec for spec in all_specs(a_cluster(**cluster))}


def all_specs(cluster) -> list[CertSpec]:
    """What the cluster's directory keeps, and what hosts start with."""
    first = [spec for spec, _ in leaves.first_specs(cluster, cluster.control_nodes)]
    return [*certificate_specs(cluster), *first]


@settings(max_examples=25, deadline=None)
@given(some_inputs())
def test_names_are_unique_and_sans_are_what_they_seem(inputs):
    specs = all_specs(inputs.cluster)
    assert len({spec.name for spec in specs}) == len(specs)
    for spec in specs:
        assert all(ipaddress.ip_address(address) for address in spec.ip_addresses)
        assert not any(name.replace(".", "").isdigit() for name in spec.dns_names)
        assert len(set(spec.dns_names)) == len(spec.dns_names)


@settings(max_examples=25, deadline=None)
@given(some_inputs())
def test_system_masters_is_the_super_admins_alone(inputs):
    holders = [spec.name for spec in all_specs(inputs.cluster) if "system:masters" in spec.organizations]
    assert holders == ["super-admin"]


def test_one_serving_certificate_covers_all_control_nodes_and_the_service():
    spec = specs_of(controls=3, workers=1)["apiserver-n1"]
    assert {"192.0.2.11", "192.0.2.12", "192.0.2.13", "127.0.0.1", "10.96.0.1"} == set(spec.ip_addresses)
    assert {"n1", "n2", "n3", "kubernetes.default.svc.cluster.local", "localhost"} <= set(spec.dns_names)
    assert spec.usages == ("server",)


@pytest.mark.parametrize(
    ("endpoint", "field", "expected"),
    [
        ("api.example.org:6443", "dns_names", "api.example.org"),
        ("192.0.2.200:6443", "ip_addresses", "192.0.2.200"),
    ],
)
def test_the_endpoint_of_the_file_is_a_name_or_an_address(endpoint, field, expected):
    assert expected in getattr(specs_of(control_plane_endpoint=endpoint)["apiserver-n1"], field)


def test_kubelets_of_control_nodes_get_a_certificate_and_workers_join():
    specs = specs_of(controls=2, workers=1)
    assert [name for name in specs if name.startswith("kubelet-n")] == ["kubelet-n1", "kubelet-n2"]
    assert specs["kubelet-n1"].common_name == "system:node:n1"
    assert specs["kubelet-n1"].organizations == ("system:nodes",)


def test_each_etcd_member_has_its_own_certificates_for_both_sides():
    specs = specs_of(controls=3)
    for role in ("server", "peer"):
        member = specs[f"etcd/{role}-n2"]
        assert member.usages == ("server", "client")
        assert set(member.ip_addresses) == {"127.0.0.1", "192.0.2.12"}


def test_the_users_own_etcd_gets_no_certificates_of_ours():
    assert not [spec for spec in specs_of(external_etcd=EXTERNAL).values() if spec.ca == "etcd/ca"]


def test_a_lab_host_for_etcd_is_its_only_member():
    etcd = ExternalEtcd((), "", "", "", lab_host="store", lab_address="192.0.2.99")
    members = [name for name in specs_of(controls=3, external_etcd=etcd) if name.startswith("etcd/server-")]
    assert members == ["etcd/server-store"]
