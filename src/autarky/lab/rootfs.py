"""The base root file system of all test hosts: Debian with systemd, made once, used read-only."""

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
    "openssh-server,procps,socat,systemd,systemd-sysv,util-linux"
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
    "systemd-sysctl.service",
    "systemd-remount-fs.service",
    "ssh.service",
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "dpkg-db-backup.timer",
    "systemd-firstboot.service",
    "modprobe@.service",
)
# Hosts share a kernel and so its boot id; each power-on must look like a boot of its own.
BOOT_ID_UNIT = """\
[Unit]
Description=A boot id of this host's own
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/uuid >/run/boot-id'
ExecStart=/bin/mount --bind /run/boot-id /proc/sys/kernel/random/boot_id

[Install]
WantedBy=sysinit.target
"""
RECIPE = f"{SUITE} {PACKAGES} {' '.join(MASKED)} {BOOT_ID_UNIT} 1"


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
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
    argv += ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"]
    argv += ["--dpkgopt=path-exclude=/usr/share/locale/*", SUITE, str(directory)]
    await tool(*argv, timeout=900)
    units = directory / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "boot-id.service").write_text(BOOT_ID_UNIT)
    wanted = units / "sysinit.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "boot-id.service").symlink_to("../boot-id.service")
    for name in ("etc/machine-id", "etc/hostname", "var/lib/dbus/machine-id"):
        (directory / name).unlink(missing_ok=True)
