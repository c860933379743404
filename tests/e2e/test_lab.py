"""Test hosts: power cuts take what was not synced, networks lead nowhere, leftovers of killed runs are cleaned."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest
from harness import COMMAND, STATE, TestCluster, environment, kill_when

from autarky.lab.network import LabNetwork

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAME = "t-lab"


@pytest.fixture(scope="module")
def lab() -> Iterator[TestCluster]:
    driver = TestCluster(NAME, {})
    driver.down()
    driver.autarky("lab", "up", NAME, "--hosts", "2")
    yield driver
    driver.down()


def test_hosts_reach_each_other_by_name_and_run_systemd(lab: TestCluster) -> None:
    assert "1 received" in lab.shell("n1", "ping -c 1 -W 2 n2")
    assert lab.shell("n2", "systemctl is-system-running").strip() == "running"


def test_what_would_leave_the_lab_is_dropped(lab: TestCluster) -> None:
    """Looked up in the rules and routes; nothing is sent."""
    directory = STATE / "autarky/labs" / NAME
    subnet = json.loads((directory / "lab.json").read_text())["subnet"]
    network = LabNetwork(str(directory), ipaddress.IPv4Network(subnet))
    listed = ["nft", "list", "table", "inet", network.table]
    rules = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    bridge = lab.shell("n1", "ip route show default").split()[2].rpartition(".")[0]
    assert f"{bridge}." in lab.shell("n1", "ip -4 address show eth0")
    dropped = {f'{way} "{network.uplink}" drop' for way in ("iifname", "oifname")}
    assert dropped <= {line.strip() for line in rules.splitlines()}, rules
    assert "127." not in lab.shell("n1", "cat /etc/resolv.conf")


def test_each_power_on_has_a_boot_id_of_its_own(lab: TestCluster) -> None:
    read = "cat /proc/sys/kernel/random/boot_id"
    assert lab.shell("n1", read) != lab.shell("n2", read)


def test_a_power_cut_keeps_what_was_synced_and_takes_what_was_not(lab: TestCluster) -> None:
    lab.shell("n1", "echo kept > /var/lib/etcd/synced && sync /var/lib/etcd/synced && sync /var/lib/etcd")
    before = lab.shell("n1", "cat /proc/sys/kernel/random/boot_id")
    lab.shell("n1", "echo lost > /var/lib/etcd/unsynced")
    lab.autarky("lab", "cut", "--lab", NAME, "n1")
    lab.autarky("lab", "start", "--lab", NAME, "n1", "-o", "plain")
    assert lab.shell("n1", "cat /var/lib/etcd/synced").strip() == "kept"
    assert lab.shell("n1", "cat /var/lib/etcd/unsynced 2>/dev/null || true").strip() == ""
    assert lab.shell("n1", "cat /proc/sys/kernel/random/boot_id") != before


def test_a_full_disk_fills_only_the_hosts_own_file_system(lab: TestCluster) -> None:
    """That of /var/lib/etcd, /var/lib/autarky and /etc/kubernetes: another host writes on, and so does this machine."""
    fill = "dd if=/dev/zero of=/var/lib/etcd/fill bs=1M 2>&1; dd if=/dev/zero of=/var/lib/etcd/rest bs=4k 2>&1; true"
    try:
        assert lab.shell("n2", fill).count("No space left on device") == 2
        assert "No space left on device" in _said_of_a_block(lab, "n2")
        assert _said_of_a_block(lab, "n1") == ""
        with tempfile.NamedTemporaryFile(dir=STATE) as beside_the_disks:
            beside_the_disks.write(bytes(4096))
            beside_the_disks.flush()
            os.fsync(beside_the_disks.fileno())
    finally:
        lab.shell("n2", "rm -f /var/lib/etcd/fill /var/lib/etcd/rest")
    assert _said_of_a_block(lab, "n2") == ""


def _said_of_a_block(lab: TestCluster, host: str) -> str:
    """What is said where one is written to another of the file system's directories; nothing where that works."""
    path = "/var/lib/autarky/block"
    return lab.shell(host, f"dd if=/dev/zero of={path} bs=4096 count=1 conv=fsync status=none 2>&1; rm -f {path}")


def test_leftovers_of_a_killed_run_are_found_and_cleaned() -> None:
    driver = TestCluster("t-lab-killed", {})
    driver.down()
    killed = kill_when(["lab", "up", driver.name, "--hosts", "2"], lambda: _has_begun(driver))
    assert killed == -signal.SIGKILL, "it has ended before"
    driver.autarky("lab", "up", driver.name, "--hosts", "2")
    assert driver.shell("n2", "systemctl is-system-running").strip() == "running"
    driver.down()
    assert (
        driver.name
        not in subprocess.run(["cat", "/proc/self/mounts"], capture_output=True, text=True, check=True).stdout
    )


def _has_begun(lab: TestCluster) -> None:
    """Some of the first host is there: it takes less than a second until all is."""
    made = STATE / "autarky/labs" / lab.name / "hosts"
    deadline = time.monotonic() + 30
    while not (made.exists() and any(made.iterdir())):
        assert time.monotonic() < deadline, "nothing was made"
        time.sleep(0.01)


def test_a_host_with_its_payload_is_up_within_ten_seconds() -> None:
    """A generous deadline: 2 s were measured."""
    driver = TestCluster("t-lab-quick", {})
    driver.down()
    begin = time.monotonic()
    done = subprocess.run([*COMMAND, "lab", "up", driver.name], env=environment(), capture_output=True, check=False)
    seconds = time.monotonic() - begin
    driver.down()
    assert done.returncode == 0, done.stderr
    assert seconds < 10
