"""docs/measurements.md, as a recorded run gives it, and those of benchmarks that are run by themselves. Pure.

Its headings are the same whether a run was recorded or not: other documents link them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from _figures import MEMORY, Figure, Rounds, is_nothing, judged, median, numbers
from _record import Record
from _tree import ROOT

PLACE = ROOT / "docs" / "measurements.md"


@dataclass(frozen=True)
class Section:
    """What one benchmark measures, and how. beside: the head of the column of what is measured against."""

    title: str
    text: str
    beside: str = "kubeadm"


SECTIONS: Mapping[str, Section] = {
    "up": Section(
        "Up of one node",
        """\
Both clocks start on a booted host with its binaries in place, containerd running, all images imported and all
certificates issued but the kubelet's. autarky's stops when hosted API server, controller-manager and scheduler,
kube-proxy and both CoreDNS pods are Ready; kubeadm's when kube-proxy and both CoreDNS pods are (flannel is applied the
moment `kubeadm init` returns). Memory is that of the host once everything has rested for 75 s.""",
    ),
    "reboot": Section(
        "Power cut of the only node",
        """\
The clock starts with the power. A new pod is that of a Deployment which is created the moment the API answers.""",
    ),
    "ha_up": Section(
        "Up of three control nodes and a worker",
        """\
As with one node. kubeadm does what its documentation says: `kubeadm init`, two control nodes that join and a worker
that joins, one after the other. Both clocks stop when the whole control plane of all three nodes, kube-proxy on all
four and both CoreDNS pods are Ready, and etcd says on all three that it is. Memory is that of all four hosts.""",
    ),
    "ha_reboot": Section(
        "Power cut of three control nodes and a worker",
        """\
All four lose their power at once, and get it back at once. What is measured is as with one node.""",
    ),
}

APART: Mapping[str, Section] = {
    "quorum": Section(
        "Quorum lost",
        """\
Of three control nodes two lose their power, and stay off. The clock starts half a minute later: on one side with
`autarky etcd recover-quorum`, on the other with what etcd's documentation has done by hand on a cluster of kubeadm's,
the next command the moment the one before has ended: who has to read first, or to think, takes longer. It stops when
the API takes a write, and the second figure's when the last command has returned. autarky waits 15 s of it for an etcd
that comes back by itself.""",
        "by hand",
    ),
    "backup": Section(
        "A backup of 1 GB, and its restore",
        """\
One node with half a million ConfigMaps of 1 kB and 400 of 1 MiB. Memory is the highest resident size of the program
that makes the backup; beside it runs the etcd that tries the snapshot, of which the pages of its file are left out. The
99th percentiles are those of `autarky bench probe --rate 100`, beside the same cluster at rest before. `autarky
restore`, from the command until it returns, is beside `etcdutl snapshot restore` alone, of the same snapshot on the
node's disk.""",
        "without",
    ),
    "upgrade": Section(
        "The control plane to the next minor, of one node",
        """\
`autarky upgrade` beside `kubeadm upgrade apply`, of clusters at rest that have all images. Both clocks start with the
command, and stop when API server, controller-manager, scheduler and kube-proxy of the new version are Ready and none of
the former is left. Neither upgrades kubelets nor etcd, and kubeadm is told to leave CoreDNS alone, whose version it
does not know. The same probe asks both meanwhile, on new and on kept connections, and writes. autarky's command
returns when each step has been watched for 40 s, and the standbys have the new version, too.""",
    ),
    "ha_upgrade": Section(
        "The control plane to the next minor, of three control nodes and a worker",
        """\
As with one node. kubeadm does what its documentation says: `kubeadm upgrade apply` on the first control node, then
`kubeadm upgrade node` on the others, each command the moment the one before has ended; nobody drains a node. The probe
asks the server that the kubeconfig names.""",
    ),
}
"""Not part of a run of all: each is recorded by itself."""

_HEAD = """\
# Measurements

autarky beside kubeadm: same binaries, same images, same kind of hosts (test hosts on one machine), in turn, in one run
of `./run bench`. This is written from the record of that run, `bench/measurements.json`;
[how one is made](../CONTRIBUTING.md#benchmarks).
"""
_NO_RUN = """\
No run has been recorded yet. So this document has no figures.
"""
_HOW = """\
## How to read it

A figure is the median of all rounds, with the lowest and the highest behind it. The ratio is autarky's median divided
by kubeadm's: less than 1 is in autarky's favour. Where a ratio is wanted, `./run bench` fails when it is missed.

Keys are of the same kind on both sides (ECDSA P-256). Kubelets' certificates are issued on the clock, on both sides;
all others before it starts.

Memory is the proportional set size (PSS) of every process on the hosts but those that any host has (systemd's own,
sshd), with what of it was swapped out: a page that several processes have counts once, in parts. Hosts on one machine
share the pages of one image, on both sides. What no process has, such as the page cache, is not in it.
"""


def document(record: Record | None, apart: Mapping[str, Record] | None = None) -> str:
    """apart: records of the benchmarks that are run by themselves, those that there are, by name."""
    parts = [_HEAD, _NO_RUN if record is None else _origin(record), _HOW]
    parts += [_section(section, [] if record is None else record.of(name)) for name, section in SECTIONS.items()]
    for name, section in APART.items():
        own = (apart or {}).get(name)
        parts.append(_section(section, [] if own is None else own.of(name), None if own is None else _origin(own)))
    return "\n".join(parts)


def _origin(record: Record) -> str:
    machine = record.machine
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    rows = [
        ("date", record.date),
        ("tree", f"commit `{record.began.own.commit}`"),
        ("machine", f"{machine.cores} cores, {machine.memory / 2**30:.1f} GiB of memory"),
        ("kernel", f"Linux {machine.kernel}, cgroup v{machine.cgroup}"),
        ("versions", versions),
    ]
    return _table(("run", "what"), rows)


def _section(section: Section, figures: Sequence[Figure], origin: str | None = None) -> str:
    """origin: of the run, where that is another one than the document's."""
    parts = [f"## {section.title}\n", f"{section.text}\n", *([] if origin is None else [origin])]
    times = [figure for figure in figures if figure.unit != MEMORY]
    memory = [figure for figure in figures if figure.unit == MEMORY]
    if times:
        seconds = [(f.name, _measured(f.ours, f.unit), _measured(f.theirs, f.unit), *judged(f)) for f in times]
        parts.append(_table((_rounds(times), "autarky", section.beside, "ratio", "wanted"), seconds))
    if memory:
        used = [(f.name, _measured(f.ours, ""), _measured(f.theirs, ""), judged(f)[0]) for f in memory]
        parts.append(_table((f"{_rounds(memory)}, {MEMORY}", "autarky", section.beside, "ratio"), used))
    if not figures:
        parts.append("Not measured yet.\n")
    return "\n".join(parts)


def _rounds(figures: Sequence[Figure]) -> str:
    rounds = max(len(figure.ours) for figure in figures)
    return f"in {rounds} round{'s' if rounds > 1 else ''}"


def _measured(rounds: Rounds, unit: str) -> str:
    """The median, and between what it lies."""
    found, several = numbers(rounds), len(rounds) > 1 and not is_nothing(rounds)
    return median(rounds, unit) + (f" ({min(found):.1f}–{max(found):.1f})" if several else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" if line[0] != "---" else f"|{'|'.join(line)}|\n" for line in lines)
