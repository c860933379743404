"""The fingerprint of a CA is that which openssl shows."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from autarky.model.fingerprint import fingerprint
from autarky.pki.issue import issue_ca
from autarky.pki.keys import new_key


def test_it_is_the_digest_of_the_first_certificate_however_it_is_wrapped():
    first, second = (issue_ca(name, new_key("EC"), datetime.now(UTC), 9).certificate for name in ("a", "b"))
    expected = x509.load_pem_x509_certificate(first).fingerprint(SHA256()).hex()
    assert fingerprint(first) == expected
    assert fingerprint(b"Subject: CN=a\n" + first.replace(b"\n", b"\r\n") + second) == expected
    assert fingerprint(second) != expected


@pytest.mark.parametrize("label", [b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"])
def test_a_certificate_behind_another_one_that_some_readers_see_first_has_none(label):
    """cryptography loads the first of `X509 CERTIFICATE` and `CERTIFICATE`, which somebody else may have made."""
    forged, ours = (issue_ca(name, new_key("EC"), datetime.now(UTC), 9).certificate for name in ("b", "a"))
    assert fingerprint(forged.replace(b" CERTIFICATE-", b" " + label + b"-") + ours) is None


@given(st.binary(max_size=80))
def test_what_is_no_certificate_has_none(content):
    assert fingerprint(content) is None
    assert fingerprint(None) is None
    assert fingerprint(b"-----BEGIN CERTIFICATE-----" + content + b"!-----END CERTIFICATE-----") is None


@pytest.mark.parametrize("line", [b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n", b"\n"])
def test_a_file_that_is_long_is_looked_through_once(line):
    """Whoever is root on a worker writes it."""
    content = b"-----BEGIN CERTIFICATE-----" + line * (16 * 1024 * 1024 // len(line))
    began = time.monotonic()
    assert fingerprint(content) is None
    assert time.monotonic() - began < 1
