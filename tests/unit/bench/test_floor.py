"""The floor: which parts it is the sum of, how they are started by hand, and what is on each part's clock."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import _power
import _up
import floor
import pytest
from _floor import (
    API,
    BOOTED,
    CONTAINERD,
    CONTROLLERS,
    FLOOR,
    FLOORS,
    KUBELET,
    PARTS,
    POD,
    SCHEDULER,
    floor_of,
)
from _kubeadm import kubeadm_config
from floor import FURTHER_POD, STATIC_PODS, command_of, figures, kubelet_config, one_round, static_pod, unit_file

from autarky.errors import CommandFailed, Unreachable
from autarky.ports import Completed
from fakes.clock import HandClock

# --- sums -----------------------------------------------------------------------------------------


def test_a_floor_is_the_sum_of_one_after_the_other_and_the_slowest_of_those_side_by_side_round_by_round():
    parts = {KUBELET: (1.0, 2.0), API: (10.0, 20.0), SCHEDULER: (100.0, 300.0), CONTROLLERS: (200.0, 100.0)}
    assert floor_of("up", _up.READY, {**parts, POD: (0.5, 0.25)}) == (211.5, 322.25)


def test_of_a_return_nothing_is_added_until_the_api_answers():
    assert floor_of("reboot", _power.READY, {BOOTED: (3.0,), KUBELET: (1.0,)}) == (3.0,)


@pytest.mark.parametrize("more", [{}, {BOOTED: (None,)}])
def test_without_one_of_its_parts_a_figure_has_no_floor(more):
    parts: dict[str, Any] = {SCHEDULER: (1.0,), CONTROLLERS: (1.0,), POD: (1.0,), **more}
    assert floor_of("reboot", _power.POD, parts) is None


def test_when_a_command_returns_and_what_takes_memory_has_none():
    parts = dict.fromkeys(PARTS, (1.0,))
    assert floor_of("up", _up.RETURNED, parts) is None
    assert floor_of("up", "memory: etcd", parts) is None


def test_floors_are_of_figures_that_benchmarks_have_and_of_parts_that_are_measured():
    ups, powers = {_up.READY}, {_power.READY, _power.POD}
    assert {(benchmark, name) for benchmark in ("up", "ha_up") for name in ups} | {
        (benchmark, name) for benchmark in ("reboot", "ha_reboot") for name in powers
    } == FLOORS.keys()
    assert {part for steps in FLOORS.values() for step in steps for part in step} < set(PARTS)


def test_every_part_is_a_figure_with_nothing_beside_it():
    found = figures([dict.fromkeys(PARTS, 1.0), dict.fromkeys(PARTS, 2.0)])
    assert [one.name for one in found] == list(PARTS)
    assert {(one.benchmark, one.unit, one.ours, one.theirs) for one in found} == {
        (FLOOR, "s", (1.0, 2.0), (None, None))
    }


# --- by hand --------------------------------------------------------------------------------------

# As kubeadm writes it, cut short.
MANIFEST = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: kube-controller-manager
spec:
  containers:
  - command:
    - kube-controller-manager
    - --controllers=*,bootstrapsigner,tokencleaner
    - --leader-elect=true
    image: registry.k8s.io/kube-controller-manager:v1.36.4
"""


def test_what_kubeadm_has_a_static_pod_run_is_run_by_hand():
    assert command_of(MANIFEST, "kube-controller-manager") == [
        "/usr/local/bin/kube-controller-manager",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--leader-elect=true",
    ]


@pytest.mark.parametrize("manifest", [b"", MANIFEST])
def test_what_is_no_static_pod_of_that_program_is_not_run(manifest):
    with pytest.raises(SystemExit, match="static pod of etcd"):
        command_of(manifest, "etcd")


def test_systemd_replaces_nothing_in_a_command_line():
    lines = unit_file(["/usr/bin/one", "--a=*,b c", "--d=100%$HOME"]).decode().splitlines()
    assert 'ExecStart="/usr/bin/one" "--a=*,b c" "--d=100%%$$HOME"' in lines


def test_a_kubelet_without_an_api_has_what_this_kind_of_host_needs_and_authenticates_by_no_webhook():
    found = kubelet_config(kubeadm_config("v1.36.4", "n1"))
    assert (found["failCgroupV1"], found["oomScoreAdj"], found["staticPodPath"]) == (False, 0, STATIC_PODS)
    # It would need an API, and with no way to authenticate a kubelet does not start.
    assert found["authentication"]["webhook"] == {"enabled": False}
    assert found["authentication"]["x509"]["clientCAFile"]
    assert found["authorization"] == {"mode": "AlwaysAllow"}


def test_a_static_pod_needs_no_pod_network_and_pulls_nothing():
    spec = json.loads(static_pod("first"))["spec"]
    assert spec["hostNetwork"]
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"


# --- the clocks -----------------------------------------------------------------------------------

TAKES = {KUBELET: 1.5, POD: 0.5, API: 3.0, SCHEDULER: 2.0, CONTROLLERS: 4.0, CONTAINERD: 1.0, BOOTED: 5.0}


