"""A node that asks for thousands of certificates holds up no other one, and what is to wait is left alone."""

from __future__ import annotations

import base64
from collections import Counter

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autarky.control.admission.act import CSR
from autarky.control.admission.decide.approval import CLIENT_SIGNER
from autarky.control.admission.operator import AGAIN_SECONDS, MOST, Certificates
from autarky.ports import Object
from autarky.render import access
from fakes.clock import LoopClock
from fakes.clusters import a_cluster
from fakes.kube import FakeKube
from unit.control.admission.test_trusted_addresses import duty_of, round_of
from unit.control.world import World

pytestmark = pytest.mark.looptime
KEY = ec.generate_private_key(ec.SECP256R1())


class Counting(FakeKube):
    asked_for_tokens = 0

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        self.asked_for_tokens += kind == "Secret"
        return await super().get(api_version, kind, name, namespace)


@pytest.fixture
def world() -> World:
    found = World(Counting())
    found.kube.put(access.inventory(a_cluster(controls=3)))
    return found


def csr(name: str, node: str, user: str = "") -> Object:
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    pem = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(KEY, hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "request": base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode(),
            "signerName": CLIENT_SIGNER,
            "usages": ["client auth", "digital signature"],
            "username": user or f"system:node:{node}",
            "groups": [access.BOOTSTRAPPERS if user else "system:nodes"],
        },
    }


async def judged(world: World) -> Counter[str]:
    """Requester → how many of its requests were."""
    found = [one for one in await world.kube.list(*CSR) if one.get("status", {}).get("conditions")]
    return Counter(one["spec"]["username"] for one in found)


async def test_one_request_of_another_node_is_judged_in_the_first_round_of_a_flood(world: World) -> None:
    for number in range(3 * MOST):
        world.kube.put(csr(f"flood-{number}", "n1"))
    world.kube.put(csr("one", "n2"))
    counted: list[str] = []
    async with duty_of(
        world, lambda view: Certificates(world.say, view, world.kube, LoopClock(), counted.append)
    ) as duty:
        again = await duty.reconcile()
        assert again is not None
        assert again < 1
        assert await judged(world) == {"system:node:n1": MOST - 1, "system:node:n2": 1}
        for _ in range(3):
            await round_of(duty)
        assert (await judged(world)).total() == 3 * MOST + 1
        assert await duty.reconcile() is None
    assert counted == ["approve"] * (3 * MOST + 1)


async def test_what_is_to_wait_is_asked_about_again_later_or_when_the_inventory_has_changed(world: World) -> None:
    kube = world.kube
    assert isinstance(kube, Counting)
    for number in range(5):
        kube.put(csr(f"waits-{number}", "n4", user="system:bootstrap:abcdef"))
    async with duty_of(world, lambda view: Certificates(world.say, view, kube, LoopClock(), print)) as duty:
        again = await duty.reconcile()
        assert again == pytest.approx(AGAIN_SECONDS, abs=1)
        assert kube.asked_for_tokens == 5
        for _ in range(3):
            await round_of(duty)
        assert kube.asked_for_tokens == 5
        await LoopClock().sleep(AGAIN_SECONDS)
        await round_of(duty)
        assert kube.asked_for_tokens == 10
        kube.put(
            access.join_token(a_cluster(workers=3).node("n4"), "abcdef", "0123456789abcdef", "2040-01-01T00:00:00Z")
        )
        kube.put(access.inventory(a_cluster(controls=3, workers=1)))
        await LoopClock().sleep(1)
        await round_of(duty)
        assert await judged(world) == {"system:bootstrap:abcdef": 5}
