"""What a power cut may take: a small ext4 file system in a file, for etcd and the agents' state.

Danger: killing a host's processes is no power cut, because the kernel still writes what they had not
synced. So the file is copied as it is before the file system is unmounted (which flushes), and the host
boots from that copy: what was synced is there, what was not is lost, and the journal is replayed.
"""

from __future__ import annotations

from pathlib import Path

from autarky.lab.tools import tool

SIZE = 3 * 1024**3
DIRECTORIES = {"/var/lib/etcd": "etcd", "/var/lib/autarky": "autarky", "/etc/kubernetes": "kubernetes"}
"""Path in the host → directory on the file system."""


async def attach(image: Path, mount_point: Path) -> None:
    """Make the file system if it is missing, and mount it."""
    if not image.exists():
        temporary = image.with_suffix(".new")
        with temporary.open("wb") as file:
            file.truncate(SIZE)
        await tool("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", str(temporary))
        temporary.rename(image)
    mount_point.mkdir(exist_ok=True)
    await tool("mount", "-o", "loop", str(image), str(mount_point))
    for name in DIRECTORIES.values():
        (mount_point / name).mkdir(exist_ok=True)


async def snapshot(image: Path) -> Path:
    """A copy of what was written so far, made while the file system is still mounted."""
    copy = image.with_suffix(".cut")
    await tool("cp", "--sparse=always", str(image), str(copy))
    return copy
