"""The wiring of the node agent: which controllers and background tasks it runs, and that none stops another."""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
import textwrap
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autarky import places
from autarky.agents.node import lock, wiring
from autarky.control.base import bounds, health
from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.base.node_view import ApiView
from autarky.control.base.shield import LONGEST_PAUSE
from autarky.control.certificates.node import LeafKeeping
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.kubelet.node import telling as kubelet_telling
from autarky.control.kubelet.node.change import KubeletChange
from autarky.control.kubelet.node.hosted import HostedKubelet
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.hand_over import HandOver
from autarky.control.slots.node.stop_paths import StopPaths
from autarky.kube import Reflector
from autarky.model import ports
from autarky.model.cluster import Level
from fakes.clock import LoopClock
from fakes.cri import FakeCri
from fakes.kube import FakeKube
from fakes.web import Web, answer, certificates

NODE = "n1"


# --- none ends another -------------------------------------------------------------------------------------------


@dataclass
class Fails:
    """Unexpectedly, so many times; then it runs forever."""

    times: int
    began: int = 0

    async def run(self) -> None:
        self.began += 1
        if self.began <= self.times:
            raise ZeroDivisionError("nobody has foreseen that")
        await asyncio.Event().wait()


@dataclass
class GoesOn:
    turns: int = 0

    async def run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(1)


@pytest.mark.looptime
async def test_a_controller_that_fails_is_started_again_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "SystemClock", LoopClock)
    said: list[str] = []
    fails, goes_on = Fails(3), GoesOn()
    seconds = 4 * LONGEST_PAUSE
    await wiring._beside([], [fails, goes_on], DecisionLog(lambda text, **_: said.append(text)), asyncio.sleep(seconds))
    assert fails.began == 4
    assert goes_on.turns >= seconds
    assert "ZeroDivisionError: nobody has foreseen that" in said[0]


@pytest.mark.looptime
async def test_duties_end_with_what_they_are_beside() -> None:
    goes_on = GoesOn()
    await wiring._beside([], [goes_on], DecisionLog(print), asyncio.sleep(5))
    before = goes_on.turns
    await asyncio.sleep(5)
    assert goes_on.turns == before


@pytest.mark.looptime
async def test_a_health_port_that_somebody_has_taken_ends_no_duty() -> None:
    goes_on, said = GoesOn(), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answering = health.Answering(port, LoopClock(), tell=lambda _, text: said.append(text))
        await wiring._beside([], [answering, goes_on], DecisionLog(print), asyncio.sleep(60))
    assert goes_on.turns >= 60
    assert said == [f"127.0.0.1:{port} is not available, trying again: Address already in use"]


# --- what they read ----------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_member_of_etcd_that_means_nothing_is_absent_for_the_node_agent(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "SystemClock", LoopClock)
    kube = FakeKube()
    kube.put(etcd_members.crd())
    kube.put(etcd_members.member("n1", "192.0.2.11", present=True))
    odd = etcd_members.member("n2", "192.0.2.12", present=True)
    kube.put({**odd, "status": {"memberID": "banana"}})
    api = ApiView(kube, LoopClock(), NODE, lambda: None, print)  # type: ignore[arg-type]
    duty, _ = wiring._of_etcd(NODE, kube, FakeCri(), DecisionLog(print), api)  # type: ignore[arg-type]
    watching = asyncio.create_task(duty.objects.run())
    await asyncio.sleep(1)
    assert {name for _, name in duty.objects.items} == {"n1"}
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize("check_dates", [True, False])
async def test_a_client_that_does_not_trust_the_clock_asks_servers_with_certificates_of_another_time(
    wired: Wired, monkeypatch: pytest.MonkeyPatch, *, check_dates: bool
) -> None:
    wiring.CA.write_bytes(certificates(30).ca)
    async with Web([answer(200, "ok")], issued_years_ago=30) as web:
        client = wiring._client(DecisionLog(print), [web.url], check_dates=check_dates)
        trouble = await client.healthy()
        await client.close()
    assert ("expired" in (trouble or "")) is check_dates, trouble


# --- which there are ---------------------------------------------------------------------------------------------


@dataclass
class Hold:
    """As `lock.Hold`: what was done with it, and for how long it has been silent."""

    seconds: float = 0.0
    beats: int = 0
    has_begun: bool = False

    def must_yield(self) -> bool:
        return True

    def began(self) -> None:
        self.has_begun = True

    def alive(self) -> None:
        self.beats += 1

    def silent(self) -> float:
        return self.seconds


