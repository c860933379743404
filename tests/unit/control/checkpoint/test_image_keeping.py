"""Which images the agent keeps, and what it says of those it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.control.checkpoint.node.images import LOOK_SECONDS, STALE_SECONDS, ImageKeeping
from fakes.clock import HandClock
from fakes.kept_images import FakeKeptImages
from unit.control.disks import Disk, a_disk

API = "kube-apiserver"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return a_disk(tmp_path, monkeypatch)


@pytest.fixture
def node() -> FakeKeptImages:
    return FakeKeptImages({"api:1", "api:2", "agent:1"})


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def keeping(disk: Disk, node: FakeKeptImages, clock: HandClock) -> ImageKeeping:
    return ImageKeeping(node, clock, lambda _subject, _sentence: None)


async def test_the_images_of_revisions_and_manifests_are_kept(
    keeping: ImageKeeping, disk: Disk, node: FakeKeptImages
) -> None:
    disk.revision(API, "1", "api:1")
    disk.manifest("node-agent-standby-1", "uid", "agent:1")
    disk.manifest("etcd-1", "uid", "etcd:1")
    await keeping.reconcile()
    assert node.asked == [{"api:1", "agent:1"}]


async def test_it_looks_again_at_once_when_something_new_is_needed_and_else_seldom(
    keeping: ImageKeeping, disk: Disk, node: FakeKeptImages, clock: HandClock
) -> None:
    disk.revision(API, "1", "api:1")
    await keeping.reconcile()
    clock.now += LOOK_SECONDS / 2
    await keeping.reconcile()
    assert len(node.asked) == 1
    keeping.have(API, ["api:2"])
    await keeping.reconcile()
    assert node.asked[-1] == {"api:1", "api:2"}
    disk.revision(API, "3", "api:3")
    clock.now += LOOK_SECONDS
    await keeping.reconcile()
    assert node.asked[-1] == {"api:1", "api:2", "api:3"}


async def test_what_a_checkpoint_needs_is_unknown_until_a_look_has_asked_for_it(keeping: ImageKeeping) -> None:
    assert keeping.have(API, ["api:2"]) is None
    await keeping.reconcile()
    assert keeping.have(API, ["api:2"]) is True
    assert keeping.have(API, ["api:3"]) is None
    await keeping.reconcile()
    assert keeping.have(API, ["api:3"]) is False


async def test_a_runtime_that_does_not_answer_says_nothing_and_an_old_answer_is_none(
    keeping: ImageKeeping, node: FakeKeptImages, clock: HandClock
) -> None:
    keeping.have(API, ["api:2"])
    await keeping.reconcile()
    node.outage = "containerd is stopped"
    clock.now += LOOK_SECONDS
    await keeping.reconcile()
    assert keeping.have(API, ["api:2"]) is True, "it was asked and pinned a moment ago"
    clock.now += STALE_SECONDS
    await keeping.reconcile()
    assert keeping.have(API, ["api:2"]) is None


async def test_a_disk_that_cannot_be_read_lets_nothing_go(
    keeping: ImageKeeping, disk: Disk, node: FakeKeptImages, clock: HandClock
) -> None:
    disk.revision(API, "1", "api:1")
    await keeping.reconcile()
    disk.manifests.rmdir()
    clock.now += LOOK_SECONDS
    await keeping.reconcile()
    assert len(node.asked) == 1
