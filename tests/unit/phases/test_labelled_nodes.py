"""`up`, `status` and `doctor` get along with control nodes that a label has made: workers in the file."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autarky import places
from autarky.decide import applied
from autarky.duties import serving
from autarky.engine.phase import Change
from autarky.model.files import File
from autarky.phases.context import Context
from autarky.phases.labelled import find_labelled
from autarky.phases.objects import ApplyObjects
from autarky.phases.ownership import FollowControlPlane
from autarky.pki.check import authority_of
from autarky.pki.names import reissued
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_FACT, SYSTEM, immutable_secret, with_rendered_hash
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

API = "kube-apiserver"
CLUSTER = a_cluster(controls=1, workers=1)


@pytest.fixture
async def context(make_context: Callable[..., Context], notes: object) -> Context:
    """All of it applied."""
    context = make_context(CLUSTER)
    await ApplyObjects().run(context, notes)  # type: ignore[arg-type]
    return context


async def the_operator_issues(context: Context, *, add: list[str], drop: list[str]) -> None:
    """Another serving certificate, as the operator does it."""
    kube, now = context.kube(), datetime.now(UTC)
    live = await kube.get("apps/v1", "DaemonSet", API, SYSTEM)
    assert live is not None
    old = serving.secret_of(live["spec"]["template"])
    assert old is not None
    pair, secret = await serving.read_pair(kube, old), await kube.get("v1", "Secret", old, SYSTEM)
    assert pair is not None
    assert secret is not None
    authority = authority_of(context.pki.read("ca"), "ca.crt", "ca.key", now)
    new = reissued(pair, authority, add=add, drop=drop, now=now)
    files = {name: _text(value) for name, value in secret["data"].items()}
    files |= {serving.CERTIFICATE: new.certificate.decode(), serving.KEY: new.key.decode()}
    made = with_rendered_hash(immutable_secret(API, files))
    await kube.create(made)
    template = serving.with_secret(live["spec"]["template"], old, made["metadata"]["name"])
    await kube.replace(_recorded(live, template))


def _text(value: str) -> str:
    return base64.b64decode(value).decode()


def _recorded(live: Object, template: Object) -> Object:
    record = applied.record_of(live)
    assert record is not None
    changed = {**live, "spec": {**live["spec"], "template": template}}
    return applied.with_record(changed, {**record, "spec": {**record["spec"], "template": template}})


async def planned(context: Context) -> list[str]:
    await FollowControlPlane().plan(context)
    return [one.sentence for one in await ApplyObjects().plan(context) if isinstance(one, Change)]


async def test_a_certificate_that_the_operator_has_issued_is_taken_over(context: Context):
    await the_operator_issues(context, add=["n2", "192.0.2.12"], drop=[])
    assert await planned(context) == []


async def test_one_that_does_not_name_all_that_the_file_wants_is_replaced_by_ours(context: Context):
    await the_operator_issues(context, add=["n2"], drop=["n1"])
    assert f"apply DaemonSet {SYSTEM}/{API}" in await planned(context)


async def test_without_any_workload_ours_is_used(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    await FollowControlPlane().plan(context)
    assert context.adopted == {}


async def test_labelled_nodes_are_found_by_the_label(make_context: Callable[..., Context]):
    kube = FakeKube()
    for name in ("n1", "n2"):
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {CONTROL_PLANE_FACT: ""}}})
    context = make_context(CLUSTER, kube=kube)
    await find_labelled(context, api=True)
    assert context.labelled == {"n2"}
    assert [node.name for node in context.control_nodes] == ["n1", "n2"]


@pytest.mark.parametrize(("state", "found"), [("ready", {"n2"}), ("joining", set()), ("leaving", set())])
async def test_without_the_api_they_are_found_on_their_disks(
    make_context: Callable[..., Context], state: str, found: set[str]
):
    context = make_context(CLUSTER)
    noted = File(places.CONTROL_NODE_STATE, f'{{"state": "{state}"}}'.encode())
    await context.host(CLUSTER.node("n2")).write_files([noted])
    await find_labelled(context, api=False)
    assert context.labelled == found


async def test_a_machine_that_is_off_says_nothing(make_context: Callable[..., Context]):
    context = make_context(CLUSTER)
    context.machines.hosts.pop("n2")  # type: ignore[attr-defined]
    await find_labelled(context, api=False)
    assert context.labelled == frozenset()


async def test_before_anything_is_known_the_control_nodes_are_those_of_the_file(make_context: Callable[..., Context]):
    context = make_context(replace(CLUSTER))
    assert [node.name for node in context.control_nodes] == ["n1"]
