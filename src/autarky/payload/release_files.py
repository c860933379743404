"""Where release files lie, and what is in one: the parts that it shares with others, and what it changes of them.

    {"kubernetes": "v1.36.3", "parts": ["base", "conformance"],
     "changes": {"components": {"etcd": {"version": "v3.6.15", "recipe": "etcd-v3.6.15"}},
                 "images": {"etcd": {"reference": "registry.k8s.io/etcd:3.6.15-0"}}}}

A part is a file of the package, `releases/PART.json`: components and images in lists, layers by name. `changes` names
entries of the parts, and the fields that differ. @VERSION@, @MAJOR@ and @MINOR@ stand for the version of Kubernetes.

A directory of releases has them as VERSION.json, and their recipes in recipes/. The package's own is `releases`; those
of the user's (`places.releases_dir`) are known like these, and may name the package's recipes. Contract: if both have
a version, the package's wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from autarky import places
from autarky.errors import UserError
from autarky.model.versions import Version

RELEASES = Path(str(resources.files("autarky.payload"))) / "releases"
RECIPES = "recipes"
PARTS = ("base", "conformance", "s3", "scale")
_LISTS = ("components", "images")
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")


def directories() -> tuple[Path, ...]:
    """Where release files are looked for, the package's first."""
    return (RELEASES, places.releases_dir())


def files() -> dict[Version, Path]:
    """Version → its release file."""
    found: dict[Version, Path] = {}
    for directory in reversed(directories()):
        for path in directory.glob("v*.json"):
            try:
                found[Version.parse(path.stem)] = path
            except ValueError:
                continue  # not the name of a release
    return found


def read(path: Path) -> dict[str, Any]:
    """What a release consists of: `kubernetes`, `suite`, `components`, `images`, `layers`.

    UserError where the file cannot be read or is none.
    """
    try:
        return _complete(json.loads(path.read_text()))
    except OSError as error:
        raise UserError(f"cannot read it: {error.strerror}", where=str(path), fix="name a file that exists") from error
    except UserError as error:
        raise UserError(
            error.what, where=str(path), fix="correct it, or make it with `autarky payload release new`"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"it is not a release file: {type(error).__name__}: {error}"
        raise UserError(what, where=str(path), fix="make one with `autarky payload release new VERSION`") from error


def _complete(said: dict[str, Any]) -> dict[str, Any]:
    """What the file says, with its parts. UserError for unknown keys or parts."""
    version, parts = Version.parse(said["kubernetes"]), said["parts"]
    if unknown := sorted(set(said) - {"kubernetes", "parts", "changes"}):
        raise UserError(f"unknown keys: {', '.join(unknown)}")
    if unknown := sorted(set(parts) - set(PARTS)):
        raise UserError(f"there is no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    merged = _changed(_merged(parts), said.get("changes", {}))
    _refuse_paths(merged)
    return {**_for(version, merged), "kubernetes": str(version)}


def _refuse_paths(merged: dict[str, Any]) -> None:
    """UserError for a name that would lead out of the directory in which its file is made."""
    made = [binary["name"] for one in merged["components"] for binary in one["binaries"]]
    names = [*made, *(one["name"] for key in _LISTS for one in merged[key])]
    if odd := [str(name) for name in names if not _NAME.fullmatch(str(name))]:
        raise UserError(f"not a name: {', '.join(map(repr, odd))}")


def recipe_directory(file: Path, recipe: str) -> Path:
    """Of a recipe that the release file names: beside the file, else the package's. ValueError for a name that leads
    elsewhere."""
    if not _NAME.fullmatch(recipe):
        raise ValueError(f"{recipe!r} is not a valid recipe name")
    own = file.parent / RECIPES / recipe
    return own if own.is_dir() else RELEASES / RECIPES / recipe


def _merged(parts: list[str]) -> dict[str, Any]:
    complete: dict[str, Any] = {"components": [], "images": [], "layers": {}}
    for name in parts:
        part = json.loads((RELEASES / f"{name}.json").read_text())
        for key in _LISTS:
            complete[key] += part.get(key, [])
        complete["layers"] |= part.get("layers", {})
        complete |= {key: value for key, value in part.items() if key not in complete}
    return complete


def _changed(complete: dict[str, Any], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """UserError for a change of an entry that no part has."""
    for key, by_name in changes.items():
        entries = {one["name"]: one for one in complete[key]} if key in _LISTS else complete[key]
        for name, fields in by_name.items():
            if name not in entries:
                raise UserError(f"it changes {name} of {key}, which its parts do not have")
            entries[name] |= fields
    return complete


def _for(version: Version, complete: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(complete)
    for name, value in (("@VERSION@", version), ("@MAJOR@", version.major), ("@MINOR@", version.minor)):
        text = text.replace(name, str(value))
    filled: dict[str, Any] = json.loads(text)
    return filled
