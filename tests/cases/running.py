"""Running cases: one call of pytest a group, the clock looked at before each."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cases.building import build
from cases.listing import PYTEST
from cases.pieces import Piece, seconds_of
from cases.rotation import Candidate, cost, first_group, pick, seconds_left, waits_for_a_first_pass
from cases.short import pace, pick_short, seconds_of_short, shows_too_little
from cases.situation import Situation
from cases.tree import ROOT

STARTED = "AUTARKY_CI_STARTED"
"""When CI began, by the boot clock in seconds: .ci/run sets it."""


LONGEST_OVERRUN = 4 * 60
"""Seconds that a group may take beyond the time that tier 1 has: then it hangs, or the day is slower than ever, and is
interrupted while there is time to say so."""
CLEANS_UP_WITHIN = 90.0


def run_pytest(arguments: Sequence[str], seconds: float | None) -> None:
    """Raises CalledProcessError if a case fails, or if it takes longer: then it is interrupted as by Ctrl-C, so that it
    takes its clusters down, and killed if that lasts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in the background of a shell. A child would inherit that, and not hear the interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen([*PYTEST, *arguments], cwd=ROOT) as pytest:
        try:
            status = pytest.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"interrupted, as it has not ended within {minutes(seconds or 0)}")
            status = _interrupt(pytest)
        except BaseException:
            pytest.kill()
            raise
    if status != 0:
        raise subprocess.CalledProcessError(status, [*PYTEST, *arguments])


def _interrupt(pytest: subprocess.Popen[bytes]) -> int:
    pytest.send_signal(signal.SIGINT)
    try:
        pytest.wait(CLEANS_UP_WITHIN)
    except subprocess.TimeoutExpired:
        pytest.kill()
    return pytest.wait() or 1


def say(sentence: str) -> None:
    """At once, also where the output is a file: pytest writes into the same."""
    print(f"cases: {sentence}", flush=True)


