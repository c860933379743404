"""The cluster file that a newcomer starts from: all fields with what they mean; optional fields are commented out.

Contract: the text loads as it is, and also when any field is uncommented together with its parents. Comments are the
schema's own descriptions, so that they cannot become outdated.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin

from pydantic.fields import FieldInfo

from autarky.config.part import Part
from autarky.config.schema import SpecPart
from autarky.model.versions import Version

WIDTH: Final = 100
FIRST: Final = ("kubernetesVersion", "selfHosted", "nodes")
"""Fields of the spec that are not commented out."""
EXAMPLES: Final[Mapping[str, Any]] = {
    "defaults": 1,
    "sshConfig": "ssh_config",
    "etcd.external.lab": "etcd1",
    "controlPlaneEndpoint": "api.example.org:6443",
    "extraArgs": {"kube-apiserver": {"v": "3"}},
    "certificates.leafLifetime": "720h",
    "certificates.kubeletLifetime": "720h",
    "certificates.caDirectory": "ca",
    "pools": [{"name": "edge", "nodes": {"matchLabels": {"site": "edge"}}, "atOnce": 2}],
}
"""Path in the spec → the example for a field that has no default."""
LEFT_OUT: Final = frozenset(
    {"etcd.version", *(f"etcd.external.{name}" for name in ("endpoints", "caFile", "certFile", "keyFile"))}
)
"""Fields that exclude another one in the file: docs/cluster-file.md explains both ways."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
_NO_TEXT = frozenset({"true", "false", "null"})
_HEAD = """\
# A cluster for `autarky up -f FILE`. Lines with a `#` and no space after it are settings at their default, or examples
# if there is no default. To change one, remove its `#`, and that of the setting it is nested under.
#   autarky validate -f FILE   checks this file without touching anything
#   autarky plan -f FILE       shows what `up` would do
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the file should say. hosts: of the nodes; the first `control_nodes` of them are control nodes."""

    name: str
    version: Version
    hosts: Sequence[str]
    control_nodes: int


def starter(wanted: Wanted) -> str:
    """The file's text. Names are validated when it is loaded."""
    return "\n".join([_HEAD.rstrip(), *_written(wanted), "", *_commented(SpecPart, "", 2)]).rstrip() + "\n"


def _written(wanted: Wanted) -> Iterator[str]:
    spec = {_key(name, field): field for name, field in SpecPart.model_fields.items()}
    yield "apiVersion: autarky.dev/v1alpha1"
    yield "kind: Cluster"
    yield "metadata:"
    yield f"  name: {_value(wanted.name)}"
    yield "spec:"
    values = {
        "kubernetesVersion": _value(str(wanted.version).removeprefix("v")),
        "selfHosted": _value(spec["selfHosted"].default),
    }
    for key, value in values.items():
        yield from _prose(spec[key], 2)
        yield f"  {key}: {value}"
        yield ""
    yield from _prose(spec["nodes"], 2)
    yield "  nodes:"
    for number, host in enumerate(wanted.hosts):
        yield f"    - name: n{number + 1}"
        yield f"      host: {_value(host)}"
        if len(wanted.hosts) > 1:
            yield f"      roles: [{'control-plane, worker' if number < wanted.control_nodes else 'worker'}]"


def _commented(part: type[Part], path: str, indent: int) -> Iterator[str]:
    for name, field in part.model_fields.items():
        key, here = _key(name, field), f"{path}{_key(name, field)}"
        if here in FIRST or here in LEFT_OUT:
            continue
        yield from _prose(field, indent)
        below = _part_of(field)
        pad = " " * indent
        if below is None:
            default = field.get_default(call_default_factory=True)
            yield f"{pad}#{key}: {_value(EXAMPLES.get(here, default))}"
        else:
            yield f"{pad}#{key}:"
            yield from _commented(below, f"{here}.", indent + 2)
        if not path:
            yield ""


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _part_of(field: FieldInfo) -> type[Part] | None:
    """The part that the field is one of, if it is."""
    if get_origin(field.annotation) is list:
        return None
    candidates = (field.annotation, *get_args(field.annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, Part)), None)


def _prose(field: FieldInfo, indent: int) -> Iterator[str]:
    lines = textwrap.wrap(field.description or "", WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False)
    yield from (f"{' ' * indent}# {line}" for line in lines)


def _value(value: Any) -> str:
    """As YAML in one line: JSON is. Words that YAML reads as text need no quotes."""
    is_word = isinstance(value, str) and _WORD.fullmatch(value) and value not in _NO_TEXT
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)
