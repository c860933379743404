"""What pods of tenants may and may not do to the trial of a kubelet: many, large ones, and such as cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from autarky.control.kubelet.decide import proof
from autarky.control.kubelet.node import observing
from autarky.control.kubelet.node.draining import own_pods
from autarky.control.kubelet.node.observing import Observing
from autarky.errors import ApiError
from autarky.ports import Object
from fakes.kube import FakeKube
from unit.control.kubelet.node_scene import NODE, Host, on_trial
from unit.control.kubelet.test_kubelet_change_waits import verdict_after

FAILED: Object = {"phase": "Failed", "reason": "OutOfpods"}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each Pod that is read takes as long as a whole look may, but those in kube-system; the names of those read."""
    read: list[str] = []
    real = FakeKube.each
    monkeypatch.setattr(observing, "LOOK_SECONDS", 0.2)

    async def each(kube: FakeKube, api_version: str, kind: str, **which: Any) -> AsyncGenerator[Object, None]:
        async for obj in real(kube, api_version, kind, **which):
            if kind == "Pod":
                read.append(obj["metadata"]["name"])
                if obj["metadata"]["namespace"] != "kube-system":
                    await asyncio.sleep(observing.LOOK_SECONDS + 0.05)
            yield obj

    monkeypatch.setattr(FakeKube, "each", each)
    return read


async def test_pods_that_came_since_are_not_read(host: Host, slow: list[str]) -> None:
    """With that alone a tenant could keep every kubelet of a control node from being changed."""
    host.pod("dns")
    await on_trial(host)
    for number in range(5):
        host.pod(f"large-{number}", "tenant", sandbox=False, status=FAILED if number % 2 else {"phase": "Pending"})
    slow.clear()
    assert await verdict_after(host) == "good"
    assert set(slow) == {"dns"}


async def test_nor_those_that_had_ended_before(host: Host, slow: list[str]) -> None:
    for number in range(5):
        host.pod(f"large-{number}", "tenant", sandbox=False, status=FAILED)
    host.pod("dns")
    await on_trial(host)
    assert await verdict_after(host) == "good"
    assert set(slow) == {"dns"}


async def test_a_drain_leaves_them_out(host: Host) -> None:
    for phase in ("Failed", "Succeeded", "Running", "Pending"):
        host.pod(f"is-{phase.lower()}", "tenant", sandbox=False, status={"phase": phase})
    assert [one.name for one in await own_pods(host.kube, NODE)] == ["is-pending", "is-running"]


def looked(host: Host) -> Observing:
    async def healthy() -> bool:
        return True

    return Observing(NODE, host.kube, host.cri, healthy)


async def before(host: Host) -> proof.Before:
    now = await looked(host).now()
    assert now.before is not None
    return now.before


async def test_large_pods_that_still_run_take_nothing_but_the_look_at_themselves(host: Host, slow: list[str]) -> None:
    """Those whose sandbox is gone come first."""
    for name in ("aaa", "bbb"):
        host.pod(name, "tenant")
    gone = host.pod("zzz")
    noted = await before(host)
    slow.clear()
    host.cri.end_sandbox(gone)
    seen = await looked(host).proof("t", noted)
    assert (seen.answers, seen.ready, seen.living) == (True, True, frozenset({"uid-of-zzz"}))
    assert slow[0] == "zzz"


async def test_what_is_not_known_of_a_pod_whose_sandbox_is_gone_proves_nothing(host: Host, slow: list[str]) -> None:
    gone = host.pod("aaa", "tenant")
    noted = await before(host)
    host.cri.end_sandbox(gone)
    seen = await looked(host).proof("t", noted)
    assert (seen.answers, seen.living) == (True, None)


# --- what ends by itself, and of which the API goes on saying that it runs ------------------------------------------

