"""Running this machine's own tools (ip, mount, runc): argv lists, bounded in time, with clear errors.

Every tool dies with the process that started it (PR_SET_PDEATHSIG, through `setpriv`): what a killed run
had begun must not go on beside the next run that cleans up after it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from autarky.errors import CommandFailed, TimedOut, UserError

NEEDED = {
    "ip": "iproute2",
    "nft": "nftables",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Program → Debian package."""
DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


async def tool(*argv: str, check: bool = True, timeout: float = 60, stdin: bytes | None = None) -> str:
    """Run to the end; its standard output. CommandFailed when it fails and `check` is set; TimedOut."""
    process = await asyncio.create_subprocess_exec(
        *DIE_WITH_US,
        *argv,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout):
            stdout, stderr = await process.communicate(stdin)
    except TimeoutError as error:
        raise TimedOut(f"this machine: {' '.join(argv)[:200]} did not end within {timeout:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if check and process.returncode != 0:
        raise CommandFailed("this machine", argv, process.returncode or 0, stderr.decode(errors="replace"))
    return stdout.decode(errors="replace")


async def refuse_unfit_machine(state: Path) -> None:
    """UserError unless this machine can have test hosts: root, the tools, no chroot, no overlay below their disks."""
    if os.geteuid() != 0:
        raise UserError("test hosts need root", fix="run the command as root")
    missing = sorted({package for name, package in NEEDED.items() if shutil.which(name) is None})
    if missing:
        raise UserError(
            f"test hosts need tools that are not installed: {', '.join(missing)}",
            fix=f"apt-get install {' '.join(missing)}",
        )
    await refuse_chroot()
    if _file_system(state) == "overlay":
        raise UserError(
            f"{state} lies on an overlay file system, on which test hosts cannot put their own",
            fix="set XDG_STATE_HOME to a directory on a disk or a volume",
        )


async def refuse_chroot() -> None:
    """UserError in a chroot: it hides the root of the mount namespace, and takes it from nobody.

    Danger: whoever enters a host or a container from outside (nsenter, `runc exec`, so `kubectl exec` too)
    stands in that root, which would be the machine's own files.
    """
    own = Path("/").stat()
    root = await tool("nsenter", "--mount=/proc/self/ns/mnt", "--", "stat", "--format=%d:%i", "/", check=False)
    if root and root.strip() != f"{own.st_dev}:{own.st_ino}":
        raise UserError(
            "this is a chroot; a command on a test host would see the files outside of it",
            fix="run it outside of the chroot, or make the directory the root itself: unshare --mount, pivot_root",
        )


def _file_system(path: Path) -> str:
    """The type of the file system on which the path lies, or would lie."""
    existing = next(p for p in (path, *path.parents) if p.exists()).resolve()
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [fields for fields in mounts if existing.is_relative_to(fields[1])]
    # The last of the longest: a later mount on the same directory hides the earlier.
    return max(enumerate(holding), key=lambda found: (len(found[1][1]), found[0]))[1][2]
