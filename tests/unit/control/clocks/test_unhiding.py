"""Dead runs that hide living ones are removed, with a runtime in memory."""

from __future__ import annotations

import pytest

from autarky.control.base.decision_log import DecisionLog
from autarky.control.clocks.node.unhiding import Unhiding
from autarky.errors import ApiError, Unreachable
from fakes.clock import HandClock
from fakes.cri import FakeCri

WHAT = "which is dead and hides a later one: the clock was set back between them"


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1000.0, step=1.0)


@pytest.fixture
def cri(clock: HandClock) -> FakeCri:
    made = FakeCri(now=clock.time)
    made.put_image("etcd:1")
    return made


@pytest.fixture
def said() -> list[str]:
    return []


def runs(cri: FakeCri, attempt: int, pod: str = "etcd-n1", namespace: str = "kube-system") -> str:
    box = cri.run_sandbox(pod, namespace, f"uid of {pod}", attempt=attempt)
    made = cri.create_container(box, "etcd", "etcd:1", attempt=attempt)
    cri.start_container(made)
    return box


def hidden(cri: FakeCri, clock: HandClock, pod: str, namespace: str = "kube-system") -> str:
    """A pod's dead sandbox that hides the one which runs."""
    clock.now = 1000
    before = runs(cri, 1, pod, namespace)
    cri.end_sandbox(before)
    clock.now = 500
    runs(cri, 2, pod, namespace)
    return before


def unhiding(cri: FakeCri, said: list[str]) -> Unhiding:
    return Unhiding(cri, HandClock(), DecisionLog(lambda sentence, **_: said.append(sentence)).tell)


async def there(cri: FakeCri) -> list[tuple[str, int]]:
    return sorted((one.name, one.attempt) for one in await cri.pods())


async def test_what_ran_before_the_clock_was_set_back_is_removed_and_told_once(
    cri: FakeCri, clock: HandClock, said: list[str]
) -> None:
    hidden(cri, clock, "etcd-n1")
    duty = unhiding(cri, said)
    await duty.reconcile()
    assert [(one.attempt, one.ready) for one in await cri.pods()] == [(2, True)]
    assert [(one.attempt, one.state) for one in await cri.containers()] == [(2, "running")]
    await duty.reconcile()
    assert said == [f"removed run 1 of the sandbox of kube-system/etcd-n1, {WHAT}"]


async def test_a_dead_run_that_hides_a_dead_one_is_removed_and_each_is_told(
    cri: FakeCri, clock: HandClock, said: list[str]
) -> None:
    for attempt, clock.now in enumerate((1000, 900, 500)):
        cri.end_sandbox(runs(cri, attempt))
    await unhiding(cri, said).reconcile()
    assert await there(cri) == [("etcd-n1", 2)]
    assert [sentence.split(",")[0] for sentence in said] == [
        f"removed run {attempt} of the sandbox of kube-system/etcd-n1" for attempt in (0, 1)
    ]


FAILURES = pytest.mark.parametrize(
    "error",
    [
        ApiError(2, "Unknown", "RemovePodSandbox: device is busy"),
        Unreachable("no answer to RemovePodSandbox within 30 s"),
    ],
    ids=["refused", "late"],
)


