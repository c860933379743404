from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from autarky.errors import UserError
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.pki import PkiStore
from autarky.pki.issue import read_pair
from autarky.pki.keys import load_key
from autarky.store import write_private
from unit.pki.foreign import foreign_ca
from unit.pki.sample import ALL, NOW, SERVER, SETTINGS, SPECS, names, put

# --- issuing ---------------------------------------------------------------------------------------------


def test_everything_is_planned_and_then_issued(store: PkiStore) -> None:
    assert names(store.plan(SPECS, SETTINGS, NOW)) == ALL
    assert store.ensure(SPECS, SETTINGS, NOW) == ALL


def test_planning_writes_nothing(store: PkiStore) -> None:
    store.plan(SPECS, SETTINGS, NOW)
    assert not store.directory.exists()


def test_a_second_run_changes_nothing(issued: PkiStore) -> None:
    before = issued.files()
    assert issued.plan(SPECS, SETTINGS, NOW) == []
    assert issued.ensure(SPECS, SETTINGS, NOW) == []
    assert issued.files() == before


def test_only_the_cas_that_sign_something_are_made(store: PkiStore) -> None:
    assert store.ensure(SPECS[:2], SETTINGS, NOW) == ["ca", "sa", "apiserver", "super-admin"]


def test_files_are_for_the_owner_alone(issued: PkiStore) -> None:
    paths = list(issued.directory.rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in [issued.directory, *paths] if path.is_dir()} == {0o700}


def test_the_public_key_of_service_accounts_belongs_to_the_private_one(issued: PkiStore) -> None:
    files = issued.files()
    assert load_pem_public_key(files["sa.pub"]) == load_key(files["sa.key"]).public_key()


def test_rsa_can_be_chosen(store: PkiStore) -> None:
    store.ensure(SPECS[:1], replace(SETTINGS, key_algorithm="RSA"), NOW)
    assert isinstance(read_pair(store.read("apiserver"))[1], rsa.RSAPrivateKey)
    assert isinstance(load_key(store.files()["sa.key"]), rsa.RSAPrivateKey)


def test_lifetimes_are_as_set(store: PkiStore) -> None:
    store.ensure(SPECS[:1], replace(SETTINGS, ca_days=100, leaf_days=50), NOW)
    assert read_pair(store.read("ca"))[0].not_valid_after_utc == NOW + timedelta(days=100)
    assert read_pair(store.read("apiserver"))[0].not_valid_after_utc == NOW + timedelta(days=50)


def test_reading_what_was_never_issued_says_what_to_do(issued: PkiStore) -> None:
    with pytest.raises(UserError, match="autarky up"):
        issued.read("nobody")


def test_secrets_are_not_in_the_repr(issued: PkiStore) -> None:
    assert "PRIVATE" not in repr(issued) + repr(issued.read("ca"))


# --- issuing again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (replace(SERVER, ip_addresses=("10.0.0.1", "10.0.0.2")), "its host names or addresses differ"),
        (replace(SERVER, dns_names=()), "its host names or addresses differ"),
        (replace(SERVER, common_name="other"), "its subject differs"),
        (replace(SERVER, organizations=("group",)), "its subject differs"),
        (replace(SERVER, usages=("server", "client")), "its usages differ"),
    ],
)
def test_a_leaf_that_is_not_as_specified_is_issued_again(issued: PkiStore, changed: CertSpec, why: str) -> None:
    assert issued.plan([changed], SETTINGS, NOW) == [f"apiserver ({why})"]
    assert issued.ensure([changed], SETTINGS, NOW) == ["apiserver"]
    assert issued.plan([changed], SETTINGS, NOW) == []


def test_the_spelling_of_an_address_makes_no_difference(store: PkiStore) -> None:
    spec = replace(SERVER, ip_addresses=("fd00:0:0::1",))
    store.ensure([spec], SETTINGS, NOW)
    assert store.plan([replace(spec, ip_addresses=("fd00::1",))], SETTINGS, NOW) == []


def test_a_leaf_is_issued_again_when_two_thirds_of_its_life_are_over(issued: PkiStore) -> None:
    end = NOW + timedelta(days=SETTINGS.leaf_days)
    third, second = timedelta(days=SETTINGS.leaf_days) / 3, timedelta(seconds=1)
    assert issued.plan([SERVER], SETTINGS, end - third) == []
    assert issued.plan([SERVER], SETTINGS, end - third + second) == ["apiserver (expires 2027-11-21 12:00)"]


def test_a_short_lived_leaf_is_issued_again_in_the_last_third_of_its_life(store: PkiStore) -> None:
    settings = replace(SETTINGS, leaf_days=3)
    store.ensure(SPECS, settings, NOW)
    assert store.plan(SPECS, settings, NOW + timedelta(days=1.9)) == []
    assert names(store.plan(SPECS, settings, NOW + timedelta(days=2.1))) == [spec.name for spec in SPECS]


def test_a_leaf_that_ends_with_its_ca_is_not_issued_in_every_run(store: PkiStore) -> None:
    settings = replace(SETTINGS, ca_days=20)
    store.ensure(SPECS, settings, NOW)
    assert store.plan(SPECS, settings, NOW + timedelta(days=19)) == []


