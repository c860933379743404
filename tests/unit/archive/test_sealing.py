"""Archives that are sealed and opened: what comes out is what went in, or an error."""

import base64
import hashlib
import io
import json
import os
import random
import subprocess
import tarfile

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.archive import Lock, Part, Unlock, check_lock, fresh_identity, opened, passphrase_lock, seal
from autarky.archive.contents import MANIFEST, SNAPSHOT, Contents, EtcdSeen, FileSeen, checked, read
from autarky.errors import UserError

IDENTITY, RECIPIENT = fresh_identity()
LOCK, UNLOCK = Lock((RECIPIENT,)), Unlock((IDENTITY,))


def sealed(parts, lock=LOCK):
    writer = io.BytesIO()
    found = seal(parts, lock, writer)
    assert found.size == len(writer.getvalue())
    return writer.getvalue()


def all_of(archive, unlock=UNLOCK):
    with opened(io.BytesIO(archive), unlock) as files:
        return {name: content.read() for name, content in files}


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,20}(/[a-z]{1,90}){0,3}\Z"), st.binary(max_size=200_000), max_size=4))
def test_what_comes_out_is_what_went_in(files):
    assert all_of(sealed([Part(name, content) for name, content in files.items()])) == files


def test_a_file_on_the_disk_is_streamed(tmp_path):
    content = os.urandom(3_000_000)
    (tmp_path / "big").write_bytes(content)
    assert all_of(sealed([Part("a", b"1"), Part("big", tmp_path / "big")])) == {"a": b"1", "big": content}


def test_what_was_read_of_a_file_is_not_kept(monkeypatch):
    """Of thousands it would be more than fits into memory."""
    archive = sealed([Part(f"{number}", b"1") for number in range(9)])
    made, real = [], tarfile.open

    def opens(**named):
        made.append(real(**named))
        return made[-1]

    monkeypatch.setattr(tarfile, "open", opens)
    assert len(all_of(archive)) == 9
    assert [len(vars(one)["members"]) for one in made] == [0]


def test_each_recipient_opens_it_and_nobody_else():
    other, second = fresh_identity()
    archive = sealed([Part("a", b"1")], Lock((RECIPIENT, second)))
    assert all_of(archive, Unlock((other,))) == all_of(archive) == {"a": b"1"}
    with pytest.raises(UserError, match="does not open"):
        all_of(archive, Unlock((fresh_identity()[0],)))
    with pytest.raises(UserError, match="give --identity"):
        all_of(archive, Unlock(passphrase="x"))


def test_an_identity_file_with_comments_opens_it():
    archive = sealed([Part("a", b"1")])
    assert all_of(archive, Unlock((f"# created: today\n# public key: {RECIPIENT}\n{IDENTITY}\n",))) == {"a": b"1"}


def test_an_ssh_key_opens_it(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    lock = Lock(((tmp_path / "key.pub").read_text().strip(),))
    assert all_of(sealed([Part("a", b"1")], lock), Unlock(((tmp_path / "key").read_text(),))) == {"a": b"1"}


@pytest.fixture(scope="module")
def with_passphrase():
    lock = passphrase_lock("correct horse")
    return lock, sealed([Part("a", b"1"), Part("b", bytes(200_000))], lock)


def test_a_passphrase_opens_it_and_is_not_needed_to_seal(with_passphrase):
    lock, archive = with_passphrase
    assert "correct horse" not in repr(lock)
    assert all_of(archive, Unlock(passphrase="correct horse"))["a"] == b"1"
    with pytest.raises(UserError, match="passphrase does not open"):
        all_of(archive, Unlock(passphrase="wrong horse"))
    with pytest.raises(UserError, match="give --passphrase-file"):
        all_of(archive, UNLOCK)


def test_standard_age_can_open_both_forms(with_passphrase):
    """In two steps where a passphrase opens it, as the documents say."""
    lock, archive = with_passphrase
    armor = lock.identity.encode()
    assert archive.startswith(armor)
    body = pyrage.decrypt(archive[len(armor) :], [pyrage.x25519.Identity.from_str(_opened_armor(armor))])
    assert body.startswith(b"\x1f\x8b")
    assert pyrage.decrypt(sealed([Part("a", b"1")]), [pyrage.x25519.Identity.from_str(IDENTITY)])[:2] == b"\x1f\x8b"


def _opened_armor(armor):
    body = b"".join(armor.splitlines()[1:-1])
    return pyrage.passphrase.decrypt(base64.b64decode(body), "correct horse").decode()


@pytest.mark.parametrize("number", range(100))
def test_damage_at_any_place_is_found(number):
    """A bit that is another, or the rest that is missing."""
    where = random.Random(number)  # noqa: S311
    archive, unlock = (sealed([Part("a", b"1"), Part("b", where.randbytes(200_000))]), UNLOCK)
    position = where.randrange(len(archive))
    damaged = archive[:position] if number % 2 else _flipped(archive, position, 1 << where.randrange(8))
    with pytest.raises(UserError):
        all_of(damaged, unlock)


def test_what_is_added_at_the_end_is_found():
    with pytest.raises(UserError):
        all_of(sealed([Part("a", b"1")]) + b"x")


def _flipped(archive, position, bit):
    return archive[:position] + bytes([archive[position] ^ bit]) + archive[position + 1 :]


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        (Lock(), "nothing to encrypt it with"),
        (Lock(("age1nonsense",)), "is no recipient"),
        (Lock(("ssh-ed25519 AAAA",)), "is no recipient"),
        (Lock((RECIPIENT,), "AGE-SECRET-KEY-1"), "not one file of age"),
    ],
)
def test_nothing_is_written_without_a_key(lock, said):
    with pytest.raises(UserError, match=said):
        check_lock(lock)
    writer = io.BytesIO()
    with pytest.raises(UserError, match=said):
        seal([Part("a", b"1")], lock, writer)
    assert writer.getvalue() == b""


