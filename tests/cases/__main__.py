"""`./run cases`: shows, checks and corrects the list of cases, and runs parts of it.

Exit status: 0; 1 when something is wrong with the list, when a case failed or is stale; 2 for a command that cannot be
carried out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from cases import records
from cases.changes import UnknownBase
from cases.checks import former_names, is_certain, problems
from cases.pieces import seconds_of
from cases.records import BadRecord, Record, latest_run
from cases.rotation import OLD_DAYS, SHARE_SECONDS, SLOWER, grown_old, longer_than_a_share, pick, turn
from cases.running import (
    Runner,
    boot_seconds,
    clock,
    in_ci,
    left_for_short,
    left_of_ci,
    minutes,
    others,
    rotate,
    run_groups,
    run_short,
    say,
    tell,
)
from cases.shards import parse_shard, shard
from cases.situation import Situation
from cases.tree import ROOT


def check(_: argparse.Namespace) -> int:
    situation = Situation()
    found = problems(situation.cases, situation.records, situation.scenarios)
    for problem in found:
        say(problem)
    if situation.base is None:
        say("no other commit is here: nobody looks at what is touched")
    else:
        say(f"what is touched, and which cases are new, is seen by comparing with {situation.base}")
    _tell_turn(situation)
    return 1 if found else 0


def show_turn(_: argparse.Namespace) -> int:
    situation = Situation()
    _tell_turn(situation)
    long = longer_than_a_share(situation.pieces)
    say(f"{len(long)} groups may take longer than these {SHARE_SECONDS // 60} minutes, and are run by hand only:")
    for piece in long:
        print(f"  {minutes(SLOWER * seconds_of([piece])):>6}  {piece.ids[0]}{others(piece)}")
    return 0


def show_stale(_: argparse.Namespace) -> int:
    situation = Situation()
    for case in situation.stale:
        print(f"  {situation.records.get(case.id, Record()).date or 'never':10}  {case.id}")
    hours = seconds_of(situation.around(situation.stale)) / 3600
    say(f"{_tell_stale(situation)}; with the rest of their chains they take {hours:.1f} h")
    return 1 if situation.stale else 0


def _tell_turn(situation: Situation) -> None:
    rotating = [piece for piece in situation.pieces if piece.rotates]
    cases = sum(case.rotation for case in situation.cases)
    total = f"{cases} cases, {seconds_of(rotating) / 3600:.1f} h"
    say(f"the rotation has {total}; a turn is {turn(rotating)} runs of {SHARE_SECONDS // 60} minutes")
    unknown = sum(not record.passed for record in situation.records.values())
    say(f"the latest run is {latest_run(situation.records)}; {unknown} of all cases have not passed yet")
    say(f"{_tell_stale(situation)}: ./run cases stale")
    for case, passed in grown_old(rotating, situation.records).items():
        old = f"passed last on {passed}, more than {OLD_DAYS} days before the latest pass"
        say(f"{case} {old}: ./run cases run '{case}'")


def _tell_stale(situation: Situation) -> str:
    return f"{len(situation.stale)} of {len(situation.cases)} cases have not passed on this very tree"


def pick_or_run(arguments: argparse.Namespace) -> int:
    left = _clock(arguments.minutes)
    if left is None:
        say("this is no run of CI, which is what the rotation belongs to; --minutes N gives it some")
        return 0 if arguments.run else 2
    situation = Situation()
    if arguments.run:
        return rotate(situation, left, _runner(situation, arguments))
    candidates, build_seconds = situation.candidates(piece for piece in situation.pieces if piece.rotates)
    picked = pick(candidates, left(), build_seconds, situation.tree, records=arguments.record)
    say(f"{minutes(left())} for the rotation, which would take:")
    tell(picked.taken, build_seconds)
    say("what would not fit:")
    tell(picked.too_long, build_seconds)
    return 0


def run_short_cases(_: argparse.Namespace) -> int:
    return run_short(Situation(), clock(left_for_short))


def _clock(given_minutes: float | None) -> Callable[[], float] | None:
    """Tells how many seconds are left."""
    if given_minutes is not None:
        end = boot_seconds() + 60 * given_minutes
        return lambda: end - boot_seconds()
    return clock(left_of_ci)


def run_shard(arguments: argparse.Namespace) -> int:
    number, of = parse_shard(arguments.shard)
    situation = Situation()
    groups = shard(situation.pieces, number, of)
    length = sum(seconds_of(group) for group in groups)
    say(f"shard {number}/{of}: {len(groups)} groups, about {minutes(length)}")
    if arguments.run:
        return run_groups(groups, _runner(situation, arguments))
    for group in groups:
        print(f"{minutes(seconds_of(group)):>6}  {group[0].place}")
        print("\n".join(f"        {case}" for piece in group for case in piece.ids))
    return 0


def run_cases(arguments: argparse.Namespace) -> int:
    """The pieces that those cases are of: a case of a chain brings the others."""
    situation = Situation()
    unknown = [name for name in arguments.cases if not any(_is_named(case.id, [name]) for case in situation.cases)]
    if unknown:
        raise ValueError(f"no case is called {', '.join(unknown)}")
    wanted = situation.around(case for case in situation.cases if _is_named(case.id, arguments.cases))
    return run_groups(shard(wanted, 1, 1), Runner(situation.run_by_hand if arguments.record else None))


def _is_named(case: str, names: Sequence[str]) -> bool:
    return any(case == name or case.startswith((f"{name}[", f"{name}::")) for name in names)


def _runner(situation: Situation, arguments: argparse.Namespace) -> Runner:
    """What is recorded is of a run of its own: whoever is not in it has waited for one run more."""
    return Runner(situation.next_run if arguments.record else None)


def add(_: argparse.Namespace) -> int:
    situation = Situation()
    known, scenarios = situation.records, situation.scenarios
    renamed = {
        case: old
        for case, old in former_names(situation.cases, known, scenarios).items()
        if is_certain(case, old, known, scenarios)
    }
    for case in situation.cases:
        if case.id in renamed:
            say(f"not added: ./run cases rename '{renamed[case.id]}' '{case.id}'")
        elif case.id not in known:
            records.write(case.id, Record(run=latest_run(known)))
            say(f"added {case.id}")
    return 1 if renamed else 0


def rename(arguments: argparse.Namespace) -> int:
    for old, new in records.move(arguments.old, arguments.new):
        say(f"{old} is {new}")
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="./run cases", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, does: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(does=does)
        return added

    command("check", check, "what is wrong with the list of cases; tier 0 of CI")
    command("turn", show_turn, "how long a turn of the rotation is, and what no run of CI has the time for")
    command("stale", show_stale, "the cases whose last pass is not of this very tree; fails when there are any")
    picks = command("pick", pick_or_run, "what the rotation would take now")
    picks.add_argument("--minutes", type=float, help="how much time it has (default: what CI has left)")
    command("short", run_short_cases, "run tier 1 of CI: the cases that are not left to the rotation")
    shards = command("shard", run_shard, "the cases of one part of all")
    shards.add_argument("--shard", default="1/1", metavar="I/N", help="which part (default: all)")
    runs = command("run", run_cases, "run cases by hand and record them; a module's or a test's name means all of it")
    runs.add_argument("cases", nargs="+", metavar="CASE")
    for one in (picks, shards):
        one.add_argument("--run", action="store_true", help="run them, instead of showing them")
    for one in (picks, shards, runs):
        one.add_argument(
            "--record", action=argparse.BooleanOptionalAction, default=not in_ci(), help="record passes (never in CI)"
        )
    command("add", add, "list the cases that are new")
    renames = command("rename", rename, "carry the record of a case, a test or a module along to its new name")
    renames.add_argument("old", metavar="OLD")
    renames.add_argument("new", metavar="NEW")
    return top


def main() -> int:
    arguments = parser().parse_args()
    # Also those that scenarios come from, as in tests/conftest.py; for whatever is run or built from here, too.
    os.environ.setdefault("AUTARKY_RELEASES", str(ROOT / "tests/releases"))
    try:
        status: int = arguments.does(arguments)
    except (ValueError, RuntimeError, BadRecord, UnknownBase) as error:
        say(str(error))
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
