"""Archives, and files beside them, of somebody who knows no more than a recipient: each is refused by what it is,
before it costs the administrator's machine anything."""

from __future__ import annotations

import gzip
import json
import tarfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pyrage
import pytest

from autarky.archive import Unlock, fresh_identity
from autarky.archive.contents import MANIFEST, MOST_BESIDES, SNAPSHOT, Contents, EtcdSeen, FileSeen
from autarky.cli import backup_files
from autarky.cli.backup_files import PKI, compare_digest, manifest, refuse_unproven, unpack
from autarky.errors import AutarkyError, Refused, UserError
from autarky.etcd.snapshots import Tried
from autarky.model.fingerprint import fingerprint
from autarky.pki.issue import Pair, issue_ca
from autarky.pki.keys import new_key
from fakes.heard_progress import HeardProgress

IDENTITY, RECIPIENT = fresh_identity()
UNLOCK = Unlock((IDENTITY,))
MIB, GIB = 1024**2, 1024**3
MOST_READ = 50 * MIB
KEY = f"{PKI}ca.key"
SMALL = "host/small"


def a_ca() -> Pair:
    return issue_ca("ca", new_key("EC"), datetime.now(UTC), 30)


OURS, OTHER = a_ca(), a_ca()
ROOTS = {f"{PKI}ca.crt": OURS.certificate, KEY: OURS.key}
ZEROS = gzip.compress(bytes(16 * MIB), 9)


# --- making what autarky would never write ---------------------------------------------------------------


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.USTAR_FORMAT)


def small(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return gzip.compress(header(name, len(content), kind) + content + bytes(-len(content) % tarfile.BLOCKSIZE))


def zeros(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A GiB of them, in a few hundred KB."""
    return gzip.compress(header(name, GIB, kind)) + ZEROS * (GIB // (16 * MIB))


def said(**files: FileSeen) -> bytes:
    etcd = EtcdSeen("3.6.16", "abc", 7, 4, 100, ("n1",))
    ca = str(fingerprint(OURS.certificate))
    return Contents("demo", ca, "2026-11-26T00:00:00Z", "n1", "0.1", "v1.37.1", etcd, files).written()


def seen(content: bytes) -> FileSeen:
    return FileSeen(len(content), sha256(content).hexdigest())


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "b.tar.gz.age"


def write(archive: Path, files: dict[str, FileSeen], *entries: bytes) -> None:
    """An archive whose manifest names these files; entries: what comes after it."""
    plain = small(MANIFEST, said(**files)) + b"".join(entries) + gzip.compress(bytes(2 * tarfile.BLOCKSIZE))
    archive.write_bytes(pyrage.encrypt(plain, [pyrage.x25519.Recipient.from_str(RECIPIENT)]))


# --- what it costs ---------------------------------------------------------------------------------------


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The snapshots from which an etcd was started."""
    found: list[Path] = []

    async def start(snapshot: Path, *_: object, **__: object) -> Tried:
        found.append(snapshot)
        return Tried(7, 4)

    monkeypatch.setattr(backup_files, "_tried", start)
    monkeypatch.setattr("autarky.etcd.snapshots.intact", lambda _: None)
    return found


@pytest.fixture
def unpacked_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes come out of each read of what was compressed."""
    found: list[int] = []
    read = gzip.GzipFile.read

    def counted(file: gzip.GzipFile, size: int | None = -1) -> bytes:
        content = read(file, size)
        found.append(len(content))
        return content

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    return found


HONEST = FileSeen(GIB, sha256(b"").hexdigest())
"""Its size is true, and nobody gets to its digest."""
X = seen(b"x")


UNPROVEN = "it may be made by anybody who knows a recipient"
ROOTS_SEEN = {name: seen(one) for name, one in ROOTS.items()}
ROOTS_SMALL = [small(name, one) for name, one in ROOTS.items()]
FOR_ALL = b"15 comment=all\n"


@pytest.mark.parametrize(
    ("files", "entries", "why"),
    [
        pytest.param({SNAPSHOT: HONEST}, [zeros(SNAPSHOT)], UNPROVEN, id="the snapshot, and no key"),
        pytest.param(
            {SNAPSHOT: HONEST, **ROOTS_SEEN}, [zeros(SNAPSHOT), *ROOTS_SMALL], UNPROVEN, id="the key after the snapshot"
        ),
        pytest.param({SMALL: HONEST, SNAPSHOT: X}, [zeros(SMALL)], "besides the snapshot", id="another, as it says"),
        pytest.param(
            {SMALL: X, SNAPSHOT: X}, [zeros(SMALL)], f"{SMALL} is not what its manifest says", id="another, which lies"
        ),
        pytest.param(
            {f"host/{number}": FileSeen(MOST_BESIDES // 4, "") for number in range(5)} | {SNAPSHOT: X},
            [zeros("host/0")],
            "besides the snapshot",
            id="many others together",
        ),
        pytest.param({SNAPSHOT: X}, [zeros("x", tarfile.XHDTYPE)], "has no end", id="what is said of a file"),
        pytest.param({SNAPSHOT: X}, [zeros("x", tarfile.GNUTYPE_LONGNAME)], "has no end", id="the name of a file"),
        pytest.param(
            {SNAPSHOT: X},
            [small("x", FOR_ALL, tarfile.XGLTYPE), small(SNAPSHOT, b"x")],
            "something else than files",
            id="what is said of all files",
        ),
        pytest.param(ROOTS_SEEN, ROOTS_SMALL, "without a snapshot", id="no snapshot"),
    ],
)
async def test_who_has_not_proved_to_be_the_cluster_fills_neither_memory_nor_disk_and_starts_nothing(
    archive: Path,
    tmp_path: Path,
    tried: list[Path],
    unpacked_bytes: list[int],
    files: dict[str, FileSeen],
    entries: list[bytes],
    why: str,
) -> None:
    write(archive, files, *entries)
    with pytest.raises(AutarkyError, match=why):
        await unpack(archive, UNLOCK, tmp_path / "snapshot.db", HeardProgress())
    assert sum(unpacked_bytes) < MOST_READ
    assert tried == []
    assert not (tmp_path / "snapshot.db").exists()


CONTENT = b"a database"
INTACT = {**ROOTS_SEEN, SNAPSHOT: seen(CONTENT)}
ENTRIES = [*ROOTS_SMALL, small(SNAPSHOT, CONTENT)]


async def test_one_with_the_key_is_read_and_tried(archive: Path, tmp_path: Path, tried: list[Path]) -> None:
    """So the others of these tests can fail."""
    write(archive, INTACT, *ENTRIES)
    await unpack(archive, UNLOCK, tmp_path / "snapshot.db", HeardProgress())
    assert (tmp_path / "snapshot.db").read_bytes() == CONTENT
    assert tried == [tmp_path / "snapshot.db"]


async def test_a_snapshot_for_which_there_is_no_room_is_not_written(
    archive: Path, tmp_path: Path, tried: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it is restored to: a disk that is full takes other programs down."""
    write(archive, INTACT, *ENTRIES)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2 * len(CONTENT)))
    with pytest.raises(UserError, match=r"TMPDIR") as refused:
        await unpack(archive, UNLOCK, tmp_path / "snapshot.db", HeardProgress())
    assert str(tmp_path) in str(refused.value)
    assert tried == []
    assert not (tmp_path / "snapshot.db").exists()


