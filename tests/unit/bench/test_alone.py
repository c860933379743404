"""A run is the only one, and nothing of an interrupted one goes on beside it."""

from __future__ import annotations

import subprocess

import pytest
from _alone import alone, take_leftovers_away
from _autarky import AutarkyCluster
from _product import THIS_TREE

from autarky.lab import Lab
from autarky.lab.lab import HostRecord


@pytest.fixture
def state(monkeypatch, tmp_path):
    monkeypatch.setattr("_alone.STATE", tmp_path)
    monkeypatch.setattr("_autarky.STATE", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_second_run_is_refused_while_the_first_goes_on(state):
    with alone(), pytest.raises(SystemExit, match="another run of benchmarks goes on"), alone():
        pass
    with alone():
        assert (state / "lock").exists()


async def test_clusters_and_labs_of_all_benchmarks_are_taken_away_by_the_command_first(state, monkeypatch):
    done = []

    async def lab_down(lab):
        done.append(lab.name)

    monkeypatch.setattr(subprocess, "run", lambda argv, **_: done.append(argv[3:]))
    monkeypatch.setattr(Lab, "down", lab_down)
    for name in ("bench-up", "bench-ha"):
        (state / f"{name}.yaml").write_text("{}")
    for name in ("bench-up-kubeadm", "bench-ha"):
        (state / f"autarky/labs/{name}").mkdir(parents=True)
        (state / f"autarky/labs/{name}/lab.json").write_text("{}")
    await take_leftovers_away(THIS_TREE)
    assert done == [
        *(["down", "-f", str(state / f"{name}.yaml"), "--yes"] for name in ("bench-ha", "bench-up")),
        *("bench-ha", "bench-up-kubeadm"),
    ]


async def test_the_labs_of_its_user_are_not_taken_away(state, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent / "of the user"))
    monkeypatch.setattr(Lab, "all", lambda: pytest.fail("these are not a benchmark's"))
    with pytest.raises(AssertionError, match="not a benchmark's to take away"):
        await take_leftovers_away(THIS_TREE)


@pytest.mark.parametrize("running", [True, False])
def test_a_cluster_that_was_taken_away_and_runs_on_ends_the_run(state, monkeypatch, running):
    """It would take from what is measured next."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    monkeypatch.setattr(HostRecord, "running", property(lambda _: running))
    (state / "autarky/labs/one").mkdir(parents=True)
    (state / "autarky/labs/one/lab.json").write_text('{"hosts": {"n1": {"address": "10.8.0.2"}}}')
    if not running:
        AutarkyCluster("one").down()
        return
    with pytest.raises(SystemExit, match="has left hosts of one running: n1"):
        AutarkyCluster("one").down()
