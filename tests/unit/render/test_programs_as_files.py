"""Programs that are files beside the code: they get exactly the values that they name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import autarky
from autarky.payload.agent_content import package_sources
from autarky.programs import SUFFIXES, program


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "greet.sh").write_text('who="@WHO@"\nhow=@HOW@\necho "$how, $who"\n')
    return str(tmp_path / "greet.py")


def test_a_program_gets_its_values(module):
    text = program(module, "greet.sh", who="world", how="hello")
    assert subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True).stdout == "hello, world\n"


def test_a_value_is_not_looked_through_for_others(module):
    assert 'who="@HOW@"' in program(module, "greet.sh", who="@HOW@", how="hello")


@pytest.mark.parametrize("given", [{"who": "world"}, {"who": "world", "how": "hello", "why": "-"}])
def test_one_value_too_few_or_too_many_is_refused(module, given):
    with pytest.raises(ValueError, match=r"greet\.sh"):
        program(module, "greet.sh", **given)


def test_the_agents_image_has_the_programs_of_the_package():
    there = {path for path in Path(autarky.__file__).parent.rglob("*") if path.suffix in SUFFIXES}
    assert {path.name for path in there} >= {"standby.sh", "nllb_script.lua", "doctor.sh"}
    assert there <= set(package_sources())
