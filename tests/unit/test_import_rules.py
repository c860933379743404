"""The import contracts of pyproject.toml leave no package out, and pure modules import only what cannot do I/O.

The contracts forbid; a module of the standard library that nobody has thought of would pass. So here is what pure
modules may import at all.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/autarky"
PURE = (
    *("model", "render", "control/common", "control/addons", "control/*/decide", "control/*/manifests"),
    "doctor/diagnosis.py",
)
STANDARD = frozenset(
    {
        *("__future__", "base64", "binascii", "collections", "collections.abc", "copy", "dataclasses", "datetime"),
        *("difflib", "enum", "functools", "hashlib", "hmac", "ipaddress", "itertools", "json", "re", "statistics"),
        *("string", "textwrap", "types", "typing", "urllib.parse", "uuid"),
    }
)
"""None of them opens a file, a socket or a process, or waits. uuid: for names from hashes."""
OURS = ("errors", "model", "parsing", "places", "programs", "render", "control.*")
"""programs reads the scripts that come with the code."""
PATHS = frozenset({"Path", "PurePosixPath"})
"""To compose a path; what touches the disk is refused below."""
OUTSIDE = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
TOUCHES = frozenset(
    {"read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_file", "is_dir", "iterdir", "stat", "unlink"}
)
CLOCKS = frozenset({"now", "today", "utcnow", "uuid1", "uuid4"})


def _modules() -> list[Path]:
    found: list[Path] = []
    for pattern in PURE:
        for place in PACKAGE.glob(pattern if pattern.endswith(".py") else f"{pattern}*"):
            if place.is_dir():
                found += place.rglob("*.py")
            elif place.suffix == ".py":
                found.append(place)
    return sorted(set(found))


def impurities(source: str) -> Iterator[str]:
    """A clause for each import or call that a pure module must not have."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (f"imports {one.name}" for one in names if not _may_import(one.name, ()))
            case ast.ImportFrom(module=str(module), names=names) if not _may_import(module, [n.name for n in names]):
                yield f"imports {', '.join(one.name for one in names)} of {module}"
            case ast.Call(func=ast.Name(id=name)) if name in OUTSIDE:
                yield f"calls {name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in TOUCHES | CLOCKS:
                yield f"calls .{name}()"


def _may_import(module: str, names: list[str] | tuple[()]) -> bool:
    if module == "pathlib":
        return set(names) <= PATHS
    if module == "autarky":
        return all(_may_import(f"autarky.{name}", ()) for name in names)
    if module.startswith("autarky."):
        inner = module.removeprefix("autarky.")
        return any(fnmatchcase(inner, one) or inner.startswith(f"{one}.") for one in OURS)
    return module in STANDARD


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_pure_module_can_do_no_io(path: Path) -> None:
    assert list(impurities(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import socket",
        "def f():\n    import os",
        "from shutil import copy",
        "from time import time",
        "from pathlib import Path as P, WindowsPath",
        "from autarky import net",
        "from autarky.kube import Reflector",
        "open('x')",
        "print('x')",
        "path.read_text()",
        "datetime.now(UTC)",
        "uuid.uuid4()",
    ],
)
def test_what_does_io_is_found(source: str) -> None:
    assert list(impurities(source))


def test_enough_modules_are_looked_at() -> None:
    assert len(_modules()) > 100


def _sources() -> set[str]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    keys = ("source_modules", "modules")
    return {module for contract in linter["contracts"] for key in keys for module in contract.get(key, ())}


def test_every_part_of_the_package_is_bound_by_a_contract() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    bound = {source.removeprefix("autarky.").partition(".")[0] for source in _sources()}
    assert parts - {"__init__"} - bound == set()
    assert bound - parts == set(), "a contract binds what is not there"