def test_a_leaf_that_was_issued_by_a_clock_that_went_ahead_is_good_when_it_has_come_back(store: PkiStore) -> None:
    store.ensure(SPECS[:1], SETTINGS, NOW)
    (store.directory / "apiserver.crt").unlink()
    assert store.ensure(SPECS[:1], SETTINGS, NOW + timedelta(days=700)) == ["apiserver"]
    assert store.plan(SPECS[:1], SETTINGS, NOW) == []


def test_a_ca_is_made_for_what_others_sign_with_it(store: PkiStore) -> None:
    assert store.ensure(SPECS[:1], SETTINGS, NOW, ["front-proxy-ca"]) == ["ca", "front-proxy-ca", "sa", "apiserver"]
    assert store.plan(SPECS[:1], SETTINGS, NOW, ["front-proxy-ca"]) == []


def test_a_leaf_of_another_ca_is_issued_again(issued: PkiStore) -> None:
    put(issued.directory, "ca", foreign_ca(NOW))
    assert issued.plan(SPECS[:2], SETTINGS, NOW) == [
        "apiserver (signed by another CA)",
        "super-admin (signed by another CA)",
    ]


def test_another_kind_of_key_is_a_reason_to_issue_leafs_again_but_no_cas(issued: PkiStore) -> None:
    assert names(issued.plan(SPECS, replace(SETTINGS, key_algorithm="RSA"), NOW)) == [spec.name for spec in SPECS]


@pytest.mark.parametrize("name", ["apiserver.crt", "apiserver.key"])
def test_an_unreadable_leaf_is_issued_again(issued: PkiStore, name: str) -> None:
    (issued.directory / name).write_bytes(b"\x00garbage")
    (reason,) = issued.plan(SPECS, SETTINGS, NOW)
    assert reason.startswith("apiserver (unreadable: not a")
    assert issued.ensure(SPECS, SETTINGS, NOW) == ["apiserver"]


# --- completeness ----------------------------------------------------------------------------------------


def test_a_store_is_complete_when_its_last_plan_found_nothing(store: PkiStore) -> None:
    assert not store.complete()
    store.ensure(SPECS, SETTINGS, NOW)
    assert store.complete()
    store.plan([replace(SERVER, dns_names=("other",))], SETTINGS, NOW)
    assert not store.complete()
    assert store.complete("apiserver", "super-admin")


def test_a_store_that_nobody_has_asked_yet_judges_by_what_is_there(issued: PkiStore) -> None:
    assert PkiStore(issued.directory).complete()
    (issued.directory / "apiserver.key").write_bytes(issued.files()["super-admin.key"])
    assert not PkiStore(issued.directory).complete()
    assert not issued.complete("apiserver")
    assert issued.complete("super-admin")


# --- kills -----------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """What no handler catches."""


def ensure_but_die_after(
    writes: int, store: PkiStore, settings: CertificateSettings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies in the middle of the write after so many, which leaves its temporary file."""
    left = writes

    def write(path: Path, content: bytes) -> None:
        nonlocal left
        if left == 0:
            (path.parent / f".{path.name}.x7").write_bytes(content)
            raise KilledError
        left -= 1
        write_private(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("autarky.pki.store.write_private", write)
        with pytest.raises(KilledError):
            store.ensure(SPECS, settings, now)


@pytest.mark.parametrize("own", [False, True])
def test_a_kill_between_any_two_writes_heals(
    tmp_path: Path, given: CertificateSettings, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    settings = given if own else SETTINGS
    files = 2 * len(ALL)
    for writes in range(files):
        store = PkiStore(tmp_path / f"killed-after-{writes}")
        ensure_but_die_after(writes, store, settings, NOW, monkeypatch)
        assert store.plan(SPECS, settings, NOW), "nothing to do after a kill"
        store.ensure(SPECS, settings, NOW)
        _assert_intact(store, settings)


def test_a_kill_while_leafs_are_issued_again_heals_and_keeps_the_cas(
    issued: PkiStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = NOW + timedelta(days=350)
    cas = {name: issued.files()[f"{name}.crt"] for name in ("ca", "front-proxy-ca", "etcd/ca")}
    for writes in range(2 * len(SPECS)):
        store = PkiStore(tmp_path / f"killed-after-{writes}")
        shutil.copytree(issued.directory, store.directory)
        ensure_but_die_after(writes, store, SETTINGS, later, monkeypatch)
        store.ensure(SPECS, SETTINGS, later)
        _assert_intact(store, SETTINGS, later)
        assert {name: store.files()[f"{name}.crt"] for name in cas} == cas


def _assert_intact(store: PkiStore, settings: CertificateSettings, now: datetime = NOW) -> None:
    assert store.plan(SPECS, settings, now) == []
    assert PkiStore(store.directory).complete()
    assert len(store.files()) == 2 * len(ALL)
    assert not list(store.directory.rglob(".*")), "a key was left in a temporary file"
