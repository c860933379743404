"""Running this machine's own tools (ip, mount, runc): argv lists, bounded, with clear errors."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence

from autarky.errors import CommandFailed, UserError

NEEDED = {
    "ip": "iproute2",
    "nft": "nftables",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
}


async def tool(*argv: str, check: bool = True, timeout: float = 60, stdin: bytes | None = None) -> str:
    """Run to the end; its standard output. CommandFailed when it fails and `check` is set."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout):
            stdout, stderr = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if check and process.returncode != 0:
        raise CommandFailed("this machine", argv, process.returncode or 0, stderr.decode(errors="replace"))
    return stdout.decode(errors="replace")


def refuse_missing_tools(names: Sequence[str] = tuple(NEEDED)) -> None:
    """UserError that names the Debian packages of all the tools that are missing."""
    missing = sorted(NEEDED[name] for name in names if shutil.which(name) is None)
    if missing:
        raise UserError(
            f"test hosts need tools that are not installed: {', '.join(missing)}",
            fix=f"apt-get install {' '.join(missing)}",
        )
