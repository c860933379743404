"""Real time, and when processes of this machine started. `monotonic` includes the time that the machine sleeps, so that
leases expire and ages grow meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path


class SystemClock:
    """Implements ports.Clock."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (field 22 of /proc/PID/stat), or None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field, the name, may hold spaces and parentheses; fields count from after the last one.
    return int(stat.rpartition(")")[2].split()[19])
