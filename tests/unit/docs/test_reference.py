"""docs/cluster-file.md says of every field what the schema says, and its examples are cluster files.

`UPDATE_GOLDEN=1 pytest` corrects the rows of the fields; a row of a new field is put into its section by hand.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from autarky.config import json_schema, loads
from autarky.config.positions import parse
from autarky.control.cluster_file.decide.defaults import texts_of
from autarky.control.common import understood
from autarky.control.hosts.decide.preflight import CHECKS
from autarky.model.defaults import EDITIONS
from autarky.model.versions import Version
from unit.docs.documents import ROOT, blocks, documents, table_rows

REFERENCE = ROOT / "docs/cluster-file.md"
FIELD_HEAD = "field | default | meaning"
CHECK_HEAD = "check | an error when | a warning when | remedy"
SCHEMA = json_schema()
VERSION = Version(1, 36, 4)
SMALLEST = {
    "apiVersion": "autarky.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "one"},
    "spec": {"nodes": [{"name": "n1"}]},
}


def fields(part: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Path and row of every field, in the order of the schema, each followed by those below it."""
    for name, field in part["properties"].items():
        path = f"{prefix}{name}" + ("[]" if field.get("type") == "array" else "")
        below = [
            SCHEMA["$defs"][candidate["$ref"].rpartition("/")[2]]
            for candidate in (field, field.get("items", {}), *field.get("anyOf", []))
            if "$ref" in candidate
        ]
        meaning = " ".join(filter(None, [described(field, below), allowed(field)]))
        yield path, f"| `{path}` | {default(name, field, part)} | {meaning} |"
        for nested in below:
            yield from fields(nested, f"{path}.")


def described(field: dict[str, Any], below: list[dict[str, Any]]) -> str:
    """A field that is described like the part it holds has no description of its own."""
    text: str = field.get("description") or below[0]["description"]
    return text


def default(name: str, field: dict[str, Any], part: dict[str, Any]) -> str:
    if name in part.get("required", []):
        return "required"
    value = field.get("default")
    return "–" if value is None else f"`{json.dumps(value)}`"


def allowed(field: dict[str, Any]) -> str:
    """What a value may be, where the schema bounds it."""
    if "enum" in field:
        return f"One of {', '.join(f'`{value}`' for value in field['enum'])}."
    if "minimum" in field:
        return f"{field['minimum']} to {field['maximum']}."
    return ""


ROWS = dict(fields(SCHEMA))


def test_the_reference_documents_every_field_and_no_other_in_the_order_of_the_schema():
    assert list(table_rows(REFERENCE, FIELD_HEAD)) == list(ROWS)


@pytest.mark.parametrize("path", ROWS)
def test_a_fields_default_and_meaning_are_those_of_the_schema(path):
    documented = table_rows(REFERENCE, FIELD_HEAD)[path]
    if os.environ.get("UPDATE_GOLDEN"):
        REFERENCE.write_text(REFERENCE.read_text().replace(documented, ROWS[path]))
        return
    assert documented == ROWS[path], "if that is wanted, UPDATE_GOLDEN=1 pytest"


def test_no_description_would_break_a_table():
    assert not [row for row in ROWS.values() if row.count("|") != 4]


def test_every_preflight_check_is_explained_with_its_remedy():
    explained = table_rows(REFERENCE, CHECK_HEAD)
    assert list(explained) == list(CHECKS)
    assert not [row for row in explained.values() if any(not cell.strip() for cell in row.strip("|").split("|"))]


def test_the_table_of_defaults_has_what_each_edition_says():
    heads = " | ".join(["default", *(f"edition {number}" for number in range(1, len(EDITIONS) + 1))])
    texts = [texts_of(edition) for edition in EDITIONS]
    shown = {what: [text if text == "not set" else f"`{text}`" for text in row(texts, what)] for what in texts[-1]}
    assert list(table_rows(REFERENCE, heads).values()) == [
        f"| `{what}` | {' | '.join(cells)} |" for what, cells in shown.items()
    ]


def row(texts: list[dict[str, str]], what: str) -> list[str]:
    return [one.get(what, "not set") for one in texts]


def test_the_published_schema_is_that_of_the_code():
    published = (ROOT / "docs/cluster.schema.json").read_text()
    assert json.loads(published) == SCHEMA, "./run autarky schema > docs/cluster.schema.json"


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_every_example_loads_and_is_named_as_its_cluster(example):
    assert read(example.read_text()).name == example.stem


IN_THE_API = ("Backup", "BackupSchedule")
"""Kinds that a real API server judges, in contract/kube/test_backup_definitions."""
YAML = [
    pytest.param(block.text, id=f"{path.name}:{block.line}")
    for path in documents()
    for block in blocks(path)
    if block.language == "yaml"
]


@pytest.mark.parametrize("text", YAML)
def test_every_example_in_a_document_is_a_cluster_file_or_a_part_of_one(text):
    part = parse(text, "the example").data
    if part.get("kind") in IN_THE_API:
        return
    if part.get("kind") == "ControlPlane":
        assert understood.kubelets(part["spec"]) is None
        return
    complete = part if "kind" in part else SMALLEST | {"spec": SMALLEST["spec"] | part["spec"]}
    assert read(json.dumps(complete)).nodes


def test_every_section_of_the_reference_has_an_example():
    sections = re.split(r"^### ", REFERENCE.read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) > 5
    assert not [section.partition("\n")[0] for section in sections if "```yaml" not in section]


def read(text: str):
    return loads(text, "the example", default_version=VERSION, known_versions=[VERSION])
