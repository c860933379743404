"""A store of its own for each test, where every part of autarky finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.payload import Store


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Store()
