"""docs/cluster-file.md says of every field what the schema says. `UPDATE_GOLDEN=1 pytest` mends its table."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autarky.config import json_schema

REFERENCE = Path(__file__).parents[3] / "docs/cluster-file.md"
HEAD = "| field | default | meaning |\n|---|---|---|\n"
SCHEMA = json_schema()


def rows(part: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """A line per field, in the order of the schema, each followed by those below it."""
    for name, field in part["properties"].items():
        path = f"{prefix}{name}" + ("[]" if field.get("type") == "array" else "")
        below = [
            SCHEMA["$defs"][candidate["$ref"].rpartition("/")[2]]
            for candidate in (field, field.get("items", {}), *field.get("anyOf", []))
            if "$ref" in candidate
        ]
        meaning = " ".join(filter(None, [described(field, below), allowed(field)]))
        yield f"| `{path}` | {default(name, field, part)} | {meaning} |".replace("|  |", "| |")
        for nested in below:
            yield from rows(nested, f"{path}.")


def described(field: dict[str, Any], below: list[dict[str, Any]]) -> str:
    """A field that is described like the part it holds has no description of its own."""
    text: str = field.get("description") or below[0]["description"]
    return text


def default(name: str, field: dict[str, Any], part: dict[str, Any]) -> str:
    if name in part.get("required", []):
        return "required"
    value = field.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def allowed(field: dict[str, Any]) -> str:
    """What a value may be, where the schema bounds it."""
    if "enum" in field:
        return f"One of {', '.join(f'`{value}`' for value in field['enum'])}."
    if "minimum" in field:
        return f"{field['minimum']} to {field['maximum']}."
    return ""


def test_the_reference_says_what_the_schema_says():
    text = REFERENCE.read_text()
    table = HEAD + "".join(f"{row}\n" for row in rows(SCHEMA))
    [found] = re.findall(re.escape(HEAD) + r"(?:\|.*\n)+", text)
    if os.environ.get("UPDATE_GOLDEN"):
        REFERENCE.write_text(text.replace(found, table))
        return
    assert found == table, "docs/cluster-file.md differs: if that is wanted, UPDATE_GOLDEN=1 pytest"


def test_no_description_would_break_the_table():
    assert not [row for row in rows(SCHEMA) if row.count("|") != 4]
