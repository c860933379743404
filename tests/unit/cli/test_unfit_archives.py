"""Archives that do not fit are refused by `restore` and `recover` before any host is touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from autarky import places
from autarky.archive import Directory, Lock, Unlock, fresh_identity
from autarky.archive.contents import CLUSTER_FILE
from autarky.archive.keeping import keep
from autarky.archive.sealing import Part
from autarky.cli import backup_files, recover, restore
from autarky.cli.main import main
from autarky.config import dump, loads
from autarky.control.backup.decide.readers import Readers, lacking, sentence
from autarky.control.cluster_file.decide.records import Record
from autarky.errors import AutarkyError, Refused, UserError
from autarky.etcd.snapshots import Tried, intact
from autarky.model.cluster import Cluster
from autarky.model.files import File
from autarky.model.fingerprint import fingerprint
from autarky.model.versions import Version
from autarky.payload import default_version, known_etcd_versions, known_versions, load_release
from autarky.phases.recovery.encryption import PutEncryption, TakeEncryption
from autarky.phases.recovery.machines import TakeRoots
from autarky.pki import PkiStore
from autarky.pki.issue import Pair, issue_ca
from autarky.pki.keys import new_key
from autarky.render import cluster_record
from autarky.upkeep.backup import Marker, Snapshot, Taken, archive_of, encryption_in
from fakes.clusters import facts_of
from fakes.encrypting import CONFIGURATION, archived, on_host
from fakes.heard_progress import HeardProgress
from fakes.host import FakeHost

if TYPE_CHECKING:
    from autarky.engine.phase import Phase
    from autarky.phases.context import Context

IDENTITY, RECIPIENT = fresh_identity()
KEYS = 4
PLACES = 100
NOT_OPENED = "damaged|does not open"
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
        beside: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Path:
        content = b"a database"
        local = tmp_path / "snapshot.db"
        local.write_bytes(content + sha256(content).digest())
        marker = Marker(name, str(fingerprint(ca)), "n1", kubernetes or str(demo.kubernetes_version))
        taken = Taken("x", 10, etcd or newest_etcd(demo), 0xC1, ("n1",), 7)
        snapshot = Snapshot(local, taken, intact(local), Tried(revision, keys))
        roots = {"ca.crt": ca, "ca.key": KEYS_OF[ca] if key is None else key, "sa.key": KEYS_OF[ca]}
        files = [Part(f"host/etc/kubernetes/pki/{one}", content) for one, content in roots.items() if content]
        files += [Part(name, content) for name, content in beside.items()]
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
    await recovered_by(None, archive)


async def recovered_by(file: Path | None, archive: Path) -> None:
    opened = await recover._opened(file, archive, Unlock((IDENTITY,)), archive.with_name("snapshot.db"), "plain")
    await recover._bring_up(opened, "plain", dry_run=False)


async def verified(demo: Cluster, archive: Path) -> None:
    """As a file whose name says nothing."""
    await backup_files.verify(archive, Unlock((IDENTITY,)), HeardProgress())


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


@pytest.mark.parametrize("command", [restored, recovered, verified])
@pytest.mark.parametrize("key", [b"", OTHER.key, b"nonsense"], ids=["none", "another", "nonsense"])
async def test_one_without_the_key_of_the_ca_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any, key: bytes
) -> None:
    """Who knows a recipient can seal an archive, and the CA's fingerprint is in every kubeconfig."""
    await refused(command, hosts, demo, sealed(key=key), Refused, "it may be made by anybody who knows a recipient")


async def test_one_of_another_ca_under_the_clusters_name_is_no_good_one(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything in it is what it says: somebody has put his own in place of the cluster's."""
    monkeypatch.setattr(backup_files, "_tried", lambda *_: pytest.fail("an etcd was started from it"))
    said = f"fingerprint {fingerprint(CA)}.*anybody who knows a recipient"
    await refused(verified, hosts, demo, sealed(ca=OTHER_CA), Refused, said)


async def heard(archive: Path, cluster: str | None = None) -> str:
    progress = HeardProgress()
    await backup_files.verify(archive, Unlock((IDENTITY,)), progress, cluster=cluster)
    return "\n".join(progress.notes)


async def test_verify_says_whose_it_is_and_by_which_ca(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path]
) -> None:
    found = await heard(sealed())
    assert f"it is of cluster demo with the CA {fingerprint(CA)}, made now on n1" in found
    assert "does not know the CA" not in found


@pytest.mark.parametrize("name", ["other", "../clusters/demo", "", "/", "demo\0"])
async def test_and_that_a_person_has_to_compare_the_ca_of_a_cluster_that_is_not_known_here(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], name: str
) -> None:
    archive = sealed(name=name, ca=OTHER_CA)
    found = await heard(archive)
    assert f"with the CA {fingerprint(OTHER_CA)}" in found
    assert f"this machine does not know the CA of cluster {name}" in found
    assert "openssl x509 -outform DER" in found
    with pytest.raises(Refused, match="anybody who knows a recipient"):
        await heard(archive, cluster="demo")


@pytest.fixture
def identity(tmp_path: Path) -> str:
    (tmp_path / "identity").write_text(IDENTITY)
    return str(tmp_path / "identity")