A_CONTAINER: Object = {"name": "main", "image": "busybox"}
ENDS: dict[str, Object] = {
    "never restarted": {"restartPolicy": "Never"},
    "restarted on failure": {"restartPolicy": "OnFailure"},
    "its container is not": {"containers": [A_CONTAINER | {"restartPolicy": "Never"}]},
    "nor that of its beginning": {"initContainers": [A_CONTAINER | {"restartPolicy": "OnFailure"}]},
    "a deadline": {"activeDeadlineSeconds": 60},
    "too large for its end, evicted": {"containers": [A_CONTAINER | {"args": ["x" * 2**18]}]},
}
STAYS: dict[str, Object] = {
    "always restarted": {"restartPolicy": "Always", "containers": [A_CONTAINER | {"restartPolicy": "Always"}]},
    "with a sidecar": {"initContainers": [A_CONTAINER | {"restartPolicy": "Always"}, A_CONTAINER]},
    "as large as any": {"containers": [A_CONTAINER | {"args": ["x" * 2**16]}]},
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_pod_that_ends_by_itself_accuses_nobody_though_the_api_says_that_it_runs(host: Host, how: str) -> None:
    """One that is padded to what etcd takes has no room for a status that says how it ended."""
    sandbox = host.pod("evil", "tenant", **ENDS[how])
    host.pod("dns")
    await on_trial(host)
    host.cri.end_sandbox(sandbox)
    assert await verdict_after(host) == "good"


@pytest.mark.parametrize("how", STAYS)
async def test_one_that_its_kubelet_is_to_start_again_was_harmed_and_is_named(host: Host, how: str) -> None:
    sandbox = host.pod("web", "tenant", **STAYS[how])
    host.pod("dns")
    await on_trial(host)
    host.cri.end_sandbox(sandbox)
    assert await verdict_after(host) == "unproven"
    assert "the sandbox of tenant/web is gone" in host.read("verdict")["why"]


@pytest.mark.parametrize("how", ENDS)
async def test_nor_does_one_that_the_release_before_has_noted(host: Host, how: str, slow: list[str]) -> None:
    """It is looked at once: many of them keep no look from its end."""
    gone = host.pod("evil", "kube-system", **ENDS[how])
    noted, one = proof.Before(True, {gone: "uid-of-evil"}, {"uid-of-evil": "kube-system/evil"}), looked(host)
    host.cri.end_sandbox(gone)
    assert [(await one.proof("t", noted)).living for _ in range(2)] == [frozenset()] * 2
    assert slow == ["evil"]


def each_takes(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """Each Pod that is read does; the names of those read, from then on."""
    read: list[str] = []
    real = FakeKube.each

    async def each(kube: FakeKube, api_version: str, kind: str, **which: Any) -> AsyncGenerator[Object, None]:
        async for obj in real(kube, api_version, kind, **which):
            await asyncio.sleep(seconds)
            read.append(obj["metadata"]["name"])
            yield obj

    monkeypatch.setattr(FakeKube, "each", each)
    return read


async def test_those_that_have_ended_are_read_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many end, and however large they are: each look gets further."""
    names = ("aaa", "bbb", "ccc")
    sandboxes = [host.pod(name, "tenant") for name in names]
    noted, one = await before(host), looked(host)
    for sandbox, name in zip(sandboxes, names, strict=True):
        host.cri.end_sandbox(sandbox)
        pod = host.kube._objects[("v1", "Pod", "tenant", name)]
        host.kube.put({**pod, "status": {"phase": "Succeeded"}})
    monkeypatch.setattr(observing, "LOOK_SECONDS", 0.25)
    read = each_takes(monkeypatch, 0.15)
    found = [(await one.proof("t", noted)).living for _ in range(4)]
    assert (found[0], found[-1]) == (None, frozenset())
    assert sorted(read) == sorted(names)


async def test_of_those_that_run_all_are_looked_at_in_turn(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aaa", "bbb", "ccc"):
        host.pod(name, "tenant")
    noted, one = await before(host), looked(host)
    monkeypatch.setattr(observing, "RUNNING_SECONDS", 0.25)
    read = each_takes(monkeypatch, 0.15)
    for _ in range(4):
        assert (await one.proof("t", noted)).living is not None
    assert set(read) == {"aaa", "bbb", "ccc"}


@pytest.mark.parametrize("status", [403, 404, 500, 503])
async def test_so_it_is_where_pods_are_refused(host: Host, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """The API answers, as its lease and its Node say: the time of the trial goes on."""
    gone = host.pod("aaa", "tenant")
    noted = await before(host)
    host.cri.end_sandbox(gone)

    async def refused(*_: object, **__: object) -> AsyncGenerator[Object, None]:
        raise ApiError(status, "no", "not this one")
        yield {}

    monkeypatch.setattr(FakeKube, "each", refused)
    seen = await looked(host).proof("t", noted)
    assert (seen.answers, seen.living) == (True, None)


async def test_a_pod_without_a_noted_name_accuses_nobody(host: Host) -> None:
    """As written by the agents of a release that noted none: in the one trial that is under way while they change."""
    gone = host.pod("aaa", "tenant")
    noted = proof.Before(sandboxes=(await before(host)).sandboxes)
    host.cri.end_sandbox(gone)
    assert (await looked(host).proof("t", noted)).living == frozenset()


async def test_a_pod_of_the_same_name_that_was_made_again_is_another_one(host: Host) -> None:
    host.pod("aaa", "tenant")
    noted = await before(host)
    await host.kube.delete("v1", "Pod", "aaa", "tenant")
    host.pod("aaa", "tenant", metadata={"uid": "another"})
    assert (await looked(host).proof("t", noted)).living == frozenset()
