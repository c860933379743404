from __future__ import annotations

import asyncio
import base64
import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from autarky.control.admission.decide.approval import CLIENT_SIGNER, SERVING_SIGNER
from autarky.errors import Conflict, TimedOut, UserError
from autarky.model import patience
from autarky.phases.admit import (
    LONGEST_WHY,
    _node_labels,
    admit,
    judge_requests,
    missing_labels,
    pending_requests,
    plan_admission,
    unlisted_labels,
    wait_until_registered,
    wanted_labels,
)
from autarky.render import access
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

KEY = ec.generate_private_key(ec.SECP256R1())
CSR = ("certificates.k8s.io/v1", "CertificateSigningRequest")
CLUSTER = a_cluster(controls=1, workers=1)


def pem(node: str, addresses: tuple[str, ...] = ()) -> bytes:
    """What a kubelet would sign and send."""
    names = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    if addresses:
        sans: list[x509.GeneralName] = [x509.DNSName(node)]
        sans += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request(name: str, signer: str, user: str, content: bytes) -> dict:
    usage = "client auth" if signer == CLIENT_SIGNER else "server auth"
    return {
        "apiVersion": CSR[0],
        "kind": CSR[1],
        "metadata": {"name": name},
        "spec": {
            "signerName": signer,
            "username": user,
            "groups": ["system:nodes", "system:authenticated"],
            "usages": [usage, "digital signature"],
            "request": base64.b64encode(content).decode(),
        },
    }


def serving(name: str, node: str, *addresses: str) -> dict:
    return request(name, SERVING_SIGNER, f"system:node:{node}", pem(node, addresses))


def joining(name: str, node: str, token: str) -> dict:
    return request(name, CLIENT_SIGNER, f"system:bootstrap:{token}", pem(node))


@pytest.fixture
def kube() -> FakeKube:
    """An API that holds the inventory of n1 (192.0.2.11) and n2 (192.0.2.12)."""
    api = FakeKube()
    api.put(access.inventory(CLUSTER))
    return api


async def verdict(kube: FakeKube, name: str) -> str | None:
    csr = await kube.get(*CSR, name)
    assert csr is not None
    conditions = csr.get("status", {}).get("conditions", [])
    return conditions[0]["type"] if conditions else None


async def test_a_serving_certificate_for_the_nodes_own_address_is_approved(kube, notes):
    kube.put(serving("csr-1", "n1", "192.0.2.11"))
    await judge_requests(kube, {"n1"}, notes)
    assert await verdict(kube, "csr-1") == "Approved"
    assert notes.notes == ["certificate request csr-1: node n1 serves at 192.0.2.11"]


async def test_of_what_a_node_is_denied_at_one_look_one_is_told_and_cut(kube, notes):
    """It asks without end, and has chosen the words."""
    for number in range(5):
        kube.put(serving(f"csr-{number}", "n1", "192.0.2.12", *(f"203.0.113.{last}" for last in range(1, 100))))
    kube.put(serving("csr-5", "n2", "192.0.2.12"))
    await judge_requests(kube, {"n1", "n2"}, notes)
    assert [await verdict(kube, f"csr-{number}") for number in range(6)] == ["Denied"] * 5 + ["Approved"]
    assert len(notes.notes) == 2
    assert max(map(len, notes.notes)) < LONGEST_WHY + 50


@pytest.mark.parametrize("address", ["127.0.0.1", "10.96.0.1", "192.0.2.12", "203.0.113.1"])
async def test_a_serving_certificate_for_any_other_address_is_denied(kube, notes, address):
    kube.put(serving("csr-1", "n1", "192.0.2.11", address))
    await judge_requests(kube, {"n1"}, notes)
    assert await verdict(kube, "csr-1") == "Denied"


