"""Archives that do not fit are refused by `restore` and `recover` before any host is touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from autarky import places
from autarky.archive import Directory, Lock, Unlock, fresh_identity
from autarky.archive.contents import CLUSTER_FILE
from autarky.archive.keeping import keep
from autarky.archive.sealing import Part
from autarky.cli import backup_files, recover, restore
from autarky.config import dump, loads
from autarky.control.cluster_file.decide.records import Record
from autarky.errors import AutarkyError, Refused, UserError
from autarky.etcd.snapshots import Tried, intact
from autarky.model.cluster import Cluster
from autarky.model.files import File
from autarky.model.fingerprint import fingerprint
from autarky.model.versions import Version
from autarky.payload import default_version, known_etcd_versions, known_versions, load_release
from autarky.phases.recovery.machines import TakeRoots
from autarky.pki import PkiStore
from autarky.pki.issue import Pair, issue_ca
from autarky.pki.keys import new_key
from autarky.render import cluster_record
from autarky.upkeep.backup import Marker, Snapshot, Taken, archive_of
from fakes.clusters import facts_of
from fakes.host import FakeHost

if TYPE_CHECKING:
    from autarky.phases.context import Context

IDENTITY, RECIPIENT = fresh_identity()
KEYS = 4
pytestmark = pytest.mark.looptime


def a_ca() -> Pair:
    return issue_ca("ca", new_key("EC"), datetime.now(UTC), 30)


OURS, OTHER = a_ca(), a_ca()
CA, OTHER_CA = OURS.certificate, OTHER.certificate
KEYS_OF = {pair.certificate: pair.key for pair in (OURS, OTHER)}


class Reached(Exception):
    """The command goes on to the hosts."""


@pytest.fixture
def demo() -> Cluster:
    document = {
        "apiVersion": "autarky.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "demo"},
        "spec": {"nodes": [{"name": "n1", "host": "lab"}]},
    }
    return loads(json.dumps(document), "file", default_version=default_version(), known_versions=known_versions())


@pytest.fixture
def hosts(demo: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, FakeHost]:
    """Whoever asks for them has `Reached` them. The cluster's CA is known here, and a snapshot is tried by counting."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pki = places.cluster_dir(demo.name) / "pki"
    pki.mkdir(parents=True)
    (pki / "ca.crt").write_bytes(CA)
    addressed = replace(demo, nodes=tuple(replace(node, address="192.0.2.11") for node in demo.nodes))
    found = {name: FakeHost(name, facts) for name, facts in facts_of(addressed).items()}

    def reached(*_: object, **__: object) -> None:
        raise Reached

    async def tried(snapshot: Path, *_: object, **__: object) -> Tried:
        return Tried(7, KEYS)

    monkeypatch.setattr("autarky.cli.wiring.build_context", reached)
    monkeypatch.setattr("autarky.cli.up.bring_up", reached)
    monkeypatch.setattr(backup_files, "_tried", tried)
    return found


def newest_etcd(cluster: Cluster) -> str:
    return next(one.version for one in load_release(cluster.kubernetes_version).components if one.name == "etcd")


@pytest.fixture
def sealed(demo: Cluster, tmp_path: Path) -> Callable[..., Path]:
    """An archive of the cluster, in which something may be different."""

    def seal(
        *,
        name: str = "demo",
        ca: bytes = CA,
        key: bytes | None = None,
        etcd: str = "",
        kubernetes: str = "",
        keys: int = KEYS,
        revision: int = 7,
    ) -> Path:
        content = b"a database"
        local = tmp_path / "snapshot.db"
        local.write_bytes(content + sha256(content).digest())
        marker = Marker(name, str(fingerprint(ca)), "n1", kubernetes or str(demo.kubernetes_version))
        taken = Taken("x", 10, etcd or newest_etcd(demo), 0xC1, ("n1",), 7)
        snapshot = Snapshot(local, taken, intact(local), Tried(revision, keys))
        roots = {"ca.crt": ca, "ca.key": KEYS_OF[ca] if key is None else key, "sa.key": KEYS_OF[ca]}
        files = [Part(f"host/etc/kubernetes/pki/{one}", content) for one, content in roots.items() if content]
        record = cluster_record.record(dump(demo), b"{}", None)
        cluster = {CLUSTER_FILE: record}
        contents, parts = archive_of(marker, snapshot, files, made="now", autarky="0.1", cluster=cluster)
        target = tmp_path / "archives"
        target.mkdir(exist_ok=True)
        keep(Directory(target), "b.tar.gz.age", contents, parts, Lock((RECIPIENT,)), lambda: "now")
        return target / "b.tar.gz.age"

    return seal


async def restored(demo: Cluster, archive: Path) -> None:
    await restore._restore(demo, archive, Unlock((IDENTITY,)), None, "plain", dry_run=False)


async def recovered(demo: Cluster, archive: Path) -> None:
    """With the cluster file that is in it."""
    await recover._recover(None, archive, Unlock((IDENTITY,)), "plain", dry_run=False)


BOTH = pytest.mark.parametrize("command", [restored, recovered])
LATER = "99.0.0"


@BOTH
async def test_one_that_fits_is_taken_to_the_hosts(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any
) -> None:
    """So the others of these tests can fail."""
    with pytest.raises(Reached):
        await command(demo, sealed())


