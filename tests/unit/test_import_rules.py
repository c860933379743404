"""The import contracts of pyproject.toml leave no part of the package out.

import-linter checks that the contracts are kept; here is checked that there is one for everything.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/autarky"
PARTS_OF_A_SUBJECT = {"decide", "manifests", "observe", "act", "node", "operator"}
"""As in docs/architecture.md. The contracts name them with wildcards: what has another name would be bound by none."""
NO_SUBJECTS = {"base", "common", "addons"}
"""Folders of `control` that contracts name as a whole."""

Contract = dict[str, Any]


def contracts() -> list[Contract]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found: list[Contract] = linter["contracts"]
    return found


def sources(contract: Contract) -> Iterator[str]:
    """The modules that a contract limits, maybe with wildcards."""
    yield from contract.get("source_modules", ())
    yield from contract["modules"] if contract["type"] == "independence" else ()
    for container in contract.get("containers", ()):
        yield from (f"{container}.{name}" for layer in contract["layers"] for name in re.findall(r"\w+", layer))


def children(folder: Path) -> set[str]:
    """The names of the modules and packages in a folder."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def packages() -> set[str]:
    """The names of the parts of the package that are more than a file."""
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def unbound(modules: Iterable[str], those: Iterable[Contract]) -> set[str]:
    """Those that no contract limits as a whole: a contract of something within does not count."""
    bound = [expression for contract in those for expression in sources(contract)]
    return {module for module in modules if not any(_covers(expression, module) for expression in bound)}


def _covers(expression: str, module: str) -> bool:
    """As import-linter reads it: * is one name, and a module stands for everything within."""
    wanted, names = expression.split("."), module.split(".")
    return len(wanted) <= len(names) and all(map(fnmatchcase, names, wanted))


def test_every_part_of_the_package_is_limited_by_a_contract() -> None:
    assert unbound({f"autarky.{name}" for name in children(PACKAGE)}, contracts()) == set()


def test_every_part_of_the_package_has_its_place_among_the_layers() -> None:
    layers = [contract for contract in contracts() if contract["type"] == "layers" and contract.get("exhaustive")]
    assert unbound({f"autarky.{name}" for name in children(PACKAGE)}, layers) == set()


def forbidding(*modules: str) -> list[Contract]:
    """The contracts that keep their sources from all of these."""
    return [contract for contract in contracts() if set(modules) <= set(contract.get("forbidden_modules", ()))]


def test_no_agent_knows_the_command_line_or_the_cluster_file() -> None:
    agents = {f"autarky.agents.{name}" for name in children(PACKAGE / "agents")}
    assert unbound(agents, forbidding("click", "autarky.config")) == set()


def test_every_package_but_net_is_kept_from_the_library_that_speaks_http() -> None:
    assert unbound({f"autarky.{name}" for name in packages()}, forbidding("httpx2")) == {"autarky.net"}


def test_user_interfaces_are_kept_from_every_package_but_the_one_with_events_and_the_model() -> None:
    others = {f"autarky.{name}" for name in packages() - {"engine", "model", "ui"}}
    assert unbound({"autarky.ui"}, forbidding(*others)) == set()


@pytest.mark.parametrize(
    ("contract", "left"),
    [
        ({"type": "forbidden", "source_modules": ["autarky.net"]}, {"autarky.kube"}),
        ({"type": "forbidden", "source_modules": ["autarky.*"]}, set()),
        (
            {"type": "forbidden", "source_modules": ["autarky.kube.client", "autarky.*.http"]},
            {"autarky.net", "autarky.kube"},
        ),
        (
            {"type": "forbidden", "source_modules": [], "forbidden_modules": ["autarky.*"]},
            {"autarky.net", "autarky.kube"},
        ),
        ({"type": "protected", "protected_modules": ["autarky.net"]}, {"autarky.net", "autarky.kube"}),
        ({"type": "independence", "modules": ["autarky.kube"]}, {"autarky.net"}),
        ({"type": "layers", "containers": ["autarky"], "layers": ["cli", "kube | (net)"]}, set()),
    ],
)
def test_what_no_contract_limits_is_found(contract: Contract, left: set[str]) -> None:
    assert unbound({"autarky.net", "autarky.kube"}, [contract]) == left


@pytest.mark.parametrize("subject", sorted(children(PACKAGE / "control") - NO_SUBJECTS))
def test_a_subject_has_only_parts_that_the_contracts_name(subject: str) -> None:
    assert children(PACKAGE / "control" / subject) <= PARTS_OF_A_SUBJECT
