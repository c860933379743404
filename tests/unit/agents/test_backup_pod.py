"""What the pod that makes a backup says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky.agents.backup import wiring
from autarky.archive import Sealed
from autarky.archive.contents import Contents, EtcdSeen
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


def test_one_that_lacks_what_a_recovery_needs_says_so_and_no_more_than_a_kubelet_keeps() -> None:
    etcd = EtcdSeen("3.6.16", "c1", 7, 4, 100)
    contents = Contents("demo", "ca", "2026-11-26T00:00:00Z", "n1", "0.1", "v1.37.1", etcd)
    sealed = Sealed(1000, "00" * 32)

    def of(lacks: str) -> dict[str, object]:
        return wiring._result(contents, "f" * 253, sealed, "2026-11-26T00:00:00Z", lacks)

    assert "message" not in of("")
    assert of("a file is in no backup")["message"] == "a file is in no backup"
    assert len(json.dumps(of("x" * 4096))) < wiring.MOST_SAID
