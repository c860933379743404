"""What the pod that makes a backup says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky.agents.backup import wiring
from autarky.errors import AutarkyError, Refused, UserError
from autarky.upkeep.backup import Unfit

REQUEST = json.dumps({"verb": "make", "backup": "b"})


def said(monkeypatch: pytest.MonkeyPatch, directory: Path, error: Exception) -> dict[str, object]:
    async def make(*_: object) -> None:
        raise error

    monkeypatch.setattr(wiring, "_make", make)
    assert wiring.run(REQUEST, directory / "said") == 1
    found = json.loads((directory / "said").read_text())
    assert isinstance(found, dict)
    return found


def test_a_member_that_is_unfit_is_one_nodes_fault_and_another_may_be_tried(monkeypatch, tmp_path: Path) -> None:
    error = Unfit("n1", "its member of etcd does not reach a quorum")
    assert said(monkeypatch, tmp_path, error) == {"error": str(error), "elsewhere": True}


@pytest.mark.parametrize("error", [UserError("no such directory"), Refused("a rule", "seen", "go on"), OSError("disk")])
def test_anything_else_would_be_said_again_elsewhere(monkeypatch, tmp_path: Path, error: AutarkyError) -> None:
    assert said(monkeypatch, tmp_path, error) == {"error": str(error)}
