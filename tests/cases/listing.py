"""Which cases there are, as pytest collects them: nothing is listed by hand.

As a plugin of pytest (`-p cases.listing --cases-to=FILE --collect-only`) it writes down what it finds; `list_cases`
runs pytest so, and reads that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from cases.tree import ROOT

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:randomly")
"""The steps of a scenario build on each other: not in random order."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a case needs beyond the components of the default version (marker `needs`).

    `version` and `group` of a payload, or the virtual machine.
    """

    version: str | None = None
    group: str = "cluster"
    machine: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One test id, and what its markers say.

    `place`: whose cluster it runs on, its module's own (or one of these) or one that modules share. `chain`: the name
    of the chain of cases that only run together; None for a case that needs no other. `timeout` in seconds, 0 when it
    says none.
    """

    id: str
    place: str
    rotation: bool = False
    chain: str | None = None
    needs: tuple[Need, ...] = ()
    timeout: float = 0


def place_of(item: pytest.Item) -> str:
    shares, apart = (item.get_closest_marker(name) for name in ("shares", "apart"))
    own = f"{item.path.stem} {apart.args[0]}" if apart else item.path.stem
    return shares.args[0] if shares else own


def list_cases(root: Path = ROOT) -> list[Case]:
    """All cases, in the order in which pytest runs them. RuntimeError with what pytest said when it cannot tell."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "cases.json"
        argv = [*PYTEST, "-p", "cases.listing", f"--cases-to={file}", "--collect-only", "-q", "tests/e2e"]
        paths = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(
            argv, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"pytest cannot collect tests/e2e:\n{done.stdout}{done.stderr}")
        return [read_case(found) for found in json.loads(file.read_text())]


def read_case(found: dict[str, Any]) -> Case:
    return Case(**{**found, "needs": tuple(Need(**need) for need in found["needs"])})


# --- the plugin ---------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases-to", metavar="FILE", help="write the cases that were collected into FILE")


def pytest_collection_finish(session: pytest.Session) -> None:
    file = session.config.getoption("--cases-to", default=None)
    if file:
        Path(file).write_text(json.dumps([asdict(case_of_item(item)) for item in session.items]))


def case_of_item(item: pytest.Item) -> Case:
    rotation, chain, timeout = (item.get_closest_marker(name) for name in ("rotation", "chain", "timeout"))
    alone = rotation is not None and rotation.kwargs.get("alone", False)
    return Case(
        id=item.nodeid,
        place=place_of(item),
        rotation=rotation is not None,
        chain=None if chain is None or alone else (*chain.args, "")[0],
        needs=tuple(_need(*mark.args, **mark.kwargs) for mark in item.iter_markers("needs")),
        timeout=float(timeout.args[0]) if timeout else 0.0,
    )


def _need(version: str | None = None, *, group: str = "cluster", machine: bool = False) -> Need:
    return Need(version, group, machine)
