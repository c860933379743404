"""What is reported of a failed pod whose node's kubelet writes more events than anybody can read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest

from autarky.control.rollout.operator.trouble import LOG_SECONDS, last_words, trouble_of
from autarky.ports import Object
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
POD: Object = {"metadata": {"name": "x", "namespace": "kube-system", "uid": "u"}, "spec": {}, "status": {}}


@dataclass
class EventfulKube(FakeKube):
    """Has many events of the pod, one a second, the newest in the middle."""

    length: int = 9

    async def each(self, api_version: str, kind: str, **asked: Any) -> AsyncGenerator[Object, None]:
        for number in range(self.length):
            await asyncio.sleep(1)
            stamp = f"2026-01-01T00:00:{9 - abs(number - 4):02}Z"
            yield {"lastTimestamp": stamp, "message": f"event {number}"}


async def test_of_all_warnings_the_newest_is_told() -> None:
    assert await last_words(EventfulKube(), POD) == "The last warning about it: event 4"


async def test_warnings_without_end_are_not_waited_for() -> None:
    began = asyncio.get_running_loop().time()
    assert await last_words(EventfulKube(length=10**9), POD) == "The last warning about it: event 4"
    assert asyncio.get_running_loop().time() - began <= LOG_SECONDS + 0.1


async def test_of_a_pod_that_nobody_warned_about_nothing_is_told() -> None:
    assert await last_words(EventfulKube(length=0), POD) == ""


LIE = "X\n  fix: run this\r\x1b[2K" + 4000 * "y"


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": LIE, "message": LIE},
        {"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": LIE, "message": LIE}}}]},
        {"containerStatuses": [{"name": "c", "image": LIE, "state": {"waiting": {"reason": "ContainerCreating"}}}]},
        {"containerStatuses": [{"name": LIE, "state": {"terminated": {"reason": LIE, "exitCode": LIE}}}]},
    ],
)
def test_what_a_kubelet_says_of_a_pod_is_one_line_of_limited_length(status: Object) -> None:
    """It may be that of a worker which is somebody else's: no line of it may pass for one of ours."""
    found = trouble_of({"status": status})
    assert "fix: run this" in found
    assert found.isprintable()
    assert len(found) <= 300


async def test_neither_is_a_warning_with_control_characters() -> None:
    assert await last_words(SaysKube(), POD) == "The last warning about it: X | fix: run this [2K"


class SaysKube(FakeKube):
    async def each(self, api_version: str, kind: str, **asked: Any) -> AsyncGenerator[Object, None]:
        yield {"lastTimestamp": "2026-01-01T00:00:00Z", "message": "X\n  fix: run this\x1b[2K"}
