"""The checkpoint of a pod as a real API server completes it: stable, and fit to be a static pod.

There are no controllers in this test: it creates the pod as the workload's controller would.
"""

from __future__ import annotations

import copy

import pytest

from autarky.control.checkpoint.manifests import references, revision_from_pod
from autarky.control.slots.manifests import Revision
from autarky.kube import Lister
from autarky.model.components import WITH_STANDBY
from autarky.ports import Object
from autarky.render import pods
from contract.servers import Server
from fakes.clusters import a_cluster, inputs_of
from fakes.hosted_pods import contents_of, hosted_objects, pod_of_revision, pod_of_template

pytestmark = pytest.mark.contract
MANAGER = "autarky-test"
every_component = pytest.mark.parametrize("component", WITH_STANDBY)


@pytest.fixture
def backend(api_server: Server) -> Server:
    """Only the real one: what it fills in is what this is about."""
    return api_server


@pytest.fixture
async def live(kube: Lister, namespace: str, component: str) -> Object:
    """The component's hosted objects, applied, and its pod; all in a namespace of the test's own."""
    objects = moved(hosted_objects(inputs_of(a_cluster(controls=3)), component), namespace)
    for obj in objects:
        await kube.apply(obj, manager=MANAGER)
    return await kube.create(pod_of_template(objects))


def moved(objects: list[Object], namespace: str) -> list[Object]:
    return [{**obj, "metadata": {**obj["metadata"], "namespace": namespace}} for obj in objects]


async def checkpoint(kube: Lister, component: str, pod: Object) -> Revision:
    """As the node agent makes it: everything it refers to is read from the API."""
    namespace = pod["metadata"]["namespace"]
    found = {r: await kube.get("v1", r.kind, r.name, namespace) for r in references(pod)}
    kinds = ({r.name: obj for r, obj in found.items() if r.kind == kind} for kind in ("Secret", "ConfigMap"))
    return revision_from_pod(component, pod, *kinds)


async def read(kube: Lister, pod: Object) -> Object:
    found = await kube.get("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    assert found is not None
    return found


@every_component
async def test_every_read_of_a_pod_gives_the_same_bytes(kube, live, component):
    first = await checkpoint(kube, component, live)
    again = await checkpoint(kube, component, await read(kube, live))
    assert [(f.path, f.content, f.mode) for f in again.files] == [(f.path, f.content, f.mode) for f in first.files]


@every_component
async def test_what_the_api_fills_in_is_taken_away_again(kube, live, component, namespace):
    """The template itself, which no API server has seen, gives the same name."""
    objects = moved(hosted_objects(inputs_of(a_cluster(controls=3)), component), namespace)
    unseen = revision_from_pod(component, pod_of_template(objects), *contents_of(objects))
    assert (await checkpoint(kube, component, live)).name == unseen.name


@every_component
async def test_a_pod_made_again_and_one_with_another_label_give_the_same_name(kube, live, component, namespace):
    objects = moved(hosted_objects(inputs_of(a_cluster(controls=3)), component), namespace)
    again = await kube.create(pod_of_template(objects, suffix="again"))
    assert again["metadata"]["uid"] != live["metadata"]["uid"]
    name = (await checkpoint(kube, component, live)).name
    assert (await checkpoint(kube, component, again)).name == name
    labels = {"metadata": {"labels": {"example.org/x": "y"}}}
    labelled = await kube.patch("v1", "Pod", again["metadata"]["name"], labels, namespace=namespace)
    assert (await checkpoint(kube, component, labelled)).name == name


@every_component
async def test_an_image_that_a_user_sets_is_followed(kube, live, component):
    """The one field of a running pod's containers that the API lets anybody change."""
    name, namespace = live["metadata"]["name"], live["metadata"]["namespace"]
    edited = copy.deepcopy(live)
    edited["spec"]["containers"][0]["image"] = "registry.example/other:v2"
    await kube.replace(edited)
    pod = await kube.get("v1", "Pod", name, namespace)
    assert (await checkpoint(kube, component, pod)).name != (await checkpoint(kube, component, live)).name


@every_component
async def test_the_api_server_takes_its_static_pod_and_changes_nothing_but_defaults(kube, live, component, namespace):
    """As the kubelet would present it: the same validation, and a mirror pod's rules on what it refers to."""
    revision = await checkpoint(kube, component, live)
    static = activated(revision, namespace)
    mirror = await kube.create(as_mirror_pod(static))
    assert "serviceAccountName" not in static["spec"]
    assert references(mirror) == ()
    for field in ("hostNetwork", "volumes", "securityContext"):
        assert mirror["spec"][field] == static["spec"][field]
    [ours], [theirs] = static["spec"]["containers"], mirror["spec"]["containers"]
    assert {key: theirs[key] for key in ("command", "image", "volumeMounts")} == {
        key: ours[key] for key in ("command", "image", "volumeMounts")
    }
    assert not theirs.get("ports")
    assert theirs["resources"] == pods.standby_share(component)


def activated(revision: Revision, namespace: str) -> Object:
    """What the script puts in place, in the test's own namespace and on a node that does not exist."""
    pod = pod_of_revision(revision)
    name = pod["metadata"]["name"].replace(pods.ACTIVATION, "0a1b2c3d")
    metadata = {**pod["metadata"], "name": name, "namespace": namespace}
    return {**pod, "metadata": {key: value for key, value in metadata.items() if key != "uid"}}


def as_mirror_pod(pod: Object) -> Object:
    """With what a kubelet adds when it publishes a static pod."""
    annotations = {
        **pod["metadata"]["annotations"],
        "kubernetes.io/config.mirror": "0d6c",
        "kubernetes.io/config.hash": "0d6c",
        "kubernetes.io/config.source": "file",
    }
    spec = {**pod["spec"], "nodeName": "n1"}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": spec}