async def test_a_token_admits_the_node_it_was_made_for_and_no_other(kube, notes):
    worker = CLUSTER.node("n2")
    kube.put(access.join_token(worker, "abcdef", "0123456789abcdef", "2026-11-21T13:00:00Z"))
    kube.put(joining("right", "n2", "abcdef"))
    kube.put(joining("wrong", "n1", "abcdef"))
    kube.put(joining("unknown-token", "n2", "zzzzzz"))
    for node in ("n1", "n2"):
        await judge_requests(kube, {node}, notes)
    assert await verdict(kube, "right") == "Approved"
    assert await verdict(kube, "wrong") == "Denied"
    assert await verdict(kube, "unknown-token") == "Denied"


@pytest.mark.parametrize(("available", "judged"), [(None, "Approved"), (0, "Approved"), (1, None)])
async def test_requests_are_left_to_the_operator_once_there_is_one(kube, notes, available, judged):
    """None: its Deployment was never observed, as just after it was created."""
    status = {} if available is None else {"availableReplicas": available}
    meta = {"name": "autarky-operator", "namespace": "kube-system"}
    kube.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "status": status})
    kube.put(serving("csr-1", "n1", "192.0.2.11"))
    await judge_requests(kube, {"n1"}, notes)
    assert await verdict(kube, "csr-1") == judged


@pytest.mark.looptime
async def test_why_a_node_that_does_not_register_was_denied_is_told_whoever_denied_it(make_context, kube, notes):
    denied = joining("csr-1", "n2", "zzzzzz")
    said = [{"type": "Denied", "message": "the token is not that of node n2"}]
    kube.put({**denied, "status": {"conditions": said}})
    kube.put(joining("csr-2", "n1", "zzzzzz") | {"status": {"conditions": [{"type": "Denied", "message": "no"}]}})
    with pytest.raises(TimedOut, match=r"no Node object n2 yet; denied: csr-1: the token is not that of node n2$"):
        await wait_until_registered(make_context(CLUSTER, kube=kube), CLUSTER.node("n2"), notes)


@pytest.mark.looptime
async def test_what_another_node_asked_for_in_a_nodes_name_is_not_told_of_it(make_context, kube, notes, monkeypatch):
    """Nor is it parsed, or anything that long: who holds one node can ask for any number of such certificates."""
    parsed = []

    def read(content: bytes) -> None:
        parsed.append(content)
        raise UserError("it cannot be parsed")

    monkeypatch.setattr("autarky.control.admission.act.read_request", read)
    denied = {"status": {"conditions": [{"type": "Denied", "message": "run `autarky down`"}]}}
    kube.put(request("n2-ca-is-wrong", CLIENT_SIGNER, "system:node:n1", pem("n2")) | denied)
    long = request("csr-1", CLIENT_SIGNER, "system:bootstrap:abcdef", b"x" * 100_000)
    kube.put(long | denied)
    with pytest.raises(TimedOut, match=r"no Node object n2 yet$"):
        await wait_until_registered(make_context(CLUSTER, kube=kube), CLUSTER.node("n2"), notes)
    assert [content for content in parsed if content] == []


async def test_a_node_that_is_not_in_the_inventory_is_left_to_wait(kube, notes):
    kube.put(serving("csr-1", "n9", "192.0.2.19"))
    await judge_requests(kube, {"n9"}, notes)
    assert await verdict(kube, "csr-1") is None
    assert notes.notes == []


async def test_without_an_inventory_everybody_waits(notes):
    kube = FakeKube()
    kube.put(serving("csr-1", "n1", "192.0.2.11"))
    await judge_requests(kube, {"n1"}, notes)
    assert await verdict(kube, "csr-1") is None


async def test_only_what_concerns_the_node_and_is_not_judged_yet_is_pending(kube):
    judged = serving("judged", "n1", "192.0.2.11")
    kube.put({**judged, "status": {"conditions": [{"type": "Denied", "status": "True"}]}})
    kube.put(serving("other-node", "n2", "192.0.2.12"))
    kube.put(request("other-signer", "example.org/x", "somebody", pem("n1")))
    kube.put(request("garbage", SERVING_SIGNER, "system:node:n1", b"not a request"))
    kube.put(serving("mine", "n1", "192.0.2.11"))
    assert [csr["metadata"]["name"] for csr in await pending_requests(kube, {"n1"})] == ["mine"]


