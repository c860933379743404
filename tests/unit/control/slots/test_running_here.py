"""Whether a pod is of this boot is the container runtime's word, whatever clocks say."""

from __future__ import annotations

from typing import Any

from autarky.control.slots.node.running_here import SILENT_SECONDS, RunningHere
from fakes.clock import HandClock
from fakes.cri import FakeCri


class CountedCri(FakeCri):
    asked = 0

    async def containers(self) -> Any:
        self.asked += 1
        return await super().containers()


def a_node() -> tuple[CountedCri, HandClock, str]:
    cri = CountedCri()
    cri.put_image("image")
    container = cri.create_container(cri.run_sandbox("pod", "kube-system", "u1"), "c", "image")
    cri.start_container(container)
    return cri, HandClock(), container


def pod_with(container: str) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"containerID": f"containerd://{container}", "state": {"running": {}}}]}}


async def test_what_runs_is_asked_for_once() -> None:
    cri, clock, container = a_node()
    here = RunningHere(cri, clock)
    assert await here.runs(pod_with(container)) is True
    assert await here.runs(pod_with(container)) is True
    assert cri.asked == 1


async def test_a_container_of_the_boot_before_does_not_run() -> None:
    cri, clock, container = a_node()
    cri.exit_container(container)
    here = RunningHere(cri, clock)
    assert await here.runs(pod_with(container)) is False
    assert await here.runs(pod_with("of a container that is gone")) is False


async def test_a_runtime_that_does_not_answer_is_not_known_and_not_asked_every_round() -> None:
    cri, clock, container = a_node()
    cri.set_outage("it starts")
    here = RunningHere(cri, clock)
    assert [await here.runs(pod_with(container)) for _ in range(5)] == [None] * 5
    assert cri.asked == 1
    cri.set_outage(None)
    clock.now += SILENT_SECONDS
    assert await here.runs(pod_with(container)) is True


async def test_a_pod_of_which_nothing_is_said_to_run_needs_no_word() -> None:
    cri, clock, _ = a_node()
    assert await RunningHere(cri, clock).runs({"metadata": {}}) is True
    assert cri.asked == 0
