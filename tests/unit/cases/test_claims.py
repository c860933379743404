"""No run of tests takes down what another one works on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cases import claims

HOLDS = "import sys; sys.path.insert(0, sys.argv[1]); import pathlib; from cases import claims\n"
HOLDS += "claims.claim('t-one', pathlib.Path(sys.argv[2])); print('held', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(claims, "_claimed", {})


@pytest.fixture
def another(tmp_path):
    """A run that has claimed t-one; it ends with what is written to it."""
    argv = [sys.executable, "-c", HOLDS, str(Path(claims.__file__).parents[1]), str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process


def test_what_another_run_works_on_is_refused_by_name_and_process(another, tmp_path):
    with pytest.raises(claims.Claimed, match=rf"works on t-one \(process {another.pid}\)"):
        claims.claim("t-one", tmp_path)
    claims.claim("t-another", tmp_path)


def test_a_run_that_was_killed_holds_nothing(another, tmp_path):
    another.kill()
    another.wait()
    claims.claim("t-one", tmp_path)


def test_the_same_run_may_claim_again(tmp_path):
    claims.claim("t-one", tmp_path)
    claims.claim("t-one", tmp_path)