@pytest.mark.parametrize(
    "broken", [b"\x30\x03\x82\x05x", b"\x30\x05\x87\x03abc", b""], ids=["short", "address", "empty"]
)
async def test_a_request_whose_names_cannot_be_read_does_not_keep_others_from_being_judged(kube, notes, broken):
    """Whoever holds a join token may write one."""
    names = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, broken)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:n1")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(names, critical=False)
    content = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    kube.put(request("broken", SERVING_SIGNER, "system:node:n1", content))
    kube.put(serving("csr-1", "n1", "192.0.2.11"))
    await judge_requests(kube, {"n1"}, notes)
    assert await verdict(kube, "broken") is None
    assert await verdict(kube, "csr-1") == "Approved"


class JudgedByAnother(FakeKube):
    async def replace(self, obj, *, subresource=None):
        raise Conflict("changed meanwhile")


async def test_somebody_who_judged_it_meanwhile_is_no_error(notes):
    kube = JudgedByAnother()
    kube.put(access.inventory(CLUSTER))
    kube.put(serving("csr-1", "n1", "192.0.2.11"))
    await judge_requests(kube, {"n1"}, notes)


# --- the phase -------------------------------------------------------------------------------------


def live_node(**labels: str) -> dict:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}


async def test_a_node_that_is_admitted_needs_nothing(make_context, kube):
    context = make_context(CLUSTER, kube=kube)
    kube.put(live_node(**wanted_labels(CLUSTER.node("n1"))))
    assert await plan_admission(context, context.cluster.control_nodes) == []


async def test_the_plan_names_what_is_missing(make_context, kube):
    context = make_context(CLUSTER, kube=kube)
    nodes = context.cluster.control_nodes
    assert [c.sentence for c in await plan_admission(context, nodes)] == ["wait for node n1 to register, and admit it"]
    kube.put(live_node())
    kube.put(serving("csr-1", "n1", "192.0.2.11"))
    assert [change.sentence for change in await plan_admission(context, nodes)] == [
        f"label node n1 with node-role.kubernetes.io/control-plane, {CONTROL_PLANE_ACTIVE}",
        "approve or deny certificate request csr-1",
    ]
    kube.unhealthy = "connection refused"
    assert [change.sentence for change in await plan_admission(context, nodes)] == ["admit node n1"]


def test_labels_of_the_file_are_wanted_besides_ours():
    worker = CLUSTER.node("n2")
    assert wanted_labels(worker) == {}
    assert missing_labels(live_node(), CLUSTER.node("n1")) == list(wanted_labels(CLUSTER.node("n1")))


@pytest.mark.looptime
async def test_a_control_node_is_labelled_once_it_registers_and_waited_for_until_its_certificate_is_there(
    make_context, notes, kube
):
    context = make_context(CLUSTER, kube=kube)
    kube.put(live_node())
    csr = serving("csr-1", "n1", "192.0.2.11")
    kube.put({**csr, "status": {"conditions": [{"type": "Approved"}], "certificate": "…"}})
    await wait_until_registered(context, CLUSTER.node("n1"), notes)
    await admit(context, CLUSTER.node("n1"), notes)
    live = await kube.get("v1", "Node", "n1")
    assert live is not None
    assert missing_labels(live, CLUSTER.node("n1")) == []
    assert notes.notes == ["node n1 is admitted"]


# --- requests that were denied ---------------------------------------------------------------------------------------


def denied(name: str, node: str, why: str = "192.0.2.66 is not in the join inventory", kind: str = "Denied") -> dict:
    judged = {"conditions": [{"type": kind, "status": "True", "message": why}]}
    return {**serving(name, node, "192.0.2.66"), "status": judged}


