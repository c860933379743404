"""Make docs/measurements.md of a run of all benchmarks, whose record becomes bench/measurements.json. Commit both.

    ./run bench record FILE

A run that lacks one of the benchmarks is refused.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _document import PLACE, SECTIONS, document
from _record import RECORDED, read, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="what `./run bench` has written")
    file = parser.parse_args().file
    try:
        record = read(file.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{file} is no record of a run: {error}") from error
    if lacking := record.lacking(SECTIONS):
        raise SystemExit(f"{file} has nothing of {', '.join(lacking)}: record a run of all benchmarks (`./run bench`)")
    if record.dirty:
        print("the tree that was measured had changes that are not in its commit; the document says so")
    RECORDED.write_text(written(record))
    PLACE.write_text(document(record))
    print(f"written: {RECORDED} and {PLACE}")


if __name__ == "__main__":
    main()