def minutes(seconds: float) -> str:
    """125 → "2:05"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def boot_seconds() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def left_of_ci() -> float | None:
    """Seconds for the rotation; None when this is no run of CI."""
    return _left_by(seconds_left)


def left_for_short() -> float | None:
    """Seconds for tier 1; None when this is no run of CI."""
    return _left_by(seconds_of_short)


def clock(left: Callable[[], float | None]) -> Callable[[], float] | None:
    """`left` as one that always knows; None when this is no run of CI."""
    return None if left() is None else lambda: left() or 0.0


def _left_by(seconds: Callable[[float, float], float]) -> float | None:
    started = os.environ.get(STARTED)
    return None if started is None else seconds(float(started), boot_seconds())


def in_ci() -> bool:
    return STARTED in os.environ or os.environ.get("CI", "") not in {"", "false", "0"}


@dataclass
class Runner:
    """Runs groups of pieces. `record`: as of which run their passes are recorded; None for not at all. `limit`: seconds
    after which a group is interrupted, which is a failure; None where no clock is kept. `seconds` that pytest took for
    all of them, with nothing that was built first; `recorded`: those that their records have."""

    record: int | None
    failed: list[str] = field(default_factory=list)
    limit: Callable[[], float] | None = None
    seconds: float = 0.0
    recorded: float = 0.0

    def run(self, group: Sequence[Piece]) -> None:
        """What has to be built first, then pytest; a failure is kept, and nothing else ends."""
        ids = [case for piece in group for case in piece.ids]
        place, recording = group[0].place, [] if self.record is None else ["--record", f"--record-run={self.record}"]
        say(f"{place}: {len(ids)} of its cases, about {minutes(seconds_of(group))}")
        try:
            build(need for piece in group for need in piece.needs)
            self._run([*recording, *ids], seconds_of(group))
        except subprocess.CalledProcessError:
            self.failed.append(place)

    def _run(self, arguments: Sequence[str], recorded: float) -> None:
        began = boot_seconds()
        try:
            run_pytest(arguments, None if self.limit is None else max(0.0, self.limit()))
        finally:
            self.seconds += boot_seconds() - began
            self.recorded += recorded

    def end(self) -> int:
        """Exit status."""
        if self.failed:
            say(f"FAILED: {', '.join(self.failed)}")
        if self.record is not None:
            say(f"what passed is recorded as of run {self.record}: commit tests/cases/records with the change")
        return 1 if self.failed else 0


def run_groups(groups: Iterable[Sequence[Piece]], runner: Runner) -> int:
    began = boot_seconds()
    for group in groups:
        runner.run(group)
    say(f"all of them took {minutes(boot_seconds() - began)}")
    return runner.end()


def run_short(situation: Situation, left: Callable[[], float] | None) -> int:
    """Tier 1: what the rotation does not have. Exit status."""
    return _all_short(situation) if left is None else _short_by_the_clock(situation, left)


def _all_short(situation: Situation) -> int:
    """In one call of pytest."""
    try:
        build(need for case in situation.cases if not case.rotation for need in case.needs)
        run_pytest(["-m", "not rotation", "tests/e2e"], None)
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


def _short_by_the_clock(situation: Situation, left: Callable[[], float]) -> int:
    """Place by place, each asked for what fits now; once all have had their turn, what did not fit is asked again."""
    runner = Runner(None, limit=lambda: left() + LONGEST_OVERRUN)
    late: Sequence[Piece] = situation.short_pieces
    for _ in range(2):
        late = _run_places(situation, left, runner, late)
    return _end_short(situation, runner, late)


def _run_places(
    situation: Situation, left: Callable[[], float], runner: Runner, waiting: Sequence[Piece]
) -> list[Piece]:
    """Runs what fits of each place, and returns the rest."""
    late: list[Piece] = []
    while True:
        candidates, build_seconds = situation.candidates(waiting)
        slower = pace(runner.seconds, runner.recorded)
        picked = pick_short(candidates, left(), build_seconds, situation.tree, slower)
        group = [candidate.piece for candidate in first_group(picked)]
        if not group:
            return [*late, *waiting]
        runner.run(group)
        late += [piece for piece in waiting if piece.place == group[0].place and piece not in group]
        waiting = [piece for piece in waiting if piece.place != group[0].place]


def _end_short(situation: Situation, runner: Runner, late: Sequence[Piece]) -> int:
    """Exit status. A case that waits fails nothing, but for one that the change touches and nobody has seen pass; and a
    run that has shown too little fails."""
    if runner.recorded:
        say(f"they took {runner.seconds / runner.recorded:.1f} times what is recorded")
    if late:
        say("left to the next run, as CI has not the time for them:")
        print("\n".join(f"  {case}" for piece in late for case in piece.ids), flush=True)
    status = _end(runner, situation.candidates(late)[0])
    if shows_too_little(runner.recorded, seconds_of(situation.short_pieces)):
        say("FAILED: of the short cases too few had the time to run, which shows too little")
        return 1
    return status


def _end(runner: Runner, late: Iterable[Candidate]) -> int:
    lacking = [candidate for candidate in late if candidate.unproven]
    if lacking:
        tell_unproven(lacking)
    return runner.end() or (1 if lacking else 0)


def rotate(situation: Situation, left: Callable[[], float], runner: Runner) -> int:
    """As many groups as fit, decided again before each, as no group takes as long as it was said to."""
    waiting = [piece for piece in situation.pieces if piece.rotates]
    while True:
        candidates, build_seconds = situation.candidates(waiting)
        picked = pick(candidates, left(), build_seconds, situation.tree, records=runner.record is not None)
        group = [candidate.piece for candidate in first_group(picked)]
        if not group:
            break
        runner.run(group)
        waiting = [piece for piece in waiting if piece not in group]
    if runner.record is None and (first := sum(map(waits_for_a_first_pass, candidates))):
        say(f"{first} groups have never passed, and wait for somebody who runs them by hand: ./run test-all")
    if picked.too_long:
        say(f"{minutes(max(0, left()))} are left, which is too short for any other: {len(picked.too_long)} wait")
    return _end(runner, picked.too_long)


def tell_unproven(lacking: Iterable[Candidate]) -> None:
    say("the change touches these, they did not fit, and they have not passed as they are now:")
    for candidate in lacking:
        print(f"  ./run cases run '{candidate.piece.ids[0]}'", flush=True)
    say("run them by hand and commit their records")


def tell(candidates: Iterable[Candidate], build_seconds: dict[str, float]) -> None:
    """A line for each: why it is where it is, and what it would cost alone."""
    for one in candidates:
        marks = [("touched", one.touched), ("never passed", one.never_passed), ("to be built", bool(one.builds))]
        marks += [("passed on this tree", one.passed_here)]
        why = ", ".join(mark for mark, holds in marks if holds) or f"run {one.waits_since}"
        print(f"  {minutes(cost([one], build_seconds)):>6}  {why:24}  {one.piece.ids[0]}{others(one.piece)}")


def others(piece: Piece) -> str:
    more = len(piece.ids) - 1
    return f" and {more} more of its chain" if more else ""
