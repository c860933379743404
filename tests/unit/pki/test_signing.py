"""Certificates that are signed on another machine: no private key travels, and what comes back was asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from autarky.control.certificates.manifests.specs import administrator, certificate_specs
from autarky.errors import UserError
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.pki import PkiStore
from autarky.pki.issue import Pair, alternative_names, wanted_names
from autarky.pki.keys import key_pem
from autarky.pki.signing import Request, answer, answered, is_good, question
from fakes.clusters import a_cluster

SETTINGS = CertificateSettings()
SPECS = [
    *certificate_specs(a_cluster()),
    CertSpec("apiserver", "ca", "kube-apiserver", (), ("localhost",), ("127.0.0.1",), ("server",)),
    CertSpec("scheduler", "ca", "system:kube-scheduler"),
    CertSpec("front-proxy-client", "front-proxy-ca", "front-proxy-client"),
    CertSpec("etcd/server-n1", "etcd/ca", "etcd-server-n1", (), ("n1",), (), ("server", "client")),
]
LIFE = timedelta(days=365)
ROOTS = ("ca", "front-proxy-ca", "etcd/ca", "sa")


def now():
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """The store of the machine that has made the cluster; a control node's directory is as good."""
    store = PkiStore(tmp_path_factory.mktemp("owner") / "pki")
    store.ensure(SPECS, SETTINGS, now())
    return store


@pytest.fixture
def borrower(tmp_path, owner):
    """As `login` leaves it: the CA's certificate, and nothing that the cluster has a key to."""
    store = PkiStore(tmp_path / "pki")
    store.directory.mkdir()
    (store.directory / "ca.crt").write_bytes(owner.files()["ca.crt"])
    for name in ("admin", "super-admin"):
        [certificate] = sign(owner, request := Request.new(administrator(name), "EC"))
        store.accept(request, certificate, keep=True)
    return store


def sign(owner, *requests):
    return answered(answer(question(requests, LIFE), owner.directory, now()), requests)


def test_no_private_key_travels():
    request = Request.new(administrator("admin"), "EC")
    asked = question([request], LIFE)
    assert b"PRIVATE" not in asked
    assert asked.count(b"\n") == 1, "one line: the signer need not wait for the end of its input"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_what_is_signed_elsewhere_is_as_specified(owner, spec):
    request = Request.new(spec, "EC")
    [certificate] = sign(owner, request)
    pair = Pair(certificate, key_pem(request.key))
    assert is_good(pair, owner.files()[f"{spec.ca}.crt"], now(), LIFE)
    assert not is_good(pair, owner.files()["etcd/ca.crt" if spec.ca == "ca" else "ca.crt"], now(), LIFE)
    signed = x509.load_pem_x509_certificate(certificate)
    assert [name.value for name in signed.subject][-1] == spec.common_name
    assert alternative_names(signed) == wanted_names(spec)


def test_a_request_that_is_not_signed_by_its_own_key_is_refused(owner):
    content = json.loads(question([Request.new(administrator("admin"), "EC")], LIFE))
    content["requests"][0]["request"] = "nonsense"
    with pytest.raises(UserError, match="not a certificate request"):
        answer(json.dumps(content).encode(), owner.directory, now())


def test_a_machine_without_the_key_says_so(owner, tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        answer(question([Request.new(administrator("admin"), "EC")], LIFE), tmp_path, now())


@pytest.mark.parametrize("asked", [b"", b"{}", b'{"life": 1, "requests": [{}]}'])
def test_what_is_no_question_is_refused(owner, asked):
    with pytest.raises(UserError, match="cannot be understood"):
        answer(asked, owner.directory, now())


def test_a_certificate_for_another_key_is_not_accepted(owner, borrower):
    first, second = (Request.new(administrator("admin"), "EC") for _ in range(2))
    with pytest.raises(UserError, match="cannot be used"):
        borrower.accept(first, sign(owner, second)[0], keep=True)


# --- borrowing -------------------------------------------------------------------------------------------------


def lendable(owner):
    return {name: text for name, text in owner.files().items() if not name.startswith(("admin", "super-admin"))}


def test_who_has_everything_borrows_nothing(owner):
    owner.lend(lendable(owner))
    assert not owner.borrows
    assert owner.lent == {}


def test_with_what_a_control_node_lends_nothing_is_to_be_issued_and_nothing_is_written(owner, borrower):
    before = sorted(borrower.directory.rglob("*"))
    assert borrower.borrows
    assert borrower.complete()
    borrower.lend(lendable(owner))
    assert borrower.plan(SPECS, SETTINGS, now()) == []
    assert borrower.missing_roots(SPECS) == []
    assert {name: borrower.files()[name] for name in lendable(owner)} == lendable(owner)
    assert sorted(borrower.directory.rglob("*")) == before
    assert not [path for path in before if path.name in ("ca.key", "sa.key", "front-proxy-ca.key")]


def test_what_a_borrower_issues_lies_here_only_if_it_is_an_administrators(owner, borrower):
    borrower.lend(lendable(owner))
    changed = [
        replace(spec, dns_names=(*spec.dns_names, "more")) if spec.name == "apiserver" else spec for spec in SPECS
    ]
    [request] = borrower.requests(changed, SETTINGS, now())
    assert request.spec.name == "apiserver"
    borrower.accept(request, sign(owner, request)[0], keep=False)
    assert borrower.plan(changed, SETTINGS, now()) == []
    assert not (borrower.directory / "apiserver.key").exists()


def test_a_leaf_that_another_machine_has_issued_since_is_used_in_place_of_our_own(owner, tmp_path):
    spec = next(spec for spec in SPECS if spec.name == "scheduler")
    request = Request.new(spec, "EC")
    later = answer(question([request], LIFE + timedelta(days=1)), owner.directory, now())
    newer = {"scheduler.crt": answered(later, [request])[0], "scheduler.key": key_pem(request.key)}
    owner.lend(newer)
    assert owner.read("scheduler").certificate == newer["scheduler.crt"]
    owner.lend({name: text for name, text in owner.files().items() if name.startswith("ca.")} | newer)
    assert "ca.key" not in owner.lent, "a CA that is here is never taken from elsewhere"
    owner.lend({"scheduler.crt": b"torn", "scheduler.key": b"torn"})
    assert owner.lent == {}


def test_what_is_issued_here_counts_though_what_was_lent_is_good_for_longer(owner):
    spec = next(spec for spec in SPECS if spec.name == "scheduler")
    request = Request.new(spec, "EC")
    later = answer(question([request], LIFE + timedelta(days=1)), owner.directory, now())
    owner.lend({"scheduler.crt": answered(later, [request])[0], "scheduler.key": key_pem(request.key)})
    shorter = replace(SETTINGS, key_algorithm="RSA", leaf_days=30)
    assert owner.ensure([spec], shorter, now()) == ["scheduler"]
    assert owner.plan([spec], shorter, now()) == []
    owner.ensure([spec], SETTINGS, now())
