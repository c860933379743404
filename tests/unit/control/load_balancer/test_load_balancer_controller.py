"""The agent's load balancer controller: on a disk, with an API in memory and a HAProxy that says what it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.manifests.endpoints import kubernetes_slice
from autarky.control.load_balancer.node import balancer as load_balancer
from autarky.control.load_balancer.node import haproxy
from autarky.control.load_balancer.node.balancer import RELOAD_PAUSE, LoadBalancer, voting_members
from autarky.model.balancer import ApiNode, Balancer, EtcdNode
from autarky.model.endpoint import Endpoint
from fakes.clock import HandClock
from fakes.kube import FakeKube
from unit.control.disks import Disk, a_disk

CA, CLIENT = "etcd-ca.crt", "etcd-client.pem"
N1, N2 = Endpoint("n1", "192.0.2.11", ready=True), Endpoint("n2", "192.0.2.12", ready=True)


class Haproxy:
    """As the running one: it answers with the hash of what it read last, and reads the file when it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reloads = 0
        self.trouble: str | None = None
        self.runs: str | None = ""
        self.healthy: set[str] = set()

    async def running(self) -> str | None:
        return self.runs

    async def holds(self, path: str) -> bool:
        return path.removeprefix("alive/") in self.healthy

    async def reload(self) -> str | None:
        self.reloads += 1
        if self.trouble is None:
            self.runs = nllb.config_hash(self.path.read_text())
        return self.trouble


