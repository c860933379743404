"""What a generation is made of: the node's own base.json, which `up` writes, and what is wanted of the node. Pure.

    base.json     {"config": {…}, "arguments": {…}}    what follows from the host and from autarky itself
    target.json   {"digest": "…", "version": "v1.37.1", "base": "9f0c…", "runtime": ""}    in the generation

Contract: `up` and the node's agent make the same generation of the same, so that neither undoes the other's. What is
wanted wins over the base: an argument as a whole, a setting within objects by itself, a list as a whole. Reading
returns for any content, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from autarky.control.common.shapes import mapping
from autarky.control.kubelet.decide.fields import NOT_UNDERSTOOD, WORD, fitting
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests.files import ARGUMENTS, BASE, CONFIG, KUBELETS, VERSION
from autarky.model.files import File
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.render.values import content_hash, flags, pretty_json

MADE_OF = "target.json"
"""Name in a generation."""


@dataclass(frozen=True, slots=True)
class Base:
    """config: of the kubelet. arguments: by their names, without --config and --bootstrap-kubeconfig, which the script
    gives."""

    config: Mapping[str, Any]
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MadeOf:
    """digest: `Target.digest`; empty for a generation that is a copy of what a kubelet ran with before there were any.
    base, runtime: as in `Target`."""

    digest: str
    version: Version
    base: str = ""
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """links: program → where it leads to. contents: the other files, by their names, but for `complete`."""

    links: Mapping[str, str]
    contents: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """A hash of everything in it."""
        hashes = {name: sha256(content).hexdigest() for name, content in self.contents.items()}
        return content_hash([dict(self.links), hashes], 16)

    @property
    def complete(self) -> bytes:
        return files.written({"generation": self.name})

    @property
    def directory(self) -> str:
        return f"{KUBELETS}/{self.name}"


def in_store(program: str) -> str:
    """The link of a generation to a program of the store; `up` and the agent write the same one."""
    return f"../../store/{program}"


def base_file(base: Base) -> File:
    return File(BASE, pretty_json({"config": dict(base.config), "arguments": dict(base.arguments)}))


def base_digest(content: bytes | None) -> str:
    """As `Target.base` has it; empty for what is no base."""
    return "" if content is None or read_base(content) is None else sha256(content).hexdigest()[:16]


def read_base(content: bytes) -> Base | None:
    """None for what is none."""
    try:
        said = parsed(content)
        config, arguments = said["config"], said["arguments"]
        if not isinstance(config, dict) or not all(isinstance(value, str) for value in arguments.values()):
            return None
        return Base(config, dict(arguments))
    except NOT_UNDERSTOOD:
        return None


def made(base: Base, target: Target) -> dict[str, bytes]:
    """The files of the generation: name → content. ValueError for an argument that is no single line."""
    arguments = flags(base.arguments, target.arguments)
    if odd := [one for one in arguments if "\n" in one or "\0" in one]:
        raise ValueError(f"an argument of a kubelet has to be one line: {odd[0]!a}")
    made_of = MadeOf(target.digest, target.version, target.base, target.runtime)
    return {
        CONFIG: pretty_json(_over(base.config, target.config)),
        ARGUMENTS: "".join(f"{one}\n" for one in arguments).encode(),
        VERSION: f"{target.version}\n".encode(),
        MADE_OF: written(made_of),
    }


def written(made_of: MadeOf) -> bytes:
    version, runtime = str(made_of.version), made_of.runtime
    return pretty_json({"digest": made_of.digest, "version": version, "base": made_of.base, "runtime": runtime})


def read(content: bytes | None) -> MadeOf | None:
    """None for what cannot be understood."""
    try:
        said = mapping(parsed(content or b""))
        digest, base, runtime = (fitting(WORD, said[key]) for key in ("digest", "base", "runtime"))
        return MadeOf(digest, Version.parse(fitting(WORD, said["version"])), base, runtime)
    except NOT_UNDERSTOOD:
        return None


def _over(base: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """As a kubelet merges its configuration files: objects by their keys."""
    merged = dict(base)
    for key, value in wanted.items():
        there = merged.get(key)
        merged[key] = _over(there, value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
    return merged
