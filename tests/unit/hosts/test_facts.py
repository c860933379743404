from __future__ import annotations

import os
import socket
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.errors import Unreachable
from autarky.hosts import LocalHost
from autarky.hosts.facts import FACTS_SCRIPT, FEATURES, PROGRAMS, parse_facts

SAID = """\
address=192.0.2.11
own_address=192.0.2.11
own_address=198.51.100.1
hostname=n1
boot_id=0e6b2f0c-1111-2222-3333-444455556666
kernel=6.1.0-1-amd64
os_name=Debian GNU/Linux 12 (bookworm) = stable
architecture=x86_64
cgroup_version=1
cpus=4
memory_total=8589934592
swap_total=1024
disk_free=1000000
disk_total=3000000
clock=1800000000.250000000
init=systemd
port=192B
port=0016
port=0016
network=192.0.2.0/24
network=10.0.0.0/8
missing_program=ip
missing_feature=vxlan
effective=000001ffffffffff
"""
WHOLE = SAID.splitlines()


def test_what_a_host_says_is_read_whole():
    facts = parse_facts(SAID)
    assert (facts.address, facts.addresses) == ("192.0.2.11", ("192.0.2.11", "198.51.100.1"))
    assert facts.os_name == "Debian GNU/Linux 12 (bookworm) = stable"
    assert facts.listening_ports == {22, 6443}
    assert (facts.memory_total, facts.swap_total) == (8589934592, 1024)
    assert (facts.disk_free, facts.disk_total) == (1000000, 3000000)
    assert facts.networks == ("192.0.2.0/24", "10.0.0.0/8")
    assert (facts.missing_programs, facts.missing_features) == (("ip",), ("vxlan",))
    assert (facts.cgroup_version, facts.clock, facts.init) == (1, 1800000000.25, "systemd")


def test_the_real_name_servers_are_known_where_the_host_has_a_stub():
    assert parse_facts(SAID).upstream_resolv_conf is None
    assert parse_facts(SAID + "upstream_resolv_conf=/run/x\n").upstream_resolv_conf == "/run/x"


@pytest.mark.parametrize(("mask", "may"), [("000001ffffffffff", True), ("000001fffeffffff", False), ("", False)])
def test_the_capability_to_lower_oom_scores_is_one_bit(mask, may):
    said = SAID.replace("effective=000001ffffffffff", f"effective={mask}")
    assert parse_facts(said).may_lower_oom_score is may


@pytest.mark.parametrize("key", ["address", "hostname", "boot_id", "architecture", "memory_total", "clock"])
def test_what_is_needed_and_was_not_said_is_unknown_and_not_guessed(key):
    for line in ([], [f"{key}="]):
        said = [one for one in WHOLE if not one.startswith(f"{key}=")] + line
        with pytest.raises(Unreachable, match=f"the host did not say its {key}"):
            parse_facts("\n".join(said))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, len(WHOLE) - 1))
def test_an_answer_that_was_cut_off_is_facts_or_unreachable(lines):
    try:
        facts = parse_facts("\n".join(WHOLE[:lines]))
    except Unreachable:
        return
    assert facts.clock == 1800000000.25


@pytest.mark.parametrize(
    ("own", "resolved", "found"),
    [
        ("nameserver 127.0.0.53\noptions edns0\n", True, True),
        ("nameserver 127.0.0.53\n", False, False),
        ("nameserver 192.0.2.1\n", True, False),
        ("# nameserver 127.0.0.53\nnameserver 192.0.2.1\n", True, False),
    ],
)
def test_a_stub_counts_only_where_the_servers_behind_it_are_known(tmp_path, own, resolved, found):
    (tmp_path / "resolv.conf").write_text(own)
    if resolved:
        (tmp_path / "upstream").write_text("nameserver 192.0.2.1\n")
    script = FACTS_SCRIPT.replace("/etc/resolv.conf", str(tmp_path / "resolv.conf"))
    script = script.replace("/run/systemd/resolve/resolv.conf", str(tmp_path / "upstream"))
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert (f"upstream_resolv_conf={tmp_path}/upstream\n" in said) is found


async def test_this_machine_tells_its_facts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = await LocalHost("here").facts()
        assert server.getsockname()[1] in facts.listening_ports
    assert facts.hostname == socket.gethostname()
    assert facts.architecture == os.uname().machine
    assert facts.cgroup_version in (1, 2)
    assert 0 < facts.disk_free < facts.disk_total
    assert set(facts.missing_programs) <= set(PROGRAMS)
    assert set(facts.missing_features) <= set(FEATURES)
