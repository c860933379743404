"""Images that must stay on the node: what the real containerd does when somebody removes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from autarky.cri.images import ImageKeeper
from autarky.errors import Unreachable
from autarky.ports import KeptImages
from contract.cri.conftest import RealNode
from contract.cri.containerd import SMALL
from fakes.kept_images import FakeKeptImages

ABSENT = "example.org/absent:1"


@pytest.fixture
async def keeper(real_node: RealNode) -> AsyncIterator[ImageKeeper]:
    keeper = ImageKeeper(real_node.containerd.socket)
    yield keeper
    await keeper.keep([real_node.pause, SMALL])  # what a test removed is needed by the next
    await keeper.keep([])
    await keeper.close()


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """CRI hears of containerd's own API a moment later."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 # the runtime tells nobody
            await asyncio.sleep(0.02)


async def is_pinned(node: RealNode, name: str) -> bool | None:
    """None when there is no such image."""
    return next((image.pinned for image in await node.cri.images() if name in image.tags), None)


async def remove(node: RealNode, name: str) -> None:
    """As a user does, and everything that nobody else holds with it."""
    await asyncio.to_thread(node.containerd.images, "rm", "--sync", name)


async def test_a_kept_image_is_pinned_and_one_that_is_not_kept_any_more_is_not(
    real_node: RealNode, keeper: ImageKeeper
) -> None:
    assert await keeper.keep([SMALL, ABSENT]) == {SMALL}

    async def pinned() -> bool:
        return await is_pinned(real_node, SMALL) is True

    async def not_pinned() -> bool:
        return await is_pinned(real_node, SMALL) is False

    await until(pinned)
    assert await keeper.keep([]) == frozenset()
    await until(not_pinned)


async def test_a_pin_of_somebody_else_stays_when_the_image_is_not_kept_any_more(
    real_node: RealNode, keeper: ImageKeeper
) -> None:
    assert await keeper.keep([real_node.pause]) == {real_node.pause}
    await keeper.keep([])
    await asyncio.sleep(0.2)
    assert await is_pinned(real_node, real_node.pause) is True


async def test_a_kept_image_that_is_removed_comes_back_and_can_be_run(real_node: RealNode, keeper: ImageKeeper) -> None:
    assert await keeper.keep([real_node.pause]) == {real_node.pause}
    await remove(real_node, real_node.pause)
    assert await keeper.keep([real_node.pause]) == {real_node.pause}

    async def is_back() -> bool:
        return await real_node.cri.has_image(real_node.pause) and await is_pinned(real_node, real_node.pause) is True

    await until(is_back)
    sandbox = await real_node.run_sandbox("pod")
    container = await real_node.create_container(sandbox, "main")
    await real_node.start_container(container)
    found = await real_node.cri.container_status(container)
    assert found is not None
    assert found.state == "running"


async def test_another_process_puts_it_back_as_well(real_node: RealNode, keeper: ImageKeeper) -> None:
    """What is held is written down in containerd alone."""
    await keeper.keep([SMALL])
    await remove(real_node, SMALL)
    other = ImageKeeper(real_node.containerd.socket)
    assert await other.keep([SMALL]) == {SMALL}
    await other.close()


async def test_an_image_that_nobody_kept_is_not_put_back(real_node: RealNode, keeper: ImageKeeper) -> None:
    copy = "example.org/copy:1"
    await asyncio.to_thread(real_node.containerd.images, "tag", SMALL, copy)
    await remove(real_node, copy)
    assert await keeper.keep([copy]) == frozenset()


async def test_a_name_that_moves_on_is_held_where_it_points_to_now(real_node: RealNode, keeper: ImageKeeper) -> None:
    moving = "example.org/moving:1"
    await asyncio.to_thread(real_node.containerd.images, "tag", SMALL, moving)
    await keeper.keep([moving])
    await asyncio.to_thread(real_node.containerd.images, "tag", "--force", real_node.pause, moving)
    await keeper.keep([moving])
    await remove(real_node, moving)
    assert await keeper.keep([moving]) == {moving}

    async def points_to_pause() -> bool:
        tags = [set(image.tags) for image in await real_node.cri.images()]
        return any({moving, real_node.pause} <= names for names in tags)

    await until(points_to_pause)
    await keeper.keep([])
    await remove(real_node, moving)


@pytest.fixture(params=["in memory", "containerd"])
def kept(request: pytest.FixtureRequest) -> KeptImages:
    """A node that has SMALL."""
    if request.param == "in memory":
        return FakeKeptImages({SMALL})
    found: ImageKeeper = request.getfixturevalue("keeper")
    return found


async def test_only_what_the_node_has_is_kept(kept: KeptImages) -> None:
    assert await kept.keep([SMALL, ABSENT]) == {SMALL}
    assert await kept.keep([ABSENT]) == frozenset()
    assert await kept.keep([SMALL]) == {SMALL}


async def test_a_runtime_that_is_away_is_unreachable(real_node: RealNode, kept: KeptImages) -> None:
    await real_node.stop_runtime()
    if isinstance(kept, FakeKeptImages):
        kept.outage = "the runtime is stopped"
    try:
        with pytest.raises(Unreachable):
            await kept.keep([SMALL])
    finally:
        await real_node.start_runtime()
    if isinstance(kept, FakeKeptImages):
        kept.outage = None
    assert await kept.keep([SMALL]) == {SMALL}
