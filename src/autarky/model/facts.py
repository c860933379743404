"""Facts about a host, which preflight decides on. stdlib only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host reports about itself, read in one round trip. Sizes in bytes, clock in seconds (Unix)."""

    address: str
    hostname: str
    boot_id: str
    kernel: str
    os_name: str
    architecture: str
    cgroup_version: int
    cpus: int
    memory_total: int
    swap_total: int
    disk_free: int
    clock: float
    listening_ports: frozenset[int]
    networks: tuple[str, ...]
    missing_features: tuple[str, ...]
    missing_programs: tuple[str, ...]
    init: str
    may_lower_oom_score: bool = True
    """Whether root may make a process less likely to be killed (CAP_SYS_RESOURCE); test hosts may not."""
    addresses: tuple[str, ...] = ()
    """All its IPv4 addresses of global scope; `address` is that of the default route."""
    upstream_resolv_conf: str | None = None
    """The file with the real name servers, if /etc/resolv.conf names a stub on the host's loopback; else None."""
    disk_total: int = 0
    """Bytes, as `disk_free`; 0 if unknown."""
