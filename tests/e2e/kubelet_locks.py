"""Whose kubelet of a host is in force, by the kernel's list of locks. Pure: no cluster.

A kubelet is in force that has the lock, or that takes none: the host's, where none is hosted. One that runs and has not
come to the lock, hangs before it, or is started again and again, is nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

Kubelets = Mapping[str, bool]
"""Process id → whether it is to take the lock, as its command line says."""


def holders_and_waiters(locks: str) -> tuple[set[str], set[str]]:
    """The ids of the processes that have a lock, and of those that wait for one, as `/proc/locks` has them."""
    have, wait = (re.findall(rf"{begin}FLOCK +ADVISORY +WRITE +([0-9]+) ", locks) for begin in (r"[0-9]: ", "-> "))
    return set(have), set(wait)


def with_the_lock(kubelets: Kubelets, have: Set[str]) -> set[str]:
    """Or without one to take."""
    return {pid for pid, takes_it in kubelets.items() if not takes_it or pid in have}


def whose(kubelets: Kubelets, locks: str, host_pid: str) -> str:
    """`host` or `hosted`, whichever is in force; `nobody` where neither is; `both` where more than one kubelet runs
    that does not wait."""
    have, wait = holders_and_waiters(locks)
    if len(kubelets.keys() - wait) > 1:
        return "both"
    found = with_the_lock(kubelets, have) - wait
    if not found:
        return "nobody"
    return "host" if found == {host_pid} else "hosted"
