"""A cluster on a machine with a kernel of its own: a virtual one with Debian 13, cgroup v2 and a clock that is set.

The test hosts of all other scenarios share this machine's kernel, clock and boot. Where no KVM works it is emulated,
and twenty times as slow: what has a deadline that no other machine would reach, reaches it here.

`up` belongs to the setup, so that each case fits into what a run of CI has left; each finds the cluster settled.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from harness import Show
from power import Writer
from vm import ClusterOnMachine, VirtualMachine, cluster_on
from vm_settled import (
    answers_again,
    client,
    containers,
    cut_while_writing,
    hosted_again,
    nothing_is_lost,
    runs_pods,
    settles,
    step_while_writing,
    torn,
)

from autarky import places
from autarky.render.node import CNI_BIN, CNI_CONF

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs(machine=True),
    pytest.mark.timeout(900, func_only=True),
]

STEP = 600.0
"""Seconds by which the clock is set. Kubelets renew the tokens of pods, which are good for an hour, 12 minutes before
their end: one that was renewed by a clock further ahead would be good for nobody once that is set right."""
STILL_TRUE = 30.0
"""Within which two clocks count as the same: what an answer of an emulated machine takes."""


@pytest.fixture(scope="module")
def machine() -> Iterator[VirtualMachine]:
    made = VirtualMachine("t-vm")
    try:
        made.make()
        yield made
    finally:
        made.remove()


@dataclass(frozen=True)
class Up:
    """A cluster that `up` has brought up, in how many seconds, and in which boot. before: what was on the machine until
    then."""

    cluster: ClusterOnMachine
    seconds: float
    boot: str
    before: frozenset[str]


@pytest.fixture(scope="module")
def up(machine: VirtualMachine) -> Iterator[Up]:
    cluster = cluster_on(machine, "t-vm")
    cluster.down()
    before = paths_on(machine)
    began = time.monotonic()
    cluster.up()
    yield Up(cluster, time.monotonic() - began, machine.boot_id(), before)
    cluster.down()


@pytest.fixture
def cluster(up: Up) -> ClusterOnMachine:
    settles(up.cluster)
    return up.cluster


@pytest.fixture(scope="module")
def writer(up: Up) -> Writer:
    """One for all: what was acknowledged in an earlier test is not lost in a later one."""
    return Writer(client(up.cluster))


# --- the life of a cluster -------------------------------------------------------------------------------


def test_the_machine_is_debian_13_with_a_kernel_and_a_clock_of_its_own(machine: VirtualMachine, show: Show) -> None:
    said = machine.shell(". /etc/os-release; echo $VERSION_ID; uname -r; stat -fc %T /sys/fs/cgroup; nproc").split()
    assert said[0] == "13"
    assert said[1] != platform.release()
    assert said[2:] == ["cgroup2fs", "2"]
    machine.step_clock(STEP)
    assert is_ahead(machine, STEP)
    machine.step_clock(-STEP)
    assert is_ahead(machine, 0)
    show(f"Linux {said[1]}, {'emulated' if machine.emulated else 'KVM'}; its network is {machine.network.subnet}")


def test_its_power_cut_takes_what_was_not_synced_and_a_reboot_takes_nothing(
    machine: VirtualMachine, show: Show
) -> None:
    """Before a cluster is there: later this is believed."""
    machine.shell("echo kept >/root/synced; sync; echo lost >/root/not-synced")
    machine.power_cut()
    assert machine.try_shell("true").returncode != 0
    began = time.monotonic()
    machine.power_on()
    show(f"{time.monotonic() - began:.0f} s from power on until it had booted")
    assert machine.shell("cat /root/synced") == "kept\n"
    assert machine.shell("cat /root/not-synced 2>/dev/null || true") != "lost\n"
    assert is_ahead(machine, 0)
    before = machine.boot_id()
    machine.shell("echo kept >/root/not-synced")
    machine.reboot()
    assert machine.boot_id() != before
    assert machine.shell("cat /root/not-synced") == "kept\n"


def test_up_brings_a_cluster_up_and_again_it_changes_nothing(up: Up, show: Show) -> None:
    show(f"up took {up.seconds:.0f} s, and {settles(up.cluster):.0f} s more until all was settled")
    runs_pods(up.cluster, "of-a-user")
    began = time.monotonic()
    assert "up: unchanged" in up.cluster.up().stderr
    show(f"up took {time.monotonic() - began:.0f} s to find that nothing is to be done")


@pytest.mark.chain("reboot")
def test_after_a_reboot_the_api_answers_without_help(
    machine: VirtualMachine, cluster: ClusterOnMachine, show: Show
) -> None:
    began = time.monotonic()
    machine.reboot()
    booted = time.monotonic() - began
    show(f"reboot: {booted:.0f} s until it had booted, {answers_again(cluster):.0f} s more until the API answered")


@pytest.mark.chain("reboot")
def test_after_a_reboot_everything_is_hosted_again(machine: VirtualMachine, up: Up, show: Show) -> None:
    assert machine.boot_id() != up.boot
    show(f"after the API answered it took {settles(up.cluster):.0f} s until all was settled")
    runs_pods(up.cluster, "after-a-reboot")


@pytest.mark.chain("power cut")
def test_a_power_cut_loses_nothing_that_was_acknowledged(
    machine: VirtualMachine, cluster: ClusterOnMachine, writer: Writer, show: Show
) -> None:
    cut_while_writing(machine, writer)
    began = time.monotonic()
    machine.power_on()
    booted = time.monotonic() - began
    assert torn(machine) == []
    back = answers_again(cluster)
    nothing_is_lost(writer)
    written = len(writer.acknowledged)
    show(f"power cut: {written} written; {booted:.0f} s until it had booted, {back:.0f} s more until the API answered")


@pytest.mark.chain("power cut")
def test_after_a_power_cut_its_api_server_is_hosted_again(
    machine: VirtualMachine, up: Up, writer: Writer, show: Show
) -> None:
    assert machine.boot_id() != up.boot
    show(f"after the API answered it took {hosted_again(up.cluster):.0f} s until the hosted server served")
    nothing_is_lost(writer)


@pytest.mark.chain("power cut")
def test_after_a_power_cut_all_settles_and_works(machine: VirtualMachine, up: Up, writer: Writer, show: Show) -> None:
    assert machine.boot_id() != up.boot
    show(f"after the hosted server served it took {settles(up.cluster):.0f} s until all was settled")
    nothing_is_lost(writer)
    runs_pods(up.cluster, "after-a-cut")


# --- its clock -------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_while_everything_runs_costs_nothing(
    machine: VirtualMachine, cluster: ClusterOnMachine, writer: Writer, show: Show
) -> None:
    """Ahead, and back: nothing is started anew for it, and what is begun at the wrong time works at the right one."""
    before = containers(machine)
    assert before, "nothing runs that could be started anew"
    for number, step in enumerate((STEP, -STEP)):
        step_while_writing(machine, writer, step)
        runs_pods(cluster, f"after-step-{number}")
        settles(cluster)
    nothing_is_lost(writer)
    assert containers(machine) == before
    show(f"the clock was set by {STEP:.0f} s and back; {len(writer.acknowledged)} were written in all")


@pytest.mark.chain("ahead")
def test_with_a_clock_that_is_ahead_at_power_on_the_api_answers(
    machine: VirtualMachine, cluster: ClusterOnMachine, writer: Writer, show: Show
) -> None:
    cut_while_writing(machine, writer)
    machine.power_on(ahead=STEP)
    assert is_ahead(machine, STEP)
    show(f"with a clock that was ahead the API answered after {answers_again(cluster):.0f} s")
    nothing_is_lost(writer)


@pytest.mark.chain("ahead")
def test_a_clock_that_is_ahead_at_power_on_costs_nothing(
    machine: VirtualMachine, up: Up, writer: Writer, show: Show
) -> None:
    assert is_ahead(machine, STEP)
    show(f"after the API answered it took {settles(up.cluster):.0f} s until all was settled")
    nothing_is_lost(writer)


@pytest.mark.chain("ahead")
def test_a_clock_that_was_ahead_at_power_on_and_is_set_right_costs_nothing(
    machine: VirtualMachine, up: Up, writer: Writer, show: Show
) -> None:
    assert is_ahead(machine, STEP)
    runs_pods(up.cluster, "ahead")
    show(f"after the clock was set right it settled in {set_right(up.cluster, writer, -STEP):.0f} s")


@pytest.mark.chain("behind")
def test_with_a_clock_that_is_behind_at_power_on_the_api_answers(
    machine: VirtualMachine, cluster: ClusterOnMachine, writer: Writer, show: Show
) -> None:
    """As on a machine whose clock has no battery: by its time, what ran before the cut was made after what runs now,
    and the kubelet takes it for what there is."""
    cut_while_writing(machine, writer)
    machine.power_on(ahead=-STEP)
    assert is_ahead(machine, -STEP)
    show(f"with a clock that was behind the API answered after {answers_again(cluster):.0f} s")
    nothing_is_lost(writer)


@pytest.mark.chain("behind")
def test_a_clock_that_is_behind_at_power_on_costs_nothing(
    machine: VirtualMachine, up: Up, writer: Writer, show: Show
) -> None:
    assert is_ahead(machine, -STEP)
    show(f"after the API answered it took {settles(up.cluster):.0f} s until all was settled")
    nothing_is_lost(writer)


@pytest.mark.chain("behind")
def test_a_clock_that_was_behind_at_power_on_and_is_set_right_costs_nothing(
    machine: VirtualMachine, up: Up, writer: Writer, show: Show
) -> None:
    assert is_ahead(machine, -STEP)
    runs_pods(up.cluster, "behind")
    show(f"after the clock was set right it settled in {set_right(up.cluster, writer, STEP):.0f} s")


def set_right(cluster: ClusterOnMachine, writer: Writer, step: float) -> float:
    """Seconds until it has settled, after it was seen to serve, to run pods and to have lost nothing."""
    step_while_writing(cluster.machine, writer, step)
    assert is_ahead(cluster.machine, 0)
    runs_pods(cluster, "at-the-right-time")
    seconds = settles(cluster)
    nothing_is_lost(writer)
    return seconds


def is_ahead(machine: VirtualMachine, seconds: float) -> bool:
    return abs(machine.clock_ahead() - seconds) < STILL_TRUE


# --- the end ---------------------------------------------------------------------------------------------


def test_down_leaves_nothing_but_data_keys_and_images_also_after_a_reboot(
    machine: VirtualMachine, cluster: ClusterOnMachine, up: Up
) -> None:
    blind = [look for look in LOOKS if not found_by(machine, look)]
    assert not blind, "what finds nothing beside a cluster that runs finds nothing that it leaves"
    cluster.autarky("down", "-f", str(cluster.file), "--yes", "-o", "plain")
    assert left_on(machine) == []
    assert sorted(path for path in paths_on(machine) - up.before if not is_kept(path)) == []
    kept = machine.shell("ls -d /var/lib/etcd.*/member /etc/kubernetes/pki.*/ca.key").split()
    assert len(kept) == 2
    machine.reboot()
    assert left_on(machine) == []
    assert machine.shell("cat /proc/sys/net/ipv4/ip_forward").strip() == "0"


LOOKS = (
    *(f"ls -A {place}" for place in (places.HOST_ROOT, places.MANIFESTS, "/var/lib/kubelet", CNI_BIN, CNI_CONF)),
    "ls /run /etc/systemd/system /etc/systemd/system/*.wants | grep -E 'autarky|kubelet|containerd'",
    "pgrep -l 'kube|etcd|containerd|haproxy|coredns|flannel|python'",
    "ip -brief link | grep -E 'cni|flannel|veth'",
    "nft list tables | grep -E 'kube|flannel'",
    "awk '$2 ~ \"^(/var/lib/|/run/containerd|/run/netns)\"' /proc/mounts",
    "iptables-save | grep -E 'KUBE|CNI'",
)
"""Directories and units, processes, interfaces, rules, mounts: each finds something while a cluster runs."""
PLACES = "/etc /home /opt /root /srv /usr/libexec /usr/local /var"
PASSING = ("/var/log/journal/", "/var/tmp/systemd-private", "/var/lib/systemd/", "/var/cache/", "/root/.ssh")
"""What a machine writes by itself."""
KEPT = re.compile(r"/var/lib/etcd\.\d{8}T|/etc/kubernetes(/pki\.\d{8}T|$)|/var/lib/containerd(/|$)")
"""Without --purge: etcd's data, the CAs' keys, the images."""


def found_by(machine: VirtualMachine, look: str) -> list[str]:
    return [line for line in machine.shell(f"{look} 2>/dev/null; true").splitlines() if line]


def left_on(machine: VirtualMachine) -> list[str]:
    return [line for look in LOOKS for line in found_by(machine, look)]


def paths_on(machine: VirtualMachine) -> frozenset[str]:
    found = machine.shell(f"find {PLACES} -xdev -path /var/lib/containerd/'*' -prune -o -print", 240).splitlines()
    return frozenset(path for path in found if not path.startswith(PASSING))


def is_kept(path: str) -> bool:
    return KEPT.match(path) is not None
