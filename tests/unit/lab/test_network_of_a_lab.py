from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.errors import UserError
from autarky.lab import spec
from autarky.lab.network import POOL, LabNetwork, free_subnet
from fakes.clusters import NETWORK

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
subnets = st.sampled_from(list(POOL.subnets(new_prefix=24)))
around = st.builds(lambda subnet, longer: subnet.supernet(longer), subnets, st.integers(0, 6))
SUBNET = ipaddress.IPv4Network("10.201.3.0/24")


@settings(max_examples=80, deadline=None)
@given(st.lists(around | subnets, max_size=40))
def test_a_lab_gets_a_subnet_that_nobody_has(taken):
    try:
        subnet = free_subnet(taken)
    except UserError:
        assert all(any(subnet.overlaps(other) for other in taken) for subnet in POOL.subnets(new_prefix=24))
        return
    assert subnet.subnet_of(POOL)
    assert subnet.prefixlen == 24
    assert not any(subnet.overlaps(other) for other in taken)


def test_when_all_are_taken_the_remedy_is_named():
    with pytest.raises(UserError, match="autarky lab down"):
        free_subnet([POOL])


def test_the_pool_is_apart_from_the_networks_of_a_cluster():
    assert not POOL.overlaps(NETWORK.pod_cidr)
    assert not POOL.overlaps(NETWORK.service_cidr)


@settings(max_examples=80, deadline=None)
@given(names, names)
def test_interface_names_fit_the_kernel_however_long_labs_and_hosts_are_called(lab, host):
    network = LabNetwork(lab, SUBNET)
    assert len(network.uplink) <= 15
    assert len(network.outer_interface(host)) <= 15
    assert "/" not in network.netns(host)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(names, names), min_size=2, max_size=6, unique=True))
def test_hosts_of_all_labs_have_interfaces_of_their_own(hosts):
    interfaces = {LabNetwork(lab, SUBNET).outer_interface(host) for lab, host in hosts}
    namespaces = {LabNetwork(lab, SUBNET).netns(host) for lab, host in hosts}
    cards = {LabNetwork(lab, SUBNET).hardware_address(host) for lab, host in hosts}
    assert len(interfaces) == len(namespaces) == len(cards) == len(hosts)
    # No name of a host is that of a switch.
    assert not namespaces & {LabNetwork(lab, SUBNET).switch for lab, _ in hosts}


@settings(max_examples=80, deadline=None)
@given(names, names)
def test_a_host_has_the_same_hardware_address_at_every_power_on(lab, host):
    address = LabNetwork(lab, SUBNET).hardware_address(host)
    assert address == LabNetwork(lab, SUBNET).hardware_address(host)
    first, *rest = (int(part, 16) for part in address.split(":"))
    assert (first & 0b11, len(rest)) == (0b10, 5), "locally administered, not a multicast address"


def test_hosts_the_gateway_and_the_dead_name_server_have_addresses_of_their_own():
    network = LabNetwork("demo", SUBNET)
    addresses = [network.address(index) for index in range(100)]
    assert addresses[0] == "10.201.3.11"
    assert len({*addresses, network.gateway, network.dead_name_server}) == 102
    assert not ipaddress.ip_address(network.dead_name_server).is_loopback


# --- the specification of a host ---------------------------------------------------------------------


def runtime_spec() -> dict:
    return spec.runtime_spec(
        host="n1",
        cgroup="autarky-x-n1",
        root=Path("/labs/demo/n1/root"),
        netns="autarky-x-n1",
        binds={"/var/lib": Path("/labs/demo/n1/disk")},
        capabilities=["CAP_NET_ADMIN"],
    )


def test_all_capabilities_but_the_withheld_are_given():
    every = spec.granted_capabilities(2**41 - 1)
    assert len(every) == 41 - len(spec.WITHHELD)
    assert not spec.WITHHELD & set(every)
    assert spec.granted_capabilities(0) == []


@pytest.mark.parametrize(
    ("bit", "name"), [(0, "CAP_CHOWN"), (12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN"), (40, "CAP_CHECKPOINT_RESTORE")]
)
def test_capabilities_have_the_kernels_numbers(bit, name):
    assert spec.granted_capabilities(1 << bit) == [name]


def test_a_host_shares_neither_network_nor_processes_with_this_machine():
    namespaces = {entry["type"]: entry.get("path") for entry in runtime_spec()["linux"]["namespaces"]}
    assert namespaces == {
        "pid": None,
        "ipc": None,
        "uts": None,
        "mount": None,
        "cgroup": None,
        "network": "/run/netns/autarky-x-n1",
    }


def test_mounts_propagate_inside_the_host_and_never_out_of_it():
    made = runtime_spec()
    assert made["linux"]["rootfsPropagation"] == "rprivate"
    script = made["process"]["args"][-1].splitlines()
    assert script[0] == "mount --make-rshared /"
    assert script[-1].startswith("exec /lib/systemd/systemd")


def test_the_control_group_is_the_hosts_own_below_the_callers():
    assert runtime_spec()["linux"]["cgroupsPath"] == "autarky-x-n1"


def test_the_hosts_disk_is_where_it_belongs():
    made = runtime_spec()
    assert {"destination": "/var/lib", "type": "bind", "source": "/labs/demo/n1/disk", "options": ["rbind", "rw"]} in (
        made["mounts"]
    )
    destinations = [mount["destination"] for mount in made["mounts"]]
    assert len(destinations) == len(set(destinations))
    assert made["process"]["capabilities"]["bounding"] == ["CAP_NET_ADMIN"]