def test_a_file_is_verified_as_one_of_the_cluster_that_is_named(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], tmp_path: Path, identity: str
) -> None:
    (tmp_path / "cluster.yaml").write_text(json.dumps(dump(demo)))
    archive = str(sealed(name="other", ca=OTHER_CA))
    asked = ["backup", "verify", archive, "-i", identity]
    assert main(asked) == 0
    assert main([*asked, "-f", str(tmp_path / "cluster.yaml")]) == Refused.exit_code


def test_before_new_machines_are_touched_a_person_sees_whose_ca_they_get(
    hosts: dict[str, FakeHost], sealed: Callable[..., Path], identity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no state directory knows it, nobody else can say that the archive is the cluster's."""
    main(["recover", "--from", str(sealed(ca=OTHER_CA)), "-i", identity])
    asked = capsys.readouterr().err.partition("cannot ask without a terminal: ")[2]
    assert f"Bring up cluster demo with the CA {fingerprint(OTHER_CA)}, made now on n1?" in asked
    assert "compare the fingerprint" in asked


async def test_what_was_opened_shows_no_key(demo: Cluster, hosts: object, sealed: Callable[..., Path]) -> None:
    archive = sealed()
    opened = await recover._opened(None, archive, Unlock((IDENTITY,)), archive.with_name("snapshot.db"), "plain")
    assert "PRIVATE KEY" not in repr(opened)


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


@pytest.mark.parametrize("beside", [{}, archived()], ids=["nothing", "a Secret"])
async def test_what_it_needs_to_read_what_is_encrypted_goes_to_the_phases(
    hosts: dict[str, FakeHost],
    sealed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    beside: Mapping[str, bytes],
) -> None:
    given: list[object] = []

    async def bring_up(*_: object, phases: Sequence[Phase[Context]], **__: object) -> None:
        given.extend(phase.encryption for phase in phases if isinstance(phase, TakeEncryption | PutEncryption))

    monkeypatch.setattr("autarky.cli.up.bring_up", bring_up)
    await recovered_by(None, sealed(beside=beside))
    assert given == [encryption_in(beside)] * 2
    assert (given[0] is not None) == bool(beside)


def encrypting() -> dict[str, bytes]:
    """With a key: a configuration without one is none that is known."""
    keys = [{"name": "a", "secret": "c2VjcmV0"}]
    rules = [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}]}]
    content = json.dumps({"resources": rules}).encode()
    return {name: content if found == CONFIGURATION.encode() else found for name, found in archived().items()}


@pytest.mark.parametrize(
    ("beside", "wanted"),
    [
        ({}, None),
        (encrypting(), "secretbox 'a' (secrets)"),
        (archived(on_host("/etc/keys")), "what /etc/keys/config.yaml names (*.*)"),
    ],
    ids=["no standby", "a Secret", "in no backup"],
)
async def test_how_it_is_read_goes_to_the_phases_that_compare_that_with_the_cluster(
    hosts: dict[str, FakeHost],
    demo: Cluster,
    sealed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    beside: Mapping[str, bytes],
    wanted: str | None,
) -> None:
    given: list[Readers | None] = []

    async def recover_etcd(_name: str, _found: Cluster, recovery: Any, *_: object, **__: object) -> None:
        given.append(recovery.source.readers)

    monkeypatch.setattr("autarky.cli.recovery.recover", recover_etcd)
    await restored(demo, sealed(beside=beside))
    [found] = given
    assert (None if found is None else sentence(lacking(found, Readers()))) == wanted


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
        await recovered_by(file, archive)
    bare = str(another(demo)).removeprefix("v")
    assert f'write kubernetesVersion: "{bare}" in the file' in str(found.value)
    file.write_text(json.dumps(dump(replace(demo, kubernetes_version=another(demo)))))
    with pytest.raises(Reached):
        await recovered_by(file, archive)


@BOTH
@pytest.mark.parametrize("different", [{"keys": KEYS + 1}, {"revision": 8}])
async def test_one_in_which_an_etcd_finds_something_else_than_it_had_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any, different: dict[str, int]
) -> None:
    await refused(command, hosts, demo, sealed(**different), UserError, "an etcd that is started from it has 4 keys")


@BOTH
async def test_one_that_is_damaged_at_any_place_is_refused(
    hosts: dict[str, FakeHost], demo: Cluster, sealed: Callable[..., Path], command: Any
) -> None:
    """By the file beside it that says its digest, and by itself where that is not there."""
    archive = sealed()
    damaged = damaged_at_places(archive.read_bytes())
    for content in damaged:
        archive.write_bytes(content)
        await refused(command, hosts, demo, archive, UserError, "is not what .* says")
    archive.with_name("b.json").unlink()
    for content in damaged:
        archive.write_bytes(content)
        await refused(command, hosts, demo, archive, UserError, NOT_OPENED)


def damaged_at_places(intact: bytes) -> list[bytes]:
    """All over it: by turns a bit is another one, and the rest is missing."""
    random, share = Random(PLACES), len(intact) / PLACES  # noqa: S311 # no secret
    positions = [int((number + random.random()) * share) for number in range(PLACES)]
    return [
        intact[:at] if number % 2 else intact[:at] + bytes([intact[at] ^ 1 << random.randrange(8)]) + intact[at + 1 :]
        for number, at in enumerate(positions)
    ]
