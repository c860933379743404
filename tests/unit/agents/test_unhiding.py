"""Dead runs that hide living ones are removed, with a runtime in memory."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autarky.agents.node.unhiding import Unhiding
from fakes.cri import FakeCri
from unit.agents.disks import HandClock


@dataclass
class Time:
    """Goes on with each question, from where it is set."""

    at: float = 1000.0

    def __call__(self) -> float:
        self.at += 1
        return self.at


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def cri(time: Time) -> FakeCri:
    made = FakeCri(now=time)
    made.put_image("etcd:1")
    return made


@pytest.fixture
def said() -> list[str]:
    return []


def runs(cri: FakeCri, attempt: int) -> str:
    box = cri.run_sandbox("etcd-n1", "kube-system", "uid", attempt=attempt)
    made = cri.create_container(box, "etcd", "etcd:1", attempt=attempt)
    cri.start_container(made)
    return box


async def test_what_ran_before_the_clock_was_set_back_is_removed_and_told_once(
    cri: FakeCri, time: Time, said: list[str]
) -> None:
    before = runs(cri, 1)
    cri.end_sandbox(before)
    time.at = 500
    runs(cri, 2)
    duty = Unhiding(cri, HandClock(), lambda subject, sentence: said.append(f"{subject}: {sentence}"))
    await duty.round()
    assert [(one.attempt, one.ready) for one in await cri.pods()] == [(2, True)]
    assert [(one.attempt, one.state) for one in await cri.containers()] == [(2, "running")]
    await duty.round()
    assert len(said) == 1
    assert "etcd-n1" in said[0]


async def test_a_dead_container_beside_the_living_one_in_its_sandbox_is_removed(cri: FakeCri, time: Time) -> None:
    box = runs(cri, 0)
    [dead] = await cri.containers()
    cri.exit_container(dead.id)
    time.at = 500
    cri.start_container(cri.create_container(box, "etcd", "etcd:1", attempt=1))
    await Unhiding(cri, HandClock(), lambda *_: None).round()
    assert [(one.attempt, one.state) for one in await cri.containers()] == [(1, "running")]
    assert [one.ready for one in await cri.pods()] == [True]


async def test_a_runtime_that_says_nothing_costs_nothing(cri: FakeCri, said: list[str]) -> None:
    runs(cri, 1)
    cri.set_outage("connection refused")
    await Unhiding(cri, HandClock(), lambda _, sentence: said.append(sentence)).round()
    assert "connection refused" in said[0]
    cri.set_outage(None)
    assert len(await cri.containers()) == 1
