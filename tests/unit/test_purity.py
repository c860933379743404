"""Pure modules do no I/O: they import only what is listed here, and use nothing that looks at the world.

The contracts of pyproject.toml forbid modules, so that one of the standard library that nobody has thought of would
pass. They also say which modules are pure.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from autarky import places
from unit.test_import_rules import PACKAGE, contracts, sources

CONTRACTS = ("The model knows only", "Decisions and manifests are pure")
PURE = {one for contract in contracts() if contract["name"].startswith(CONTRACTS) for one in sources(contract)}
STANDARD = frozenset(
    {
        *("__future__", "base64", "binascii", "collections", "collections.abc", "copy", "dataclasses", "datetime"),
        *("difflib", "enum", "functools", "hashlib", "hmac", "ipaddress", "itertools", "json", "math", "re"),
        *("statistics", "types", "typing"),
    }
)
"""Modules of the standard library that do no I/O."""
ONLY = {"pathlib": {"PurePosixPath"}, "posixpath": {"join", "normpath"}, "uuid": {"UUID", "uuid5"}}
"""Names of modules that do some as well: paths are only composed and compared, uuids only derived from names."""
SHARED = frozenset({"autarky.errors", "autarky.parsing", "autarky.places", "autarky.programs"})
"""programs reads the files that are beside a module, as much a part of the code as the module is. Of places, only the
constants: see ENVIRONMENT."""
BUILTINS = frozenset({"open", "print", "input", "exec", "eval", "compile", "breakpoint", "__import__"})
CLOCKS = frozenset({"now", "today", "utcnow"})
"""Of datetime. A pure function is given the time: an attribute of that name which is not called may be that."""
ENVIRONMENT = frozenset(name for name, _ in inspect.getmembers(places, inspect.isfunction))
"""Where the user's own files are depends on the environment."""


def impurities(source: str) -> Iterator[str]:
    """A clause for each import, and each use of a name, that a pure module must not have."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (f"imports {one.name}" for one in names if not _is_allowed(one.name))
            case ast.ImportFrom(level=level, module=module, names=names):
                imported = (one.name for one in names)
                yield from (f"imports {'.' * level}{name}" for name in _refused(level, module or "", imported))
            case ast.Name(id=name, ctx=ast.Load()) if name in BUILTINS:
                yield f"uses {name}"
            case ast.Attribute(attr=name) if name in ENVIRONMENT:
                yield f"uses .{name}"
            case ast.Attribute(value=ast.Name(id="date" | "datetime"), attr=name) if name in CLOCKS:
                yield f"uses .{name}"
            case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
                yield f"uses .{name}"


def _refused(level: int, module: str, names: Iterable[str]) -> Iterator[str]:
    """The names that must not be imported from a module; the code has no relative imports, which would hide where."""
    for name in names:
        allowed = name in ONLY[module] if module in ONLY else _is_allowed(module) or _is_allowed(f"{module}.{name}")
        if level or not allowed or name in CLOCKS | ENVIRONMENT:
            yield f"{module}.{name}"


def _is_allowed(module: str) -> bool:
    return module in STANDARD | SHARED or _is_pure(module)


def _is_pure(module: str) -> bool:
    """Named by the contracts, or within what they name; * is one name."""
    names = module.split(".")
    return any(fnmatchcase(".".join(names[: one.count(".") + 1]), one) for one in PURE)


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


PURE_MODULES = sorted(path for path in PACKAGE.rglob("*.py") if _is_pure(_dotted(path)))


@pytest.mark.parametrize("path", PURE_MODULES, ids=_dotted)
def test_a_pure_module_can_do_no_io(path: Path) -> None:
    assert list(impurities(path.read_text())) == []


def test_all_kinds_of_pure_modules_are_looked_at() -> None:
    looked_at = {_dotted(path) for path in PURE_MODULES}
    assert len(looked_at) > 100
    assert {
        *(
            "autarky.model.patience",
            "autarky.render.node",
            "autarky.doctor.diagnosis.kubelets",
            "autarky.control.common.pods",
        ),
        *("autarky.control.addons.flannel.policies", "autarky.control.certificates.decide"),
        *("autarky.control.slots.manifests", "autarky.control.etcd.decide.wanted"),
    } <= looked_at
    assert (
        not {"autarky.control.etcd.operator.members", "autarky.control.etcd.node.seen", "autarky.doctor.evidence"}
        & looked_at
    )


def test_nothing_is_allowed_that_no_pure_module_needs() -> None:
    nodes = [node for path in PURE_MODULES for node in ast.walk(ast.parse(path.read_text()))]
    modules = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    names = {f"{node.module}.{one.name}" for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names}
    modules |= {name.rpartition(".")[0] for name in names}
    only = {f"{module}.{name}" for module, some in ONLY.items() for name in some}
    assert (STANDARD | SHARED | only) - modules - names == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import socket", "imports socket"),
        ("import json, os.path", "imports os.path"),
        ("def decide():\n    import os", "imports os"),
        ("if TYPE_CHECKING:\n    from asyncio import Task", "imports asyncio.Task"),
        ("from shutil import copy", "imports shutil.copy"),
        ("import pathlib", "imports pathlib"),
        ("from pathlib import Path", "imports pathlib.Path"),
        ("from pathlib import PurePosixPath, Path as Pure", "imports pathlib.Path"),
        ("from uuid import uuid4", "imports uuid.uuid4"),
        ("import importlib", "imports importlib"),
        ("import yaml", "imports yaml"),
        ("from autarky import net", "imports autarky.net"),
        ("from autarky.kube import Reflector", "imports autarky.kube.Reflector"),
        ("from autarky.control.etcd import node", "imports autarky.control.etcd.node"),
        ("from autarky.control.base.events import Event", "imports autarky.control.base.events.Event"),
        ("from autarky.places import state_dir", "imports autarky.places.state_dir"),
        ("from . import json", "imports ..json"),
        ("from .json import loads", "imports .json.loads"),
        ("open('x')", "uses open"),
        ("texts = map(open, names)", "uses open"),
        ("print('x')", "uses print"),
        ("input()", "uses input"),
        ("__import__('os')", "uses __import__"),
        ("places.state_dir()", "uses .state_dir"),
        ("datetime.now(UTC)", "uses .now"),
        ("import datetime as time\ntime.datetime.now()", "uses .now"),
        ("since: date = field(default_factory=date.today)", "uses .today"),
    ],
)
def test_what_looks_at_the_world_is_found(source: str, found: str) -> None:
    assert set(impurities(source)) == {found}


@pytest.mark.parametrize(
    "source",
    [
        "from collections.abc import Mapping",
        "from pathlib import PurePosixPath",
        "from autarky import places\nPATH = places.BIN",
        "from autarky.model import patience",
        "from autarky.control.slots import manifests\nfrom autarky.control.slots.decide import pivot",
        "def decide(now: float, seen: Seen) -> float:\n    return now - seen.now",
        "class Step:\n    open: bool = False",
    ],
)
def test_what_is_pure_is_not_refused(source: str) -> None:
    assert list(impurities(source)) == []
