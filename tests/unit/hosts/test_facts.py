from __future__ import annotations

import ipaddress
import os
import socket
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.hosts.decide.preflight import checks
from autarky.errors import Unreachable
from autarky.hosts import LocalHost
from autarky.hosts.facts import FACTS_SCRIPT, FEATURES, PROGRAMS, parse_facts
from fakes.clusters import a_cluster

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
COMPLETE = SAID.splitlines()


def test_what_a_host_says_is_read_completely():
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
        said = [one for one in COMPLETE if not one.startswith(f"{key}=")] + line
        with pytest.raises(Unreachable, match=f"the host did not report its {key}"):
            parse_facts("\n".join(said))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(COMPLETE) - 1))
def test_an_answer_that_was_cut_off_is_facts_or_unreachable(lines):
    try:
        facts = parse_facts("\n".join(COMPLETE[:lines]))
    except Unreachable:
        return
    assert facts.clock == 1800000000.25


# --- a host that says what it wants -------------------------------------------------------------------------------

KEYS = sorted({line.partition("=")[0] for line in COMPLETE})
BIG = "9" * 5000
ODD = [
    *("cpus=x", "cpus=", "cpus=-1", f"cpus={BIG}", f"cpus={2**64}", "cgroup_version=two"),
    *("memory_total=1e3", "memory_total=-1", "swap_total=much", "disk_free=", "disk_free=-5", "disk_total=nan"),
    *("clock=nan", "clock=inf", "clock=-1", "clock=1e400", "clock=noon", f"clock={BIG}"),
    *("effective=zz", "effective=-1", f"effective={'f' * 17}", "port=zz", "port=", "port=-1", "port=10000"),
    *("address=nonsense", "address=192.0.2", "address=192.0.2.11/24", "address=::1", "own_address=x"),
    *("address=127.0.0.1", "address=0.0.0.0", "address=224.0.0.1", "own_address=127.0.0.53"),
]


def with_line(line):
    """The complete output, with the first line of that key in this form."""
    key = line.partition("=")[0]
    at = next(number for number, one in enumerate(COMPLETE) if one.startswith(f"{key}="))
    return "\n".join([*COMPLETE[:at], line, *COMPLETE[at + 1 :]])


@pytest.mark.parametrize("line", ODD, ids=lambda line: line[:30])
def test_a_word_that_cannot_be_read_makes_the_host_unreadable_and_is_shown(line):
    key, _, value = line.partition("=")
    with pytest.raises(Unreachable, match=f"the host's facts cannot be read: {key} is ") as raised:
        parse_facts(with_line(line))
    assert value[:20] in str(raised.value)
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


def test_what_is_shown_of_such_a_word_commands_no_terminal():
    with pytest.raises(Unreachable) as raised:
        parse_facts(with_line("cpus=\x1b[2J\u202e\ud800"))
    assert str(raised.value).isascii()


def well_formed(facts):
    """What those who decide on facts rely on."""
    numbers = [facts.cpus, facts.memory_total, facts.swap_total, facts.disk_free, facts.disk_total, facts.clock]
    assert all(0 <= number < 2**63 for number in numbers)
    assert all(0 <= port < 2**16 for port in facts.listening_ports)
    for address in (facts.address, *facts.addresses):
        assert str(ipaddress.IPv4Address(address)) == address
    for finding in checks(a_cluster(), {"n1": facts}):
        assert finding.what


def facts_or_unreachable(text):
    try:
        facts = parse_facts(text)
    except Unreachable:
        return
    well_formed(facts)


VALUES = (
    st.text() | st.integers().map(str) | st.floats().map(str) | st.sampled_from([one.partition("=")[2] for one in ODD])
)
LINES = st.lists(st.tuples(st.sampled_from(KEYS), VALUES).map("=".join))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*KEYS, "effective", "own_address"]), VALUES)
def test_whatever_one_line_says_there_are_facts_or_the_host_is_unreadable(key, value):
    facts_or_unreachable(with_line(f"{key}={value}"))
    facts_or_unreachable(f"{SAID}{key}={value}\n")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SAID) - 1), st.text(max_size=8), st.integers(0, 8))
def test_a_real_answer_with_any_damage_is_facts_or_the_host_is_unreadable(at, put, cut):
    facts_or_unreachable(SAID[:at] + put + SAID[at + cut :])


@settings(max_examples=100, deadline=None)
@given(st.text() | LINES.map("\n".join))
def test_whatever_the_complete_answer_is_there_are_facts_or_the_host_is_unreadable(text):
    facts_or_unreachable(text)


async def test_whose_facts_cannot_be_read_is_said(monkeypatch):
    monkeypatch.setattr("autarky.hosts.shell.FACTS_SCRIPT", f"cat <<'EOF'\n{with_line('cpus=x')}\nEOF\n")
    with pytest.raises(Unreachable, match=r"^here: the host's facts cannot be read: cpus is 'x'"):
        await LocalHost("here").facts()


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
