"""The picture of a timeline: lanes of bars, below them the processor time, and the tables as text; one SVG, with no
library and no script.

It has a background of its own, and another one where the viewer asks for dark colours: it can be read in both, and
where a viewer does not know the difference. What a bar or a mark is, its title says, which viewers show under the
pointer; when it began and ran is written beside its lane.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from _timeline_lanes import IN_API, IS_READY, IS_SCHEDULED, RUNNING, STARTING, WAITING, Bar, Lane, Mark
from _timeline_usage import AGENTS, BENCH, COMMAND, COMPONENTS, OTHERS, RUNTIME, UNSEEN, Step

NAMES, PLOT, NUMBERS = 360, 1000, 150
"""Widths: of the lanes' names, the time, and the numbers beside it."""
MARGIN, LANE, HEADING, LINE, LETTER = 12, 15, 24, 15, 6.7
AREAS, PRESSURE = 220, 40
MOST_TICKS = 25
COLOURS: Mapping[str, str] = {
    "kube-apiserver": "#4285d6",
    "etcd": "#e8912d",
    "kubelet": "#3aa76d",
    RUNTIME: "#9467bd",
    "kube-controller-manager": "#d64f4f",
    "kube-scheduler": "#1fb5c9",
    "kube-proxy": "#a9773f",
    AGENTS: "#e377c2",
    "operator": "#a8ad24",
    "haproxy": "#6b6ecf",
    COMMAND: "#d9a520",
    BENCH: "#6f9090",
    OTHERS: "#a0a0a0",
    UNSEEN: "#7a7a7a",
}
IN_NAMES: Mapping[str, str] = {
    **{name: name for name in COMPONENTS},
    "containerd": RUNTIME,
    "node-agent": AGENTS,
    "load-balancer": "haproxy",
}
"""What the name of a lane has → whose colour it gets."""
STYLE = """
text { font: 11px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #1c1c1c; }
.title { font-size: 16px; font-weight: bold; } .host { font-size: 13px; font-weight: bold; } .faint { fill: #666; }
.ground { fill: #fff; } .stripe { fill: #888; fill-opacity: 0.1; } .grid { stroke: #ddd; } .moment { stroke: #c22; }
.moment-text { fill: #b01818; } .frame { stroke: #888; fill: none; } .outline { stroke: #1c1c1c; }
.hollow { fill: #fff; } .mark { fill: #1c1c1c; } .pressure { fill: #c22; fill-opacity: 0.45; }
.waiting { fill: #999; fill-opacity: 0.6; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e6e6; } .faint { fill: #a0a0a0; } .ground, .hollow { fill: #16181c; }
.grid { stroke: #3a3d44; } .moment { stroke: #ff6b6b; } .moment-text { fill: #ff8a8a; } .outline { stroke: #e6e6e6; }
.mark { fill: #e6e6e6; } .pressure { fill: #ff6b6b; }
}
"""


@dataclass(frozen=True)
class Picture:
    """zero: monotonic seconds at which the clock of the benchmark starts; all times that are shown count from there.
    moments: what the benchmark times. processors: of the machine. text: lines below."""

    title: str
    notes: Sequence[str]
    zero: float
    begin: float
    end: float
    lanes: Sequence[Lane]
    moments: Sequence[Mark]
    steps: Sequence[Step]
    processors: int
    text: Sequence[str]


def draw(picture: Picture) -> str:
    return "\n".join(_Drawing(picture).lines()) + "\n"


