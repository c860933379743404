from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.check import authority_of
from autarky.pki.issue import Authority, Pair, alternative_names, issue_ca, issue_leaf, read_pair, wanted_names
from autarky.pki.keys import Algorithm, new_key
from unit.pki.foreign import foreign_ca
from unit.pki.handshake import shake_hands

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
YEAR = timedelta(days=365)
SERVER = CertSpec("apiserver", "ca", "kube-apiserver", (), ("localhost",), ("127.0.0.1", "::1"), ("server",))
CLIENT = CertSpec("admin", "ca", "kubernetes-admin", ("system:masters",))

host_names = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]([a-z0-9-]{0,10}[a-z0-9])?){0,3}", fullmatch=True)
addresses = st.ip_addresses().map(str)


def authority(algorithm: Algorithm = "EC", now: datetime = NOW, days: int = 3650) -> tuple[Pair, Authority]:
    pair = issue_ca("test", new_key(algorithm), now, days)
    return pair, authority_of(pair, "ca.crt", "ca.key", now)


CA, AUTHORITY = authority()


def leaf(spec: CertSpec, days: int = 365, *, by: Authority = AUTHORITY, now: datetime = NOW) -> x509.Certificate:
    return read_pair(issue_leaf(spec, by, "EC", now, timedelta(days=days)))[0]


@pytest.mark.parametrize("ca_algorithm", ["EC", "RSA"])
@pytest.mark.parametrize("leaf_algorithm", ["EC", "RSA"])
def test_server_and_client_accept_each_other(ca_algorithm: Algorithm, leaf_algorithm: Algorithm) -> None:
    now = datetime.now(UTC)
    pair, by = authority(ca_algorithm, now)
    server, client = (issue_leaf(spec, by, leaf_algorithm, now, YEAR) for spec in (SERVER, CLIENT))
    for name in ("localhost", "127.0.0.1", "::1"):
        shake_hands(server, client, pair.certificate, name)


def test_a_strict_verifier_accepts_a_server() -> None:
    verifier = PolicyBuilder().store(Store([AUTHORITY.certificate])).time(NOW)
    chain = verifier.build_server_verifier(x509.DNSName("localhost")).verify(leaf(SERVER), [])
    assert len(chain) == 2


def test_a_client_certificate_is_no_server() -> None:
    now = datetime.now(UTC)
    pair, by = authority(now=now)
    spec = CertSpec("x", "ca", "x", (), ("localhost",))
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        shake_hands(issue_leaf(spec, by, "EC", now, YEAR), None, pair.certificate, "localhost")


def test_another_ca_is_not_trusted() -> None:
    now = datetime.now(UTC)
    (_, by), (other, _) = authority(now=now), authority(now=now)
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake_hands(issue_leaf(SERVER, by, "EC", now, YEAR), None, other.certificate, "localhost")


@given(st.lists(host_names, max_size=8, unique=True), st.lists(addresses, max_size=8, unique=True))
def test_any_set_of_names_comes_back(dns_names: list[str], ip_addresses: list[str]) -> None:
    spec = CertSpec("x", "ca", "x", (), tuple(dns_names), tuple(ip_addresses), ("server",))
    assert alternative_names(leaf(spec)) == wanted_names(spec)


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64), max_size=3))
def test_any_groups_come_back(groups: list[str]) -> None:
    found = leaf(CertSpec("x", "ca", "someone", tuple(groups))).subject
    assert [a.value for a in found.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)] == groups


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 4000))
def test_a_leaf_never_outlives_its_ca_nor_is_older(ca_days: int, leaf_days: int, later: int) -> None:
    _, by = authority(days=ca_days)
    now = min(NOW + timedelta(days=later), by.certificate.not_valid_after_utc - timedelta(hours=1))
    certificate = leaf(CLIENT, leaf_days, by=by, now=now)
    assert certificate.not_valid_after_utc <= by.certificate.not_valid_after_utc
    assert by.certificate.not_valid_before_utc <= certificate.not_valid_before_utc <= now


def test_a_clock_that_is_behind_accepts_a_new_leaf_for_as_long_as_it_accepts_the_ca() -> None:
    assert leaf(CLIENT, now=NOW + timedelta(days=1)).not_valid_before_utc == AUTHORITY.certificate.not_valid_before_utc


def test_a_lasting_leaf_is_good_for_as_long_as_its_ca() -> None:
    certificate = leaf(replace(CLIENT, lasting=True), 1)
    assert certificate.not_valid_after_utc == AUTHORITY.certificate.not_valid_after_utc


def test_serial_numbers_are_random() -> None:
    assert len({leaf(CLIENT).serial_number for _ in range(20)}) == 20


def test_only_rsa_keys_encipher_keys() -> None:
    found: dict[Algorithm, bool] = {}
    algorithms: tuple[Algorithm, ...] = ("EC", "RSA")
    for algorithm in algorithms:
        certificate, _ = read_pair(issue_leaf(CLIENT, AUTHORITY, algorithm, NOW, YEAR))
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        found[algorithm] = usage.key_encipherment
    assert found == {"EC": False, "RSA": True}


@pytest.mark.parametrize("identifier", [b"made in another way", None])
def test_leafs_of_a_ca_that_another_tool_made_are_accepted(identifier: bytes | None) -> None:
    now = datetime.now(UTC)
    foreign = foreign_ca(now, identifier=identifier)
    by = authority_of(foreign, "ca.crt", "ca.key", now)
    server, client = (issue_leaf(spec, by, "EC", now, YEAR) for spec in (SERVER, CLIENT))
    shake_hands(server, client, foreign.certificate, "localhost", strict=identifier is not None)


def test_a_common_name_that_is_too_long_is_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match="shorter name"):
        leaf(CertSpec("x", "ca", f"system:node:{'n' * 60}"))


def test_a_host_name_outside_of_ascii_is_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match="xn--"):
        leaf(CertSpec("x", "ca", "x", (), ("bücher.example",)))


def test_keys_are_not_in_the_repr() -> None:
    pair, by = authority()
    assert "PRIVATE" not in repr(pair)
    assert "key" not in repr(by)
