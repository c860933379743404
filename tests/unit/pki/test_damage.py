"""A damaged certificate or key is unreadable, and nothing worse."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509

from autarky.errors import UserError
from autarky.pki.check import authority_of, expiry, why_renew
from autarky.pki.issue import Pair, issue_ca, issue_leaf
from autarky.pki.kept import end_of_pem
from autarky.pki.keys import new_key
from autarky.pki.signing import is_good
from unit.pki.damage import every_byte_flipped
from unit.pki.sample import NOW, SERVER

pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
LIFE = timedelta(days=90)
CA = issue_ca("test", new_key("EC"), NOW, 3650)
AUTHORITY = authority_of(CA, "ca.crt", "ca.key", NOW)


def test_of_a_leaf_with_any_byte_damaged_it_is_said_why_it_is_to_be_issued_again() -> None:
    """But for how many bits of a signature's last byte count, where those that do not are none."""
    leaf = issue_leaf(SERVER, AUTHORITY, "EC", NOW, LIFE)
    for certificate in every_byte_flipped(leaf.certificate):
        damaged = Pair(certificate, leaf.key)
        why = why_renew(damaged, SERVER, AUTHORITY, "EC", NOW, LIFE)
        assert why or _says_the_same(certificate, leaf.certificate)
        assert is_good(damaged, CA.certificate, NOW, LIFE) == (why is None)
        end_of_pem(certificate)
        expiry(damaged)


def test_a_key_with_any_byte_damaged_is_unreadable_or_as_good_as_it_was() -> None:
    """It holds the public key as well, which nobody needs."""
    leaf = issue_leaf(SERVER, AUTHORITY, "EC", NOW, LIFE)
    damaged = [Pair(leaf.certificate, key) for key in every_byte_flipped(leaf.key)]
    reported = [why_renew(pair, SERVER, AUTHORITY, "EC", NOW, LIFE) for pair in damaged]
    assert {(why or "good").partition(":")[0] for why in reported} <= {"unreadable", "good"}
    assert sum(why is not None for why in reported) > len(reported) / 3


def test_a_ca_with_any_byte_damaged_is_refused_in_a_sentence_if_it_is_refused() -> None:
    pairs = [Pair(damaged, CA.key) for damaged in every_byte_flipped(CA.certificate)]
    pairs += [Pair(CA.certificate, damaged) for damaged in every_byte_flipped(CA.key)]
    refused = 0
    for pair in pairs:
        try:
            authority_of(pair, "ca.crt", "ca.key", NOW)
        except UserError:
            refused += 1
    assert refused > len(pairs) / 3


def _says_the_same(certificate: bytes, other: bytes) -> bool:
    found = [x509.load_pem_x509_certificate(one) for one in (certificate, other)]
    return len({(one.tbs_certificate_bytes, one.signature) for one in found}) == 1
