"""Backup and BackupSchedule on a real API server: it accepts what the documents show, and refuses nonsense."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from autarky.control.backup.manifests import definitions
from autarky.errors import ApiError
from autarky.kube import KubeClient
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from contract.servers import Server
from unit.docs.documents import ROOT, blocks

pytestmark = pytest.mark.contract

KINDS = (definitions.BACKUP, definitions.SCHEDULE)
SHOWN = {
    f"{found['kind']}:{block.line}": found
    for block in blocks(ROOT / "docs/backup.md")
    if block.language == "yaml" and (found := yaml.safe_load(block.text)).get("kind") in KINDS
}
GOOD = definitions.backup("b", {"target": {"directory": "/mnt/b"}, "encryption": {"recipients": ["age1x"]}})
GOOD_SCHEDULE: Object = {
    "apiVersion": API_VERSION,
    "kind": definitions.SCHEDULE,
    "metadata": {"name": "s"},
    "spec": {"every": "6h", "template": {"encryption": {"recipients": ["age1x"]}}},
}
S3 = {"bucket": "bucket", "credentialsSecret": "secret"}


@pytest.fixture
async def kube(api_server: Server) -> AsyncIterator[KubeClient]:
    client = api_server.kube()
    for definition in definitions.objects():
        await client.apply(definition, manager="test")
    async with asyncio.timeout(60):
        for kind in KINDS:
            while not await _is_served(client, kind):  # noqa: ASYNC110 # nobody reports it
                await asyncio.sleep(0.05)
    yield client
    for kind in KINDS:
        for obj in await client.list(API_VERSION, kind):
            await client.delete(API_VERSION, kind, obj["metadata"]["name"])
    await client.close()


async def _is_served(kube: KubeClient, kind: str) -> bool:
    try:
        await kube.list(API_VERSION, kind)
    except ApiError:
        return False
    return True


def test_the_documents_show_each_kind() -> None:
    assert {shown["kind"] for shown in SHOWN.values()} == set(KINDS)


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
async def test_what_the_documents_show_is_accepted(kube: KubeClient, shown: dict[str, Any]) -> None:
    await kube.create(shown)


async def test_defaults(kube: KubeClient) -> None:
    bare = copy.deepcopy(GOOD)
    del bare["spec"]["target"]
    del bare["spec"]["state"]
    created = await kube.create(bare)
    assert created["spec"]["target"] == {"directory": definitions.DEFAULT_DIRECTORY}
    assert created["spec"]["state"] == definitions.KEPT
    schedule = await kube.create(GOOD_SCHEDULE)
    assert schedule["spec"]["keep"] == {"count": definitions.DEFAULT_COUNT}
    assert schedule["spec"]["template"]["target"] == {"directory": definitions.DEFAULT_DIRECTORY}


@pytest.mark.parametrize(
    "spec",
    [
        {"encryption": None},
        {"encryption": {"recipients": []}},
        {"encryption": {"recipients": ["AGE-SECRET-KEY-1"]}},
        {"encryption": {"recipients": ["age1x"], "identity": "AGE-SECRET-KEY-1"}},
        {"target": {}},
        {"target": {"directory": "/mnt/b", "s3": S3}},
        {"target": {"directory": "relative"}},
        {"target": {"directory": "/"}},
        {"target": {"directory": "/etc/kubernetes/manifests"}},
        {"target": {"directory": "/mnt/../etc"}},
        {"target": {"directory": "/mnt/.."}},
        {"target": {"s3": {**S3, "endpoint": "ftp://x"}}},
        {"target": {"s3": {"bucket": "bucket"}}},
        {"node": "not a node"},
        {"state": "Gone"},
    ],
    ids=str,
)
async def test_what_means_nothing_is_refused(kube: KubeClient, spec: dict[str, Any]) -> None:
    wrong = copy.deepcopy(GOOD)
    wrong["spec"] |= spec
    with pytest.raises(ApiError) as refused:
        await kube.create(wrong)
    assert refused.value.status == 422


@pytest.mark.parametrize("every", ["", "0h", "1w", "5", "-1h", "1.5h"])
async def test_an_interval_that_is_none_is_refused(kube: KubeClient, every: str) -> None:
    wrong = copy.deepcopy(GOOD_SCHEDULE)
    wrong["spec"]["every"] = every
    with pytest.raises(ApiError) as refused:
        await kube.create(wrong)
    assert refused.value.status == 422


@pytest.mark.parametrize("name", ["with.dots", "x" * 64])
async def test_a_name_becomes_that_of_a_file_and_a_label(kube: KubeClient, name: str) -> None:
    wrong = copy.deepcopy(GOOD)
    wrong["metadata"]["name"] = name
    with pytest.raises(ApiError) as refused:
        await kube.create(wrong)
    assert refused.value.status == 422


async def test_only_its_state_can_be_changed(kube: KubeClient) -> None:
    await kube.create(GOOD)
    what = (API_VERSION, definitions.BACKUP, "b")
    await kube.patch(*what, {"spec": {"state": definitions.REMOVED}})
    await kube.patch(*what, {"spec": {"state": definitions.KEPT}})
    for spec in ({"node": "n1"}, {"target": {"directory": "/mnt/c"}}, {"encryption": {"recipients": ["age1y"]}}):
        with pytest.raises(ApiError, match="only its state can be changed"):
            await kube.patch(*what, {"spec": spec})