def tick_seconds(seconds: float) -> int:
    """1, 2 or 5 times a power of ten: so many that the axis stays legible."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if seconds / (factor * power) <= MOST_TICKS:
                return factor * power
        power *= 10


def rows_of(labels: Sequence[tuple[float, str]]) -> list[int]:
    """For labels (x, text), sorted by x: the row of each, so that none lies over another."""
    ends: list[float] = []
    rows = []
    for x, text in labels:
        row = next((number for number, end in enumerate(ends) if end < x), len(ends))
        ends[row : row + 1] = [x + LETTER * (len(text) + 2)]
        rows.append(row)
    return rows


def stacked(steps: Sequence[Step], names: Sequence[str]) -> dict[str, list[tuple[float, float, float]]]:
    """For each name that used anything: (begin of a step, lower edge, upper edge) in processors."""
    edges: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for step in steps:
        lower = 0.0
        for name in names:
            upper = lower + step.used.get(name, 0.0)
            edges[name].append((step.begin, lower, upper))
            lower = upper
    return {name: each for name, each in edges.items() if any(upper > lower for _, lower, upper in each)}


def colour_of(lane: Lane) -> str:
    # The longest first: "kubelet" is no "kube-", but "containerd" stands in names of several.
    found = next((IN_NAMES[part] for part in sorted(IN_NAMES, key=len, reverse=True) if part in lane.name), OTHERS)
    return COLOURS[found]


class _Drawing:
    """y: where the next thing begins."""

    def __init__(self, picture: Picture) -> None:
        self._p = picture
        self._y: float = MARGIN
        self._x0 = MARGIN + NAMES
        self._width = MARGIN + NAMES + PLOT + NUMBERS + MARGIN

    def lines(self) -> list[str]:
        heading = list(self._heading())
        top = self._y
        body = list(self._lanes())
        if self._p.steps:
            body += [*self._areas(), *self._legend()]
        bottom = self._y
        text = list(self._text())
        height = math.ceil(self._y + MARGIN)
        size = f"{self._width} {height}"
        return [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{self._width}" height="{height}">',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" width="{self._width}" height="{height}"/>',
            *heading,
            *self._grid(top, bottom),
            *body,
            *self._moment_lines(top, bottom),
            *text,
            "</svg>",
        ]

    # --- parts, from top to bottom ---

    def _heading(self) -> Iterator[str]:
        self._y += 16
        yield _words(MARGIN, self._y, self._p.title, "title")
        for note in self._p.notes:
            self._y += LINE
            yield _words(MARGIN, self._y, note, "faint")
        self._y += 10
        moments = self._moments()
        labels = [(self._x(mark.at), f"{mark.text} {mark.at - self._p.zero:.1f} s") for mark in moments]
        rows = rows_of(labels)
        for (x, text), row in zip(labels, rows, strict=True):
            # One near the end is written to its left.
            room = x + LETTER * len(text) < self._width
            yield _words(x + 3 if room else x - 3, self._y + LINE * (row + 1), text, "moment-text", end=not room)
        self._y += LINE * (max(rows, default=-1) + 1) + 8

    def _lanes(self) -> Iterator[str]:
        where = None
        for number, lane in enumerate(self._p.lanes):
            if lane.where != where:
                where = lane.where
                self._y += HEADING
                yield _words(MARGIN, self._y - 6, where, "host")
            if number % 2:
                yield f'<rect class="stripe" x="{MARGIN}" y="{self._y:.1f}" {_size(self._width - 2 * MARGIN, LANE)}/>'
            yield from self._lane(lane)
            self._y += LANE

    def _lane(self, lane: Lane) -> Iterator[str]:
        most = int(NAMES / LETTER) - 2
        name = lane.name if len(lane.name) <= most else lane.name[: most - 1] + "…"
        yield _words(MARGIN, self._y + LANE - 4, name, title=lane.name)
        for bar in lane.bars:
            yield from self._bar(bar, colour_of(lane))
        for mark in lane.marks:
            yield from self._mark(mark)
        yield _words(self._x0 + PLOT + 6, self._y + LANE - 4, self._numbers(lane), "faint")

    def _bar(self, bar: Bar, colour: str) -> Iterator[str]:
        end = self._p.end if bar.end is None else bar.end
        if end < self._p.begin or bar.begin > self._p.end:
            return
        left, right = self._x(bar.begin), self._x(end)
        shape = f'x="{left:.1f}" y="{self._y + 2:.1f}" {_size(max(right - left, 1.0), LANE - 4)}'
        paint = {
            STARTING: f'fill="{colour}" fill-opacity="0.35" stroke="{colour}"',
            RUNNING: f'fill="{colour}"',
            WAITING: 'class="waiting"',
        }[bar.kind]
        until = "the end" if bar.end is None else f"{bar.end - self._p.zero:.2f} s"
        title = f"{bar.text}: {bar.begin - self._p.zero:.2f} s to {until}"
        yield f"<rect {shape} {paint}>{_title(title)}</rect>"

    def _mark(self, mark: Mark) -> Iterator[str]:
        if not self._p.begin <= mark.at <= self._p.end:
            return
        x, y = self._x(mark.at), self._y + LANE / 2
        title = _title(f"{mark.text}: {mark.at - self._p.zero:.2f} s")
        if mark.text == IS_READY:
            yield f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
        elif mark.text == IS_SCHEDULED:
            yield f'<circle class="hollow outline" cx="{x:.1f}" cy="{y:.1f}" r="3">{title}</circle>'
        elif mark.text == IN_API:
            yield f'<path class="outline" d="M{x:.1f} {y - 6:.1f}v12">{title}</path>'
        else:
            yield f'<path class="mark" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5-5z">{title}</path>'
            yield _words(x + 8, y + 4, mark.text)

    def _numbers(self, lane: Lane) -> str:
        """When it began, when it ran."""
        if not lane.bars:
            return ", ".join(f"{mark.at - self._p.zero:.1f}" for mark in lane.marks[:3])
        first, last = lane.bars[0], lane.bars[-1]
        runs = next((bar.begin for bar in lane.bars if bar.kind == RUNNING), None)
        shown = [first.begin, *([runs] if runs is not None and runs != first.begin else [])]
        numbers = " → ".join(f"{at - self._p.zero:.1f}" for at in shown)
        return numbers if last.end is None else f"{numbers} ⊣ {last.end - self._p.zero:.1f}"

    def _areas(self) -> Iterator[str]:
        self._y += HEADING
        yield _words(MARGIN, self._y - 6, "processors at work, by what was run", "host")
        highest = max(float(self._p.processors), *(sum(step.used.values()) for step in self._p.steps))
        bottom, scale = self._y + AREAS, AREAS / highest
        for name, edges in stacked(self._p.steps, COMPONENTS).items():
            yield f'<path fill="{COLOURS[name]}" d="{self._outline(edges, bottom, scale)}">{_title(name)}</path>'
        for number in range(math.floor(highest) + 1):
            y = bottom - number * scale
            yield f'<path class="frame" d="M{self._x0} {y:.1f}h{PLOT}"/>'
            yield _words(self._x0 - 6, y + 4, str(number), end=True)
        self._y = bottom
        if any(step.stalled is not None for step in self._p.steps):
            yield from self._pressure()
        self._y += LINE
        yield from self._axis(self._y)
        self._y += 6

    def _outline(self, edges: Sequence[tuple[float, float, float]], bottom: float, scale: float) -> str:
        ends = [*(begin for begin, _, _ in edges[1:]), self._p.steps[-1].end]
        there = [
            f"{self._x(at):.1f} {bottom - upper * scale:.1f}"
            for (begin, _, upper), end in zip(edges, ends, strict=True)
            for at in (begin, end)
        ]
        back = [
            f"{self._x(at):.1f} {bottom - lower * scale:.1f}"
            for (begin, lower, _), end in reversed(list(zip(edges, ends, strict=True)))
            for at in (end, begin)
        ]
        return f"M{'L'.join([*there, *back])}z"

    def _pressure(self) -> Iterator[str]:
        self._y += 12
        yield _words(MARGIN, self._y + PRESSURE / 2, "share of the time in which something waited for one")
        edges = [(step.begin, 0.0, step.stalled or 0.0) for step in self._p.steps]
        self._y += PRESSURE
        yield f'<path class="pressure" d="{self._outline(edges, self._y, PRESSURE)}"/>'
        yield f'<path class="frame" d="M{self._x0} {self._y:.1f}h{PLOT}"/>'

    def _legend(self) -> Iterator[str]:
        x: float = self._x0
        self._y += LINE
        for name in stacked(self._p.steps, COMPONENTS):
            width = LETTER * len(name) + 34
            if x + width > self._width - MARGIN:
                x, self._y = self._x0, self._y + LINE
            yield f'<rect fill="{COLOURS[name]}" x="{x:.1f}" y="{self._y - 9:.1f}" {_size(10, 10)}/>'
            yield _words(x + 14, self._y, name)
            x += width
        self._y += LINE

    def _text(self) -> Iterator[str]:
        for line in self._p.text:
            self._y += LINE
            yield _words(MARGIN, self._y, line)

    # --- over all of it ---

    def _grid(self, top: float, bottom: float) -> Iterator[str]:
        for _, x in self._ticks():
            yield f'<path class="grid" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'
        yield from self._axis(top + 4)

    def _axis(self, y: float) -> Iterator[str]:
        for seconds, x in self._ticks():
            yield _words(x - 3, y, f"{seconds}", "faint")

    def _ticks(self) -> Iterator[tuple[int, float]]:
        every = tick_seconds(self._p.end - self._p.begin)
        first = math.ceil((self._p.begin - self._p.zero) / every)
        for number in range(first, math.floor((self._p.end - self._p.zero) / every) + 1):
            yield number * every, self._x(self._p.zero + number * every)

    def _moments(self) -> list[Mark]:
        return sorted(self._p.moments, key=lambda mark: mark.at)

    def _moment_lines(self, top: float, bottom: float) -> Iterable[str]:
        for mark in self._moments():
            x, title = self._x(mark.at), _title(f"{mark.text}: {mark.at - self._p.zero:.2f} s")
            yield f'<path class="moment" stroke-dasharray="4 3" d="M{x:.1f} {top:.1f}V{bottom:.1f}">{title}</path>'

    def _x(self, at: float) -> float:
        """What lies outside is drawn at the edge."""
        inside = min(max(at, self._p.begin), self._p.end)
        return self._x0 + PLOT * (inside - self._p.begin) / (self._p.end - self._p.begin)


def _words(x: float, y: float, text: str, kind: str = "", *, end: bool = False, title: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    anchor = ' text-anchor="end"' if end else ""
    inner = _clean(text) + (_title(title) if title else "")
    return f'<text{named}{anchor} x="{x:.1f}" y="{y:.1f}" xml:space="preserve">{inner}</text>'


def _title(text: str) -> str:
    return f"<title>{_clean(text)}</title>"


def _clean(text: str) -> str:
    """What XML may hold."""
    return html.escape("".join(letter if letter.isprintable() else " " for letter in text))


def _size(width: float, height: float) -> str:
    return f'width="{width:.1f}" height="{height:.1f}"'
