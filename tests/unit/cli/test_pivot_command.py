"""`autarky pivot`: which levels it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.cli import up, wiring
from autarky.cli.main import main
from autarky.model.levels import TEXTS
from fakes.clusters import a_cluster


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch):
    """Each cluster that is brought up; the one before hosts its kubelet and leaves etcd out."""
    found = []

    async def bring_up(wanted, *_, **__):
        found.append(wanted.self_hosted_text)

    monkeypatch.setattr(up, "bring_up", bring_up)
    monkeypatch.setattr(wiring, "load_cluster", lambda *_: replace(a_cluster(), hosts_kubelet=True))
    return found


@pytest.mark.parametrize("levels", TEXTS)
def test_levels_are_wanted_as_they_are_named(asked, levels):
    assert main(["pivot", "--to", levels]) == 0
    assert asked == [levels]


@pytest.mark.parametrize("levels", ["0", "2", "03-4"])
def test_levels_that_there_are_not_cannot_be_named(asked, levels):
    assert main(["pivot", "--to", levels]) == 2
    assert asked == []
