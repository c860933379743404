"""A kubelet comes back with the credential that its node was given last; what a machine of that name had before is
denied. A real API server says by which one a request was made."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autarky.control.admission import act as certificates
from autarky.control.admission.decide.approval import CLIENT_SIGNER, NO_CREDENTIAL, RENEWERS, Verdict, renewal_user
from autarky.kube import KubeClient
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.model.fingerprint import fingerprint
from autarky.ports import Object
from autarky.render import access
from contract.acting import is_refused, until
from contract.servers import Server
from fakes.clusters import a_cluster

pytestmark = pytest.mark.contract
CLUSTER = a_cluster(workers=1)
WORKER = CLUSTER.nodes[-1].name


@pytest.fixture
async def admin(own_server: Server) -> AsyncIterator[KubeClient]:
    """Machines `former` and `present` of one name have a credential each."""
    specs = [CertSpec(name, "ca", renewal_user(WORKER), (RENEWERS,)) for name in ("former", "present")]
    own_server.pki.ensure(specs, CertificateSettings(), datetime.now(UTC))
    client = own_server.kube()
    for obj in access.objects(CLUSTER):
        await client.apply(obj, manager="test")
    yield client
    await client.close()


def _request(name: str) -> Object:
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{WORKER}"),
    ]
    key = ec.generate_private_key(ec.SECP256R1())
    pem = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(key, hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode(),
            "signerName": CLIENT_SIGNER,
            "usages": ["client auth", "digital signature"],
            # Whoever asks may claim what they like: the API server writes its own.
            "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00"]},
        },
    }


async def test_of_two_machines_of_one_name_the_one_that_was_given_its_credential_last_comes_back(
    own_server: Server, admin: KubeClient
) -> None:
    asked: dict[str, Object] = {}
    for name in ("former", "present"):
        machine = own_server.kube(identity=name)

        async def may_ask(name: str = name, machine: KubeClient = machine) -> bool:
            return not await is_refused(machine.create(_request(name)))

        await until("RBAC lets it ask", may_ask)
        await machine.close()
        live = await admin.get(*certificates.CSR, name)
        assert live is not None
        asked[name] = live
    prints = {name: fingerprint(own_server.pki.read(name).certificate) for name in asked}
    found = {
        name: (await certificates.request_of(admin, csr, certificates.asked(csr))).credential
        for name, csr in asked.items()
    }
    assert found == prints
    assert prints["former"] != prints["present"]

    inventory = certificates.inventory_of(access.inventory(CLUSTER))
    good = {WORKER: str(prints["present"])}
    former = await certificates.judge(admin, asked["former"], inventory, good)
    assert former.verdict is Verdict.DENY
    present = await certificates.judge(admin, asked["present"], inventory, good)
    assert present.verdict is Verdict.APPROVE
    for name, condition in (("former", "Denied"), ("present", "Approved")):
        live = await admin.get(*certificates.CSR, name)
        assert live is not None
        assert [one["type"] for one in live["status"]["conditions"]] == [condition]
    nobody = await certificates.judge(admin, asked["present"], inventory, {WORKER: NO_CREDENTIAL})
    assert nobody.verdict is Verdict.DENY
