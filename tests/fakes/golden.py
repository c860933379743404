"""Golden files: what is rendered, as reviewed and committed. `UPDATE_GOLDEN=1 pytest` writes them again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

DIRECTORY = Path(__file__).parents[1] / "golden"


class _Readable(yaml.CSafeDumper):
    """Texts of several lines as they are; no anchors for what occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Readable.add_representer(str, _text)


def assert_golden(name: str, documents: list[Any]) -> None:
    """The documents, as YAML, are those of tests/golden/NAME."""
    text = yaml.dump_all(documents, Dumper=_Readable, sort_keys=False, width=110)
    path = DIRECTORY / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), f"{name} is missing: review and commit it after UPDATE_GOLDEN=1 pytest"
    assert text == path.read_text(), f"{name} differs: if that is wanted, UPDATE_GOLDEN=1 pytest"