@dataclass
class Wired:
    """The agent is put together for real, and nothing of it runs."""

    duties: list[Controller | wiring.Background] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)

    async def beside(
        self,
        controllers: Sequence[Controller],
        background: Sequence[wiring.Background],
        _log: DecisionLog,
        until: Awaitable[None],
    ) -> None:
        self.duties += [*controllers, *background]
        await until


@pytest.fixture
def wired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wired:
    found = Wired()
    monkeypatch.setattr(wiring, "_beside", found.beside)
    monkeypatch.setattr(LeafKeeping, "look", lambda _: 60.0)
    ca, client = tmp_path / "ca.crt", tmp_path / "client.pem"
    ca.write_bytes(certificates().ca)
    client.write_bytes(certificates().client.certificate + certificates().client.key)
    monkeypatch.setattr(wiring, "CA", ca)
    monkeypatch.setattr(wiring, "ROTATED", client)
    for name in ("STANDBY", "MANIFESTS", "RUN", "PKI"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(places, name, str(tmp_path / name))
    monkeypatch.setattr(role_on_disk, "FILE", tmp_path / "role.json")
    monkeypatch.setattr(slots_on_disk, "WANTED", tmp_path / "wanted.json")
    return found


async def duties(wired: Wired, *, slot: str) -> list[Controller | wiring.Background]:
    await wiring._act(NODE, slot, wired.hold, lambda *_, **__: None, HandOver(LoopClock()), StopPaths())  # type: ignore[arg-type]
    return wired.duties


async def duties_of_worker(wired: Wired) -> list[Controller | wiring.Background]:
    role_on_disk.remember(role_on_disk.State.JOINING)
    acting = asyncio.create_task(duties(wired, slot="hosted"))  # until it is cancelled
    await asyncio.sleep(0.1)
    acting.cancel()
    await asyncio.gather(acting, return_exceptions=True)
    assert wired.duties, "a worker has controllers"
    return wired.duties


async def all_duties(wired: Wired) -> list[Controller | wiring.Background]:
    await duties_of_worker(wired)
    role_on_disk.remember(role_on_disk.State.READY)
    return await duties(wired, slot="hosted")


async def test_the_events_of_both_kubelets_wait_in_one_list(wired: Wired) -> None:
    """Of two lists each would write the one file without what the other one has."""
    found = await all_duties(wired)
    changes = [one._events.pending for one in found if isinstance(one, KubeletChange)]
    hosted = [one._events.events.pending for one in found if isinstance(one, HostedKubelet)]
    assert [a is b for a, b in zip(changes, hosted, strict=True)] == [True, True]
    assert {one.file for one in hosted} == {kubelet_telling.FILE}


async def test_whoever_acts_answers_the_kubelet(wired: Wired) -> None:
    acting = [one for one in await all_duties(wired) if isinstance(one, health.Answering)]
    assert [one.port for one in acting] == [ports.NODE_AGENT] * 2, "as a worker and as a control node"
    for one in acting:
        wired.hold.seconds = lock.HANG_SECONDS - 1
        assert one.problem() is None
        wired.hold.seconds = lock.HANG_SECONDS
        assert one.problem() == "this agent has had no heartbeat for 60 s"


@pytest.mark.looptime
async def test_no_beat_is_given_while_a_round_hangs_and_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, said, hung = Hold(), list[str](), list[str]()
    monkeypatch.setattr(bounds, "hangs", lambda: hung[0] if hung else None)
    beating = asyncio.create_task(wiring._beat(hold, lambda sentence, **_: said.append(sentence)))  # type: ignore[arg-type]
    await asyncio.sleep(3.5 * lock.BEAT_SECONDS)
    assert (hold.has_begun, hold.beats, said) == (True, 4, [])
    hung.append("a reconcile of StaleLeases has taken 211 s and cannot be cancelled")
    await asyncio.sleep(3 * lock.BEAT_SECONDS)
    assert hold.beats == 4
    assert said == [f"{hung[0]}: this agent stops its heartbeat"]
    hung.clear()
    await asyncio.sleep(3 * lock.BEAT_SECONDS)
    assert hold.beats == 7
    beating.cancel()


async def test_each_controller_that_there_is_is_run(wired: Wired) -> None:
    """One that is missing here is tested, but never run."""
    role_on_disk.remember(role_on_disk.State.READY)
    names = {type(one).__name__ for one in await duties(wired, slot="hosted")} - {"Reflector"}
    assert names == {
        *("ActivationWatch", "Announcer", "Answering", "ApiView", "ClockWatch", "ControlNode", "EtcdMembership"),
        *("EtcdChange", "EtcdEvents", "EtcdFigures", "EtcdUpkeep", "HostedKubelet"),
        *(
            "ImageKeeping",
            "KubeletChange",
            "LeafKeeping",
            "LoadBalancer",
            "StandbyAgent",
            "StandbyComing",
            "StaleLeases",
        ),
        "Unhiding",
    }


async def test_each_controller_of_a_worker_is_run(wired: Wired) -> None:
    names = {type(one).__name__ for one in await duties_of_worker(wired)}
    assert names == {
        *("Answering", "ApiView", "ControlNode", "HostedKubelet", "KubeletChange", "LeafKeeping", "LoadBalancer"),
        "Unhiding",
    }


async def test_each_live_copy_is_followed_by_one_only(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows one knows nothing of the others who do: a shared one is to be run in the background."""
    monkeypatch.setattr(slots_on_disk, "wanted_level", lambda: Level.ETCD)
    monkeypatch.setattr(etcd_on_disk, "has_certificates", lambda: True)
    role_on_disk.remember(role_on_disk.State.READY)
    running = await duties(wired, slot="hosted")
    copies = [source for one in running if isinstance(one, Controller) for source in one.sources()]
    copies += [one for one in running if isinstance(one, Reflector)]
    assert sorted(copy.kind for copy in copies) == ["ConfigMap", "EndpointSlice", "EtcdMember"]
    assert len({id(copy) for copy in copies}) == len(copies)


async def test_only_the_hosted_agent_keeps_the_standby_one(wired: Wired) -> None:
    role_on_disk.remember(role_on_disk.State.READY)
    standby = {type(one).__name__ for one in await duties(wired, slot="standby")}
    hosted = {type(one).__name__ for one in await duties(wired, slot="hosted")}
    assert hosted - standby == {"StandbyAgent"}


async def test_an_agent_acts_whatever_becomes_of_its_first_look_at_the_leaves(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: LeafKeeping) -> float:
        raise ZeroDivisionError("nobody has foreseen that")

    role_on_disk.remember(role_on_disk.State.READY)
    well = {type(one) for one in await duties(wired, slot="hosted")}
    wired.duties.clear()
    monkeypatch.setattr(LeafKeeping, "look", fails)
    assert {type(one) for one in await duties(wired, slot="hosted")} == well


@pytest.mark.parametrize("state", [role_on_disk.State.JOINING, role_on_disk.State.READY])
async def test_an_agent_acts_though_its_kubelets_certificate_is_damaged(
    wired: Wired, state: role_on_disk.State
) -> None:
    wiring.ROTATED.write_bytes(b"damaged")
    role_on_disk.remember(state)
    acting = asyncio.create_task(duties(wired, slot="hosted"))
    await asyncio.sleep(0.1)
    acting.cancel()
    [ended] = await asyncio.gather(acting, return_exceptions=True)
    assert not isinstance(ended, Exception)
    assert wired.duties


HAS_NO_ROUNDS = {
    "ApiView": "it is nothing but reflectors",
    "Reflector": "its client gives up a watch that is silent for too long, and an answer that does not come",
}
"""The background tasks that need no time limit, and why."""
RESTS = {"self.clock.sleep", "self.changed.wait", "changed_within"}
"""What may be waited for without a bound: nothing that can hang."""


async def test_every_duty_is_done_in_rounds_that_are_broken_off_when_they_hang(wired: Wired) -> None:
    """Else one that hangs is seen by nobody. A controller's every look has its bound (`base/test_reconciler.py`)."""
    kinds = {type(one) for one in await all_duties(wired) if not isinstance(one, Controller)}
    names = {kind.__name__ for kind in kinds}
    assert HAS_NO_ROUNDS.keys() <= names, "what is listed is there"
    unbounded = {
        name: waits for kind in kinds if (name := kind.__name__) not in HAS_NO_ROUNDS and (waits := open_waits(kind))
    }
    assert unbounded == {}


def open_waits(kind: type) -> set[str]:
    """What the task's `run` waits for besides bounded calls and sleeps, by itself or by methods of its own."""
    methods = methods_of(kind)
    found, left, seen = set(), ["run"], set()
    assert "run" in methods
    while left:
        method = methods[left.pop()]
        seen.add(method.name)
        for called in waits_of(method):
            own = called.removeprefix("self.")
            if called in RESTS:
                continue
            if own not in methods:
                found.add(called)
            elif own not in seen:
                left.append(own)
    return found


def methods_of(kind: type) -> dict[str, ast.AsyncFunctionDef]:
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return {one.name: one for one in tree.body if isinstance(one, ast.AsyncFunctionDef)}


def waits_of(method: ast.AsyncFunctionDef) -> set[str]:
    waits = [one.value for one in ast.walk(method) if isinstance(one, ast.Await)]
    return {ast.unparse(one.func) if isinstance(one, ast.Call) else ast.unparse(one) for one in waits}
