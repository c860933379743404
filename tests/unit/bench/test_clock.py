"""What of `up` is on the benchmark's clock."""

from __future__ import annotations

from _autarky import AutarkyCluster
from _product import THIS_TREE

from autarky.workflows.up import PHASES

BEFORE = (
    *("check-file", "get-payload", "create-hosts", "check-hosts", "upgrade-control-plane", "get-followed"),
    *("issue-certificates", "write-kubeconfig"),
    *("forget-replaced", "prepare-external-etcd", "prepare-hosts", "check-external-etcd", "change-etcd"),
)


def test_the_start_of_the_control_plane_and_all_that_follows_is_on_the_clock_and_what_prepares_hosts_is_not():
    assert THIS_TREE.clocked[0] == "start-control-plane"
    assert (*BEFORE, *THIS_TREE.clocked) == tuple(phase.name for phase in PHASES)


def test_hosts_are_prepared_by_all_other_phases(monkeypatch):
    called = []
    monkeypatch.setattr(AutarkyCluster, "write", lambda _: None)
    monkeypatch.setattr(AutarkyCluster, "up", lambda _, *options: called.append(options))
    AutarkyCluster("one").prepare()
    assert called == [tuple(f"--skip={name}" for name in THIS_TREE.clocked)]
