"""Power cuts: what is on the clock."""

from __future__ import annotations

import asyncio
from typing import Any

import _power
import pytest
from _power import IMAGE, POD, READY, compare


class Machine:
    """Two clusters of lab hosts, with a clock that only they move. Hosts that get their power together boot within 2 s;
    the API answers 5 s after the last, and a Deployment's pod runs 3 s later."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log: list[tuple[str, ...]] = []
        self.booted = {"one": 0.0, "one-kubeadm": 0.0}
        self.created: dict[str, float] = {}
        self.caches: set[tuple[str, str]] = set()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def say(self, command):
        lab, cache, *words = command
        self.caches.add((lab, cache))
        self.now += 0.1
        if self.now < self.booted[lab] + 5:
            return "The connection to the server was refused"
        match [word for word in words if not word.startswith("--request-timeout")]:
            case ["get", "--raw", "/readyz"]:
                return "ok"
            case ["create", "deployment", name, image, *_]:
                assert image == f"--image={IMAGE}"
                self.created.setdefault(f"{lab} {name}", self.now)
                return f"deployment.apps/{name} created"
            case ["get", "pods", "-l", selector]:
                name = selector.removeprefix("app=")
                return "Running" if self.now > self.created[f"{lab} {name}"] + 3 else "Pending"
        raise AssertionError(words)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()

    class FakeLab:
        def __init__(self, name):
            self.name = name

        @classmethod
        def open(cls, name):
            return cls(name)

        async def cut(self, *hosts):
            machine.log.append(("cut", self.name, *hosts))
            machine.now += 1

        async def start(self, *hosts, progress):
            machine.log.append(("start", self.name, *hosts))
            machine.now += 2
            machine.booted[self.name] = machine.now

        async def down(self):
            machine.log.append(("down", self.name))

    async def rests(seconds):
        machine.sleep(seconds)

    monkeypatch.setattr(_power, "Lab", FakeLab)
    monkeypatch.setattr(_power, "time", machine)
    monkeypatch.setattr(asyncio, "sleep", rests)
    monkeypatch.setattr(_power, "_say", machine.say)
    return machine


class Ours:
    """As much of an AutarkyCluster as is used."""

    name, control, workers = "one", ("n1", "n2", "n3"), ("w1",)

    def kubectl(self, payload):
        return ["one"]

    def write(self): ...

    def up(self): ...

    def down(self): ...


class Theirs:
    kubectl = ("one-kubeadm",)


async def made(*_):
    return Theirs()


async def measured(rounds):
    ours: Any = Ours()
    figures = await compare("ha_reboot", None, rounds, ours, made, (1.0, 1.5))
    return {figure.name: figure for figure in figures}


async def test_all_hosts_of_a_cluster_lose_their_power_in_one_moment_and_get_it_back_in_one(machine):
    await measured(1)
    hosts = ("n1", "n2", "n3", "w1")
    cuts = [(what, lab, *hosts) for lab in ("one", "one-kubeadm") for what in ("cut", "start")]
    assert machine.log == [*cuts, ("down", "one-kubeadm")]


async def test_no_kubectl_has_what_another_run_found_at_that_address(machine):
    await measured(1)
    await measured(1)
    caches = {cache for _, cache in machine.caches}
    assert len(caches) == len(machine.caches) == 4
    assert all(cache.startswith("--cache-dir=/") for cache in caches)


async def test_the_clock_starts_with_the_power_of_all_hosts_and_is_the_same_for_both(machine):
    figures = await measured(2)
    for name, seconds in ((READY, 2 + 5), (POD, 2 + 5 + 3)):
        figure = figures[name]
        assert len(figure.ours) == len(figure.theirs) == 2
        assert all(seconds <= each < seconds + 1 for each in (*figure.ours, *figure.theirs))
    assert (figures[READY].wanted, figures[POD].wanted) == (1.0, 1.5)
