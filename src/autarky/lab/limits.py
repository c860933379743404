"""Limits of the machine that all test hosts share, since all of them are its root's.

Contract: raised, never lowered, and left so: other labs may be there. A machine that does not allow it
keeps its own limits; then fewer hosts fit.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH_INSTANCES = 1024
"""Linux's default of 128 is too little for two clusters of four hosts each: kube-proxy ends with «too many open
files», and a kubelet does not start."""


def raise_limits(instances: Path = INOTIFY_INSTANCES) -> None:
    with contextlib.suppress(OSError):
        if int(instances.read_text()) < ENOUGH_INSTANCES:
            instances.write_text(f"{ENOUGH_INSTANCES}\n")
