"""The memory of a cluster: of every process on its hosts but those that any host has (systemd's own, sshd).

Counted is the proportional set size (PSS), with what of it was swapped out: a page that several processes have counts
once, in parts. So the sum over all processes is what they take together, which the sum of their resident sizes is not:
the shims of all pods have one program, and agents one interpreter. Test hosts on one machine share the pages of what
they have from one image, on both sides: of four hosts such a page counts once, where four machines would have four. So
do other clusters that run meanwhile: nothing else should.

What no process has (the page cache, the kernel's own) is not in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from _figures import MEMORY, Figure

from autarky.ports import Host

ALL, OTHERS = "all processes", "others"
# Argument: where the processes are, /proc. A line for each: its PSS in kB, its name, and of a Python AUTARKY_SLOT (or
# "-") and its command line. One that ends meanwhile has no memory, nor has a thread of the kernel; one that has some
# and does not show it has "?" for its PSS. The shell that looks is left out.
SCRIPT = r"""
exec 2>/dev/null
for directory in "$1"/[0-9]*; do
  [ "$directory" != "$1/$$" ] || continue
  pss= name= slot= words=
  while read -r key value unit; do
    case $key in
    Pss: | SwapPss:) pss=$((${pss:-0} + value)) ;;
    esac
  done <"$directory/smaps_rollup"
  if [ -z "$pss" ]; then
    grep -q '^VmRSS:' "$directory/status" || continue
    pss='?'
  fi
  read -r name <"$directory/comm"
  case $name in
  python*)
    slot=$(tr '\0' '\n' <"$directory/environ" | sed -n 's/^AUTARKY_SLOT=//p')
    words=$(tr '\0\n\t' '   ' <"$directory/cmdline")
    ;;
  esac
  printf '%s\t%s\t%s\t%s\n' "$pss" "$name" "${slot:--}" "$words"
done
exit 0
"""
# The kernel cuts the names of processes.
NAME_LENGTH = 15
PROGRAMS = {
    name[:NAME_LENGTH]: name
    for name in (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "haproxy", "kubelet"),
        *("containerd", "containerd-shim", "flanneld", "coredns"),
    )
} | {"catatonit": "pause"}
AGENT, OPERATOR = "autarky.agents.node", "autarky.agents.operator"
OF_ANY_HOST = ("systemd", "(sd-pam)", "dbus-daemon", "agetty", "sshd")


@dataclass(frozen=True)
class Process:
    """kilobytes: None where it does not show them. slot: that of a node agent; else "-". words: the command line of a
    Python."""

    kilobytes: int | None
    name: str
    slot: str
    words: str


def read(said: str) -> list[Process]:
    """What the script says. ValueError where it has seen no process: nothing measured is no small memory."""
    processes = []
    for line in said.removesuffix("\n").split("\n") if said else []:
        kilobytes, name, slot, words = line.split("\t")
        processes.append(Process(None if kilobytes == "?" else int(kilobytes), name, slot, words))
    if not processes:
        raise ValueError("no process was seen")
    return processes


def row(process: Process) -> str | None:
    """Where the process is counted; None for what any host has."""
    module = process.words.partition(" -m ")[2].partition(" ")[0]
    if module == AGENT or module.startswith(f"{AGENT}."):
        return f"node agent, {process.slot}"
    if module == OPERATOR:
        return "operator"
    if process.name.startswith(OF_ANY_HOST):
        return None
    return PROGRAMS.get(process.name, OTHERS)


def by_row(processes: Sequence[Process]) -> dict[str, float]:
    """MiB. ValueError where a process that counts does not show its memory."""
    total: Counter[str] = Counter()
    for process in processes:
        if (where := row(process)) is None:
            continue
        if process.kilobytes is None:
            raise ValueError(f"{process.name} does not show its memory")
        total[where] += process.kilobytes
    return {where: kilobytes / 1024 for where, kilobytes in total.items()}


def together(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of several hosts."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


async def memory(hosts: Sequence[Host]) -> dict[str, float]:
    """MiB by row, of all hosts together."""
    said = await asyncio.gather(*(host.run(["sh", "-c", SCRIPT, "sh", "/proc"], timeout=60) for host in hosts))
    return together([by_row(read(each.stdout.decode(errors="replace"))) for each in said])


def memory_figures(
    benchmark: str, ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]
) -> list[Figure]:
    """All processes first, then each row by its name: what both were found to have, round by round."""
    names = sorted({name for each in (*ours, *theirs) for name in each} - {OTHERS})
    rows = [*names, OTHERS]

    def figure(what: str, a: Sequence[float | None], k: Sequence[float | None]) -> Figure:
        return Figure(benchmark, f"memory: {what}", MEMORY, tuple(a), tuple(k))

    complete = figure(ALL, [sum(each.values()) for each in ours], [sum(each.values()) for each in theirs])
    parts = [figure(name, [m.get(name) for m in ours], [m.get(name) for m in theirs]) for name in rows]
    return [complete, *parts]
