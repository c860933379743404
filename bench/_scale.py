"""What the benchmark with hollow nodes found: its figures, what of them is limited, and its tables in
docs/measurements.md. Pure.

Limits, at the largest size:
  `autarky status` within a second;
  memory of the operator: a fifth more than at the smallest size, and what a watch of all Nodes must hold (not what it
  holds of the pods on them, which is shown beside it);
  memory of the node agent, in either slot: a fifth more, since it watches its own Node only;
  processor time and requests of both: beside the second size, no more than there are more nodes.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from _figures import MEMORY, NOTHING, SECONDS, Figure, Rounds, in_rounds, judged, median, numbers
from _scale_looks import CLIENTS, Size

NAME = "scale"
SIZES = (3, 200, 500, 1000)
OPERATOR, AGENTS = "operator", ("node agent, hosted", "node agent, standby")
ROWS = (OPERATOR, *AGENTS, "kube-apiserver", "etcd", "kube-controller-manager")
"""As memory is counted."""
COMMANDS = ("status", "doctor", "plan")
NODES, PODS = "Nodes", "pods of kube-system"
MOST_STATUS, MORE_MEMORY = 1.0, 0.2
_GROW = (f"processor time in a minute: {OPERATOR}", f"processor time in a minute: {AGENTS[0]}")
_GROWTH = re.compile(r"from ([\d,]+) to ([\d,]+) nodes: (.+)")
_AT_SIZE = re.compile(r"([\d,]+) nodes: (.+)")

TITLE = "Hollow nodes"
TEXT = """\
One control plane on one node, and hollow nodes beside it: Nodes that kwok keeps, with a lease renewed every 10 s, a
status written every 300 s, and the pods of kube-proxy, flannel and the node agent on each. They are created evenly over
300 s, so that what they write is spread as well. At each size everything rests for a minute. Then the processor time of
120 s is read, and memory; then the requests of 120 s are counted, in the log of the API server, which has them for so
long only; and each command is timed three times, of which the median is shown. The size of Nodes is that of all, as
JSON and as the Python objects that a watch holds; of the pods it is what the operator keeps. kwok itself runs beside
the host, and is in none of the figures."""


@dataclass(frozen=True)
class AtSize:
    """With so many hollow nodes. memory: MiB by row. processor: seconds in a minute by row. requests: in a minute by
    client. commands: seconds. held: of what is watched. SystemExit where something was not measured: it would be within
    every limit."""

    nodes: int
    memory: Mapping[str, float]
    processor: Mapping[str, float]
    requests: Mapping[str, float]
    commands: Mapping[str, float]
    held: Mapping[str, Size]

    def __post_init__(self) -> None:
        lacking = [
            *(f"the memory of {one}" for one in ROWS if not self.memory.get(one)),
            *(f"the processor time of {one}" for one in ROWS if one not in self.processor),
            *(f"the requests of {one}" for one in CLIENTS if not self.requests.get(one)),
            *(f"the time of {one}" for one in COMMANDS if not self.commands.get(one)),
            *(f"the size of {one}" for one in (NODES, PODS) if one not in self.held or not self.held[one].json),
        ]
        if lacking:
            raise SystemExit(f"{NAME}: with {self.nodes} hollow nodes nothing was measured of {', '.join(lacking)}")

    @property
    def values(self) -> dict[str, tuple[str, float]]:
        """What was measured → (its unit, the figure)."""
        found = {f"memory: {one}": (MEMORY, self.memory[one]) for one in ROWS}
        found |= {f"processor time in a minute: {one}": (SECONDS, self.processor[one]) for one in ROWS}
        found |= {f"requests in a minute: {one}": ("", self.requests[one]) for one in CLIENTS}
        found |= {f"autarky {one}": (SECONDS, self.commands[one]) for one in COMMANDS}
        for name, size in self.held.items():
            found[f"{name}, as JSON"] = (MEMORY, size.json / 2**20)
            found[_as_python(name)] = (MEMORY, size.python / 2**20)
        return found


def _as_python(name: str) -> str:
    return f"{name}, as Python objects"


# --- figures -----------------------------------------------------------------------------------------------


def figures(rounds: Sequence[Sequence[AtSize]]) -> list[Figure]:
    """rounds: in each the same sizes, the smallest first."""
    by_size = [_at_one_size(found) for found in zip(*rounds, strict=True)]
    sizes = [each.nodes for each in rounds[0]]
    first, last = by_size[0], by_size[-1]
    found = []
    for nodes, here in zip(sizes, by_size, strict=True):
        limits = _limits(first, last) if here is last and here is not first else {}
        for name, (unit, ours) in here.items():
            beside: Rounds = (None,) * len(ours) if here is first else first[name][1]
            found.append(Figure(NAME, f"{nodes:,} nodes: {name}", unit, ours, beside, **limits.get(name, {})))
    return [*found, *_growth(sizes, by_size)]


_Values = Mapping[str, tuple[str, Rounds]]


def _at_one_size(found: Sequence[AtSize]) -> _Values:
    rounds = [each.values for each in found]
    return {name: (unit, tuple(each[name][1] for each in rounds)) for name, (unit, _) in rounds[0].items()}


def _limits(first: _Values, last: _Values) -> dict[str, dict[str, float]]:
    """What of the largest size is limited → how, as a figure has it."""
    own = {one: MORE_MEMORY * _median(first[f"memory: {one}"]) for one in (OPERATOR, *AGENTS)}
    own[OPERATOR] += _median(last[_as_python(NODES)])
    more = {f"memory: {one}": {"more": round(mebibytes, 1)} for one, mebibytes in own.items()}
    return {**more, "autarky status": {"most": MOST_STATUS}}


def _median(value: tuple[str, Rounds]) -> float:
    return statistics.median(numbers(value[1]))


def _growth(sizes: Sequence[int], by_size: Sequence[_Values]) -> list[Figure]:
    """From the second size on: at the smallest one, next to nothing is due to nodes."""
    if len(sizes) < len(("smallest", "from", "to")):
        return []
    (least, most), (fewer, all_of_them) = (sizes[1], sizes[-1]), (by_size[1], by_size[-1])
    names = [*_GROW, *(f"requests in a minute: {one}" for one in CLIENTS)]
    return [
        Figure(
            *(NAME, f"from {least:,} to {most:,} nodes: {name}", all_of_them[name][0]),
            *(all_of_them[name][1], fewer[name][1], most / least),
        )
        for name in names
    ]


# --- docs/measurements.md ----------------------------------------------------------------------------------


def tables(found: Sequence[Figure]) -> list[tuple[Sequence[str], Sequence[Sequence[str]]]]:
    """Head and rows of each: a column for each size, and what is wanted of the largest; then how they grow."""
    at: dict[str, dict[str, Figure]] = {}
    for figure in found:
        if (matched := _AT_SIZE.fullmatch(figure.name)) is not None:
            at.setdefault(matched[2], {})[matched[1]] = figure
    sizes = list(dict.fromkeys(size for of_it in at.values() for size in of_it))
    head = (f"{in_rounds(found)}, of nodes", *sizes, "wanted")
    rows = [(name, *(_cell(of_it.get(size)) for size in sizes), _wanted(of_it.values())) for name, of_it in at.items()]
    grown = [(figure, matched) for figure in found if (matched := _GROWTH.fullmatch(figure.name)) is not None]
    growth = [(f"{matched[3]}, {matched[2]} beside {matched[1]} nodes", *judged(figure)) for figure, matched in grown]
    return [(head, rows), *([(("growth", "ratio", "wanted"), growth)] if growth else [])]


def _cell(figure: Figure | None) -> str:
    return NOTHING if figure is None else median(figure.ours, figure.unit)


def _wanted(of_sizes: Iterable[Figure]) -> str:
    said = [judged(figure)[1] for figure in of_sizes]
    return next((one for one in said if one != NOTHING), NOTHING)
