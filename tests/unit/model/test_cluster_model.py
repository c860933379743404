from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.model import ports
from autarky.model.cluster import ExternalEtcd, HostRef
from autarky.model.files import File
from autarky.model.versions import Version
from fakes.clusters import a_cluster

numbers = st.integers(0, 999)
versions = st.builds(Version, numbers, numbers, numbers)


@given(versions)
def test_a_version_is_read_back_with_and_without_its_v(version):
    assert Version.parse(str(version)) == Version.parse(str(version).removeprefix("v")) == version


@given(versions, versions)
def test_versions_are_ordered_by_number_and_not_by_letter(one, other):
    assert (one < other) == ((one.major, one.minor, one.patch) < (other.major, other.minor, other.patch))


@pytest.mark.parametrize(
    "text", ["", "1.36", "1.36.4.1", "v1.36.4-rc.1", "1.36.x", " 1.36.4", "1.36.4 ", "1.36.4\n", "V1.36.4", "-1.3.4"]
)
def test_anything_else_is_not_a_version(text):
    with pytest.raises(ValueError, match="is not a version such as"):
        Version.parse(text)


def test_addresses_are_filled_in_where_they_are_known_and_kept_elsewhere():
    cluster = a_cluster(controls=2)
    known = cluster.with_addresses({"n2": "198.51.100.2", "stranger": "203.0.113.9"})
    assert [node.address for node in known.nodes] == ["192.0.2.11", "198.51.100.2"]
    assert cluster.node("n2").address == "192.0.2.12"


def test_the_endpoints_of_a_lab_etcd_follow_from_its_address():
    cluster = a_cluster(external_etcd=ExternalEtcd((), "", "", "", lab_host="store"))
    assert cluster.etcd_host is not None
    assert cluster.etcd_host.address is None
    known = cluster.with_addresses({"store": "192.0.2.99"})
    assert known.external_etcd is not None
    assert known.external_etcd.endpoints == ("https://192.0.2.99:2379",)
    assert known.etcd_host is not None
    assert known.etcd_host.known_address() == "192.0.2.99"


def test_an_etcd_of_the_users_own_has_no_host_of_ours():
    assert a_cluster().etcd_host is None
    own = ExternalEtcd(("https://192.0.2.99:2379",), "ca", "crt", "key")
    assert a_cluster(external_etcd=own).with_addresses({"n1": "192.0.2.1"}).external_etcd == own


def test_nodes_are_found_by_name_and_by_role():
    cluster = a_cluster(controls=1, workers=2)
    assert [node.name for node in cluster.control_nodes] == ["n1"]
    assert [node.name for node in cluster.workers] == ["n2", "n3"]
    with pytest.raises(KeyError):
        cluster.node("n9")


def test_the_services_of_the_api_and_of_dns_have_the_usual_addresses():
    network = a_cluster().network
    assert (network.kubernetes_service_ip, network.dns_service_ip) == ("10.96.0.1", "10.96.0.10")


@pytest.mark.parametrize(
    ("host", "text"),
    [(HostRef("local"), "local"), (HostRef("lab", "n1"), "lab:n1"), (HostRef("ssh", "root@x"), "ssh://root@x")],
)
def test_a_host_is_written_as_in_the_file(host, text):
    assert str(host) == text


def test_values_do_not_change():
    cluster = a_cluster()
    with pytest.raises(FrozenInstanceError):
        cluster.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        cluster.nodes[0].labels["x"] = "y"  # type: ignore[index]
    assert replace(cluster) == cluster


def test_the_content_of_a_file_is_not_shown():
    assert "secret" not in repr(File("/etc/x", b"secret", 0o600))


def test_every_port_has_one_owner():
    numbers_ = [value for name, value in vars(ports).items() if name.isupper() and name != "ON_HOSTS"]
    assert len(numbers_) == len(set(numbers_))
    assert set(numbers_) == ports.ON_HOSTS
