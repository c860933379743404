"""docs/measurements.md, as a recorded run gives it, and those of benchmarks that are run by themselves. Pure.

Its headings are the same whether a run was recorded or not: other documents link them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import _scale
from _figures import (
    MEMORY,
    NOTHING,
    Figure,
    Rounds,
    in_rounds,
    is_nothing,
    judged,
    markdown,
    median,
    numbers,
    parts_alone,
)
from _floor import FLOOR, floor_of
from _record import Record
from _tree import ROOT

PLACE = ROOT / "docs" / "measurements.md"


@dataclass(frozen=True)
class Section:
    """What one benchmark measures, and how. beside: the head of the column of what is measured against. floor: which
    parts its figures' floors are the sums of; for a run that has measured them."""

    title: str
    text: str
    beside: str = "kubeadm"
    floor: str = ""


PARTS = Section(
    "The floor",
    """\
Parts of a cluster, each alone and started by hand on a host of the same kind, with the same binaries and images, in the
same run: a kubelet without an API, etcd and one API server as processes with no data yet, a scheduler and a
controller-manager beside them, and a power cut of that host. The floor of a figure is the sum of those parts that must
run one after the other, round by round; of parts that run side by side the slower one counts. It has nothing else that
a cluster does, and is no proof: a cluster that starts a part before the one before has ended may come below it.""",
)

