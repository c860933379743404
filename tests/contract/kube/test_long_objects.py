"""A worker's objects that are as long as a real API server takes them: they hold nobody up."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from autarky.clock import SystemClock
from autarky.control.admission.act import CSR
from autarky.control.base.operator_view import View
from autarky.control.common.slim import slim_request
from autarky.kube.paging import FIRST, LONGEST
from autarky.net.http import Answer, Request
from autarky.ports import Object
from contract.kube.guarded import Clients, a_mirror

pytestmark = pytest.mark.contract

LENGTH = 130_000
"""Tolerations: with 136,000 the request is too large for etcd."""
PODS = 8
LONGEST_PAUSE = 2.0
"""Seconds that the event loop may stand still; as one page of 500 it would be some 0.3 s for each pod."""


def a_long_pod(number: int, owner: Object) -> Object:
    """As a worker's kubelet makes it: with the mirror's annotation, and its Node for an owner."""
    pod = a_mirror(f"long-{number}", {"k8s-app": "x"})
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "w1", "uid": owner["metadata"]["uid"], "controller": True}
    ]
    pod["spec"]["tolerations"] = [{"key": "a"}] * LENGTH
    return pod


async def _long_pods(clients: Clients) -> None:
    owner = await clients.admin.get("v1", "Node", "w1")
    assert owner is not None
    for number in range(PODS):
        await clients.kubelet("w1").create(a_long_pod(number, owner))


@asynccontextmanager
async def _the_loop_goes_on() -> AsyncIterator[None]:
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    beating = asyncio.create_task(beat())
    yield
    beating.cancel()
    assert longest < LONGEST_PAUSE


async def _until(seen: Callable[[], bool], changed: asyncio.Event) -> None:
    async with asyncio.timeout(120):
        while not seen():
            await changed.wait()
            changed.clear()


async def test_the_longest_pods_of_a_worker_hold_up_nobody_who_lists_or_watches_them(clients: Clients) -> None:
    await _long_pods(clients)
    answers: list[tuple[str, int]] = []
    admin, call = clients.admin, clients.admin._call

    async def noted(request: Request, *more: Any, **others: Any) -> Answer:
        answer = await call(request, *more, **others)
        answers.append((request.parameters.get("limit", ""), len(answer.body)))
        return answer

    admin._call = noted  # type: ignore[method-assign]
    changed = asyncio.Event()
    view = View(admin, SystemClock(), changed.set, lambda *_: None)
    following = asyncio.create_task(view.run())
    async with _the_loop_goes_on():
        await _until(lambda: len(view.pods.items) == PODS, changed)
        owner = await admin.get("v1", "Node", "w1")
        assert owner is not None
        await clients.kubelet("w1").create(a_long_pod(PODS, owner))
        await _until(lambda: len(view.pods.items) == PODS + 1, changed)
        names = [pod["metadata"]["name"] async for pod in admin.each("v1", "Pod", fields="spec.nodeName=w1")]
    following.cancel()
    assert sorted(names) == [f"long-{number}" for number in range(PODS + 1)]
    assert all(len(json.dumps(pod)) < 2000 for pod in view.pods.items.values())
    assert (str(FIRST), LONGEST + 1) in answers, "it was too long, and left"
    assert max(length for limit, length in answers if limit != "1") <= LONGEST + 1
    for name in names:
        assert await admin.delete("v1", "Pod", name, "kube-system", grace_seconds=0)


async def test_a_request_of_which_only_what_is_read_was_kept_can_be_denied(clients: Clients) -> None:
    spec = {
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": ["digital signature", "server auth"],
        "request": _pem(),
    }
    labels = {f"example.org/l{number}": "x" for number in range(20_000)}
    meta = {"name": "long", "labels": labels}
    made = await clients.kubelet("w1").create({"apiVersion": CSR[0], "kind": CSR[1], "metadata": meta, "spec": spec})
    condition = {"type": "Denied", "status": "True", "reason": "x", "message": "x"}
    await clients.admin.replace({**slim_request(made), "status": {"conditions": [condition]}}, subresource="approval")
    found = await clients.admin.get(*CSR, "long")
    assert found is not None
    assert [one["type"] for one in found["status"]["conditions"]] == ["Denied"]
    assert found["spec"] == made["spec"]


def _pem() -> str:
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, "system:node:w1")]
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in names])
    addresses = x509.SubjectAlternativeName([x509.DNSName("w1")])
    builder = x509.CertificateSigningRequestBuilder(subject).add_extension(addresses, critical=False)
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    return base64.b64encode(pem).decode()
