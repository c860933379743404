"""A machine with a kernel of its own, which `up` is told of only by ssh: QEMU, with KVM where it works, else emulated.

It has the shape of `machines.Machines`: made, removed, an ssh_config that stands for the user's. Its network is a lab's
network (a switch in a network namespace, nothing gets out of it), its disk a file with the component store on it:
binaries and images are where `up` would put them, so that it only looks at them.

Contract: everything lies below one directory of the tests and bears names that follow from it; QEMU ends with the
process that started it, whatever killed that. `remove` leaves nothing, and `make` begins with it.

A power cut takes the cable first and then QEMU: what the guest had not given to its disk is gone. What it had given is
in this machine's page cache, which outlives QEMU: so the disk's own flushes do nothing (cache=unsafe), and a cut loses
neither more nor less by it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, ClassVar

from harness import STATE, TestCluster
from vm_root import vm_root

from autarky.cli.wiring import Silence
from autarky.lab import ssh
from autarky.lab.lab import SUBNETS_LOCK
from autarky.lab.network import POOL, LabNetwork, free_subnet, machine_networks
from autarky.lab.tools import DIE_WITH_US, tool
from autarky.payload import Payload, default_version, get_payload, load_release
from autarky.payload.template import containerd_template, copy_template
from autarky.phases.binaries import STORE
from autarky.phases.supply import GROUPS
from autarky.render.node import BINARIES
from autarky.store import waiting_lock
from cases.claims import claim

QEMU = "qemu-system-x86_64"
HOST = "n1"
CPUS, MEMORY = 2, "4096"
DISK = "12G"
BOOT_SECONDS = 400.0
"""An emulated machine beside others that work; one with KVM boots in a tenth of that."""
LABS = IPv4Network(f"{POOL.network_address}/17")
"""Labs take their networks from here; whoever has none at the moment would find a machine's in its place."""
KERNEL_LINE = "root=/dev/vda rw console=ttyS0 quiet panic=1"
EMULATED_LINE = "mitigations=off"
"""Retpolines guard a processor that is not there, and each is a slow jump where all code is translated."""
NETWORK = """\
[Match]
MACAddress={mac}

[Network]
Address={address}/24
Gateway={gateway}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""


@dataclass
class VirtualMachine:
    """`name`: its own. The host is called n1."""

    name: str
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    subnet: IPv4Network = field(default=LABS, init=False)

    @property
    def directory(self) -> Path:
        return STATE / "machines" / self.name

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    @property
    def address(self) -> str:
        return self.network.address(0)

    @property
    def network(self) -> LabNetwork:
        return LabNetwork(str(self.directory), self.subnet)

    @property
    def emulated(self) -> bool:
        return not kvm_works()

    # --- life ---

    def make(self) -> None:
        """Until it has booted."""
        assert shutil.which(QEMU), f"{QEMU} is missing: ./run need-vm"
        claim(f"vm-{self.name}", STATE)
        self.remove()
        self.directory.mkdir(parents=True, mode=0o700)  # its disk has keys, addresses and the store
        asyncio.run(self._connect())
        asyncio.run(self._make_disk())
        self.power_on()

    def remove(self) -> None:
        self._end()
        asyncio.run(self._disconnect())
        shutil.rmtree(self.directory, ignore_errors=True)

    def power_on(self, *, ahead: float = 0) -> None:
        """Until it has booted; fails with the console's last lines. ahead: by how many seconds its clock is."""
        self._cable("up")
        argv = [*DIE_WITH_US, "ip", "netns", "exec", self.network.switch, *self._qemu(ahead)]
        with (self.directory / "qemu.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until_booted()

    def power_cut(self) -> None:
        self._cable("down")
        self._end()

    def reboot(self) -> None:
        """In order, as by its administrator; until it has booted."""
        before = self.boot_id()
        self.try_shell("systemctl reboot")
        self.wait_until_booted(not_in=before)

    def wait_until_booted(self, *, not_in: str = "") -> None:
        """Until systemd has started everything: `running`. not_in: a boot that is over."""
        deadline = time.monotonic() + BOOT_SECONDS
        said = "nothing"
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, f"QEMU has ended: {self._tail('qemu.log')}"
            ended = self.try_shell("cat /proc/sys/kernel/random/boot_id; systemctl is-system-running")
            boot, _, state = ended.stdout.partition("\n")
            said = state.strip() or ended.stderr.strip()
            if boot and boot != not_in and state.strip() in ("running", "degraded"):
                assert state.strip() == "running", self.shell("systemctl --failed --plain --no-legend")
                return
            time.sleep(1)
        raise AssertionError(f"it did not boot in {BOOT_SECONDS:.0f} s: {said!r}; its console: {self._tail()}")

    # --- inside ---

    def try_shell(self, command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", HOST]
        try:
            return subprocess.run(
                [*argv, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 255, "", f"no answer in {seconds:.0f} s")

    def shell(self, command: str, seconds: float = 60) -> str:
        done = self.try_shell(command, seconds)
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def boot_id(self) -> str:
        return self.shell("cat /proc/sys/kernel/random/boot_id").strip()

    def step_clock(self, seconds: float) -> None:
        """From what it says now; back with a negative number."""
        self.shell(f'date --set="@$(($(date +%s) + {seconds:.0f}))"')

    def clock_ahead(self) -> float:
        """Seconds by which its clock is ahead of this machine's, to some seconds."""
        return float(self.shell("date +%s.%N")) - time.time()

    # --- making it ---

    async def _connect(self) -> None:
        async with waiting_lock(SUBNETS_LOCK):
            self.subnet = free_subnet([LABS, *await machine_networks()])
            await self.network.ensure()
        tap = self.network.outer_interface(HOST)
        for words in (f"tuntap add dev {tap} mode tap", f"link set {tap} master br0"):
            await tool("ip", "-n", self.network.switch, *words.split())

    async def _disconnect(self) -> None:
        await self.network.disconnect(HOST)
        await self.network.remove()

    def _cable(self, state: str) -> None:
        link = ["link", "set", self.network.outer_interface(HOST), state]
        subprocess.run(["ip", "-n", self.network.switch, *link], check=True)

    async def _make_disk(self) -> None:
        """The root, with keys, addresses and the store, as one file."""
        home = self.directory / "hosts" / HOST
        root = home / "upper"
        home.mkdir(parents=True)
        _run("cp", "--archive", "--reflink=auto", str(vm_root().root), str(root))
        ssh.give_keys(self.directory, home)
        ssh.write_config(self.directory, {HOST: self.address})
        self._name(root)
        await _give_store(root)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", "-d", str(root), str(self._disk), DISK)
        shutil.rmtree(root)

    def _name(self, root: Path) -> None:
        network = NETWORK.format(
            mac=self.network.hardware_address(HOST), address=self.address, gateway=self.network.gateway
        )
        files = {
            "etc/hostname": f"{HOST}\n",
            "etc/hosts": f"127.0.0.1 localhost\n{self.address} {HOST}\n",
            "etc/resolv.conf": f"nameserver {self.network.dead_name_server}\n",
            "etc/systemd/network/10-cable.network": network,
        }
        for path, content in files.items():
            (root / path).write_text(content)

    # --- QEMU ---

    @property
    def _disk(self) -> Path:
        return self.directory / "disk.img"

    def _qemu(self, ahead: float) -> list[str]:
        begin = datetime.fromtimestamp(time.time() + ahead, UTC)
        boot = vm_root()
        network = self.network
        argv = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"]
        argv += ["-machine", f"q35,accel={'tcg' if self.emulated else 'kvm'}", "-cpu", "max"]
        argv += ["-smp", str(CPUS), "-m", MEMORY, "-rtc", f"base={begin:%Y-%m-%dT%H:%M:%S}"]
        argv += ["-kernel", str(boot.kernel), "-initrd", str(boot.initrd)]
        argv += ["-append", f"{KERNEL_LINE} {EMULATED_LINE if self.emulated else ''}"]
        argv += ["-serial", f"file:{self.directory}/console.log"]
        argv += ["-drive", f"file={self._disk},if=virtio,format=raw,cache=unsafe"]
        argv += ["-netdev", f"tap,id=cable,ifname={network.outer_interface(HOST)},script=no,downscript=no"]
        return [*argv, "-device", f"virtio-net-pci,netdev=cable,mac={network.hardware_address(HOST)}"]

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _tail(self, log: str = "console.log") -> str:
        with suppress(OSError):
            return (self.directory / log).read_text(errors="replace")[-1500:]
        return ""


def kvm_works() -> bool:
    """Not with the device alone: some machines have one without a processor for it, which ends at what it does not know
    in the middle of a kernel's start."""
    virtualises = re.search(r"^flags\s*:.*\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return virtualises is not None and os.access("/dev/kvm", os.R_OK | os.W_OK)


async def _give_store(root: Path) -> None:
    """The binaries and images of the default version, as `up` leaves them."""
    payload = await _payload()
    for name, path in BINARIES.items():
        binary = payload.binaries[name]
        stored = f"{STORE}/{name}-{binary.sha256[:16]}"
        _put(binary.path, root / stored.lstrip("/"))
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(stored)
    template = await containerd_template(payload, Silence())
    await copy_template(template, root / "var/lib/containerd")


async def _payload() -> Payload:
    return await get_payload(load_release(default_version()), Silence(), groups=GROUPS)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv[0]} ended with {done.returncode}: {done.stderr}"


# --- a cluster on it -------------------------------------------------------------------------------------


@dataclass
class ClusterOnMachine(TestCluster):
    """`up` is told of the machine by ssh, as its only node. An emulated machine is twenty times as slow as this one."""

    up_seconds: ClassVar[float] = 1500
    kubectl_seconds: ClassVar[float] = 300
    machine: VirtualMachine = field(kw_only=True)

    def shell(self, host: str, command: str) -> str:
        assert host == HOST
        return self.machine.shell(command)

    def down(self) -> None:
        """Nothing is asked of a machine that goes anyway; what is kept here of the cluster goes."""
        shutil.rmtree(self.directory, ignore_errors=True)


def cluster_on(machine: VirtualMachine, name: str, **spec: Any) -> ClusterOnMachine:
    nodes = [{"name": HOST, "host": f"ssh://{HOST}"}]
    return ClusterOnMachine(name, {"nodes": nodes, "sshConfig": str(machine.ssh_config), **spec}, machine=machine)
