"""Programs in other languages, and data, kept as files beside the module that uses them.

They are as much a part of the code as the module is, and `./run lint` checks the programs. A program has @NAME@ in its
head for each value that it gets when it is rendered. Contract: exactly these values are given: a program with an
unfilled @NAME@ would run with the name as the value.
"""

from __future__ import annotations

import re
from pathlib import Path

SUFFIXES = (".sh", ".lua")
"""Of the programs. They are part of the package."""
DATA = ".json"
"""Suffix of data."""
_VALUE = re.compile(r"@([A-Z_]+)@")


def program(module: str, name: str, **values: object) -> str:
    """The text of the file `name` beside a module (`__file__`), with its values.

    ValueError if the names in it and the given ones differ.
    """
    text = Path(module).with_name(name).read_text(encoding="utf-8")
    named, given = set(_VALUE.findall(text)), {one.upper() for one in values}
    if named != given:
        raise ValueError(f"{name}: not given: {sorted(named - given)}; not in it: {sorted(given - named)}")
    return _VALUE.sub(lambda found: str(values[found[1].lower()]), text)


def data(module: str, folder: str) -> dict[str, str]:
    """The texts of the data in a folder beside a module (`__file__`), by their names without the suffix."""
    files = sorted(Path(module).with_name(folder).glob(f"*{DATA}"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}
