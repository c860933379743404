"""A node whose agent changes its kubelet."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.control.kubelet.node import change
from unit.control.kubelet.node_scene import Host, on_disk


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(on_disk(tmp_path / "root"))
    monkeypatch.setattr(change, "plain_status", found.healthz)
    return found
