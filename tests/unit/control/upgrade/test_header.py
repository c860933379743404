"""What a configuration file says of itself is what a YAML library finds there, or nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.upgrade.decide.header import LARGEST, Header, header

WORDS = st.sampled_from(
    [
        "a.io/v1",
        "Policy",
        "v1",
        "yes",
        "null",
        "1.5",
        "",
        "a: b",
        "# no",
        "it's",
        'a "b"',
        "[",
        "}",
        "- x",
        "two\nlines",
    ]
)
NAMES = st.sampled_from(["apiVersion", "kind", "featureGates", "rules", "A", "on", "x-y", "mode"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
GATES = st.dictionaries(st.sampled_from(["A", "SidecarContainers", "B2"]), st.booleans(), max_size=3)
STYLES = st.fixed_dictionaries(
    {
        "default_flow_style": st.sampled_from([False, None, True]),
        "default_style": st.sampled_from([None, '"', "'", "|", ">"]),
        "indent": st.sampled_from([2, 4]),
        "width": st.sampled_from([20, 200]),
        "explicit_start": st.booleans(),
        "explicit_end": st.booleans(),
        "sort_keys": st.booleans(),
    }
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """With more or less of what it should have."""
    found = draw(st.dictionaries(NAMES, VALUES, max_size=5))
    if draw(st.booleans()):
        found |= {"apiVersion": draw(WORDS), "kind": draw(WORDS)}
    if draw(st.booleans()):
        found["featureGates"] = draw(GATES)
    return found


def by_the_library(text: str) -> Header | None:
    """None where it is no configuration file of Kubernetes. YAMLError where it is no YAML."""
    found = next(yaml.load_all(text, Loader=yaml.CSafeLoader), None)
    if not isinstance(found, dict):
        return None
    version, kind, gates = (found.get(name) for name in ("apiVersion", "kind", "featureGates"))
    gates = {} if gates is None else gates
    if not isinstance(version, str) or not isinstance(kind, str) or not isinstance(gates, dict):
        return None
    return Header(version, kind, {name: str(value).lower() for name, value in gates.items()})


@given(files(), STYLES)
@settings(max_examples=300)
def test_it_reads_what_the_library_reads_or_nothing(file: dict[str, Any], style: dict[str, Any]) -> None:
    text = yaml.dump(file, **style)
    assert header(text.encode()) in (None, by_the_library(text))


LINES = st.sampled_from(
    [
        *("apiVersion: a.io/v1", "kind: K # one", "kind: yes", "kind:", "  Long", "  kind: Deep", "'kind': \"Q\""),
        *("? kind", ": Odd", "\tkind: Tab", "# kind: no", "  # kind: no", "featureGates:", "featureGates: {A: true}"),
        *("  A: true", "  B: False # why", "  C: yes", "    D: true", "rules:", "- level: None", "  - [", "  ]", "]"),
        *("x: [", "x: '", "'", '  - "', '  "', "x: |", "x: >-", "x: &a", "<<: *a", "y: {a: 1,", "z: 1}", "x: b'"),
        *("---", "...", "%YAML 1.1", ""),
    ]
)


@given(st.lists(LINES, max_size=6), st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=1000)
def test_of_any_lines_that_are_yaml_it_reads_what_the_library_reads_or_nothing(
    lines: list[str], version: int, kind: int
) -> None:
    lines.insert(version, "apiVersion: a.io/v1")
    lines.insert(kind, "kind: Policy")
    text = "\n".join(lines)
    found = header(text.encode())
    try:
        expected = by_the_library(text)
    except yaml.YAMLError:
        return
    assert found in (None, expected)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: a/v1\nx:\n  - [\nkind: K\n  ]\n",
        'apiVersion: a/v1\nx: "a\nkind: K\nb: "\n',
        "apiVersion: a/v1\nx:\n  - 'a\nkind: K\nb: c'\n",
        "apiVersion: a/v1\nkind: A\nnote: |\n  x\x85kind: B\n",
        "x: &kind\n  kind: K\n<<: *kind\napiVersion: a/v1\nkind: Other\n",
    ],
)
def test_where_a_key_of_the_first_level_only_seems_to_be_one_nothing_is_read(text: str) -> None:
    assert header(text.encode()) is None
    assert yaml.safe_load(text)["apiVersion"] == "a/v1"


@given(GATES, st.sampled_from(["", "---\n", "# ours\n"]), st.sampled_from(["\n", "\r\n"]))
def test_what_people_and_kubectl_write_is_read(gates: dict[str, bool], first: str, end: str) -> None:
    file = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "featureGates": gates,
        "conntrack": {"maxPerCore": 0, "tcpTimeouts": ["1s", "2s"]},
        "mode": "nftables",
    }
    expected = Header(file["apiVersion"], file["kind"], {name: str(value).lower() for name, value in gates.items()})  # type: ignore[arg-type]
    assert header((first + yaml.safe_dump(file)).replace("\n", end).encode()) == expected
    assert header(json.dumps(file, indent=2).encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: a/v1\nkind: Policy\nrules:\n- level: None # it's so\n- level: Metadata\n  verbs: [get, list]\n",
        "# Policy\napiVersion: 'a/v1' # ours\nkind: \"Policy\"\n\nrules:\n    - {level: None}\n---\nkind: Other\n",
        "kind: Policy\nnote: |\n  kind: Other\n  featureGates:\n    A: true\napiVersion: a/v1\n",
    ],
)
def test_comments_lists_and_long_texts_are_no_obstacle(text: str) -> None:
    assert header(text.encode()) == Header("a/v1", "Policy")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff\xfe", b"{", b"[]", b"null", b"kind: Policy", b"apiVersion: a/v1"),
        *(b'{"apiVersion": 1, "kind": "K"}', b'{"apiVersion": "a/v1", "kind": "K", "featureGates": {"A": 1}}'),
        b"apiVersion: a/v1\nkind: yes\n",
        b"apiVersion: a/v1\nkind: A\nkind: B\n",
        b"  apiVersion: a/v1\n  kind: K\n",
        b"apiVersion: a/v1\nkind: K\nfeatureGates:\n  A: maybe\n",
        b"apiVersion: a/v1\nkind: K\nfeatureGates: A=true\n",
        b"apiVersion: a/v1\nkind: K\nfeatureGates: [A]\n",
    ],
)
def test_of_what_is_no_configuration_file_nothing_is_read(content: bytes) -> None:
    assert header(content) is None


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_it_raises_for_no_content(content: bytes) -> None:
    header(content)
    header(b"apiVersion: a/v1\nkind: K\nfeatureGates:\n" + content)


def test_a_long_line_of_spaces_and_a_long_file_take_no_time() -> None:
    """Whoever may write a file that is mounted would stop the operator, which reads it in its loop."""
    began = time.process_time()
    line = b"apiVersion: v1\nkind: K\nx: a" + b" " * 200_000 + b"b\n"
    found = header(line)
    assert found is not None
    assert found.kind == "K"
    assert header(line + b"# " + b"x" * LARGEST) is None
    assert time.process_time() - began < 5
