"""Cluster files as texts: short ways to load one, and to see what is said of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.config import loads
from autarky.errors import Problems
from autarky.model.cluster import Cluster
from autarky.model.versions import Version

DEFAULT = Version(1, 37, 1)
KNOWN = (Version(1, 36, 4), DEFAULT)
HEAD = "apiVersion: autarky.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n"


def read(text: str, directory: Path | None = None) -> Cluster:
    return loads(text, "cluster.yaml", default_version=DEFAULT, known_versions=KNOWN, directory=directory)


def spec(text: str) -> Cluster:
    """A cluster file with that spec, whose lines begin at line 5."""
    return read(HEAD + "".join(f"  {line}\n" for line in text.splitlines()))


def problems(text: str) -> list[str]:
    """All errors of a spec, one line each."""
    with pytest.raises(Problems) as caught:
        spec(text)
    return [str(problem).replace("\n  fix: ", " | ") for problem in caught.value.problems]


def problem(text: str) -> str:
    [only] = problems(text)
    return only
