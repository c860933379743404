"""What a host reports about itself: one shell script, one round trip, `key=value` lines.

Contract: whoever is root on a host can make it report anything. Values that no ordinary host would report make this
host unreadable (Unreachable), and nothing else: they must not stop a command, or influence a decision.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from typing import TypeVar

from autarky.errors import Unreachable
from autarky.model.components import LINKS
from autarky.model.facts import HostFacts

PROGRAMS = ("systemctl", "mount", "umount", "ip", "sysctl", "bash", "sha256sum", "dd", "nsenter")
FEATURES = ("overlay", "vxlan", "nf_tables", "nf_conntrack", "br_netfilter", "seccomp")

# A module that is built in, loaded, or can be loaded counts; `modprobe -n` asks without loading.
# The capabilities are those of the init process, which its services inherit: a driver may have more.
FACTS_SCRIPT = f"""\
set -u
say() {{ printf '%s=%s\\n' "$1" "$2"; }}
route=$(ip -4 route get 192.0.2.1 2>/dev/null || true)
address=$(printf '%s' "$route" | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p' | head -n 1)
[ -n "$address" ] || address=$(ip -4 -o address show scope global | awk '{{sub("/.*","",$4); print $4; exit}}')
say address "$address"
ip -4 -o address show scope global | awk '{{sub("/.*","",$4); print "own_address=" $4}}'
say hostname "$(cat /proc/sys/kernel/hostname)"
say boot_id "$(cat /proc/sys/kernel/random/boot_id)"
say kernel "$(uname -r)"
say os_name "$(. /etc/os-release; printf '%s' "${{PRETTY_NAME:-unknown}}")"
say architecture "$(uname -m)"
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then say cgroup_version 2; else say cgroup_version 1; fi
say cpus "$(nproc)"
awk '/^MemTotal/ {{printf "memory_total=%.0f\\n", $2*1024}}' /proc/meminfo
awk '/^SwapTotal/ {{printf "swap_total=%.0f\\n", $2*1024}}' /proc/meminfo
say disk_free "$(df --output=avail -B1 /var/lib | tail -n 1 | tr -d ' ')"
say disk_total "$(df --output=size -B1 /var/lib | tail -n 1 | tr -d ' ')"
say clock "$(date +%s.%N)"
say init "$(cat /proc/1/comm)"
awk 'FNR>1 && $4=="0A" {{n=split($2,a,":"); print "port=" a[n]}}' /proc/net/tcp /proc/net/tcp6 2>/dev/null
ip -4 route show | awk '$1 != "default" && !/ dev ({"|".join(LINKS)})/ {{print "network=" $1}}'
for program in {" ".join(PROGRAMS)}; do command -v "$program" >/dev/null 2>&1 || say missing_program "$program"; done
has() {{ [ -d "/sys/module/$1" ] || modprobe -n "$1" 2>/dev/null; }}
grep -qw overlay /proc/filesystems || has overlay || say missing_feature overlay
[ -e /proc/sys/net/netfilter ] || has nf_conntrack || say missing_feature nf_conntrack
[ -e /proc/sys/net/bridge ] || has br_netfilter || say missing_feature br_netfilter
has nf_tables || nft list tables >/dev/null 2>&1 || say missing_feature nf_tables
if ! has vxlan; then
  if ip link add autarky-probe type vxlan id 16777214 dstport 0 2>/dev/null; then ip link delete autarky-probe
  else say missing_feature vxlan; fi
fi
grep -q '^Seccomp:' /proc/self/status || say missing_feature seccomp
# systemd-resolved listens on 127.0.0.53, and keeps the servers that it asks in a file of the same form.
resolved=/run/systemd/resolve/resolv.conf
if [ -f "$resolved" ] && grep -Eq '^[[:space:]]*nameserver[[:space:]]+127[.]' /etc/resolv.conf; then
  say upstream_resolv_conf "$resolved"
fi
say effective "$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/1/status)"
"""
_CAP_SYS_RESOURCE = 24
_NEEDED = ("address", "hostname", "boot_id", "architecture", "cgroup_version", "memory_total", "clock")


_MOST = 2**63
"""No size, number or clock of a host comes near it. Greater values do not fit into a float, or a date."""
_SHOWN = 40
T = TypeVar("T")


def parse_facts(text: str) -> HostFacts:
    """The script's output as a value; Unreachable if it is incomplete or cannot be read."""
    single: dict[str, str] = {}
    many: dict[str, list[str]] = {
        "port": [],
        "network": [],
        "missing_program": [],
        "missing_feature": [],
        "own_address": [],
    }
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and key in many:
            many[key].append(value)
        elif separator:
            single[key] = value
    absent = [key for key in _NEEDED if not single.get(key)]
    if absent:
        raise Unreachable(f"the host did not report its {', '.join(absent)}")

    def number(key: str, default: str = "") -> int:
        return _read(key, single.get(key, default), _number)

    capabilities = _read("effective", single.get("effective") or "0", lambda value: _hexadecimal(value, bits=64))
    return HostFacts(
        address=_read("address", single["address"], _address),
        hostname=single["hostname"],
        boot_id=single["boot_id"],
        kernel=single.get("kernel", ""),
        os_name=single.get("os_name", ""),
        architecture=single["architecture"],
        cgroup_version=number("cgroup_version"),
        cpus=number("cpus", "1"),
        memory_total=number("memory_total"),
        swap_total=number("swap_total", "0"),
        disk_free=number("disk_free", "0"),
        disk_total=number("disk_total", "0"),
        clock=_read("clock", single["clock"], _seconds),
        listening_ports=frozenset(
            _read("port", port, lambda value: _hexadecimal(value, bits=16)) for port in many["port"]
        ),
        networks=tuple(many["network"]),
        missing_features=tuple(many["missing_feature"]),
        missing_programs=tuple(many["missing_program"]),
        init=single.get("init", ""),
        addresses=tuple(_read("own_address", address, _address) for address in many["own_address"]),
        upstream_resolv_conf=single.get("upstream_resolv_conf"),
        may_lower_oom_score=bool(capabilities >> _CAP_SYS_RESOURCE & 1),
    )


def _read(key: str, value: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise Unreachable(
            f"the host's facts cannot be read: {key} is {value[:_SHOWN]!a}; no ordinary host reports that: look at its"
            " programs (nproc, df, date, ip) and at who is root there"
        ) from error


def _number(value: str) -> int:
    return _bounded(int(value), _MOST)


def _hexadecimal(value: str, *, bits: int) -> int:
    return _bounded(int(value, 16), 2**bits)


def _seconds(value: str) -> float:
    found = float(value)
    if not (math.isfinite(found) and 0 <= found < _MOST):
        raise ValueError
    return found


def _bounded(found: int, limit: int) -> int:
    if not 0 <= found < limit:
        raise ValueError
    return found


def _address(value: str) -> str:
    """An address by which others could reach it: it goes into the join inventory and a certificate."""
    found = ipaddress.IPv4Address(value)
    if found.is_loopback or found.is_unspecified or found.is_multicast:
        raise ValueError
    return value
