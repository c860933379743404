"""Power cuts: what is on the clock."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import _power
import pytest
from _power import IMAGE, PAUSE_SECONDS, POD, READY, WAIT_SECONDS, compare, out_of_place

HOSTS = ("n1", "n2", "n3", "w1")
NAMES_OF_LABELS = {"slot": "autarky.dev/slot", "app": "k8s-app"}


def a_node(name, *, ready=True):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": conditions}}


def a_pod(name, *, ready=True, phase="Running", **labels):
    status = {"phase": phase, **a_node(name, ready=ready)["status"]}
    labels = {NAMES_OF_LABELS[label]: value for label, value in labels.items()}
    return {"kind": "Pod", "metadata": {"name": name, "labels": labels}, "status": status}


class Machine:
    """Two clusters of lab hosts, with a clock that only they move. Hosts that get their power together boot within 2 s;
    the API answers 5 s after the last, and a Deployment's pod runs 3 s later."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log: list[tuple[str, ...]] = []
        self.at: list[float] = []
        """When each of these was."""
        self.booted = {"one": 0.0, "one-kubeadm": 0.0}
        self.created: dict[str, float] = {}
        self.caches: set[tuple[str, str]] = set()
        self.settles_after = 10.0
        """Seconds from the power until the control plane is Ready."""

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
            case ["-n", "kube-system", "get", "nodes,pods", "-o", "json"]:
                ready = not self.booted[lab] or self.now >= self.booted[lab] + self.settles_after
                return json.dumps({"items": [*map(a_node, HOSTS), a_pod("etcd-n1", ready=ready)]})
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
            machine.at.append(machine.now)
            machine.now += 1

        async def start(self, *hosts, progress):
            machine.log.append(("start", self.name, *hosts))
            machine.at.append(machine.now)
            machine.now += 2
            machine.booted[self.name] = machine.now

        async def down(self):
            machine.log.append(("down", self.name))
            machine.at.append(machine.now)

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
    cuts = [(what, lab, *HOSTS) for lab in ("one", "one-kubeadm") for what in ("cut", "start")]
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


# --- at rest ---


def times_of_cuts(machine):
    return [at for at, what in zip(machine.at, machine.log, strict=True) if what[0] == "cut"]


async def test_before_each_cut_both_clusters_have_been_settled_for_a_pause(machine):
    machine.settles_after = 100.0
    await measured(2)
    first, second, *_ = times_of_cuts(machine)
    assert second >= first + 1 + 2 + 100 + PAUSE_SECONDS
    assert len(times_of_cuts(machine)) == 4


async def test_where_a_control_plane_does_not_come_back_nothing_more_is_cut(machine):
    machine.settles_after = float("inf")
    with pytest.raises(SystemExit, match=f"not settled within {WAIT_SECONDS} s: autarky: etcd-n1 is not Ready"):
        await measured(2)
    assert len(times_of_cuts(machine)) == 1


READY_NODES = [a_node(name) for name in HOSTS]
SETTLED = [a_pod("etcd-n1"), a_pod("kube-apiserver-x", slot="hosted", app="kube-apiserver")]


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ([*READY_NODES, *SETTLED], []),
        ([*READY_NODES, *SETTLED, a_pod("agent", slot="standby", app="node-agent")], []),
        ([*READY_NODES, *SETTLED, a_pod("done", ready=False, phase="Succeeded")], []),
        ([*READY_NODES[1:], a_node("n1", ready=False), *SETTLED], ["n1 is not Ready"]),
        ([*READY_NODES[1:], *SETTLED], ["3 of 4 nodes"]),
        (READY_NODES, ["no pods"]),
        ([*READY_NODES, *SETTLED, a_pod("etcd-n2", ready=False)], ["etcd-n2 is not Ready"]),
        ([*READY_NODES, *SETTLED, a_pod("s", slot="standby", app="kube-apiserver")], ["s is active"]),
    ],
)
def test_settled_is_where_all_is_ready_and_no_standby_of_the_control_plane_is_active(items, left):
    assert out_of_place(items, len(HOSTS)) == left