def test_what_is_wrong_with_the_disk_is_said():
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        seal([Part("a", bytes(300_000))], LOCK, Full())


def test_a_file_that_vanishes_is_said(tmp_path):
    with pytest.raises(FileNotFoundError):
        sealed([Part("a", tmp_path / "gone")])


# --- the manifest ------------------------------------------------------------------------------------


def contents(**files):
    seen = {name: FileSeen(len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()}
    etcd = EtcdSeen("3.6.16", "abc", 7, 4, 100, ("n1",))
    return Contents("c", "f", "2026-11-26T00:00:00Z", "n1", "0.1", "v1.37.1", etcd, seen)


def arrived(archive):
    with opened(io.BytesIO(archive), UNLOCK) as files:
        found, rest = checked(files)
        return found, {one.name: b"".join(one.pieces()) for one in rest}


def test_the_manifest_is_read_as_it_was_written():
    assert read(contents(a=b"1").written()) == contents(a=b"1")


def test_an_archive_with_its_manifest():
    wanted = contents(a=b"1")
    assert arrived(sealed([Part(MANIFEST, wanted.written()), Part("a", b"1")])) == (wanted, {"a": b"1"})


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([Part("a", b"1")], "its first file is no manifest"),
        ([], "its first file is no manifest"),
        ([Part(MANIFEST, b"{"), Part("a", b"1")], "cannot be read"),
        ([Part(MANIFEST, b'{"form": 2}')], "has form 2"),
        ([Part(MANIFEST, b'{"form": 1}')], "cannot be read"),
        ([Part(MANIFEST, contents(a=b"1").written())], "lacks a"),
        ([Part(MANIFEST, contents(a=b"1").written()), Part("a", b"2")], "a is not what its manifest says"),
        ([Part(MANIFEST, contents().written()), Part(SNAPSHOT, b"2")], "does not name"),
    ],
)
def test_an_archive_that_is_not_what_it_says(parts, said):
    with pytest.raises(UserError, match=said):
        arrived(sealed(parts))


def with_another(*path_and_value):
    """A manifest in which one value is another."""
    *path, last, value = path_and_value
    found = json.loads(contents(a=b"1").written())
    place = found
    for key in path:
        place = place[key]
    place[last] = value
    return json.dumps(found).encode()


TEXTS = [("files", "a", "sha256"), ("etcd", "version"), ("etcd", "cluster"), ("ca",), ("cluster",), ("kubernetes",)]
TEXTS += [("made",), ("node",), ("autarky",)]
NUMBERS = [("files", "a", "size"), ("files", "a", "mode"), ("etcd", "keys"), ("etcd", "revision"), ("etcd", "size")]
WRONG: dict[tuple[str, ...], list[object]] = {
    **{path: [None, 1, True, [], {}] for path in TEXTS},
    **{path: [None, "x", -1, 2**63, 0.5, True, float("inf")] for path in NUMBERS},
    ("etcd", "members"): [None, "n1", [1], {"n1": 1}],
    ("etcd", "quorum"): [None, 1, "true"],
    ("form",): [True, 1.0, "1"],
}


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in WRONG.items() for value in values])
def test_a_value_of_another_type_is_said(path, value):
    """Whoever seals an archive writes what he likes; nothing that reads it further on looks again."""
    with pytest.raises(UserError, match=r"cannot be read|has form"):
        read(with_another(*path, value))


@pytest.mark.parametrize("cluster", ["", "g", "0x1", "-1", " 1", "1_0", "1" * 17])
def test_an_id_of_etcd_that_is_none_is_said(cluster):
    with pytest.raises(UserError, match="cannot be read"):
        read(with_another("etcd", "cluster", cluster))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[]", b"null", b'{"form": 1, "files": []}'])
def test_a_manifest_that_is_none_is_said(content):
    with pytest.raises(UserError):
        read(content)
