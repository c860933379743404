"""What every benchmark has around it: its options, the payload, the table at the end and the record of the run."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from _alone import alone, take_leftovers_away
from _autarky import STATE
from _figures import Figure, table
from _product import THIS_TREE, Product, product_of
from _record import ROUNDS, Record, Trees, begun, written
from _tree import ROOT, named, tree_of

from autarky.cli.wiring import Silence
from autarky.payload import Payload, default_version, get_payload, load_release

STEADY_SECONDS = 75
"""After a cluster was made: by then both are at rest, and the first checkpoint is made."""

Benchmark = Callable[[Payload, Product, int], Awaitable[Sequence[Figure]]]
"""Gets the payload, whose commands it measures, and the number of rounds."""


def main(
    description: str | None,
    benchmarks: Sequence[Benchmark],
    *,
    beside: str = "kubeadm",
    more_options: Sequence[argparse.ArgumentParser] = (),
) -> None:
    """Run them one after the other, print all their figures as one table, and keep them. The exit code is 1 when one is
    not as wanted, and when a tree has changed meanwhile: then nobody knows what was measured. beside: the head of the
    table's column of what is measured against; more_options: the benchmarks' own, which they read themselves."""
    options = _options(description, more_options)
    os.environ["XDG_STATE_HOME"] = str(STATE)
    with alone():
        record = asyncio.run(_measured(benchmarks, options))
    print("\n".join(("", table(record.figures, beside), *record.changes)), flush=True)
    if record.changes or not all(figure.kept for figure in record.figures):
        raise SystemExit(1)


def _options(description: str | None, more: Sequence[argparse.ArgumentParser]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, parents=list(more)
    )
    parser.add_argument("--rounds", type=at_least_one, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"the record; default: one by its date in {_RECORDS}")
    help_product = (
        "a checkout whose commands are measured, not this one's: a figure of an earlier commit, beside kubeadm"
    )
    parser.add_argument("--product", type=Path, metavar="DIR", help=help_product)
    return parser.parse_args()


_RECORDS = STATE / "records"


def at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least one")
    return number


async def _measured(benchmarks: Sequence[Benchmark], options: argparse.Namespace) -> Record:
    """Written before the first of them, so that a file that cannot be is known at once; and after each, so that nothing
    is lost when a later one fails."""
    release = load_release(default_version())
    product = product_of(options.product, release)
    record = begun(release, _trees(product))
    _tell(record, product)
    place = options.json if options.json is not None else _RECORDS / f"{record.date.replace(':', '')}.json"
    _write(record, place)
    payload = await get_payload(release, Silence(), groups=("cluster", "test", "bench"))
    await take_leftovers_away(product)
    for benchmark in benchmarks:
        record = record.extended(await benchmark(payload, product, options.rounds))
        _write(record, place)
    record = record.at_end(_trees(product))
    _write(record, place)
    print(f"the record of this run: {place}", flush=True)
    return record


def _trees(product: Product) -> Trees:
    """As they are now."""
    return Trees(tree_of(ROOT), None if product is THIS_TREE else tree_of(product.root))


def _tell(record: Record, product: Product) -> None:
    """Before an hour is spent, what makes it one that cannot be published."""
    trees = record.began
    if trees.product is not None:
        print(
            f"the commands of {product.root} are measured: {trees.product}; `bench record` takes no such run",
            flush=True,
        )
    if not trees.own.commit:
        print("the commit of this tree is not known; `bench record` takes no such run", flush=True)
    if trees.own.changed:
        files = named(trees.own.changed)
        print(f"the tree has changes that are not committed; `bench record` takes no such run: {files}", flush=True)


def _write(record: Record, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(written(record))
