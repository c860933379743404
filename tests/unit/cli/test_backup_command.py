"""`autarky backup`: which objects it writes, which backups it gives up, and what it brings to this machine."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from autarky import places
from autarky.archive import Unlock, fresh_identity
from autarky.archive.contents import CONTROL_PLANE
from autarky.archive.sealing import Part
from autarky.cli import backup as command
from autarky.cli import backup_files
from autarky.cli.main import main
from autarky.control.backup.manifests import definitions
from autarky.etcd import snapshots
from autarky.etcd.snapshots import Intact, Tried
from autarky.model.cluster import Node
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.backed_up_host import BackedUpHost
from fakes.clock import LoopClock
from fakes.clusters import a_cluster
from fakes.encrypting import archived, on_host
from fakes.heard_progress import HeardProgress
from fakes.kube import FakeKube

if TYPE_CHECKING:
    from autarky.phases.context import Context

TEMPLATE = {
    "target": {"directory": "/srv/backups"},
    "encryption": {"recipients": ["age1schedule"]},
}
IDENTITY, RECIPIENT = fresh_identity()


@pytest.fixture
def kube() -> FakeKube:
    found = FakeKube()
    for definition in definitions.objects():
        found.put(definition)
    return found


@pytest.fixture(autouse=True)
def cluster(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> dict[str, BackedUpHost]:
    """The hosts of its three control nodes, by their names; a test may change them. The API is `kube`."""
    nodes = a_cluster(controls=3).nodes
    hosts = {node.name: BackedUpHost(node.name) for node in nodes}
    for host in hosts.values():
        said = {"cluster": "demo", "ca": "ca", "node": host.name, "version": "v1.37.1"}
        host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)

    def present(asked: tuple[Node, ...]) -> list[Node]:
        return list(asked)

    @asynccontextmanager
    async def context(*_: object, **__: object) -> AsyncIterator[Any]:
        machines = SimpleNamespace(host=hosts.get)
        yield SimpleNamespace(
            kube=lambda: kube, clock=LoopClock(), present=present, control_nodes=nodes, machines=machines
        )

    monkeypatch.setattr(command, "_context", context)
    return hosts


def run(*arguments: str) -> int:
    return main(["backup", *arguments])


# --- pruning -------------------------------------------------------------------------------------------


def complete(name: str, days: float, schedule: str | None = None, phase: str = "Complete") -> Object:
    """days: how old it is."""
    one = definitions.backup(name, TEMPLATE, schedule)
    one["metadata"]["creationTimestamp"] = f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
    return {**one, "status": {"phase": phase, "file": f"{name}.tar.gz.age"}}


@pytest.fixture
def aged(kube: FakeKube) -> FakeKube:
    """Four of no schedule, three of one, from one to nine days old."""
    for name, days in {"m1": 1, "m3": 3, "m5": 5, "m9": 9}.items():
        kube.put(complete(name, days))
    for name, days in {"s2": 2, "s4": 4, "s6": 6}.items():
        kube.put(complete(name, days, "nightly"))
    kube.put(complete("t8", 8, "weekly"))
    return kube


def backups(kube: FakeKube) -> list[Object]:
    return asyncio.run(kube.list(API_VERSION, definitions.BACKUP))


def removed(kube: FakeKube) -> list[str]:
    found = backups(kube)
    return sorted(one["metadata"]["name"] for one in found if one["spec"]["state"] == definitions.REMOVED)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--keep", "2"], ["m5", "m9"]),
        (["--keep", "1"], ["m3", "m5", "m9"]),
        (["--keep", "4"], []),
        (["--keep", "4", "--days", "3"], ["m5", "m9"]),
        (["--keep", "4", "--days", "6"], ["m9"]),
        (["--keep", "2", "--days", "6"], ["m5", "m9"]),
        (["--keep", "3", "--days", "1"], ["m3", "m5", "m9"]),
        (["--keep", "1", "--schedule", "nightly"], ["s4", "s6"]),
        (["--keep", "3", "--days", "3", "--schedule", "nightly"], ["s6"]),
        (["--keep", "1", "--schedule", "weekly"], []),
        (["--keep", "1", "--schedule", "nobody"], []),
    ],
)
def test_exactly_those_are_given_up_that_are_said(
    aged: FakeKube, capsys: pytest.CaptureFixture[str], arguments: list[str], names: list[str]
) -> None:
    """Of the schedule that is named, or of none: each that goes is named. Ages are counted from the newest, which is
    always kept."""
    assert run("prune", *arguments, "--yes") == 0
    assert removed(aged) == names
    assert sorted(capsys.readouterr().out.split()) == names


def test_the_newest_one_is_kept_however_old_it_is(kube: FakeKube) -> None:
    kube.put(complete("only", 400))
    assert run("prune", "--keep", "1", "--days", "1", "--yes") == 0
    assert removed(kube) == []


def test_one_that_is_not_complete_neither_counts_nor_goes(kube: FakeKube) -> None:
    for name, days, phase in (("a", 1, "Running"), ("b", 2, "Failed"), ("c", 3, "Complete"), ("d", 4, "Complete")):
        kube.put(complete(name, days, phase=phase))
    assert run("prune", "--keep", "1", "--yes") == 0
    assert removed(kube) == ["d"]


@pytest.mark.parametrize("more", [[], ["--yes"]])
def test_a_dry_run_names_them_and_gives_none_up(
    aged: FakeKube, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert run("prune", "--keep", "2", "--dry-run", *more) == 0
    assert sorted(capsys.readouterr().out.split()) == ["m5", "m9"]
    assert removed(aged) == []


def test_without_a_terminal_it_wants_yes_and_gives_none_up(
    aged: FakeKube, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run("prune", "--keep", "2") == 2
    assert "Remove these 2 archives?" in capsys.readouterr().err
    assert removed(aged) == []


@contextmanager
def typed(monkeypatch: pytest.MonkeyPatch, answer: str) -> Iterator[None]:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield
    os.close(ours)


@pytest.mark.parametrize(("answer", "names"), [("n", []), ("", []), ("y", ["m5", "m9"])])
def test_it_asks_before_it_removes(
    aged: FakeKube, monkeypatch: pytest.MonkeyPatch, answer: str, names: list[str]
) -> None:
    with typed(monkeypatch, answer):
        assert (run("prune", "--keep", "2") == 0) == bool(names)
    assert removed(aged) == names


def test_where_there_is_nothing_to_remove_nothing_is_asked(
    aged: FakeKube, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run("prune", "--keep", "9") == 0
    assert capsys.readouterr().out == ""


# --- making one in the cluster -------------------------------------------------------------------------


@pytest.fixture
def asked(kube: FakeKube) -> Callable[..., Object]:
    """The Backup that the command asks for."""

    def ask(*arguments: str) -> Object:
        assert run("create", *arguments, "--no-wait") == 0
        [found] = backups(kube)
        return found

    return ask


def schedule() -> Object:
    spec = {"every": "1d", "template": {**TEMPLATE, "node": "n3"}}
    return {
        "apiVersion": API_VERSION,
        "kind": definitions.SCHEDULE,
        "metadata": {"name": "nightly"},
        "spec": spec,
    }


def test_one_like_a_schedule_has_its_target_and_encryption_and_is_none_of_its_own(
    kube: FakeKube, asked: Callable[..., Object]
) -> None:
    """So its retention does not remove it."""
    kube.put(schedule())
    found = asked("mine", "--like", "nightly")
    assert found["metadata"]["name"] == "mine"
    assert found["spec"] == {**TEMPLATE, "node": "n3", "state": definitions.KEPT}
    assert definitions.OF_SCHEDULE not in (found["metadata"].get("labels") or {})


def test_the_node_may_be_another_one(kube: FakeKube, asked: Callable[..., Object]) -> None:
    kube.put(schedule())
    assert asked("--like", "nightly", "--node", "n2")["spec"]["node"] == "n2"


def test_like_a_schedule_that_is_none_nothing_is_asked_for(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("create", "--like", "nobody", "--no-wait") == 2
    assert "there is no BackupSchedule nobody" in capsys.readouterr().err
    assert backups(kube) == []


def test_a_directory_may_be_named(asked: Callable[..., Object]) -> None:
    found = asked("--directory", "/srv/nfs/backups", "--recipient", RECIPIENT)
    assert found["spec"]["target"] == {"directory": "/srv/nfs/backups"}
    assert found["spec"]["encryption"] == {"recipients": [RECIPIENT]}


def test_without_one_it_is_the_usual_directory(asked: Callable[..., Object]) -> None:
    assert asked("--recipient", RECIPIENT)["spec"]["target"] == {"directory": definitions.DEFAULT_DIRECTORY}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--like", "nightly", "--directory", "/srv"],
        ["--like", "nightly", "--recipient", "age1x"],
        ["--to", "x", "--like", "nightly"],
        ["--to", "x", "--directory", "/srv"],
        ["--without-quorum", "--recipient", RECIPIENT],
    ],
)
def test_what_does_not_go_together_is_refused(kube: FakeKube, arguments: list[str]) -> None:
    kube.put(schedule())
    assert run("create", *arguments) == 2
    assert backups(kube) == []


# --- looking -------------------------------------------------------------------------------------------


def test_they_are_listed_in_the_order_in_which_they_were_made(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the clocks said then."""
    for number, days in enumerate((3, -365, 2, 20000, 1), 1):
        one = complete(f"b{number}", days)
        kube.put({**one, "status": {**one["status"], "revision": number}})
    assert run("list", "-o", "json") == 0
    found = [one["metadata"]["name"] for one in json.loads(capsys.readouterr().out)]
    assert found == ["b1", "b2", "b3", "b4", "b5"]


