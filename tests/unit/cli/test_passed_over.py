"""Which commands begin without the lock of a worker: whoever is root there could keep it from everybody."""

from __future__ import annotations

import json

import pytest

from autarky.cli import down, node, up, upgrade
from autarky.cli.main import main
from autarky.errors import UserError
from autarky.phases.context import memory_of
from autarky.places import cluster_dir
from fakes.clusters import a_cluster

NODES = [{"name": f"n{number}", "host": "ssh://n" + str(number)} for number in range(1, 5)]
FILE = {
    "apiVersion": "autarky.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "demo"},
    "spec": {"nodes": [{**NODES[0], "roles": ["control-plane"]}, *NODES[1:]]},
}


@pytest.fixture
def passed(monkeypatch) -> list[set[str]]:
    """What each command that was begun could do without. n4 is new: this machine has never known it."""
    kept = cluster_dir("demo")
    kept.mkdir(parents=True)
    (kept / "cluster.json").write_text(json.dumps(FILE))
    (kept / "nodes.json").write_bytes(memory_of(a_cluster(controls=1, workers=2).nodes))
    found: list[set[str]] = []

    async def begin(*_arguments, hosts_locked, **_more):
        found.append(set(hosts_locked.keywords["passes_workers"]))
        raise UserError("it was begun")

    for module in (down, node, up, upgrade):
        monkeypatch.setattr(module, "run_phases", begin)
    return found


@pytest.mark.parametrize(
    "command",
    [["down", "--yes"], ["node", "remove", "n2", "--yes"], ["upgrade", "1.37.1"]],
    ids=lambda command: command[0],
)
def test_what_needs_no_worker_begins_without_any(passed, command):
    assert main(command) == 2
    assert passed == [{"n2", "n3", "n4"}]


def test_up_begins_without_those_that_it_knows_and_not_without_a_machine_that_may_be_becoming_another_clusters(passed):
    assert main(["up"]) == 2
    [found] = passed
    assert "n4" not in found
    assert found >= {"n2", "n3"}