def a_worker(created: str) -> dict:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "creationTimestamp": created}}


@pytest.mark.looptime
@pytest.mark.parametrize("kind", ["Denied", "Failed"])
async def test_denied_requests_of_a_node_that_has_its_certificate_are_told_and_not_waited_for(
    make_context, notes, kube, looptime, kind
):
    context = make_context(CLUSTER, kube=kube)
    kube.put(a_worker("2020-01-01T00:00:00Z"))
    for number in range(3):
        kube.put(denied(f"csr-{number}", "n2", "x" * 9000, kind))
    await admit(context, CLUSTER.node("n2"), notes)
    assert looptime < 1
    [reported, _admitted] = notes.notes
    assert reported.startswith("node n2: not waiting for its denied certificate request csr-")
    assert len(reported) < 300


@pytest.mark.looptime
async def test_a_node_that_is_denied_under_another_name_each_time_moves_no_deadline(
    make_context, notes, kube, looptime
):
    context = make_context(CLUSTER, kube=kube)
    kube.put(a_worker("2999-01-01T00:00:00Z"))
    kube.put(denied("csr-0", "n2"))

    async def ask_again() -> None:
        for number in range(10_000):
            await asyncio.sleep(1)
            await kube.delete(*CSR, f"csr-{number}")
            kube.put(denied(f"csr-{number + 1}", "n2"))

    asking = asyncio.create_task(ask_again())
    with pytest.raises(
        TimedOut, match=r"not asked for another one since .* 192\.0\.2\.66 is not in the join inventory"
    ):
        await admit(context, CLUSTER.node("n2"), notes)
    asking.cancel()
    assert looptime == pytest.approx(patience.JOINS, abs=1)


@pytest.mark.looptime
async def test_a_request_beside_denied_ones_is_waited_for(make_context, notes, kube, looptime):
    """As after the address of a node was corrected."""
    context = make_context(CLUSTER, kube=kube)
    kube.put(a_worker("2999-01-01T00:00:00Z"))
    kube.put(denied("csr-0", "n2"))

    async def ask_again() -> None:
        await asyncio.sleep(20)
        kube.put(serving("csr-1", "n2", "192.0.2.12"))
        await asyncio.sleep(20)
        csr = await kube.get(*CSR, "csr-1")
        await kube.replace({**csr, "status": {**csr["status"], "certificate": "…"}}, subresource="status")

    asking = asyncio.create_task(ask_again())
    await admit(context, CLUSTER.node("n2"), notes)
    await asking
    assert 40 <= looptime < 42


def _applied(*labels: str) -> dict:
    """A Node whose labels an earlier `up` has set, and one that somebody else has."""
    managed: dict[str, Any] = {
        "manager": "autarky-nodes",
        "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:labels": {}}},
    }
    managed["fieldsV1"]["f:metadata"]["f:labels"] = {f"f:{label}": {} for label in labels}
    other = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}}
    meta = {"name": "n2", "labels": dict.fromkeys((*labels, "theirs"), ""), "managedFields": [other, managed]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def test_a_label_that_the_file_has_no_more_is_taken_and_no_other():
    worker = CLUSTER.node("n2")
    assert unlisted_labels(_applied("example.org/disk"), worker) == ["example.org/disk"]
    assert unlisted_labels(_applied("example.org/disk"), replace(worker, labels={"example.org/disk": "ssd"})) == []
    assert unlisted_labels({"metadata": {"name": "n2"}}, worker) == []


async def test_a_role_that_the_file_has_no_more_is_left_to_the_operator():
    """Without its label the API server would end before its place is taken."""
    live = _applied(CONTROL_PLANE_ACTIVE)
    assert unlisted_labels(live, CLUSTER.node("n2")) == []
    assert _node_labels(CLUSTER.node("n2"), live)["metadata"]["labels"] == {CONTROL_PLANE_ACTIVE: ""}
