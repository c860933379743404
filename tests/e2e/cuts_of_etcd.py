"""Power cuts after single writes of what changes etcd: commands that work on hosts from outside, and the agents.

Contract: the cut comes right after a write that succeeded, before any other process of the same command or agent makes
another one. A command dies with it, as on a machine that has the same power. Each case takes a few of the writes of its
kind, others each time (the seed is printed). Where a pass has had none that is drawn, one of those that it has made is
drawn for the next. What is written when all is over is followed by no cut, and stops nobody: whoever wants cuts in that
work as well says so with an `over` that includes it.

With AUTARKY_EVERY_WRITE=1 a case takes all of them, from twenty to a hundred of a kind. They come in chains: what goes
on after a cut is cut again, after the next write that none has come after yet, and what is to be seen is seen at the
end of each chain. So a cut takes as long as its boot and what is left up to the next write, not a complete pass.
AUTARKY_EVERY_WRITE=2/3 takes the second of three parts: by its name a write belongs to the same part in each run, so
the runs of 1/3 to 3/3 have cut after every write. Each says how many writes of its kind there are
(--log-cli-level=INFO).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest
from harness import COMMAND, STATE, Show, TestCluster, environment
from parts import Draw, draw_of, writes_in_parts
from power import EVERY_WRITE, RETURN_SECONDS, Client, Writer, table
from stop_after_etcds_write import PASSED
from stop_after_write import FOLLOWING

LOG = logging.getLogger(__name__)
MOST_PASSES = 3
"""In which no write is made that is drawn: not all of them are made each time."""
TIMEOUT = 7200 if EVERY_WRITE else 900
PATHS = r"/var/lib/etcd(/|$)|/kubernetes/manifests/\.?etcd-|/var/lib/autarky/(state|etcd)|/standby/kube-apiserver(/|$)"
_TRACER = Path(__file__).with_name("stop_after_etcds_write.py")
_HELD = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
"""What follows begins when it is let."""


@dataclass(frozen=True)
class Share:
    """writes: a regular expression for the begins of their names. most: cuts of a case, where not all are wanted.
    in_chains: whether what goes on after a cut is cut again."""

    writes: str
    draw: Draw
    most: int
    in_chains: bool = False

    def again(self, passed: Collection[str]) -> Share | None:
        """After a pass in which none of its writes was drawn; None where none was made that could be drawn."""
        drawn = self.draw.one_of_these(passed)
        return None if drawn is None else replace(self, draw=drawn)


@dataclass
class Traced:
    """What is known of a pass, as it comes."""

    cut_after: str | None = None
    passed: list[str] = field(default_factory=list)
    """Writes of the share that were made and not drawn."""

    @property
    def made(self) -> list[str]:
        """One that was drawn may have been made too late for a cut."""
        return self.passed if self.cut_after is None else [*self.passed, self.cut_after]

    def read(self, output: Iterable[str]) -> None:
        for line in map(str.strip, output):
            if line.startswith(PASSED):
                self.passed.append(line.removeprefix(PASSED))
            else:
                self.cut_after = line


def of_kinds(kinds: dict[str, str], *, one_of: int, most: int = 3) -> pytest.MarkDecorator:
    """A case for each of these kinds of writes, and one for what is of none: of `one_of` writes one is drawn."""
    parts = writes_in_parts(kinds)
    found = [(writes, one_of, most) for writes in parts.values()]
    return pytest.mark.parametrize("share", found, ids=parts, indirect=True)


@pytest.fixture
def share(request: pytest.FixtureRequest, seed: str) -> Share:
    writes, one_of, most = request.param
    return share_of(writes, seed, one_of=one_of, most=most)


def share_of(writes: str, seed: str, *, one_of: int, most: int) -> Share:
    """What a run draws of these writes, or the part that was asked for."""
    draw = draw_of(seed, one_of, (), EVERY_WRITE)
    return Share(writes, draw, 1000 if EVERY_WRITE else most, in_chains=EVERY_WRITE is not None)


def any_write(seed: str, *, one_of: int) -> Share:
    """One cut in any run, for what can be done only once, or where one at random is enough."""
    return Share("", Draw(seed, one_of, ()), 1)


@contextmanager
def _stopped_after_write(
    cluster: TestCluster, node: str, command: int, share: Share, taken: Iterable[str]
) -> Iterator[Traced]:
    """As `power.stopped_after_drawn_write`; command: a process that is followed instead of the agents, or 0."""
    init = 0 if command else _init_process(cluster, node)
    which = [PATHS, share.writes, json.dumps(sorted(taken)), json.dumps(asdict(share.draw))]
    found = Traced()
    argv = [sys.executable, str(_TRACER), str(init), str(command), *which]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdout is not None
        output = tracer.stdout
        assert output.readline().strip() == FOLLOWING
        reader = threading.Thread(target=found.read, args=(output,))
        reader.start()
        try:
            yield found
        finally:
            tracer.kill()
            reader.join()


def _init_process(cluster: TestCluster, node: str) -> int:
    lab = json.loads((STATE / "autarky/labs" / cluster.name / "lab.json").read_text())
    return int(lab["hosts"][node]["pid"])


def cut_in_command(
    cluster: TestCluster,
    argv: Sequence[str],
    share: Share,
    taken: Iterable[str],
    hosts: Sequence[str] = ("n1",),
    *,
    refused: Callable[[], object] | None = None,
) -> Traced:
    """Start the command, and cut the power of these hosts after one of its writes; where it had none that is drawn it
    has ended well, or what is done where it was `refused` has."""
    with tempfile.TemporaryFile("w+") as said:
        command = subprocess.Popen(
            [*_HELD, *COMMAND, *argv],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            with _stopped_after_write(cluster, hosts[0], command.pid, share, taken) as found:
                command.send_signal(signal.SIGCONT)
                while found.cut_after is None and command.poll() is None:
                    time.sleep(0.1)
                if found.cut_after is not None:
                    _kill_with_children(command.pid)  # all stand still; what enters a host has a foot outside of it
                    cluster.announce()
                    cluster.autarky("lab", "cut", "--lab", cluster.name, *hosts)
        finally:
            _kill_with_children(command.pid)
            status = command.wait()
        if found.cut_after is None and status and refused is not None:
            refused()
            return found
        said.seek(0)
        assert found.cut_after is not None or status == 0, said.read()[-4000:]
        return found


def _kill_with_children(process: int) -> None:
    for child in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for one in child.read_text().split():
                _kill_with_children(int(one))
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def cut_after_writes_of(
    cluster: TestCluster,
    argv: Sequence[str],
    share: Share,
    *,
    again: Callable[[], object],
    prepare: Callable[[], object] = lambda: None,
    check: Callable[[], object],
    hosts: Sequence[str] = ("n1",),
    during: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[tuple[float, float, str]]:
    """Of a command: (seconds until the API answers after power on, until it was run `again`, the write). `during` it,
    up to the cut, somebody may write."""
    cuts: list[tuple[float, float, str]] = []
    passes = 0
    while len(cuts) < share.most:
        prepare()
        taken = [write for _, _, write in cuts]
        with during():
            found = cut_in_command(cluster, argv, share, taken, hosts)
        if found.cut_after is None:
            check()
            passes += 1
            if cuts:
                _say_how_many(cuts, found)
                break
            share = redrawn(share, found, passes)
            continue
        cut_after: str | None = found.cut_after
        while cut_after is not None:
            before, began, taken = cut_after, time.monotonic(), [*taken, cut_after]
            cluster.autarky("lab", "start", "--lab", cluster.name, *hosts, "-o", "plain")
            on = time.monotonic() - began
            if share.in_chains:
                cut_after = cut_in_command(cluster, argv, share, taken, hosts, refused=again).cut_after
            else:
                again()
                cut_after = None
            cuts.append((on, time.monotonic() - began, before))
        cluster.announcements_end()
        check()
    return cuts


def _say_how_many(cuts: list[tuple[float, float, str]], uncut: Traced) -> None:
    """uncut: the last pass, which has passed all writes of the kind."""
    LOG.info(f"cut after {len(cuts)} of {len(uncut.made)} writes")


def redrawn(share: Share, found: Traced, passes: int) -> Share:
    """After so many passes without a cut."""
    drawn = share.again(found.made)
    assert drawn is not None, "none of these writes was made"
    assert passes < MOST_PASSES, f"no write was drawn in time in {passes} passes, of the last: {found.made}"
    return drawn


def cut_after_writes_of_agents(
    cluster: TestCluster,
    share: Share,
    *,
    node: str,
    begin: Callable[[], object],
    over: Callable[[], object],
    check: Callable[[], object],
    writer: Writer,
    seconds: float,
) -> list[tuple[float, float, str]]:
    """`begin` makes the agents work until it is `over`, with no help after a cut: (seconds until the API answers after
    power on, until it is over, the write). All the time but while it has no power somebody writes."""
    cuts: list[tuple[float, float, str]] = []
    passes = 0
    while len(cuts) < share.most:
        acknowledged = len(writer.acknowledged)
        taken = [write for _, _, write in cuts]
        with _stopped_after_write(cluster, node, 0, share, taken) as found, writer.writing():
            begin()
            _until_made_or(over, cluster, found, seconds)
            cut_after = _cut_if_made(cluster, node, found)
        if cut_after is None:
            check()
            passes += 1
            if cuts:
                _say_how_many(cuts, found)
                break
            share = redrawn(share, found, passes)
            continue
        assert len(writer.acknowledged) > acknowledged, "nothing was written that could be lost"
        while cut_after is not None:
            before, began, taken = cut_after, time.monotonic(), [*taken, cut_after]
            cluster.autarky("lab", "start", "--lab", cluster.name, node, "-o", "plain")
            more = _stopped_after_write(cluster, node, 0, share, taken) if share.in_chains else nullcontext(Traced())
            with more as found:
                _until_made_or(Client(cluster).answers, cluster, found, RETURN_SECONDS)
                answers = time.monotonic()
                with writer.writing():
                    _until_made_or(over, cluster, found, seconds)
                    cut_after = _cut_if_made(cluster, node, found)
            cuts.append((answers - began, time.monotonic() - began, before))
        cluster.announcements_end()
        check()
    return cuts


def _until_made_or(over: Callable[[], object], cluster: TestCluster, found: Traced, seconds: float) -> None:
    what = "a write was made, or what was begun is over"
    cluster.wait(what, lambda: found.cut_after is not None or over(), seconds=seconds, pause=0.5)


def _cut_if_made(cluster: TestCluster, node: str, found: Traced) -> str | None:
    """The write. One that is made later is too late, at whatever moment it is drawn."""
    cut_after = found.cut_after
    if cut_after is not None:
        cluster.announce()
        cluster.autarky("lab", "cut", "--lab", cluster.name, node)
    return cut_after


def shown(show: Show, what: str, cuts: list[tuple[float, float, str]]) -> None:
    show(table(f"power cut after a write of {what}", ("on", "ended", "write"), cuts))
