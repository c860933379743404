"""What every benchmark has around it: its options, the payload, the table at the end and the record of the run."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from _autarky import STATE
from _figures import Figure, table
from _record import Record, begun, written

from autarky.cli.wiring import Silence
from autarky.payload import Payload, default_version, get_payload, load_release

ROUNDS = 3
STEADY_SECONDS = 75
"""After a cluster was made: by then both are at rest, and the first checkpoint is made."""

Benchmark = Callable[[Payload, int], Awaitable[Sequence[Figure]]]
"""Gets the payload and the number of rounds."""


def main(description: str | None, benchmarks: Sequence[Benchmark]) -> None:
    """Run them one after the other, print all their figures as one table, and keep them. The exit code is 1 when one is
    not as wanted."""
    options = _options(description)
    os.environ["XDG_STATE_HOME"] = str(STATE)
    record = asyncio.run(_measured(benchmarks, options.rounds, options.json))
    print(f"\n{table(record.figures)}", flush=True)
    if not all(figure.kept for figure in record.figures):
        raise SystemExit(1)


def _options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=_at_least_one, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"the record; default: one by its date in {_RECORDS}")
    return parser.parse_args()


_RECORDS = STATE / "records"


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least one round")
    return number


async def _measured(benchmarks: Sequence[Benchmark], rounds: int, file: Path | None) -> Record:
    """Written before the first of them, so that a file that cannot be is known at once; and after each, so that nothing
    is lost when a later one fails."""
    release = load_release(default_version())
    payload = await get_payload(release, Silence(), groups=("cluster", "test", "bench"))
    record = begun(release)
    if record.dirty:
        print("the tree has changes that are not committed: the record will say so", flush=True)
    place = file if file is not None else _RECORDS / f"{record.date.replace(':', '')}.json"
    _write(record, place)
    for benchmark in benchmarks:
        record = record.extended(await benchmark(payload, rounds))
        _write(record, place)
    print(f"the record of this run: {place}", flush=True)
    return record


def _write(record: Record, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(written(record))
