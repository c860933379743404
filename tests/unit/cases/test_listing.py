"""Cases are what pytest collects, with what their markers say."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases.listing import Case, Need, list_cases

CONFIG = """\
[tool.pytest.ini_options]
addopts = "--strict-markers"
markers = ["rotation", "chain", "needs", "shares", "apart", "timeout"]
"""
MODULE = """
import pytest

pytestmark = [pytest.mark.chain, pytest.mark.timeout(900)]


def test_one(): ...


@pytest.mark.rotation
@pytest.mark.needs("v1.37.1")
@pytest.mark.needs("v1.36.4", group="conformance")
def test_two(): ...


@pytest.mark.rotation(alone=True)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", ["n1", "deploy/x"])
def test_three(where): ...


@pytest.mark.chain("power")
@pytest.mark.needs(machine=True)
@pytest.mark.shares("three")
def test_four(): ...


@pytest.fixture(params=[pytest.param("a", marks=pytest.mark.apart("cluster-a")), "b"])
def cluster(request): ...


@pytest.mark.chain("own")
def test_five(cluster): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    (tmp_path / "tests/e2e").mkdir(parents=True)
    return tmp_path


def test_every_case_has_what_its_markers_say(root: Path) -> None:
    (root / "tests/e2e/test_m.py").write_text(MODULE)
    of = "tests/e2e/test_m.py::test_"
    assert list_cases(root) == [
        Case(f"{of}one", "test_m", chain="", timeout=900),
        Case(
            f"{of}two",
            "test_m",
            rotation=True,
            chain="",
            needs=(Need("v1.36.4", "conformance"), Need("v1.37.1")),
            timeout=900,
        ),
        Case(f"{of}three[n1]", "test_m", rotation=True, timeout=1800),
        Case(f"{of}three[deploy/x]", "test_m", rotation=True, timeout=1800),
        Case(f"{of}four", "three", chain="power", needs=(Need(machine=True),), timeout=900),
        Case(f"{of}five[a]", "test_m cluster-a", chain="own", timeout=900),
        Case(f"{of}five[b]", "test_m", chain="own", timeout=900),
    ]


def test_what_cannot_be_collected_is_told_in_the_words_of_pytest(root: Path) -> None:
    (root / "tests/e2e/test_m.py").write_text("import no_such_module\n")
    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        list_cases(root)