SECTIONS: Mapping[str, Section] = {
    "up": Section(
        "Up of one node",
        """\
Both clocks start on a booted host with its binaries in place, containerd running, all images imported and all
certificates issued but the kubelet's. autarky's stops when hosted API server, controller-manager and scheduler,
kube-proxy and both CoreDNS pods are Ready; kubeadm's when kube-proxy and both CoreDNS pods are (flannel is applied the
moment `kubeadm init` returns). Memory is that of the host once everything has rested for 75 s.""",
        floor="""\
The floor is that of a kubelet until its static pod runs, then of etcd and an API server until /readyz, then of the
slower of scheduler and controller-manager until its lease, then of one more pod until it runs.""",
    ),
    "reboot": Section(
        "Power cut of the only node",
        """\
The clock starts with the power. A new pod is that of a Deployment which is created the moment the API answers.""",
        floor="""\
The floor of /readyz is that of an etcd and an API server whose units are enabled; that of a new pod adds the slower of
scheduler and controller-manager until a lease that nobody held, and one pod until it runs.""",
    ),
    "ha_up": Section(
        "Up of three control nodes and a worker",
        """\
As with one node. kubeadm does what its documentation says: `kubeadm init`, two control nodes that join and a worker
that joins, one after the other. Both clocks stop when the complete control plane of all three nodes, kube-proxy on all
four and both CoreDNS pods are Ready, and etcd says on all three that it is. Memory is that of all four hosts.""",
        floor="""\
The floor is that of one node, the same four parts: hosts can do theirs side by side, if they need not share this
machine's cores.""",
    ),
    "ha_reboot": Section(
        "Power cut of three control nodes and a worker",
        """\
All four lose their power at once, and get it back at once. What is measured is as with one node.""",
        floor="""\
The floor is that of one node, of the same parts: it has no election of etcd's, and no other host that boots on the same
cores.""",
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
        "A cluster to the next minor, kubelets included, of one node",
        """\
`autarky upgrade` beside `kubeadm upgrade apply`, of clusters at rest that have all images. Both clocks start with the
command, and stop when API server, controller-manager, scheduler and kube-proxy of the new version are Ready, none of
the former is left, and the Node is Ready with the new kubelet; beside kubeadm it lies on the disk, and is put in its
place and started. Neither drains the node or upgrades etcd, and kubeadm is told to leave CoreDNS alone, whose version
it does not know. The same probe asks both meanwhile, on new and on kept connections, and writes. autarky's command
returns when each step has been watched for 40 s, the kubelet for 10 s, and the standbys have the new version, too.""",
    ),
    "ha_upgrade": Section(
        "A cluster to the next minor, kubelets included, of three control nodes and a worker",
        """\
As with one node. kubeadm does what its documentation says: `kubeadm upgrade apply` on the first control node, then
`kubeadm upgrade node` on the others and on the worker, then each node's kubelet, control nodes first, each command the
moment the one before has ended; nobody drains a node. The probe asks the server that the kubeconfig names.""",
    ),
    "level_0": Section(
        "Level 0 at rest",
        """\
The same cluster of one node, of `selfHosted: "0-4"` and then, moved at run time, of `"1-4"`: the kubelet of the
DaemonSet in force with the host's as its standby, its supervisor and the pod's shell, beside the host's kubelet alone.
The processor time of kubelets is what all of these take in 120 s.""",
        "host's alone",
    ),
    _scale.NAME: Section(_scale.TITLE, _scale.TEXT, "the smallest size"),
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
_NOT_MEASURED = "Not measured yet.\n"
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
    of = dict[str, list[Figure]]() if record is None else {name: record.of(name) for name in (FLOOR, *SECTIONS)}
    alone = parts_alone(of.get(FLOOR, []))
    texts = [_HEAD, _NO_RUN if record is None else _origin(record), _HOW, _floor(of.get(FLOOR, []))]
    for name, section in SECTIONS.items():
        texts.append(_section(section, of.get(name, []), alone=alone))
    for name, section in APART.items():
        own = (apart or {}).get(name)
        texts.append(_section(section, [] if own is None else own.of(name), None if own is None else _origin(own)))
    return "\n".join(texts)


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
    return markdown(("run", "what"), rows)


def _floor(figures: Sequence[Figure]) -> str:
    """figures: of the parts alone."""
    rows = [(figure.name, _measured(figure.ours, figure.unit)) for figure in figures]
    found = markdown((in_rounds(figures), "alone"), rows) if rows else _NOT_MEASURED
    return "\n".join((f"## {PARTS.title}\n", f"{PARTS.text}\n", found))


def _section(
    section: Section, figures: Sequence[Figure], origin: str | None = None, *, alone: Mapping[str, Rounds] | None = None
) -> str:
    """origin: of the run, where that is another one than the document's. alone: part → what it took alone in this run;
    with none there is no column for the floor."""
    texts = [f"## {section.title}\n", f"{section.text}\n", *([] if origin is None else [origin])]
    if figures and figures[0].benchmark == _scale.NAME:
        return "\n".join([*texts, *(markdown(head, rows) for head, rows in _scale.tables(figures))])
    times = [figure for figure in figures if figure.unit != MEMORY]
    memory = [figure for figure in figures if figure.unit == MEMORY]
    if times and alone:
        texts.append(f"{section.floor}\n")
    if times:
        head = (in_rounds(times), *(["floor"] if alone else []), "autarky", section.beside, "ratio", "wanted")
        texts.append(markdown(head, [_time(figure, alone or {}) for figure in times]))
    if memory:
        used = [(f.name, _measured(f.ours, ""), _measured(f.theirs, ""), judged(f)[0]) for f in memory]
        texts.append(markdown((f"{in_rounds(memory)}, {MEMORY}", "autarky", section.beside, "ratio"), used))
    if not figures:
        texts.append(_NOT_MEASURED)
    return "\n".join(texts)


def _time(figure: Figure, alone: Mapping[str, Rounds]) -> tuple[str, ...]:
    floor = floor_of(figure.benchmark, figure.name, alone)
    found = NOTHING if floor is None else _measured(floor, figure.unit)
    sides = (_measured(figure.ours, figure.unit), _measured(figure.theirs, figure.unit))
    return (figure.name, *([found] if alone else []), *sides, *judged(figure))


def _measured(rounds: Rounds, unit: str) -> str:
    """The median, and between what it lies."""
    found, several = numbers(rounds), len(rounds) > 1 and not is_nothing(rounds)
    return median(rounds, unit) + (f" ({min(found):.1f}–{max(found):.1f})" if several else "")
