"""The root file system of a virtual machine: Debian 13 as one installs it on a server, with its own kernel and systemd.

Unlike the test hosts' (`autarky.lab.rootfs`) nothing of it is masked: it has udev, networkd, logind and a kernel of its
own, whose modules are loaded when somebody wants them. It has no name server that answers and sets its clock by nobody.

Contract: it lies under the hash of its recipe and appears in one rename. It is made in process and mount namespaces
that end with the process that makes it, so that a killed run leaves files and nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autarky import places
from autarky.lab.rootfs import CONTAINED

SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
"""Of the package debian-archive-keyring: that of Debian 12 has Debian 13's keys since 2023.3+deb12u2."""
PACKAGES = (
    "ca-certificates,conntrack,curl,dbus,ethtool,initramfs-tools,iproute2,iptables,kmod,linux-image-cloud-amd64,mount,"
    "nftables,openssh-server,procps,socat,sudo,systemd,systemd-sysv,udev,util-linux"
)
SMALL_INITRD = (
    'mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d";'
    ' printf "MODULES=list\\nCOMPRESS=gzip\\n" >"$1/etc/initramfs-tools/conf.d/vm";'
    ' printf "virtio_pci\\nvirtio_blk\\next4\\n" >"$1/usr/share/initramfs-tools/modules.d/vm"'
)
"""With the modules that find the disk, and no others: an emulated machine unpacks it for a long time. Before the
packages come, so that it is made once."""
ENABLED = ("systemd-networkd.service", "ssh.service")
DISABLED = ("apt-daily.timer", "apt-daily-upgrade.timer", "systemd-networkd-wait-online.service")
"""What would begin something of its own in the middle of a test."""
SECONDS = 900.0
RECIPE = f"{SUITE} {PACKAGES} {SMALL_INITRD} {ENABLED} {DISABLED} 1"


@dataclass(frozen=True)
class VmRoot:
    """root: what goes onto the disk; to be copied, never changed. kernel and initrd: what it is booted with."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd.img"


def vm_root() -> VmRoot:
    """Made if it is missing, in two or three minutes. Safe to be killed: it appears in one rename."""
    parent = places.cache_dir() / "vm-root"
    final = parent / hashlib.sha256(RECIPE.encode()).hexdigest()[:16]
    if not final.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with _locked(parent / ".lock"):
            if not final.is_dir():
                _make(final)
    return VmRoot(final)


def _make(final: Path) -> None:
    for leftover in final.parent.glob(".making-*"):
        shutil.rmtree(leftover)
    temporary = final.with_name(f".making-{os.getpid()}")
    temporary.mkdir()
    root = temporary / "root"
    _bootstrap(root)
    _take_kernel_out(root, temporary)
    _settle(root)
    for former in final.parent.iterdir():
        if former.is_dir() and former != temporary:
            shutil.rmtree(former)
    temporary.rename(final)


def _bootstrap(root: Path) -> None:
    argv = [*CONTAINED, "mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", f"--keyring={KEYRING}"]
    argv += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    argv += [f"--essential-hook={SMALL_INITRD}", SUITE, str(root)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"mmdebstrap ended with {done.returncode}: {done.stderr[-3000:]}"


def _take_kernel_out(root: Path, directory: Path) -> None:
    """They are given to the machine from outside: it has no boot loader."""
    for name, target in (("vmlinuz", "vmlinuz"), ("initrd.img", "initrd.img")):
        (found,) = (root / "boot").glob(f"{name}-*")
        shutil.move(found, directory / target)


def _settle(root: Path) -> None:
    for name in ("etc/machine-id", "etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id"):
        (root / name).unlink(missing_ok=True)
    for key in root.glob("etc/ssh/ssh_host_*"):  # keys that every machine has prove nothing
        key.unlink()
    for verb, units in (("enable", ENABLED), ("disable", DISABLED)):
        subprocess.run(["systemctl", f"--root={root}", "--quiet", verb, *units], check=True, capture_output=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
