"""The base root file system of all test hosts: Debian with systemd, made once, used read-only.

Contract: it lies under the hash of its recipe and appears in one rename. It is made in process and mount
namespaces that end with the process that makes it, so that a killed run leaves files and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from autarky import places
from autarky.lab.tools import tool
from autarky.ports import Progress
from autarky.store import waiting_lock

SUITE = "bookworm"
PACKAGES = (
    "bash,ca-certificates,conntrack,curl,dbus,ethtool,iproute2,iptables,iputils-ping,kmod,mount,nftables,"
    "openssh-server,procps,socat,sudo,systemd,systemd-sysv,util-linux"
)
# Units that a container cannot or need not run; `systemctl is-system-running` says `running` without them.
MASKED = (
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service",
    "systemd-modules-load.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "getty.target",
    "console-getty.service",
    "systemd-logind.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-remount-fs.service",
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "dpkg-db-backup.timer",
    "systemd-firstboot.service",
    "modprobe@.service",
)
SYSCTLS = """\
# What a Kubernetes node needs, at every power-on.
net.ipv4.ip_forward = 1
-net.bridge.bridge-nf-call-iptables = 1
"""
# Machine-wide settings: a test host must not change them.
MASKED_SYSCTLS = ("50-pid-max.conf", "99-protect-links.conf")
# sshd is started by the first connection, so that it does not slow down the boot.
SSH_SOCKET = "etc/systemd/system/sockets.target.wants/ssh.socket"
RECIPE = f"{SUITE} {PACKAGES} {' '.join(MASKED)} {SYSCTLS} {' '.join(MASKED_SYSCTLS)} {SSH_SOCKET} 3"
CONTAINED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


async def base_root(progress: Progress) -> Path:
    """The directory, made if it is missing (about 25 s). Safe to be killed: it appears in one rename."""
    parent = places.cache_dir() / "lab-rootfs"
    final = parent / hashlib.sha256(RECIPE.encode()).hexdigest()[:16]
    if final.is_dir():
        return final
    parent.mkdir(parents=True, exist_ok=True)
    async with waiting_lock(parent / "lock"):
        if final.is_dir():
            return final
        progress.note("making the test hosts' root file system (once, about half a minute)")
        temporary = parent / f".making-{os.getpid()}"
        for leftover in parent.glob(".making-*"):
            shutil.rmtree(leftover)
        await _bootstrap(temporary)
        temporary.rename(final)
    return final


async def _bootstrap(directory: Path) -> None:
    argv = [*CONTAINED, "mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
    argv += ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"]
    argv += ["--dpkgopt=path-exclude=/usr/share/locale/*", SUITE, str(directory)]
    await tool(*argv, timeout=900)
    for unit in MASKED:
        _mask(directory / "etc/systemd/system" / unit)
    for name in MASKED_SYSCTLS:
        _mask(directory / "etc/sysctl.d" / name)
    (directory / "etc/sysctl.d/10-node.conf").write_text(SYSCTLS)
    for name in ("etc/machine-id", "etc/hostname", "var/lib/dbus/machine-id"):
        (directory / name).unlink(missing_ok=True)
    for key in directory.glob("etc/ssh/ssh_host_*"):  # keys that all hosts share prove nothing
        key.unlink()
    _enable_ssh(directory)


def _enable_ssh(directory: Path) -> None:
    (directory / "etc/systemd/system/multi-user.target.wants/ssh.service").unlink(missing_ok=True)
    socket = directory / SSH_SOCKET
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    socket.symlink_to("/lib/systemd/system/ssh.socket")


def _mask(path: Path) -> None:
    """systemd's way to say that a file of that name is to be passed over."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/null")