async def refused(
    command: Any, hosts: dict[str, FakeHost], demo: Cluster, archive: Path, error: type[AutarkyError], said: str
) -> None:
    with pytest.raises(error, match=said):
        await command(demo, archive)
    assert [host.log for host in hosts.values()] == [[]]


async def test_one_of_another_ca_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path]
) -> None:
    """Whatever name it has. `recover` takes the CA of the archive, and compares the name instead."""
    said = "a cluster is restored from its own backups"
    await refused(restored, hosts, demo, sealed(ca=OTHER_CA), Refused, said)


@BOTH
@pytest.mark.parametrize("key", [b"", OTHER.key, b"nonsense"], ids=["none", "another", "nonsense"])
async def test_one_without_the_key_of_the_ca_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any, key: bytes
) -> None:
    """Who knows a recipient can seal an archive, and the CA's fingerprint is in every kubeconfig."""
    await refused(command, hosts, demo, sealed(key=key), Refused, "it may be made by anybody who knows a recipient")


async def test_one_whose_name_is_another_than_that_of_the_file_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path]
) -> None:
    await refused(recovered, hosts, demo, sealed(name="other"), Refused, "a recovered cluster keeps its name")


async def test_where_this_machine_knows_another_cluster_of_that_name_its_cas_stay(
    hosts: dict[str, FakeHost], demo: Cluster, tmp_path: Path
) -> None:
    """`recover` would replace them by those of the archive."""
    store = PkiStore(places.cluster_dir(demo.name) / "pki")
    context = cast("Context", SimpleNamespace(pki=store, directory=store.directory.parent, cluster=demo, records={}))
    roots = {"ca.crt": OTHER_CA, "ca.key": b"key", "sa.key": b"key"}
    with pytest.raises(UserError, match="has another cluster named demo"):
        await TakeRoots(roots, Record({}, {}), File("begun", b"")).plan(context)
    assert (store.directory / "ca.crt").read_bytes() == CA


@BOTH
async def test_one_of_a_later_etcd_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any
) -> None:
    said = f"its snapshot is of etcd {LATER}, and this cluster has etcd {newest_etcd(demo)}"
    await refused(command, hosts, demo, sealed(etcd=LATER), Refused, said)


async def test_one_of_an_etcd_that_the_hosts_may_have_is_judged_there(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path]
) -> None:
    """An edit of the ControlPlane may have brought it (tests/unit/phases/recovery/test_taken_back.py)."""
    newest = str(max(known_etcd_versions())).removeprefix("v")
    with pytest.raises(Reached):
        await restored(demo, sealed(etcd=newest))


def another(demo: Cluster) -> Version:
    return next(one for one in known_versions() if one != demo.kubernetes_version)


async def test_one_of_another_version_than_the_file_names_is_judged_by_what_the_hosts_have(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path]
) -> None:
    """An upgrade through the API does not change the file (tests/unit/phases/recovery/test_taken_back.py)."""
    with pytest.raises(Reached):
        await restored(demo, sealed(kubernetes=str(another(demo))))


@BOTH
async def test_one_that_says_no_version_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any
) -> None:
    await refused(command, hosts, demo, sealed(kubernetes="latest"), UserError, "is no version of Kubernetes")


async def test_new_machines_come_up_with_the_version_that_has_written_the_backup(
    hosts: dict[str, FakeHost],
    demo: Cluster,
    sealed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file in it is that of before an upgrade through the API."""
    brought: list[Version] = []

    async def bring_up(found: Cluster, *_: object, by_file: bool, **__: object) -> None:
        assert by_file, "the record in the backup, which has another version, is no file of another machine"
        brought.append(found.kubernetes_version)

    monkeypatch.setattr("autarky.cli.up.bring_up", bring_up)
    await recovered(demo, sealed(kubernetes=str(another(demo))))
    assert brought == [another(demo)]
    assert f"and the backup was made with {another(demo)}" in capsys.readouterr().err


async def test_a_file_for_new_machines_must_name_the_version_that_has_written_the_backup(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], tmp_path: Path
) -> None:
    """Later `up` would take any other one as a new request."""
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps(dump(demo)))
    archive = sealed(kubernetes=str(another(demo)))
    with pytest.raises(Refused, match="the backup was made with Kubernetes") as found:
        await recover._recover(file, archive, Unlock((IDENTITY,)), "plain", dry_run=False)
    bare = str(another(demo)).removeprefix("v")
    assert f'write kubernetesVersion: "{bare}" in the file' in str(found.value)
    file.write_text(json.dumps(dump(replace(demo, kubernetes_version=another(demo)))))
    with pytest.raises(Reached):
        await recover._recover(file, archive, Unlock((IDENTITY,)), "plain", dry_run=False)


@BOTH
@pytest.mark.parametrize("different", [{"keys": KEYS + 1}, {"revision": 8}])
async def test_one_in_which_an_etcd_finds_something_else_than_it_had_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any, different: dict[str, int]
) -> None:
    await refused(command, hosts, demo, sealed(**different), UserError, "an etcd that is started from it has 4 keys")


@BOTH
async def test_one_that_is_damaged_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any
) -> None:
    archive = sealed()
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    await refused(command, hosts, demo, archive, UserError, "is not what .* says")
    archive.with_name("b.json").unlink()
    await refused(command, hosts, demo, archive, UserError, "damaged")