class Scene:
    def __init__(self, disk: Disk, node: str) -> None:
        self.disk = disk
        self.directory = disk.root / "nllb"
        self.directory.mkdir()
        self.config = self.directory / "haproxy.cfg"
        self.kube = FakeKube()
        self.clock = HandClock()
        self.haproxy = Haproxy(self.config)
        self.said: list[str] = []
        kube: Any = self.kube
        self.duty = LoadBalancer(node, kube, self.clock, lambda _, sentence: self.said.append(sentence))

    @property
    def written(self) -> Balancer | None:
        return nllb.parse(self.config.read_text())

    def has_standby(self) -> None:
        self.disk.revision("kube-apiserver", "r1", "image")

    def has_etcd_certificate(self) -> None:
        for name in (CA, CLIENT):
            (self.directory / name).write_text("PEM")

    def members(self, *members: dict[str, object]) -> None:
        Path(load_balancer.MEMBERS).write_text(json.dumps(members))

    async def slice(self, *endpoints: Endpoint) -> None:
        """As the controller's live copy has it from now on."""
        await self.kube.apply(kubernetes_slice(endpoints), manager="operator")
        running = asyncio.create_task(self.duty._slice.run())
        async with asyncio.timeout(5):
            while self.duty.endpoints != endpoints:
                await self.duty.changed.wait()
                self.duty.changed.clear()
                await asyncio.sleep(0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.fixture
def on(tmp_path, monkeypatch):
    def make(node: str) -> Scene:
        scene = Scene(a_disk(tmp_path, monkeypatch), node)
        for name in ("CONFIG_PATH", "LUA_PATH", "IN_USE_PATH", "ETCD_CA_PATH", "ETCD_CLIENT_PATH"):
            path = str(scene.directory / getattr(nllb, name).rpartition("/")[2])
            monkeypatch.setattr(nllb, name, path)
        credentials = (str(scene.directory / CLIENT), str(scene.directory / CA))
        monkeypatch.setattr(load_balancer, "_CREDENTIALS", credentials)
        monkeypatch.setattr(load_balancer, "MEMBERS", str(tmp_path / "etcd-members.json"))
        monkeypatch.setattr(haproxy, "running_configuration", scene.haproxy.running)
        monkeypatch.setattr(haproxy, "holds", scene.haproxy.holds)
        monkeypatch.setattr(haproxy, "reload", scene.haproxy.reload)
        return scene

    return make


async def test_a_worker_follows_the_slice_and_reloads_once_for_each_change(on):
    scene = on("n3")
    await scene.slice(N1, N2)
    await scene.duty.look()
    await scene.duty.look()
    assert scene.written == Balancer("n3", False, (ApiNode("n1", "192.0.2.11"), ApiNode("n2", "192.0.2.12")))
    assert scene.haproxy.reloads == 1
    assert {path.stat().st_mode & 0o777 for path in scene.directory.iterdir()} == {0o600}


async def test_the_new_worker_is_told_what_the_old_one_held_for_healthy(on):
    """It would take all servers for healthy, until each has failed a check."""
    scene = on("n3")
    scene.haproxy.healthy = {"n1-hosted", "gone-hosted"}
    await scene.slice(N1, N2)
    await scene.duty.look()
    assert (scene.directory / "in-use").read_text() == "n1-hosted\nalive/n1-hosted\n"


async def test_with_no_api_the_configuration_on_the_disk_stays(on):
    scene = on("n3")
    before = nllb.config(Balancer("n3", False, (ApiNode("n1", "192.0.2.11"),)))
    scene.config.write_text(before)
    await scene.duty.look()
    assert scene.config.read_text() == before


async def test_before_anything_is_known_nothing_is_written(on):
    scene = on("n3")
    await scene.duty.look()
    assert not scene.config.exists()
    assert scene.haproxy.reloads == 0


async def test_a_configuration_of_another_release_is_written_again(on):
    scene = on("n3")
    wanted = nllb.config(Balancer("n3", False, (ApiNode("n1", "192.0.2.11"),)))
    scene.config.write_text(wanted.replace(f"maxconn {nllb.MOST}", "maxconn 4000"))
    await scene.duty.look()
    assert scene.config.read_text() == wanted


async def test_a_configuration_that_somebody_else_wrote_is_taken_up_by_the_running_haproxy(on):
    """`up` writes files, too, and a reload may have been lost with the agent that asked for it."""
    scene = on("n3")
    await scene.slice(N1)
    await scene.duty.look()
    scene.haproxy.runs = "anything else"
    scene.clock.now += RELOAD_PAUSE
    await scene.duty.look()
    assert scene.haproxy.runs == nllb.config_hash(scene.config.read_text())


async def test_changes_in_a_row_share_a_reload(on):
    """Each may leave a worker behind."""
    scene = on("n3")
    for endpoints in ((N1,), (N1, N2), (N2,), (N1, N2)):
        await scene.slice(*endpoints)
        await scene.duty.look()
    assert scene.haproxy.reloads == 1
    scene.clock.now += RELOAD_PAUSE
    await scene.duty.look()
    assert scene.haproxy.reloads == 2
    assert scene.haproxy.runs == nllb.config_hash(scene.config.read_text())


async def test_a_haproxy_that_does_not_run_is_not_asked(on):
    scene = on("n3")
    scene.haproxy.runs = None
    await scene.slice(N1)
    await scene.duty.look()
    assert scene.written is not None
    assert scene.haproxy.reloads == 0


async def test_a_reload_that_cannot_be_asked_for_is_told_and_tried_again_later(on):
    scene = on("n3")
    scene.haproxy.trouble = "its socket cannot be used: No such file or directory"
    await scene.slice(N1)
    await scene.duty.look()
    await scene.duty.look()
    assert scene.haproxy.reloads == 1
    assert [said for said in scene.said if "cannot reload: its socket" in said]
    scene.clock.now += RELOAD_PAUSE
    await scene.duty.look()
    assert scene.haproxy.reloads == 2


async def test_a_control_node_leads_to_the_members_that_vote(on):
    scene = on("n1")
    scene.has_standby()
    scene.has_etcd_certificate()
    scene.members(
        {"name": "n1", "address": "192.0.2.11", "learner": False},
        {"name": "n2", "address": "192.0.2.12", "learner": True},
    )
    await scene.slice(N1, N2)
    await scene.duty.look()
    assert scene.written is not None
    assert scene.written.etcd == (EtcdNode("n1", "192.0.2.11"),)


async def test_a_list_of_members_that_goes_or_is_torn_keeps_those_of_the_configuration(on):
    scene = on("n1")
    scene.has_standby()
    scene.has_etcd_certificate()
    scene.members({"name": "n1", "address": "192.0.2.11", "learner": False})
    await scene.slice(N1, N2)
    await scene.duty.look()
    for content in ("", "[", "[]", "{}", "null", '[{"name": "n2"}]', "[1]"):
        Path(load_balancer.MEMBERS).write_text(content)
        await scene.duty.look()
        assert scene.written is not None
        assert scene.written.etcd == (EtcdNode("n1", "192.0.2.11"),), content


async def test_one_that_was_a_control_node_loses_its_etcd_certificate_when_nothing_needs_it_any_more(on):
    scene = on("n2")
    scene.has_etcd_certificate()
    current = Balancer("n2", True, (ApiNode("n1", "192.0.2.11"),), (EtcdNode("n1", "192.0.2.11"),))
    scene.config.write_text(nllb.config(current))
    scene.haproxy.runs = nllb.config_hash(scene.config.read_text())
    scene.haproxy.trouble = "not now"
    await scene.slice(N1)
    await scene.duty.look()
    assert (scene.directory / CLIENT).exists()  # what runs still has it
    scene.haproxy.trouble = None
    scene.clock.now += RELOAD_PAUSE
    await scene.duty.look()
    await scene.duty.look()
    assert sorted(path.name for path in scene.directory.iterdir()) == ["haproxy.cfg", "in-use", "servers.lua"]


async def test_a_disk_that_cannot_be_read_is_told_and_changes_nothing(on):
    scene = on("n3")
    scene.config.mkdir()
    await scene.slice(N1)
    await scene.duty.look()
    assert [said for said in scene.said if "cannot be used" in said]


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", '[{"name": "n1"}]', '["n1"]'])
def test_what_is_no_list_of_members_is_no_knowledge(text):
    assert voting_members(text) is None


@pytest.mark.parametrize(
    "outside",
    [
        {"address": "db.example.com"},
        {"address": "fd00"},
        {"address": "192.0.2.50\n    server x"},
        {"address": 3},
        {"address": "192.0.2.50", "port": 4001},
        {"address": "192.0.2.50", "port": "x"},
    ],
)
def test_a_member_outside_that_it_cannot_lead_to_is_left_out_and_the_others_stay(outside):
    """A name is resolved by nobody there. At the usual port of a member that is elsewhere there may be another etcd."""
    own, second = {"name": "n1", "address": "192.0.2.11"}, {"name": "n1:second", "address": "192.0.2.11", "port": 2479}
    listed = [{"name": "db", **outside}, own, second]
    assert voting_members(json.dumps(listed)) == (
        EtcdNode("n1", "192.0.2.11"),
        EtcdNode("n1:second", "192.0.2.11", 2479),
    )
    assert voting_members(json.dumps([{"name": "db", **outside}])) is None


# --- HAProxy itself ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nabc123", "abc123"),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n<html>", ""),
        (b"", None),
    ],
)
async def test_what_runs_is_what_the_health_port_says(answer, expected):
    async with _answering(answer) as port:
        assert await haproxy.running_configuration(port) == expected


async def test_what_runs_is_unknown_where_nothing_listens():
    async with _answering(b"") as port:
        pass
    assert await haproxy.running_configuration(port) is None


async def test_the_master_is_told_to_reload_and_may_cut_the_connection(tmp_path):
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        writer.transport.abort()

    path = str(tmp_path / "master.sock")
    async with await asyncio.start_unix_server(serve, path):
        assert await haproxy.reload(path) is None
    assert heard == [b"reload\n"]


async def test_a_missing_socket_is_said(tmp_path):
    assert "cannot be used" in str(await haproxy.reload(str(tmp_path / "none.sock")))
