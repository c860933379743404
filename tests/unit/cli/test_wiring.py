"""What the composition root refuses before any work is begun."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.cli.wiring import refuse_unfit_machine
from autarky.errors import UserError
from autarky.model.cluster import HostRef
from fakes.clusters import a_cluster


@pytest.fixture(autouse=True)
def _no_tools(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))


def on(driver):
    cluster = a_cluster()
    return replace(cluster, nodes=tuple(replace(node, host=HostRef(driver)) for node in cluster.nodes))


async def test_a_machine_that_cannot_have_test_hosts_is_told_before_anything_is_built():
    with pytest.raises(UserError, match="test hosts need"):
        await refuse_unfit_machine(on("lab"))


async def test_a_cluster_without_test_hosts_needs_none_of_their_tools():
    await refuse_unfit_machine(on("local"))
