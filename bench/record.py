"""Make docs/measurements.md of a run of all benchmarks, whose record becomes bench/measurements.json. Commit both. The
record of a benchmark that is run by itself (such as `quorum`) becomes bench/apart/NAME.json instead.

    ./run bench record FILE

Refused is a run that does not show what it says: of a tree that nobody can have or that changed meanwhile, of another
tree's commands, of too few rounds, or without one of the benchmarks. (Of one that is run by itself a single round is
enough.) One that has missed what is wanted is taken: the document says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _document import APART, PLACE, SECTIONS, document
from _floor import FLOOR
from _record import RECORDED, RECORDED_APART, ROUNDS, Record, read, recorded, recorded_apart, written
from _tree import named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="what `./run bench` has written")
    file = parser.parse_args().file
    try:
        record = read(file.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{file} is no record of a run: {error}") from error
    if reasons := refusals(record):
        raise SystemExit("\n".join((f"{file} is not taken:", *(f"  - {reason}" for reason in reasons))))
    name = _apart(record)
    place = RECORDED if name is None else RECORDED_APART / f"{name}.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(written(record))
    PLACE.write_text(document(recorded(), recorded_apart()))
    print(f"written: {place} and {PLACE}")


def refusals(record: Record) -> list[str]:
    """Why the document cannot be of this run: what was seen, and what to do."""
    return [*_of_trees(record), *([] if _apart(record) is not None else _of_figures(record))]


def _apart(record: Record) -> str | None:
    """The benchmark that was run by itself, if it is the record of one."""
    names = {figure.benchmark for figure in record.figures}
    return names.pop() if len(names) == 1 and names < APART.keys() else None


def _of_trees(record: Record) -> list[str]:
    own, product, reasons = record.began.own, record.began.product, []
    if not own.commit:
        reasons.append("its commit is not known: run `./run bench` in a checkout of git")
    if own.changed:
        files = named(own.changed)
        reasons.append(
            f"its tree had what commit {own.commit} has not: {files}; commit or remove it, and run `./run bench`"
        )
    if record.ended is None:
        reasons.append("it did not come to its end: run `./run bench` again")
    reasons += [f"{change}: run `./run bench` again, and change nothing meanwhile" for change in record.changes]
    if product is not None:
        reasons.append(f"it measured the commands of another tree ({product}): run `./run bench` without --product")
    return reasons


def _of_figures(record: Record) -> list[str]:
    reasons = []
    if lacking := record.lacking(SECTIONS):
        reasons.append(f"it has nothing of {', '.join(lacking)}: run all benchmarks (`./run bench`)")
    # A record of before has no floor, and its document no column for it.
    measured = [(name, record.rounds(name)) for name in (FLOOR, *SECTIONS) if record.of(name)]
    if few := [f"{name} {rounds}" for name, rounds in measured if rounds < ROUNDS]:
        reasons.append(f"it has too few rounds ({', '.join(few)}): run `./run bench` with {ROUNDS} or more")
    return reasons


if __name__ == "__main__":
    main()