def test_one_from_the_future_does_not_cost_the_one_that_was_made_after_it(kube: FakeKube) -> None:
    for number, days in enumerate((-365, 1), 1):
        one = complete(f"b{number}", days)
        kube.put({**one, "status": {**one["status"], "revision": number}})
    assert run("prune", "--keep", "1", "--yes") == 0
    assert removed(kube) == ["b1"]


def test_one_is_shown_by_its_name(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    kube.put(complete("b", 1))
    assert run("show", "b") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["metadata"]["name"], found["status"]["file"]) == ("b", "b.tar.gz.age")


def test_a_name_that_is_none_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "nobody") == 2
    assert "there is neither a file nor a Backup nobody" in capsys.readouterr().err


# --- to this machine -----------------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is tried by reading it."""

    async def tried(snapshot: Path, *_: object, **__: object) -> Tried:
        return Tried(json.loads(snapshot.read_bytes())["revision"], 4)

    monkeypatch.setattr(backup_files, "_tried", tried)
    monkeypatch.setattr(snapshots, "intact", _intact)


def _intact(path: Path) -> Intact:
    content = path.read_bytes()
    return Intact(len(content), sha256(content).hexdigest())


def bring(target: Path, *arguments: str) -> int:
    return run("create", "--to", str(target), "--recipient", RECIPIENT, "-o", "plain", *arguments)


