"""The OCI runtime specification of a test host: as much of a machine as this machine may give.

All capabilities but those that are withheld or that this machine does not have itself; a cgroup namespace
of its own with writable controllers; no masked paths. The cgroup version follows the machine's: the mount
type `cgroup` means both to runc. cgroup v2 is written by the same rules but has not been tried yet.

Mounts are cut off from this machine's first and then shared among the host's own processes: the kubelet's
must propagate into its containers, but never out to this machine, where systemd shares `/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""In the order of their bit numbers (capabilities(7))."""
WITHHELD = {"CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_MODULE", "CAP_SYS_BOOT"}
"""Never given: all hosts share the machine's clock, kernel and power; and a host with CAP_SYS_RESOURCE on
one machine and without it on another would not be the same test."""


# What a booting machine finds done. Hosts share a kernel and so its boot id; each power-on must look like a
# boot of its own, to the journal and to the kubelet alike. systemd leaves `/` as it is in a container.
_INIT = """\
mount --make-rshared /
cat /proc/sys/kernel/random/uuid >/run/boot-id
mount --bind /run/boot-id /proc/sys/kernel/random/boot_id
exec /lib/systemd/systemd --show-status=false
"""


def granted_capabilities(effective_mask: int) -> list[str]:
    """Those of the mask that a host is given."""
    names = [f"CAP_{name}" for bit, name in enumerate(_CAPABILITIES) if effective_mask >> bit & 1]
    return [name for name in names if name not in WITHHELD]


def effective_mask() -> int:
    """This process's effective capabilities."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _bind(source: Path | str, target: str) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["rbind", "rw"]}


def _tmpfs(target: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": list(options)}


def runtime_spec(
    *, host: str, cgroup: str, root: Path, netns: str, binds: dict[str, Path], capabilities: list[str]
) -> dict[str, Any]:
    """The complete config.json. `binds`: path in the host → directory or file here. `cgroup`: the name of the
    host's control group, below that of the calling process."""
    return {
        "ociVersion": "1.0.2",
        "hostname": host,
        "root": {"path": str(root), "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/sh", "-ec", _INIT],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=docker"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": False,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["rw"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["rw", "nosuid", "nodev", "noexec"]},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["rw", "nosuid"]},
            _tmpfs("/dev", "nosuid", "mode=755", "size=65536k"),
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
            },
            _tmpfs("/dev/shm", "nosuid", "nodev", "mode=1777"),  # noqa: S108 # of the host, not of this machine
            _tmpfs("/run", "nosuid", "nodev", "mode=755"),
            _tmpfs("/run/lock", "nosuid", "nodev", "noexec", "mode=1777"),
            _tmpfs("/tmp", "nosuid", "nodev", "mode=1777"),  # noqa: S108
            *(_bind(source, target) for target, source in binds.items()),
        ],
        "linux": {
            "cgroupsPath": cgroup,
            "rootfsPropagation": "rprivate",
            "namespaces": [
                {"type": "pid"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "mount"},
                {"type": "cgroup"},
                {"type": "network", "path": f"/run/netns/{netns}"},
            ],
            "devices": [{"path": "/dev/kmsg", "type": "c", "major": 1, "minor": 11, "fileMode": 0o600}],
            "resources": {"devices": [{"allow": True, "access": "rwm"}]},
            "maskedPaths": [],
            "readonlyPaths": [],
        },
    }
