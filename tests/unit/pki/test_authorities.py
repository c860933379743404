"""CAs and the service account key: kept permanently, or given by the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from autarky.errors import UserError
from autarky.model.cluster import CertificateSettings
from autarky.pki import PkiStore
from autarky.pki.issue import Pair
from autarky.pki.keys import load_key
from unit.pki.foreign import foreign_ca
from unit.pki.sample import NOW, SETTINGS, SPECS, put

# --- CAs that are kept -----------------------------------------------------------------------------------


def test_a_ca_without_its_key_is_never_replaced(issued: PkiStore) -> None:
    (issued.directory / "ca.key").unlink()
    for act in (issued.plan, issued.ensure):
        with pytest.raises(UserError, match=r"ca\.key is missing[^$]*restore"):
            act(SPECS, SETTINGS, NOW)
    assert not (issued.directory / "ca.key").exists()


def test_a_ca_whose_key_is_another_is_never_replaced(issued: PkiStore) -> None:
    before = issued.files()["ca.crt"]
    (issued.directory / "ca.key").write_bytes(issued.files()["etcd/ca.key"])
    with pytest.raises(UserError, match="the key belongs to another certificate") as caught:
        issued.ensure(SPECS, SETTINGS, NOW)
    assert f"{issued.directory}/ca.crt and {issued.directory}/ca.key" in str(caught.value)
    assert issued.files()["ca.crt"] == before


def test_a_key_without_its_certificate_is_used_on(issued: PkiStore) -> None:
    key = load_key(issued.files()["ca.key"])
    (issued.directory / "ca.crt").unlink()
    assert issued.ensure(SPECS, SETTINGS, NOW)[0] == "ca"
    assert load_key(issued.files()["ca.key"]).public_key() == key.public_key()
    assert issued.plan(SPECS, SETTINGS, NOW) == []


def test_an_expired_ca_is_an_error(issued: PkiStore) -> None:
    with pytest.raises(UserError, match="the CA is valid from"):
        issued.plan(SPECS, SETTINGS, NOW + timedelta(days=SETTINGS.ca_days))


def test_a_service_account_key_that_is_lost_is_never_replaced(issued: PkiStore) -> None:
    (issued.directory / "sa.key").unlink()
    with pytest.raises(UserError, match=r"sa\.key is missing"):
        issued.plan(SPECS, SETTINGS, NOW)


def test_several_public_keys_of_service_accounts_are_left_alone(issued: PkiStore) -> None:
    public = issued.directory / "sa.pub"
    public.write_bytes(public.read_bytes() + b"another\n")
    assert issued.plan(SPECS, SETTINGS, NOW) == []
    public.write_bytes(b"another\n")
    with pytest.raises(UserError, match="does not belong to"):
        issued.plan(SPECS, SETTINGS, NOW)


# --- CAs that are given ----------------------------------------------------------------------------------


def test_a_given_ca_is_copied_and_signs(store: PkiStore, given: CertificateSettings) -> None:
    directory = Path(given.ca_directory or "")
    assert store.plan(SPECS, given, NOW)[0] == f"ca (your own, from {directory}/ca.crt)"
    store.ensure(SPECS, given, NOW)
    assert store.files()["ca.crt"] == (directory / "ca.crt").read_bytes()
    assert store.files()["ca.key"] == (directory / "ca.key").read_bytes()
    assert store.plan(SPECS, given, NOW) == []


def test_all_cas_can_be_given(store: PkiStore, given: CertificateSettings) -> None:
    directory = Path(given.ca_directory or "")
    for name in ("front-proxy-ca", "etcd/ca"):
        put(directory, name, foreign_ca(NOW))
    store.ensure(SPECS, given, NOW)
    for name in ("ca.crt", "front-proxy-ca.crt", "etcd/ca.crt"):
        assert store.files()[name] == (directory / name).read_bytes()


def test_a_bundle_is_copied_completely(store: PkiStore, given: CertificateSettings) -> None:
    file = Path(given.ca_directory or "") / "ca.crt"
    file.write_bytes(file.read_bytes() + foreign_ca(NOW).certificate)
    store.ensure(SPECS, given, NOW)
    assert store.files()["ca.crt"] == file.read_bytes()


def rsa_1024() -> Pair:
    return foreign_ca(NOW, key=rsa.generate_private_key(65537, 1024))  # noqa: S505 # to be refused


def encrypted() -> Pair:
    pair = foreign_ca(NOW)
    key = load_key(pair.key)
    return replace(pair, key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))


def ed25519_key() -> Pair:
    key = ed25519.Ed25519PrivateKey.generate()
    return replace(foreign_ca(NOW), key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: foreign_ca(NOW, is_ca=False), "not a CA certificate"),
        (lambda: foreign_ca(NOW, is_ca=None), "not a CA certificate"),
        (lambda: foreign_ca(NOW, signs=False), "not a CA certificate"),
        (lambda: foreign_ca(NOW, end=timedelta(seconds=-1)), "valid from 2026-11-20 12:00 to 2026-11-21 11:59 only"),
        (lambda: foreign_ca(NOW, begin=timedelta(days=1)), "valid from 2026-11-22"),
        (lambda: replace(foreign_ca(NOW), key=foreign_ca(NOW).key), "the key belongs to another certificate"),
        (lambda: replace(foreign_ca(NOW), key=b"no key"), "not a private key in PEM form"),
        (lambda: replace(foreign_ca(NOW), certificate=b"none"), "not a certificate in PEM form"),
        (rsa_1024, "an RSA key of 1024 bits"),
        (encrypted, "the key is encrypted"),
        (ed25519_key, "neither an EC nor an RSA key"),
    ],
)
def test_a_given_ca_that_cannot_be_used_is_refused_before_anything_is_written(
    store: PkiStore, tmp_path: Path, make: Callable[[], Pair], what: str
) -> None:
    put(tmp_path / "given", "ca", make())
    settings = replace(SETTINGS, ca_directory=str(tmp_path / "given"))
    for act in (store.plan, store.ensure):
        with pytest.raises(UserError, match=what) as caught:
            act(SPECS, settings, NOW)
        assert f"{tmp_path}/given/ca.crt and {tmp_path}/given/ca.key" in str(caught.value)
        assert caught.value.fix
    assert not store.directory.exists()


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key", "etcd/ca.key"])
def test_half_a_given_pair_is_refused(store: PkiStore, given: CertificateSettings, missing: str) -> None:
    directory = Path(given.ca_directory or "")
    put(directory, "etcd/ca", foreign_ca(NOW))
    (directory / missing).unlink()
    with pytest.raises(UserError, match=f"{missing} cannot be found"):
        store.plan(SPECS, given, NOW)


def test_another_ca_than_the_cluster_has_is_refused(issued: PkiStore, given: CertificateSettings) -> None:
    before = issued.files()
    with pytest.raises(UserError, match=r"differs from the one in certificates\.caDirectory"):
        issued.ensure(SPECS, given, NOW)
    assert issued.files() == before


def test_the_key_of_another_ca_is_not_overwritten(store: PkiStore, given: CertificateSettings) -> None:
    store.directory.mkdir(parents=True)
    (store.directory / "ca.key").write_bytes(foreign_ca(NOW).key)
    with pytest.raises(UserError, match="belongs to a different CA"):
        store.plan(SPECS, given, NOW)
