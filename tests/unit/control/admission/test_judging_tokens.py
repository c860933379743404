"""A join token that somebody made for a node that is there: read from the API, and denied."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autarky.control.admission import act as certificates
from autarky.control.admission.decide.approval import CLIENT_SIGNER, Verdict
from autarky.ports import Object
from autarky.render import access
from autarky.render.access import BOOTSTRAPPERS
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

CLUSTER = a_cluster(controls=1, workers=1)


def csr_of(node: str) -> Object:
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    pem = built.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr-x"},
        "spec": {
            "request": base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode(),
            "signerName": CLIENT_SIGNER,
            "usages": ["client auth", "digital signature"],
            "username": "system:bootstrap:abcdef",
            "groups": [BOOTSTRAPPERS],
        },
    }


@pytest.mark.parametrize("joined", [False, True])
async def test_a_token_is_good_for_its_node_until_that_has_joined(joined: bool):
    kube = FakeKube()
    kube.put(access.inventory(CLUSTER))
    kube.put(access.join_token(CLUSTER.node("n2"), "abcdef", "0123456789abcdef", "2030-01-01T00:00:00Z"))
    if joined:
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}})
    kube.put(csr_of("n2"))
    live = await kube.get(*certificates.CSR, "csr-x")
    assert live is not None
    decision = await certificates.judge(kube, live, await certificates.read_inventory(kube), {})
    assert decision.verdict is (Verdict.DENY if joined else Verdict.APPROVE), decision


async def test_a_request_that_could_be_read_in_two_ways_is_denied_and_the_others_are_judged():
    kube = FakeKube()
    kube.put(access.inventory(CLUSTER))
    kube.put(access.join_token(CLUSTER.node("n2"), "abcdef", "0123456789abcdef", "2030-01-01T00:00:00Z"))
    own, foreign = (base64.b64decode(csr_of(node)["spec"]["request"]) for node in ("n2", "n1"))
    two = csr_of("n2")
    two["metadata"]["name"] = "csr-two"
    two["spec"]["request"] = base64.b64encode(b"x" + own + foreign).decode()
    kube.put(two)
    kube.put(csr_of("n2"))
    inventory = await certificates.read_inventory(kube)
    judged = {
        csr["metadata"]["name"]: await certificates.judge(kube, csr, inventory, {})
        for csr in await kube.list(*certificates.CSR)
    }
    assert judged["csr-two"].verdict is Verdict.DENY
    assert "not one PEM block" in judged["csr-two"].sentence
    assert judged["csr-x"].verdict is Verdict.APPROVE
    left = await kube.get(*certificates.CSR, "csr-two")
    assert left is not None
    assert [one["type"] for one in left["status"]["conditions"]] == ["Denied"]


@pytest.mark.parametrize(
    ("reported", "read"),
    [
        (["X509SHA256=AB01"], "ab01"),
        (["JTI=x", "X509SHA256=ab01"], "ab01"),
        (["X509SHA256=ab01", "X509SHA256=ab02"], None),
        (["JTI=ab01"], None),
        ([], None),
        (None, None),
    ],
)
async def test_the_credential_is_what_the_api_server_says_of_it(reported: list[str] | None, read: str | None):
    csr = csr_of("n2")
    csr["spec"]["extra"] = {"authentication.kubernetes.io/credential-id": reported}
    assert (await certificates.request_of(FakeKube(), csr, certificates.asked(csr))).credential == read


def test_an_entry_of_the_inventory_that_cannot_be_understood_holds_up_its_own_node_only():
    odd = {"n2": "no JSON", "n3": "{}", "n4": '{"addresses": "10.0.0.4"}', "n5": "[" * 100_000}
    found = certificates.inventory_of({"data": {"n1": '{"addresses": ["10.0.0.1"]}', **odd}})
    assert found == {"n1": frozenset({"10.0.0.1"})}