def shown(target: Path) -> dict[str, Any]:
    found = json.loads(backup_files.manifest(target, Unlock((IDENTITY,))))
    beside = json.loads(backup_files.manifest(target, Unlock()))
    assert found["etcd"] == beside["etcd"], "with a key and without one"
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("trials")
def test_a_member_that_is_cut_off_is_passed_over(cluster: dict[str, BackedUpHost], tmp_path: Path) -> None:
    cluster["n1"].quorum, cluster["n2"].answers = None, False
    assert bring(tmp_path / "b.age") == 0
    assert (shown(tmp_path / "b.age")["node"], shown(tmp_path / "b.age")["etcd"]["quorum"]) == ("n3", True)
    assert [cluster[name].saved for name in ("n1", "n2", "n3")] == [0, 0, 1]


@pytest.mark.usefixtures("trials", "cluster")
def test_a_file_without_a_directory_is_made_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd's programs, which look at it, run in directories of their own."""
    monkeypatch.chdir(tmp_path)
    asked = backup_files._tried

    async def tried(snapshot: Path, *rest: Any, **named: Any) -> Tried:
        assert snapshot.is_absolute()
        return await asked(snapshot, *rest, **named)

    monkeypatch.setattr(backup_files, "_tried", tried)
    assert bring(Path("b.age")) == 0
    assert (tmp_path / "b.age").exists()


