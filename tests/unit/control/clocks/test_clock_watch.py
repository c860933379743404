"""A control node's agent against the clocks of others: what it reports on its Node. Clocks come through their port."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import formatdate

import pytest

from autarky.control.clocks.node.clock_watch import ClockWatch
from autarky.model.endpoint import Endpoint
from autarky.render.values import WITHDRAWN
from fakes.clock import HandClock
from fakes.kube import FakeKube
from fakes.web import HANG, Web, answer, certificates

NOW = float(int(time.time()))


class OtherServer(FakeKube):
    """Another control node's API server, of the same cluster."""

    async def close(self) -> None:
        """Nothing is open."""


class Scene:
    def __init__(self) -> None:
        self.kube = FakeKube()
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        self.clock = HandClock(NOW)
        self.said: list[str] = []
        self.seen = True
        self.elsewhere = OtherServer()
        self.elsewhere.outage = "connection refused"

    def _through(self, servers: Sequence[str], *, check_dates: bool) -> OtherServer:
        assert not check_dates, "the verdict is reported by a node whose clock takes every certificate for expired"
        assert all(server.startswith("https://127.0.0.1:") for server in servers)
        return self.elsewhere

    @property
    def node(self):
        return self.kube._objects["v1", "Node", None, "n1"]

    @property
    def withdrawn(self) -> str | None:
        return (self.node["metadata"].get("annotations") or {}).get(WITHDRAWN)

    async def look(self, said: bytes, *, issued_years_ago: int = 0, ca: bytes | None = None) -> None:
        """One round, with another control node that answers so. `ca`: the one that is trusted."""
        trusted = ca or certificates(issued_years_ago).ca
        async with Web([said], issued_years_ago=issued_years_ago) as web:
            others = [Endpoint("n1", "192.0.2.11", ready=True), Endpoint("n2", "127.0.0.1", ready=True)]
            watch = ClockWatch(
                "n1",
                self.kube,
                self.clock,
                lambda _, sentence: self.said.append(sentence),
                trusted,
                lambda: others,
                lambda: self.node if self.seen else None,
                self._through,
                port=web.port,
            )
            await watch.reconcile()


def telling(moment: float) -> bytes:
    return answer(200, "ok", Date=formatdate(moment, usegmt=True))


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_node_whose_clock_is_over_a_minute_ahead_withdraws_its_servers_and_takes_that_back(
    scene: Scene,
) -> None:
    scene.clock.now = NOW + 93
    await scene.look(telling(NOW))
    assert scene.withdrawn == "the clock is 93 s ahead of those of n2"
    scene.clock.now = NOW + 1
    await scene.look(telling(NOW))
    assert scene.withdrawn is None


@pytest.mark.parametrize("off", [0, 5, 59, -5, -3600])
async def test_a_clock_that_is_a_little_off_or_behind_withdraws_nothing(scene: Scene, off: float) -> None:
    scene.clock.now = NOW + off
    await scene.look(telling(NOW))
    assert scene.withdrawn is None


@pytest.mark.parametrize("said", [answer(200, "ok"), answer(200, "ok", Date="yesterday"), b"\r\n\r\n"])
async def test_an_answer_that_tells_no_time_changes_nothing(scene: Scene, said: bytes) -> None:
    """Rule 2."""
    scene.clock.now = NOW + 93
    await scene.look(telling(NOW))
    before = scene.withdrawn
    await scene.look(said)
    assert scene.withdrawn == before


async def test_silence_changes_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2."""
    monkeypatch.setattr("autarky.control.clocks.node.clock_watch.ANSWER_SECONDS", 0.1)
    scene.clock.now = NOW + 93
    await scene.look(HANG)
    assert scene.withdrawn is None
    assert scene.said == ["no other control node reports its time"]


async def test_an_api_that_does_not_take_the_verdict_is_told(scene: Scene) -> None:
    scene.clock.now = NOW + 93
    scene.kube.outage = "no route to host"
    await scene.look(telling(NOW))
    assert scene.withdrawn is None
    assert "no route to host" in scene.said[-1]


async def test_a_clock_for_which_every_certificate_has_expired_is_noticed_and_told_through_the_others(
    scene: Scene,
) -> None:
    """Here it is the certificates that are of another time."""
    scene.clock.now = NOW + 93
    scene.seen = False
    scene.kube.outage = "certificate has expired"
    scene.elsewhere.outage = None
    scene.elsewhere.put(scene.node)
    await scene.look(telling(NOW), issued_years_ago=30)
    reported = scene.elsewhere._objects["v1", "Node", None, "n1"]["metadata"]["annotations"][WITHDRAWN]
    assert reported == "the clock is 93 s ahead of those of n2"


@pytest.mark.parametrize("years", [0, 30])
async def test_a_peer_that_another_ca_vouches_for_is_not_believed(scene: Scene, years: int) -> None:
    scene.clock.now = NOW + 93
    await scene.look(telling(NOW), issued_years_ago=years, ca=certificates(29).ca)
    assert scene.withdrawn is None
    assert scene.said == ["no other control node reports its time"]