@FAILURES
async def test_what_cannot_be_removed_keeps_nothing_else_and_each_is_told_once(
    cri: FakeCri, clock: HandClock, said: list[str], error: Exception
) -> None:
    stay = [hidden(cri, clock, pod) for pod in ("a", "also-a")]
    hidden(cri, clock, "b")
    box = runs(cri, 0, "c")
    [dead] = [one for one in await cri.containers() if one.sandbox_id == box]
    cri.exit_container(dead.id)
    clock.now = 400
    cri.start_container(cri.create_container(box, "etcd", "etcd:1", attempt=1))
    cri.irremovable.update(dict.fromkeys(stay, error))
    duty = unhiding(cri, said)
    for _ in range(2):
        await duty.reconcile()
    assert await there(cri) == [("a", 1), ("a", 2), ("also-a", 1), ("also-a", 2), ("b", 2), ("c", 0)]
    assert dead.id not in {one.id for one in await cri.containers()}
    reported = [
        f"cannot remove run 1 of the sandbox of kube-system/a, {WHAT}; trying again: {error}",
        f"cannot remove run 1 of the sandbox of kube-system/also-a, {WHAT}; trying again: {error}",
        f"removed run 0 of etcd of kube-system/c, {WHAT}",
        f"removed run 1 of the sandbox of kube-system/b, {WHAT}",
    ]
    assert sorted(said) == reported
    cri.irremovable.clear()
    await duty.reconcile()
    reported += [f"removed run 1 of the sandbox of kube-system/{pod}, {WHAT}" for pod in ("a", "also-a")]
    assert sorted(said) == sorted(reported)
    assert await there(cri) == [("a", 2), ("also-a", 2), ("b", 2), ("c", 0)]


@FAILURES
async def test_a_container_that_cannot_be_removed_keeps_no_other_one(
    cri: FakeCri, clock: HandClock, said: list[str], error: Exception
) -> None:
    box = runs(cri, 0)
    for attempt, clock.now in enumerate((900, 500), start=1):
        cri.exit_container((await cri.containers())[0].id)
        cri.start_container(cri.create_container(box, "etcd", "etcd:1", attempt=attempt))
    by_attempt = {one.attempt: one.id for one in await cri.containers()}
    cri.irremovable[by_attempt[0]] = error
    duty = unhiding(cri, said)
    for _ in range(2):
        await duty.reconcile()
    assert sorted(one.attempt for one in await cri.containers()) == [0, 2]
    assert [sentence.split(",")[0] for sentence in said] == [
        "cannot remove run 0 of etcd of kube-system/etcd-n1",
        "removed run 1 of etcd of kube-system/etcd-n1",
    ]


async def test_the_control_planes_come_first(cri: FakeCri, clock: HandClock, said: list[str]) -> None:
    hidden(cri, clock, "users", "default")
    hidden(cri, clock, "ours")
    await unhiding(cri, said).reconcile()
    assert ["default/users" in sentence for sentence in said] == [False, True]


async def test_what_ended_a_round_comes_last_in_the_next_one(cri: FakeCri, clock: HandClock, said: list[str]) -> None:
    """As one whose reconcile was cancelled: it takes no other one's turn again."""
    cri.irremovable[hidden(cri, clock, "a")] = ZeroDivisionError("nobody has foreseen that")
    hidden(cri, clock, "users", "default")
    duty = unhiding(cri, said)
    for pods in ([("a", 1), ("a", 2), ("users", 1), ("users", 2)], [("a", 1), ("a", 2), ("users", 2)]):
        with pytest.raises(ZeroDivisionError):
            await duty.reconcile()
        assert await there(cri) == pods


async def test_a_dead_container_beside_the_living_one_in_its_sandbox_is_removed(cri: FakeCri, clock: HandClock) -> None:
    box = runs(cri, 0)
    [dead] = await cri.containers()
    cri.exit_container(dead.id)
    clock.now = 500
    cri.start_container(cri.create_container(box, "etcd", "etcd:1", attempt=1))
    await unhiding(cri, []).reconcile()
    assert [(one.attempt, one.state) for one in await cri.containers()] == [(1, "running")]
    assert [one.ready for one in await cri.pods()] == [True]


async def test_a_runtime_that_says_nothing_costs_nothing(cri: FakeCri, said: list[str]) -> None:
    runs(cri, 1)
    cri.set_outage("connection refused")
    duty = unhiding(cri, said)
    for _ in range(2):
        await duty.reconcile()
    assert said == ["the runtime does not say what runs: connection refused"]
    cri.set_outage(None)
    assert len(await cri.containers()) == 1