class Machine(HandClock):
    """A host on which every part takes what TAKES says, and a call that is not one of these a hundred seconds."""

    def __init__(self) -> None:
        super().__init__(now=1000.0)
        self.began: dict[str, float] = {}
        self.enabled: list[str] = []
        self.log: list[str] = []
        self.powered: float | None = None

    async def rest(self, seconds: float) -> None:
        self.now += seconds

    # --- host ---

    async def run(self, argv, *, timeout=30.0, check=True):
        text = ""
        match argv:
            case ["sh", "-c", _, "sh", "1", "systemctl", "start", "--no-block", "floor-kubelet.service"]:
                self.now += TAKES[KUBELET]
            case ["sh", "-c", _, "sh", "2", "mv", path, directory]:
                assert (path, directory) == (FURTHER_POD, STATIC_PODS)
                self.now += TAKES[POD]
            case ["systemctl", "start", "--no-block", *units]:
                self.began |= dict.fromkeys(units, self.now)
            case ["systemctl", "enable", "--quiet", *units]:
                self.enabled = units
            case ["systemctl", "show", *_]:
                assert self.powered is not None
                text = str(int((self.powered + TAKES[CONTAINERD]) * 1e6))
            case ["systemctl", "stop", _] | ["sync", *_]:
                self.now += 100
            case ["journalctl", *_]:
                text = "what the journal says"
            case _:
                raise AssertionError(argv)
        self.log.append(" ".join(argv[:2]))
        return Completed(0, text.encode(), "")

    # --- its API ---

    async def healthy(self, *, timeout):
        if self.powered is not None:
            return None if self.now >= self.powered + TAKES[BOOTED] else "refused"
        begin = max(self.began["floor-etcd.service"], self.began["floor-kube-apiserver.service"])
        return None if self.now >= begin + TAKES[API] else "refused"

    async def get(self, _version, kind, name, _namespace):
        assert kind == "Lease"
        part = {"kube-scheduler": SCHEDULER, "kube-controller-manager": CONTROLLERS}[name]
        begin = self.began.get(f"floor-{name}.service")
        if begin is None:
            return None
        return {"spec": {"holderIdentity": "n1"} if self.now >= begin + TAKES[part] else {}}

    # --- its lab ---

    name = "bench-floor"

    async def cut(self, *hosts):
        self.log.append("cut")
        self.now += 100

    async def start(self, *hosts, progress):
        self.powered = self.now
        self.now += 2

    async def down(self):
        self.log.append("down")


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()

    async def prepared(*_):
        return machine

    @asynccontextmanager
    async def client(_):
        yield machine

    monkeypatch.setattr(floor, "_prepared", prepared)
    monkeypatch.setattr(floor, "_client", client)
    monkeypatch.setattr(floor, "lab_host", lambda *_: machine)
    monkeypatch.setattr(floor, "time", SimpleNamespace(monotonic=machine.monotonic))
    monkeypatch.setattr(asyncio, "sleep", machine.rest)
    return machine


async def measured(machine: Any) -> tuple[dict[str, float], list[str]]:
    reported: list[str] = []
    payload: Any = SimpleNamespace()
    return await one_round(payload, machine, lambda part, _: reported.append(part)), reported


async def test_on_each_parts_clock_is_that_part_and_no_rest_or_preparation(machine):
    found, reported = await measured(machine)
    assert found.keys() == set(reported) == set(PARTS)
    for part, seconds in TAKES.items():
        assert seconds - 0.001 <= found[part] < seconds + 0.2, part


async def test_etcd_and_the_api_server_alone_come_back_with_the_power_and_what_was_written_is_on_the_disk(machine):
    await measured(machine)
    assert machine.enabled == ["floor-etcd.service", "floor-kube-apiserver.service"]
    assert machine.log.index("sync --file-system") < machine.log.index("cut") < machine.log.index("down")


async def test_a_lease_that_is_held_too_early_is_no_part(machine):
    machine.began["floor-kube-scheduler.service"] = 0.0
    with pytest.raises(SystemExit, match="held before anything is there to hold them: kube-scheduler"):
        await measured(machine)


async def test_what_does_not_come_ends_the_run_with_what_the_journal_says(machine, monkeypatch):
    monkeypatch.setitem(TAKES, API, floor.WAIT_SECONDS + 1)
    with pytest.raises(
        SystemExit, match=r"not within 120 s: etcd and the API server start(.|\n)*what the journal says"
    ):
        await measured(machine)


@pytest.mark.parametrize("error", [Unreachable("no answer within 120 s"), CommandFailed("n1", ["sh"], 1, "no unit")])
async def test_so_does_a_pod_that_does_not_run(machine, monkeypatch, error):
    run = machine.run

    async def failing(argv, **options):
        if argv[0] == "sh":
            raise error
        return await run(argv, **options)

    monkeypatch.setattr(machine, "run", failing)
    with pytest.raises(SystemExit, match=r"1 static pods do not run: (.|\n)*what the journal says"):
        await measured(machine)
