"""Our own kinds on a real API server: it refuses values that mean nothing, and lets what was stored before live on."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from autarky.control.common import understood
from autarky.control.etcd.manifests import members as etcd_members
from autarky.errors import ApiError, AutarkyError
from autarky.kube import KubeClient
from autarky.ports import Object
from autarky.render.crds import API_VERSION, control_plane, control_plane_crd
from contract.servers import Server
from fakes.clusters import a_cluster

pytestmark = pytest.mark.contract

PLANE = (API_VERSION, "ControlPlane", "cluster")
MEMBER = (API_VERSION, "EtcdMember", "n1")
GOOD: Object = {
    "apiVersion": API_VERSION,
    "kind": "ControlPlane",
    "metadata": {"name": "cluster"},
    "spec": {
        "version": "v1.36.4",
        "selfHosted": "1-4",
        "componentArguments": {"kube-scheduler": {"v": "4", "feature-gates": "A=true"}},
        "rollback": {"enabled": True, "limitSeconds": 90},
        "etcd": {"members": ["n1", "n-2.example"]},
    },
}


@pytest.fixture
async def kube(api_server: Server) -> AsyncIterator[KubeClient]:
    client = api_server.kube()
    yield client
    for what in (PLANE, MEMBER):
        with suppress(AutarkyError):  # of a kind that was not defined
            await client.delete(*what)
    await client.close()


def loose(definition: Object) -> Object:
    """As if an earlier release had taken anything."""
    found = copy.deepcopy(definition)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    found["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return found


async def define(kube: KubeClient, definition: Object, kind: str) -> None:
    await kube.apply(definition, manager="test")
    async with asyncio.timeout(60):
        while True:
            try:
                await kube.list(API_VERSION, kind)
            except ApiError:
                await asyncio.sleep(0.05)
            else:
                return


async def refuses(kube: KubeClient, what: tuple[str, str, str], patch: Object, **how: Any) -> bool:
    try:
        await kube.patch(*what, patch, **how)
    except ApiError as error:
        if error.status != 422:
            raise
        return True
    return False


ODD_AND_GOOD_SPECS: list[tuple[Object, Object]] = [
    ({"version": "1.36"}, {"version": "v1.36.5"}),
    ({"selfHosted": "banana"}, {"selfHosted": "2-4"}),
    ({"selfHosted": 4}, {"selfHosted": "4"}),
    ({"componentArguments": {"kube-scheduler": {"--v": "4"}}}, {"componentArguments": {"kube-scheduler": {"v": "5"}}}),
    ({"componentArguments": {"kube-scheduler": {"v": 4}}}, {"componentArguments": {"kube-scheduler": {"v": "4"}}}),
    ({"rollback": {"limitSeconds": "ten"}}, {"rollback": {"limitSeconds": 10}}),
    ({"rollback": {"limitSeconds": 10**9}}, {"rollback": {"limitSeconds": 86400}}),
    ({"defaults": 0}, {"defaults": 2}),
    ({"defaults": "1"}, {"defaults": 1}),
    ({"etcd": {"members": []}}, {"etcd": {"members": ["n3"]}}),
    ({"etcd": {"members": ["n1", "n1"]}}, {"etcd": {"members": ["n1", "n2"]}}),
    ({"etcd": {"members": ["N 1"]}}, {"etcd": {"members": ["n-1"]}}),
    ({"etcd": {"members": "n1"}}, {"etcd": {"members": ["n1"]}}),
]


async def enforced(kube: KubeClient) -> None:
    """A new definition counts a moment later."""
    async with asyncio.timeout(60):
        while not await refuses(kube, PLANE, {"spec": {"selfHosted": "banana"}}):
            await kube.patch(*PLANE, {"spec": {"selfHosted": "1-4"}})
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(("odd", "good"), ODD_AND_GOOD_SPECS, ids=json.dumps)
async def test_a_control_plane_with_a_value_that_means_nothing_is_refused(
    kube: KubeClient, odd: Object, good: Object
) -> None:
    """And only for that value: the same change with a good one is taken."""
    await define(kube, control_plane_crd(), "ControlPlane")
    created = await kube.create(GOOD)
    assert understood.is_control_plane(created)
    await enforced(kube)
    assert await refuses(kube, PLANE, {"spec": odd})
    assert not await refuses(kube, PLANE, {"spec": good})


async def test_a_control_plane_that_was_stored_before_can_still_be_changed(kube: KubeClient) -> None:
    """Only what changes is checked; so it can be corrected field by field, and `up` can go on."""
    await define(kube, loose(control_plane_crd()), "ControlPlane")
    odd = {**GOOD, "spec": {**GOOD["spec"], "version": "banana", "rollback": {"limitSeconds": 1}}}
    assert not understood.is_control_plane(await kube.create(odd))
    await define(kube, control_plane_crd(), "ControlPlane")
    await enforced(kube)
    noted = await kube.patch(*PLANE, {"metadata": {"annotations": {"a": "b"}}})
    condition = {"type": "SpecApplied", "status": "False"}
    reported = await kube.replace({**noted, "status": {"conditions": [condition]}}, subresource="status")
    assert reported["status"]["conditions"] == [condition], "the operator can say what is odd"
    corrected = await kube.patch(*PLANE, {"spec": {"version": "v1.36.4", "rollback": {"limitSeconds": 90}}})
    assert understood.is_control_plane(corrected)


async def test_a_field_that_the_definition_does_not_know_yet_is_refused_and_not_dropped(kube: KubeClient) -> None:
    """`up` of a release with a new field applies the definition and soon after it the object, and tries again while
    that is refused: what was dropped would count as applied."""
    older = copy.deepcopy(control_plane_crd())
    del older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["defaults"]
    wanted = control_plane(a_cluster(defaults=2))
    await define(kube, older, "ControlPlane")
    assert await comes_to(kube, wanted, applied=False)
    await define(kube, control_plane_crd(), "ControlPlane")
    assert await comes_to(kube, wanted, applied=True)
    live = await kube.get(*PLANE)
    assert live is not None
    assert live["spec"]["defaults"] == 2


async def comes_to(kube: KubeClient, wanted: Object, *, applied: bool) -> bool:
    """Whether it is applied, or refused, in a while: a definition that has changed counts a moment later."""
    for _ in range(300):
        try:
            await kube.apply(wanted, manager="test")
            found = True
        except ApiError as error:
            if "defaults" not in str(error):
                raise
            found = False
        if found == applied:
            return True
        await asyncio.sleep(0.1)
    return False


async def test_a_member_of_etcd_with_a_value_that_means_nothing_is_refused(kube: KubeClient) -> None:
    await define(kube, etcd_members.crd(), "EtcdMember")
    created = await kube.create(etcd_members.member("n1", "10.0.0.1", present=True))
    assert understood.is_etcd_member(created)
    for odd in ({"memberID": "banana"}, {"lostMemberID": "0x1"}, {"vacatedMemberID": "f" * 17}, {"vacating": "f"}):
        assert await refuses(kube, MEMBER, {"status": odd}, subresource="status"), odd
    for valid in (
        {"memberID": ""},
        {"lostMemberID": "f" * 16},
        {"vacating": "8e9e05c52164694d/a-pod"},
        {"vacating": ""},
    ):
        assert not await refuses(kube, MEMBER, {"status": valid}, subresource="status"), valid
    assert await refuses(kube, MEMBER, {"spec": {"state": "banana"}})


async def test_the_last_argument_of_the_last_component_can_be_taken_back(kube: KubeClient) -> None:
    """Server-side apply leaves null where everything that one owner had in a map has gone."""
    await define(kube, control_plane_crd(), "ControlPlane")
    bare = {**GOOD, "spec": {**GOOD["spec"], "componentArguments": {}}}
    one = {**GOOD, "spec": {**GOOD["spec"], "componentArguments": {"kubelet": {"v": "4"}}}}
    for wanted in (one, bare, GOOD, bare, one, GOOD):
        await kube.apply(wanted, manager="test")
        live = await kube.get(*PLANE)
        assert live is not None
        assert understood.control_plane(live) is None, live["spec"]
        assert live["spec"]["componentArguments"] == wanted["spec"]["componentArguments"]
