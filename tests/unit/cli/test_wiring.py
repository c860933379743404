"""What the composition root refuses before any work is begun, and what it knows of clusters that are there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky.cli import main
from autarky.cli.wiring import ClusterMachines, build_context, directory_of, founded, load_cluster, refuse_unfit_machine
from autarky.engine.host_lock import HostLocks
from autarky.errors import UserError
from autarky.model.cluster import HostRef
from autarky.model.defaults import Had
from autarky.model.versions import Version
from autarky.payload import (
    Release,
    Store,
    default_version,
    etcd_version,
    image_reference,
    known_versions,
    load_release,
)
from autarky.payload.release import forget_releases
from autarky.phases import kept_file
from autarky.render.values import pretty_json
from fakes.clusters import FACTS, a_cluster
from fakes.editions import a_later_release
from fakes.host import FakeHost


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


@pytest.mark.parametrize(("minority", "locked"), [(False, {"n1", "n2", "n3", "n4"}), (True, {"n1", "n2", "n3"})])
async def test_a_worker_has_no_say_in_what_has_to_work_without_it(monkeypatch, minority, locked):
    """Whoever is root there could hold its lock forever, or lose it in the middle of a recovery."""
    cluster = a_cluster(controls=3, workers=1)
    hosts, taken = {node.name: FakeHost(node.name, FACTS) for node in cluster.nodes}, set()

    async def take(_self, asked):
        taken.update(asked)

    monkeypatch.setattr(HostLocks, "take", take)
    monkeypatch.setattr(ClusterMachines, "_find", lambda _self, name: hosts[name])
    machines = ClusterMachines(cluster, load_release(default_version()))
    async with machines.locked("autarky x", print, minority=minority):
        assert taken == locked


@pytest.mark.parametrize("passed", [set(), {"n4"}, {"n1", "n4", "n5"}])
async def test_only_workers_that_a_command_can_do_without_are_passed_over(monkeypatch, passed):
    cluster = a_cluster(controls=3, workers=2)
    seen: list[frozenset[str]] = []

    async def take(locks, _asked):
        seen.append(locks.workers)

    monkeypatch.setattr(HostLocks, "take", take)
    monkeypatch.setattr(ClusterMachines, "_find", lambda _self, name: FakeHost(name, FACTS))
    machines = ClusterMachines(cluster, load_release(default_version()))
    async with machines.locked("autarky x", print, passes_workers=passed):
        assert seen == [passed - {"n1"}]


# --- what a cluster that is there has --------------------------------------------------------------------------


KEPT = {"spec": {"kubernetesVersion": "1.36.4"}}
FILE = {
    "apiVersion": "autarky.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "demo"},
    "spec": {"nodes": [{"name": "n1"}]},
}


OLD = json.dumps({**FILE, "spec": {"nodes": [{"name": "n1"}], "kubernetesVersion": "1.20.0"}}).encode()

OLD_ETCD = json.dumps(
    {
        **FILE,
        "spec": {
            "nodes": [{"name": "n1"}],
            "kubernetesVersion": str(default_version()).removeprefix("v"),
            "etcd": {"version": "3.5.1"},
        },
    }
).encode()


def keep(tmp_path, content: bytes) -> None:
    directory = tmp_path / "autarky/clusters/demo"
    directory.mkdir(parents=True)
    (directory / "cluster.json").write_bytes(content)


def named_in_a_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(json.dumps(FILE))
    return load_cluster(path, None)


def test_a_file_that_names_no_version_is_of_the_version_of_the_cluster_whatever_the_default_is_now(
    tmp_path, monkeypatch
):
    a_later_release(monkeypatch)
    new = named_in_a_file(tmp_path)
    assert (str(new.kubernetes_version), new.defaults) == ("v1.37.1", 2)
    keep(tmp_path, json.dumps(KEPT).encode())
    there = named_in_a_file(tmp_path)
    assert (str(there.kubernetes_version), there.defaults) == ("v1.36.4", 1)


def test_a_file_that_was_kept_and_never_applied_has_given_the_cluster_nothing(tmp_path, monkeypatch):
    """Its `up` was stopped, and its lines are gone: it counts what the cluster has."""
    a_later_release(monkeypatch)
    directory = tmp_path / "autarky/clusters/demo"
    kept_file.write(directory, pretty_json({"spec": {"kubernetesVersion": "1.36.4", "defaults": 1}}))
    kept_file.settle(directory)
    for number in (1, 2):  # a file that is in between changes nothing about it
        refused = {"kubernetesVersion": "1.37.1", "defaults": 2, "selfHosted": f"{number}-4"}
        kept_file.write(directory, pretty_json({"spec": refused}))
    there = named_in_a_file(tmp_path)
    assert (str(there.kubernetes_version), there.defaults) == ("v1.36.4", 1)
    kept_file.settle(directory)
    applied = named_in_a_file(tmp_path)
    assert (str(applied.kubernetes_version), applied.defaults) == ("v1.37.1", 2)


@pytest.mark.parametrize("before", [b"", b"[]", b"[7]", b"{}", b'[{"spec": 7}]', b"[" * 100_000])
def test_what_was_kept_before_and_cannot_be_read_leaves_what_is_kept(tmp_path, before):
    keep(tmp_path, json.dumps(KEPT).encode())
    (tmp_path / "autarky/clusters/demo/cluster.before.json").write_bytes(before)
    assert founded("demo") == Had(1, Version(1, 36, 4))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"spec": 7}', b"[" * 100_000])
def test_a_kept_file_that_cannot_be_read_is_as_good_as_none(tmp_path, content):
    assert founded("demo") is None
    keep(tmp_path, content)
    assert founded("demo") is None


# --- a cluster of a version that is not known any more ----------------------------------------------------------


def test_a_cluster_of_a_release_that_is_gone_can_be_looked_at_and_taken_away(tmp_path):
    keep(tmp_path, OLD)
    with pytest.raises(UserError, match=r"no release file for v1\.20\.0"):
        load_cluster(None, None)
    found = load_cluster(None, None, any_release=True)
    context = build_context(found)
    assert context.release.kubernetes == found.kubernetes_version == Version(1, 20, 0)
    assert directory_of(None, None) == tmp_path / "autarky/clusters/demo"


def test_a_cluster_of_an_etcd_that_is_gone_can_be_looked_at_and_taken_away(tmp_path):
    keep(tmp_path, OLD_ETCD)
    with pytest.raises(UserError, match=r"etcd v3\.5\.1 is not known"):
        load_cluster(None, None)
    context = build_context(load_cluster(None, None, any_release=True))
    assert context.release.kubernetes == default_version()
    with pytest.raises(UserError, match=r"is made with a version of etcd that is not known.*\n  fix: .*"):
        etcd_version(context.release)
    with pytest.raises(UserError, match="that is not known"):
        image_reference(context.release, "kube-apiserver")


def test_a_control_plane_of_another_version_changes_nothing_about_an_etcd_that_is_gone(tmp_path):
    keep(tmp_path, OLD_ETCD)
    context = build_context(load_cluster(None, None, any_release=True))
    another = next(version for version in known_versions() if version != default_version())
    context.use_version(another)
    assert context.release == Release.unknown(another)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["status"], 1, "Kubernetes {version}"),
        (["doctor"], 1, "n1: its host does not answer"),
        (["logs", "etcd"], 2, "the machine of node n1 is not running"),
        (["node", "list"], 0, "n1"),
        (["down", "--yes"], 0, "cluster demo is gone"),
    ],
)
@pytest.mark.parametrize("kept", ["kubernetes", "etcd"])
def test_the_commands_that_look_and_take_away_do_not_stop_at_its_version(tmp_path, command, status, said, kept, capsys):
    """No host of it is there: they come as far as that."""
    keep(tmp_path, OLD if kept == "kubernetes" else OLD_ETCD)
    said = said.format(version="v1.20.0" if kept == "kubernetes" else default_version())
    try:
        ended: object = main.main(command)
    except SystemExit as end:  # something is wrong with it
        ended = end.code
    assert said in "".join(capsys.readouterr())
    assert ended == status


def test_a_release_file_that_cannot_be_used_is_told_where_it_is_needed_and_only_there(tmp_path, monkeypatch):
    releases = tmp_path / "releases"
    releases.mkdir()
    (releases / "v1.20.0.json").write_text("{")
    monkeypatch.setenv("AUTARKY_RELEASES", str(releases))
    forget_releases()
    try:
        assert named_in_a_file(tmp_path).name == "demo", "of another version"
        keep(tmp_path, OLD)
        with pytest.raises(UserError, match=r"v1\.20\.0\.json: it is not a release file"):
            load_cluster(None, None)
        assert build_context(load_cluster(None, None, any_release=True)).release.images == ()
    finally:
        forget_releases()


@pytest.mark.parametrize("command", [["up"], ["plan"]])
@pytest.mark.parametrize("kept", ["kubernetes", "etcd"])
def test_the_commands_that_change_it_do(tmp_path, command, kept, capsys):
    keep(tmp_path, OLD if kept == "kubernetes" else OLD_ETCD)
    assert main.main(command) == 2
    said = "there is no release file for v1.20.0" if kept == "kubernetes" else "etcd v3.5.1 is not known"
    assert said in capsys.readouterr().err


def a_store(tmp_path, monkeypatch) -> Store:
    """With something that no known release leads to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store()
    with store.scratch("build") as scratch:
        (scratch / "built").write_bytes(b"of the user's own release")
        digest, _ = store.add(scratch / "built")
    store.write_record("key", {"sha256": digest, "size": 1, "name": "kubelet"})
    return store


@pytest.mark.parametrize(
    ("kept", "said"),
    [(OLD, "cluster demo is of Kubernetes v1.20.0"), (OLD_ETCD, "cluster demo is of etcd v3.5.1"), (b"{", "demo")],
)
def test_nothing_of_the_store_goes_while_a_cluster_is_of_a_version_that_is_not_known(
    tmp_path, monkeypatch, capsys, kept, said
):
    """Its release file is elsewhere, perhaps: what its cluster runs could not be built again here."""
    keep(tmp_path, kept)
    store = a_store(tmp_path, monkeypatch)
    assert main.main(["payload", "prune"]) == 2
    reported = capsys.readouterr().err
    assert said in reported
    assert kept == b"{" or "AUTARKY_RELEASES" in reported
    assert [path.read_bytes() for path in store.blobs()] == [b"of the user's own release"]


def test_what_nothing_needs_goes_where_all_clusters_are_of_known_versions(tmp_path, monkeypatch):
    keep(tmp_path, json.dumps(FILE).encode())
    store = a_store(tmp_path, monkeypatch)
    assert main.main(["payload", "prune"]) == 0
    assert list(store.blobs()) == []
