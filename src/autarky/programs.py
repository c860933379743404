"""Programs in other languages, which lie as files beside the module that uses them: `./run lint` checks them as such.

What a program is told when it is made stands in it as @NAME@, in its head. Contract: all of these are given,
and nothing else is; a program with another one in it would run with a name for a value.
"""

from __future__ import annotations

import re
from pathlib import Path

SUFFIXES = (".sh", ".lua")
"""Of the files. What packs the package packs them, too."""
_VALUE = re.compile(r"@([A-Z_]+)@")


def program(module: str, name: str, **values: object) -> str:
    """The text of the file `name` beside a module (`__file__`), with its values.

    ValueError where those that it names and those that are given are not the same.
    """
    text = Path(module).with_name(name).read_text(encoding="utf-8")
    named, given = set(_VALUE.findall(text)), {one.upper() for one in values}
    if named != given:
        raise ValueError(f"{name}: not given: {sorted(named - given)}; not in it: {sorted(given - named)}")
    return _VALUE.sub(lambda found: str(values[found[1].lower()]), text)
