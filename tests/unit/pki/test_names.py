"""A serving certificate is issued anew for other names; what others have signed is verified before it is used."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.check import authority_of, why_unfit
from autarky.pki.issue import Authority, Pair, issue_ca, issue_leaf, request_for, sign_leaf
from autarky.pki.keys import key_pem, new_key
from autarky.pki.names import names_of, reissued
from autarky.pki.requests import read_request

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPEC = CertSpec("apiserver", "ca", "kube-apiserver", (), ("localhost", "n1"), ("192.0.2.11",), ("server",))


def an_authority(name: str = "kubernetes") -> Authority:
    return authority_of(issue_ca(name, new_key("EC"), NOW, 3650), "ca.crt", "ca.key", NOW)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return an_authority()


@pytest.fixture(scope="module")
def ca_pem(authority: Authority) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return authority.certificate.public_bytes(Encoding.PEM)


def test_new_names_are_added_and_those_that_went_are_dropped(authority: Authority, ca_pem: bytes):
    old = issue_leaf(SPEC, authority, "EC", NOW, 90)
    new = reissued(old, authority, add=["n2", "192.0.2.12"], drop=["n1"], now=NOW)
    assert names_of(new.certificate).all == {"localhost", "n2", "192.0.2.11", "192.0.2.12"}
    assert new.key != old.key
    wanted = replace(SPEC, dns_names=("localhost", "n2"), ip_addresses=("192.0.2.11", "192.0.2.12"))
    assert why_unfit(new, wanted, ca_pem, NOW) is None
    assert why_unfit(new, wanted, ca_pem, NOW + timedelta(days=89)) is not None


def test_a_certificate_of_somebody_elses_is_not_issued_anew(authority: Authority):
    theirs = issue_leaf(SPEC, an_authority("theirs"), "EC", NOW, 90)
    with pytest.raises(UserError, match="not signed by the cluster's CA"):
        reissued(theirs, authority, add=["n2"], drop=[], now=NOW)


def test_what_may_name_more_must_name_all(authority: Authority, ca_pem: bytes):
    pair = issue_leaf(SPEC, authority, "EC", NOW, 365)
    fewer = replace(SPEC, dns_names=("localhost",))
    assert why_unfit(pair, fewer, ca_pem, NOW, may_name_more=True) is None
    assert why_unfit(pair, fewer, ca_pem, NOW) is not None
    more = replace(SPEC, dns_names=("localhost", "n1", "n2"))
    assert why_unfit(pair, more, ca_pem, NOW, may_name_more=True) is not None


def test_a_request_is_signed_with_what_is_expected_and_for_its_key(authority: Authority, ca_pem: bytes):
    key = new_key("EC")
    asked = read_request(request_for(replace(SPEC, common_name="evil"), key))
    assert (asked.common_name, asked.dns_names, asked.ip_addresses) == ("evil", {"localhost", "n1"}, {"192.0.2.11"})
    pem = sign_leaf(SPEC, authority, asked.key, NOW, timedelta(days=365))
    assert why_unfit(Pair(pem, key_pem(key)), SPEC, ca_pem, NOW) is None
    assert why_unfit(Pair(pem, key_pem(new_key("EC"))), SPEC, ca_pem, NOW) is not None


def test_a_certificate_of_another_ca_is_not_used(authority: Authority, ca_pem: bytes):
    theirs = issue_leaf(SPEC, an_authority("theirs"), "EC", NOW, 90)
    assert why_unfit(theirs, SPEC, ca_pem, NOW) == "signed by another CA"
