"""What the node agent relies on, of the fake and of containerd."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest

from autarky.errors import Unreachable
from autarky.model.runtime import ContainerEvent, Sandbox
from contract.cri.conftest import Node, RealNode
from contract.cri.containerd import SMALL

pytestmark = pytest.mark.contract


async def sandbox(node: Node, sandbox_id: str) -> Sandbox | None:
    return next((found for found in await node.cri.pods() if found.id == sandbox_id), None)


async def test_a_sandbox_is_listed_with_its_pod(node: Node) -> None:
    before = time.time()
    made = await node.run_sandbox("etcd-n1", "hash-1", attempt=2)
    (found,) = await node.cri.pods()
    assert (found.id, found.name, found.namespace, found.uid) == (made, "etcd-n1", "tests", "hash-1")
    assert found.attempt == 2
    assert found.ready
    assert before <= found.created <= time.time()
    assert found.labels["io.kubernetes.pod.uid"] == "hash-1"
    assert found.annotations["kubernetes.io/config.source"] == "file"


async def test_a_container_is_listed_with_its_pod_and_its_image(node: Node) -> None:
    pod = await node.run_sandbox("etcd-n1", "hash-1")
    made = await node.create_container(pod, "etcd", attempt=3)
    (found,) = await node.cri.containers()
    assert (found.id, found.sandbox_id, found.name, found.attempt) == (made, pod, "etcd", 3)
    assert (found.pod_name, found.pod_namespace, found.pod_uid) == ("etcd-n1", "tests", "hash-1")
    assert found.image == node.pause
    (image,) = (image for image in await node.cri.images() if node.pause in image.tags)
    assert found.image_id == image.id


async def test_a_container_is_created_then_runs_then_has_exited(node: Node) -> None:
    made = await node.create_container(await node.run_sandbox("pod"), "main")
    status = await node.cri.container_status(made)
    assert status is not None
    assert (status.state, status.started, status.finished, status.exit_code) == ("created", None, None, None)
    assert (status.name, status.attempt) == ("main", 0)
    assert status.log_path.endswith("/logs/main.log")

    await node.start_container(made)
    status = await node.cri.container_status(made)
    assert status is not None
    assert (status.state, status.finished, status.exit_code) == ("running", None, None)
    assert status.started is not None
    assert [found.state for found in await node.cri.containers()] == ["running"]

    await node.kill_container(made)
    status = await node.cri.container_status(made)
    assert status is not None
    assert (status.state, status.exit_code, status.reason) == ("exited", 137, "Error")
    assert status.started is not None
    assert status.finished is not None
    assert status.created <= status.started <= status.finished <= time.time()
    assert [found.ready for found in await node.cri.pods()] == [True]


async def test_a_container_that_is_not_there_has_no_status(node: Node) -> None:
    assert await node.cri.container_status("0123456789abcdef") is None


async def test_two_attempts_of_one_pod_are_told_apart_the_oldest_first(node: Node) -> None:
    first = await node.run_sandbox("pod", "uid")
    await node.cri.stop_sandbox(first)
    second = await node.run_sandbox("pod", "uid", attempt=1)
    found = [(pod.id, pod.attempt, pod.ready) for pod in await node.cri.pods()]
    assert found == [(first, 0, False), (second, 1, True)]


async def test_a_stopped_sandbox_is_still_listed_and_its_containers_have_exited(node: Node) -> None:
    pod = await node.run_sandbox("pod")
    container = await node.create_container(pod, "main")
    await node.start_container(container)
    await node.cri.stop_sandbox(pod)
    found = await sandbox(node, pod)
    assert found is not None
    assert not found.ready
    status = await node.cri.container_status(container)
    assert status is not None
    assert (status.state, status.exit_code) == ("exited", 137)


async def test_stopping_one_sandbox_leaves_the_others_alone(node: Node) -> None:
    one, other = [await node.run_sandbox(name, name) for name in ("one", "other")]
    await node.cri.stop_sandbox(one)
    found = await sandbox(node, other)
    assert found is not None
    assert found.ready


async def test_a_running_sandbox_is_removed_with_its_containers(node: Node) -> None:
    pod = await node.run_sandbox("pod")
    container = await node.create_container(pod, "main")
    await node.start_container(container)
    await node.cri.remove_sandbox(pod)
    assert list(await node.cri.pods()) == []
    assert list(await node.cri.containers()) == []
    assert await node.cri.container_status(container) is None


async def test_a_container_that_has_exited_is_removed_and_its_sandbox_stays(node: Node) -> None:
    pod = await node.run_sandbox("pod")
    dead, other = [await node.create_container(pod, name) for name in ("main", "other")]
    for each in (dead, other):
        await node.start_container(each)
    await node.kill_container(dead)
    for _ in range(2):
        await node.cri.remove_container(dead)
    assert [(found.id, found.state) for found in await node.cri.containers()] == [(other, "running")]
    assert [found.ready for found in await node.cri.pods()] == [True]


async def test_stopping_and_removing_twice_or_what_is_absent_is_fine(node: Node) -> None:
    pod = await node.run_sandbox("pod")
    for _ in range(2):
        await node.cri.stop_sandbox(pod)
    for _ in range(2):
        await node.cri.remove_sandbox(pod)
    await node.cri.stop_sandbox(pod)
    assert list(await node.cri.pods()) == []


async def test_images_have_names_an_id_and_a_size(node: Node) -> None:
    found = {tag: image for image in await node.cri.images() for tag in image.tags}
    assert set(found) == {node.pause, SMALL}
    assert all(image.id.startswith("sha256:") and image.size > 0 for image in found.values())


async def test_an_image_is_there_by_its_name_and_by_its_id(node: Node) -> None:
    assert await node.cri.has_image(SMALL)
    assert all([await node.cri.has_image(image.id) for image in await node.cri.images()])
    assert not await node.cri.has_image("example.org/small:2")
    assert not await node.cri.has_image("sha256:" + 64 * "0")


async def test_an_image_is_pinned_by_its_label(node: Node) -> None:
    pinned = {image.tags[0]: image.pinned for image in await node.cri.images()}
    assert pinned == {node.pause: True, SMALL: False}
    await node.pin(SMALL)
    await until(lambda: all_pinned(node))


async def all_pinned(node: Node) -> bool:
    return all(image.pinned for image in await node.cri.images())


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 # the runtime tells nobody
            await asyncio.sleep(0.02)


async def test_the_runtime_says_what_it_is(node: Node) -> None:
    found = await node.cri.version()
    assert (found.name, found.api_version) == ("containerd", "v1")
    assert found.version.startswith("v2.")


async def test_a_runtime_that_is_away_is_unreachable_and_the_pods_outlive_that(node: Node) -> None:
    pod = await node.run_sandbox("pod")
    before = await sandbox(node, pod)
    await node.stop_runtime()
    cri = node.cri
    for call in (cri.pods, cri.containers, cri.images, cri.version):
        with pytest.raises(Unreachable):
            await call()
    for call_of in (cri.container_status, cri.stop_sandbox, cri.remove_sandbox, cri.has_image):
        with pytest.raises(Unreachable):
            await call_of(pod)
    with pytest.raises(Unreachable):
        await anext(cri.events())
    await node.start_runtime()
    assert await sandbox(node, pod) == before


async def heard_of(node: Node, pod: str, count: int) -> list[ContainerEvent]:
    """The first events of the pod.

    containerd keeps what nobody listened to for minutes and tells it to the next who listens: of the pods that
    an earlier test left to be removed, too. So each test has a name of its own for its pod.
    """
    heard: list[ContainerEvent] = []
    async with asyncio.timeout(20), aclosing(node.cri.events()) as events:
        async for event in events:
            if event.pod_name == pod:
                heard.append(event)
            if len(heard) == count:
                break
    return heard


async def test_what_happens_to_a_pod_is_told(node: Node) -> None:
    listening = asyncio.create_task(heard_of(node, "watched", 9))
    await asyncio.sleep(0.01)
    pod = await node.run_sandbox("watched", "hash-1")
    container = await node.create_container(pod, "main")
    await node.start_container(container)
    await node.kill_container(container)
    await node.cri.remove_sandbox(pod)
    await asyncio.sleep(0)
    again = await node.run_sandbox("watched", "hash-1")
    heard = await listening
    assert [(event.type, event.container_id) for event in heard] == [
        ("created", pod),
        ("started", pod),
        ("created", container),
        ("started", container),
        ("stopped", container),
        ("stopped", pod),
        ("deleted", container),
        ("deleted", pod),
        ("created", again),
    ]
    assert {event.sandbox_id for event in heard} == {pod, again}
    assert {(event.pod_name, event.pod_namespace, event.pod_uid) for event in heard} == {("watched", "tests", "hash-1")}
    assert abs(heard[0].time - time.time()) < 60


async def test_events_break_off_with_the_runtime_and_come_again_after_it(node: Node) -> None:
    listening = asyncio.create_task(heard_of(node, "after-the-break", 1))
    await asyncio.sleep(0.05)
    await node.stop_runtime()
    with pytest.raises(Unreachable):
        await listening
    await node.start_runtime()
    listening = asyncio.create_task(heard_of(node, "after-the-break", 1))
    await asyncio.sleep(0.01)
    pod = await node.run_sandbox("after-the-break")
    (event,) = await listening
    assert event.sandbox_id == pod


async def test_a_containerd_that_hangs_is_unreachable_until_it_goes_on(real_node: RealNode) -> None:
    cri = real_node.cri
    pod = await real_node.run_sandbox("pod")
    await asyncio.to_thread(real_node.containerd.tell, "freeze")
    try:
        with pytest.raises(Unreachable, match=r"StopPodSandbox within 0\.2 s"):
            await cri.stop_sandbox(pod, timeout=0.2)
    finally:
        await asyncio.to_thread(real_node.containerd.tell, "thaw")
    assert [found.id for found in await cri.pods()] == [pod]


async def test_a_containerd_that_is_killed_in_the_middle_of_a_call_is_unreachable(real_node: RealNode) -> None:
    pod = await real_node.run_sandbox("pod")
    await asyncio.to_thread(real_node.containerd.tell, "freeze")
    call = asyncio.create_task(real_node.cri.stop_sandbox(pod))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(real_node.containerd.tell, "kill")
    with pytest.raises(Unreachable):
        await call
    await real_node.start_runtime()
    assert [(found.id, found.ready) for found in await real_node.cri.pods()] == [(pod, True)]