@pytest.mark.usefixtures("trials")
@pytest.mark.parametrize("arguments", [[], ["--node", "n2"]])
def test_without_a_quorum_none_is_made(
    cluster: dict[str, BackedUpHost], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Or where the member that is named has lost the others."""
    for host in cluster.values() if not arguments else [cluster["n2"]]:
        host.quorum = None
    assert bring(tmp_path / "b.age", *arguments) == 6
    said = capsys.readouterr().err
    assert "a backup has all that etcd has acknowledged" in said
    assert "n2: its member of etcd does not reach a quorum" in said
    assert "--without-quorum" in said
    assert list(tmp_path.glob("b*")) == []
    assert all(host.saved == 0 for host in cluster.values())


@pytest.mark.usefixtures("trials")
def test_if_somebody_wants_it_all_the_same_it_is_of_the_latest_log_and_says_what_it_is(
    cluster: dict[str, BackedUpHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, entry in zip(cluster.values(), [(3, 900), (4, 20), (3, 950)], strict=True):
        host.quorum, host.entry = None, entry
    assert bring(tmp_path / "b.age", "--without-quorum") == 0
    assert "it may lack writes" in capsys.readouterr().err
    assert (shown(tmp_path / "b.age")["node"], shown(tmp_path / "b.age")["etcd"]["quorum"]) == ("n2", False)


@pytest.mark.usefixtures("trials")
def test_with_a_quorum_the_option_changes_nothing(cluster: dict[str, BackedUpHost], tmp_path: Path) -> None:
    cluster["n1"].quorum = None
    assert bring(tmp_path / "b.age", "--without-quorum") == 0
    assert (shown(tmp_path / "b.age")["node"], shown(tmp_path / "b.age")["etcd"]["quorum"]) == ("n2", True)


@pytest.mark.usefixtures("trials")
def test_a_snapshot_that_lacks_what_the_quorum_had_is_no_backup(
    cluster: dict[str, BackedUpHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster["n1"].quorum, cluster["n1"].own = 700, 12
    assert bring(tmp_path / "b.age") == 6
    assert "of revision 12, and the quorum had 700 before" in capsys.readouterr().err
    assert list(tmp_path.glob("b*")) == []


@pytest.mark.usefixtures("trials")
def test_it_says_the_version_that_etcd_has_of_the_control_plane_and_has_that(
    cluster: dict[str, BackedUpHost], tmp_path: Path
) -> None:
    """The hosts' markers say another one, and the API may be down."""
    plane = {"spec": {"version": "v1.38.0"}, "status": {"version": "v1.38.0", "nodes": ["many"]}}
    cluster["n1"].plane = json.dumps(plane)
    assert bring(tmp_path / "b.age") == 0
    assert shown(tmp_path / "b.age")["kubernetes"] == "v1.38.0"
    assert CONTROL_PLANE in shown(tmp_path / "b.age")["files"]
    cluster["n1"].plane = "k8s:enc:x"
    assert bring(tmp_path / "c.age") == 0
    assert shown(tmp_path / "c.age")["kubernetes"] == "v1.37.1"


# --- what a recovery would lack ------------------------------------------------------------------------


@pytest.mark.usefixtures("trials")
@pytest.mark.parametrize("directory", ["/etc/keys", places.PKI])
def test_a_file_that_the_api_server_needs_and_no_backup_has_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    async def files_of(_: object) -> list[Part]:
        found = {**archived(on_host(directory)), f"host{places.PKI}/config.yaml": b"kind: x"}
        return [Part(name, content) for name, content in found.items()]

    monkeypatch.setattr("autarky.upkeep.backup.files_of", files_of)
    assert bring(tmp_path / "b.age") == 0
    lacks = "encrypted with /etc/keys/config.yaml, which is in no backup" in capsys.readouterr().err
    assert lacks == (directory != places.PKI)


def test_so_does_the_command_that_waits_for_the_pod(kube: FakeKube) -> None:
    one, heard = complete("b", 0), HeardProgress()
    status = {"node": "n1", "size": 10, "keys": 4, "message": "a file is in no backup"}
    kube.put({**one, "status": {**one["status"], **status}})
    context = SimpleNamespace(kube=lambda: kube, clock=LoopClock())
    asyncio.run(command._complete(cast("Context", context), "b", heard))
    assert heard.notes[-1] == "a file is in no backup"
