"""The disk of a test host, which a power cut may damage: a small ext4 file system in a file, for etcd and the agents.

A cut stops the file system itself (the ioctl EXT4_IOC_SHUTDOWN without flushing, made for crash tests): from
one moment on, nothing reaches the file any more. What was synced is there, what was not is lost, and the
next mount replays the journal. This is why no copy of the file is needed: a copy takes time, in which the
kernel goes on writing, so that it would show a state in which the disk never was.

Contract: the file system is mounted in the host's own mount namespace only, never in this machine's, and
its loop device frees itself with the last mount: a host that is gone leaves neither.

Dangers: the ioctl on a wrong file system would stop this machine's own disk, so it is made only on a loop
device whose backing file is the image. And a file that is mounted twice is destroyed: `wait_until_free`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
from pathlib import Path

from autarky.errors import TimedOut
from autarky.lab.tools import tool

SIZE = 3 * 1024**3
DIRECTORIES = {"/var/lib/etcd": "etcd", "/var/lib/autarky": "autarky", "/etc/kubernetes": "kubernetes"}
"""Path in the host → directory on the file system."""
FREE_SECONDS = 15.0

# linux/fs.h: FS_IOC_SHUTDOWN is _IOR('X', 125, __u32); its flag 2 is "do not flush the log" (as a power cut).
_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING = struct.pack("I", 2)
_LOOP_MAJOR = 7


async def make(image: Path) -> None:
    """Make the file system if it is missing; it appears in one rename."""
    if image.exists():
        return
    temporary = image.with_suffix(".new")
    with temporary.open("wb") as file:
        file.truncate(SIZE)
    await tool("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", str(temporary))
    temporary.rename(image)


def stop(image: Path, pid: int) -> bool:
    """Stop the image's file system in the host with that init process, as a power cut does.

    False when it is not mounted there (any more).
    """
    for path in DIRECTORIES:
        try:
            directory = os.open(f"/proc/{pid}/root{path}", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            if _backing_file(os.fstat(directory).st_dev) == str(image.resolve()):
                fcntl.ioctl(directory, _SHUTDOWN, _WITHOUT_FLUSHING)
                return True
        finally:
            os.close(directory)
    return False


async def wait_until_free(image: Path) -> None:
    """Until no loop device has the image: the kernel frees it a moment after the host's last process."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FREE_SECONDS
    while device := _loop_device(image):
        if loop.time() > deadline:
            raise TimedOut(f"waited {FREE_SECONDS:.0f} s until {image} is free; {device} still has it (losetup -l)")
        await asyncio.sleep(0.02)


def _backing_file(device: int) -> str | None:
    """The file behind a loop device; None for every other device."""
    if os.major(device) != _LOOP_MAJOR:
        return None
    return _read(Path(f"/sys/dev/block/{_LOOP_MAJOR}:{os.minor(device)}/loop/backing_file"))


def _loop_device(image: Path) -> str | None:
    for found in Path("/sys/block").glob("loop*/loop/backing_file"):
        if _read(found) == str(image.resolve()):
            return f"/dev/{found.parent.parent.name}"
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # the device has gone meanwhile
        return None
