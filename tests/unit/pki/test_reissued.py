"""The scenarios' certificates that are near their end pass for those whose place they take, but for their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509

from autarky.model.files import CertSpec
from autarky.pki.check import authority_of, why_renew
from autarky.pki.issue import Pair, issue_ca, issue_leaf
from autarky.pki.keys import new_key
from e2e.reissue import end_of, good_until

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
LIFE = timedelta(minutes=6)
CA = authority_of(issue_ca("kubernetes", new_key("EC"), NOW, 10), "ca.crt", "ca.key", NOW)
SPEC = CertSpec("apiserver", "ca", "kube-apiserver", (), ("localhost",), ("127.0.0.1",), usages=("server", "client"))
LEAF = issue_leaf(SPEC, CA, "EC", NOW, LIFE)


def why(pem: bytes) -> str | None:
    return why_renew(Pair(pem, LEAF.key), SPEC, CA, "EC", NOW, LIFE)


def test_it_is_the_same_certificate_of_the_same_key_until_it_is_due() -> None:
    again = good_until(LEAF.certificate, CA, NOW + LIFE / 3 + timedelta(seconds=1))
    assert why(again) is None
    assert end_of(again) == NOW + LIFE / 3 + timedelta(seconds=1)


def test_it_is_renewed_for_its_end_and_for_nothing_else() -> None:
    again = good_until(LEAF.certificate, CA, NOW + LIFE / 3 - timedelta(seconds=1))
    assert (why(again) or "").startswith("expires ")


def test_it_begins_with_its_ca_unless_another_begin_is_said() -> None:
    end = NOW + LIFE
    begins = [
        x509.load_pem_x509_certificate(good_until(LEAF.certificate, CA, end, begin=begin)).not_valid_before_utc
        for begin in (None, NOW)
    ]
    assert begins == [CA.certificate.not_valid_before_utc, NOW]