# --- who made it -----------------------------------------------------------------------------------------


UNPRINTED = OURS.certificate.replace(b" CERTIFICATE", b" X509 CERTIFICATE")


def test_the_key_of_the_ca_proves_who_made_an_archive() -> None:
    refuse_unproven(ROOTS, OURS.certificate)


@pytest.mark.parametrize(
    ("files", "ca"),
    [
        pytest.param({}, OURS.certificate, id="no key"),
        pytest.param({KEY: OTHER.key}, OURS.certificate, id="the key of another CA"),
        pytest.param(ROOTS, OTHER.certificate, id="a CA of its own, and not that of the cluster"),
        pytest.param({KEY: b"nonsense"}, OURS.certificate, id="no key, but nonsense"),
        pytest.param(ROOTS, b"nonsense", id="no CA, but nonsense"),
        pytest.param({KEY: OURS.key}, None, id="a key, and no CA"),
        pytest.param({KEY: OURS.key}, UNPRINTED, id="a CA that has no fingerprint to compare"),
    ],
)
def test_refuse_unproven(files: dict[str, bytes], ca: bytes | None) -> None:
    with pytest.raises(Refused, match="it may be made by anybody who knows a recipient"):
        refuse_unproven(files, ca)


# --- the file beside it ----------------------------------------------------------------------------------

DEEP = b"[" * 30_000


@pytest.fixture
def beside(archive: Path) -> Path:
    write(archive, INTACT, *ENTRIES)
    return archive.with_name("b.json")


UNREADABLE = pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="nothing"),
        pytest.param(b'{"sha256": "ab', id="cut"),
        pytest.param(b"", id="empty"),
        pytest.param(DEEP, id="deep and cut"),
        pytest.param(DEEP + b"]" * 30_000, id="deep"),
        pytest.param(b'{"sha256": "\xff\xfe"}', id="no UTF-8"),
        pytest.param(b'{"sha256": "' + bytes(10) + b'"}', id="control characters"),
        pytest.param(b'{"size": ' + b"1" * 5000 + b"}", id="a number without end"),
        pytest.param(b'{"sha256": "ab"}' + b" " * MIB, id="long"),
    ],
)


@UNREADABLE
def test_a_file_beside_an_archive_that_cannot_be_read_is_said(archive: Path, beside: Path, content: bytes) -> None:
    """The archive may be intact: with that file moved away it is opened."""
    beside.write_bytes(content)
    with pytest.raises(UserError, match=rf"{beside} cannot be read: (.|\n)*move it away"):
        compare_digest(archive, HeardProgress())
    with pytest.raises(UserError, match=rf"{beside} cannot be read"):
        manifest(archive, Unlock())


def test_and_one_that_can_is_compared(archive: Path, beside: Path) -> None:
    beside.write_text(json.dumps({"sha256": sha256(archive.read_bytes()).hexdigest()}))
    compare_digest(archive, HeardProgress())
    beside.write_text(json.dumps({"sha256": 7}))
    with pytest.raises(UserError, match="is not what"):
        compare_digest(archive, HeardProgress())


def test_an_archive_may_be_named_by_a_link(archive: Path, beside: Path) -> None:
    """In the directory of a target none is followed."""
    named = [archive.with_name("latest.tar.gz.age"), archive.with_name("latest.json")]
    for link, to in zip(named, (archive, beside), strict=True):
        link.symlink_to(to.name)
    beside.write_text(json.dumps({"sha256": sha256(archive.read_bytes()).hexdigest()}))
    compare_digest(named[0], progress := HeardProgress())
    assert progress.notes == [f"{named[0]} has the digest that {named[1]} says"]


@pytest.mark.parametrize("version", ["latest", "", "v1", "v1.37.1\n"])
def test_an_archive_that_names_no_version_of_kubernetes_is_refused_before_an_etcd_is_chosen_for_it(
    version: str,
) -> None:
    with pytest.raises(UserError, match="is no version of Kubernetes"):
        backup_files._etcd_for(version, "3.6.16")
