"""The documents say what is: links lead somewhere, the schema is the code's, every field and command exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autarky.cli.main import COMMANDS
from autarky.config import json_schema, load
from autarky.model.versions import Version

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def _fields(schema: dict[str, Any], part: dict[str, Any], prefix: str = "") -> set[str]:
    """All paths of the schema, such as spec.nodes[].name."""
    found: set[str] = set()
    for name, field in part.get("properties", {}).items():
        path = f"{prefix}{name}" + ("[]" if field.get("type") == "array" else "")
        found.add(path)
        for candidate in (field, field.get("items", {}), *field.get("anyOf", [])):
            if "$ref" in candidate:
                nested = schema["$defs"][candidate["$ref"].rpartition("/")[2]]
                found |= _fields(schema, nested, f"{path}.")
    return found


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads((ROOT / "docs/cluster.schema.json").read_text()) == json_schema()


def test_the_reference_documents_every_field_and_no_other() -> None:
    text = (ROOT / "docs/cluster-file.md").read_text()
    documented = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    assert documented == _fields(json_schema(), json_schema())


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_every_example_loads(example: Path) -> None:
    version = Version(1, 36, 4)
    assert load(example, default_version=version, known_versions=[version]).name == example.stem


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_named_exists(document: Path) -> None:
    named = re.findall(r"(?:^|`|run )autarky ([a-z]+)\b", document.read_text(), re.MULTILINE)
    known = {name for group in COMMANDS.values() for name in group}
    assert set(named) <= known, set(named) - known
