"""API servers disconnect from a member that leaves: its node's, and those of other nodes that were moved there."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide.leaving import RELOAD_SECONDS
from autarky.control.etcd.node.clients import Clients
from autarky.control.etcd.node.connections import connected_to
from autarky.etcd import Membership
from autarky.etcd.members import Member
from autarky.model.etcd_members import Desired, peer_url
from fakes.clock import LoopClock
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
ADDRESS = {"n1": "192.0.2.11", "n2": "192.0.2.12", "n3": "192.0.2.13"}
MEMBERS = Membership(
    1, tuple(Member(number, name, (peer_url(ADDRESS[name]),), (), False) for number, name in enumerate(ADDRESS, 1))
)
LEAVES = Desired("n1", ADDRESS["n1"], present=False, reported=True)


class Node:
    """One whose API server is connected to some members; a new pod is connected to none that leaves."""

    def __init__(self, name: str, *connected: str) -> None:
        self.name, self.connected, self.clock = name, {ADDRESS[one] for one in connected}, LoopClock()
        self.pod: Any = self._pod("old")
        self.status: dict[str, Any] = {}
        self.own_connection: str | None = None
        self.kube = FakeKube()
        self.kube.put(self.pod)
        self.clients = Clients(
            name,
            self.kube,
            self.clock,
            DecisionLog(lambda *_, **__: None),
            lambda: self.pod,
            lambda _: self.status,
            self.tell,
            self.disconnect,
            lambda address, port: port == 2379 and address in {*self.connected, self.own_connection},
        )

    def _pod(self, uid: str) -> dict[str, Any]:
        meta = {"name": f"api-{self.name}", "namespace": "kube-system", "uid": uid}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": ready}

    async def disconnect(self) -> None:
        """Of the agent itself, which it opened while its own member did not serve."""
        self.own_connection = None

    async def tell(self, name: str, part: Any) -> None:
        assert name == self.name
        self.status |= part

    @property
    def desired(self) -> Desired:
        return Desired(self.name, ADDRESS[self.name], uses=tuple(int(one, 16) for one in self.status.get("uses", ())))

    async def look(self, *others: Desired) -> None:
        await self.clients.leave_others([*others, self.desired], MEMBERS)

    async def noticed(self, *others: Desired) -> None:
        await self.look(*others)
        await self.clock.sleep(RELOAD_SECONDS)
        await self.look(*others)
        await self.look(*others)

    async def replaced(self) -> bool:
        return await self.kube.get("v1", "Pod", f"api-{self.name}", "kube-system") is None

    def restarts(self) -> None:
        self.pod, self.connected = self._pod("new"), set()


async def test_a_node_says_so_and_waits_until_the_members_own_node_is_done() -> None:
    node = Node("n2", "n1")
    await node.look(LEAVES)
    assert "uses" not in node.status, "before its load balancer knows it is connected by the checks"
    await node.clock.sleep(RELOAD_SECONDS)
    await node.look(LEAVES)
    assert "uses" not in node.status, "it may be the agent's own connection"
    await node.look(LEAVES)
    assert node.status == {"uses": ["1"]}
    assert not await node.replaced()
    left = replace(LEAVES, disconnected=1)
    await node.look(left)
    assert node.status["vacating"] == "1/old"
    await node.look(left)
    assert await node.replaced()
    node.restarts()
    await node.look(left)
    assert node.status["uses"] == []


async def test_what_the_agent_itself_has_open_is_closed_and_restarts_no_api_server() -> None:
    node = Node("n2")
    node.own_connection = ADDRESS["n1"]
    await node.noticed(LEAVES)
    await node.look(replace(LEAVES, disconnected=1))
    assert node.status == {}
    assert not await node.replaced()


async def test_one_node_after_the_other() -> None:
    node, left = Node("n3", "n1"), replace(LEAVES, disconnected=1)
    other = Desired("n2", ADDRESS["n2"], uses=(1,))
    await node.noticed(left, other)
    await node.look(left, other)
    assert node.status == {"uses": ["1"]}
    await node.look(left, replace(other, uses=()))
    assert node.status["vacating"] == "1/old"


async def test_a_node_that_is_not_connected_does_nothing() -> None:
    node = Node("n2", "n3")
    await node.noticed(replace(LEAVES, disconnected=1))
    assert node.status == {}
    assert not await node.replaced()


async def test_what_it_said_is_taken_back_when_the_member_stays_after_all() -> None:
    node = Node("n2", "n1")
    await node.noticed(LEAVES)
    assert node.status == {"uses": ["1"]}
    await node.look(replace(LEAVES, present=True, reported=False))
    assert node.status == {"uses": []}


# --- the kernel's table -----------------------------------------------------------------------------------------------

DIAL = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(flush=True); input()"


def test_the_connections_of_others_count_and_our_own_do_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert not connected_to("127.0.0.1", port)
        argv = [sys.executable, "-c", DIAL, str(port)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert connected_to("127.0.0.1", port)
            assert not connected_to("127.0.0.2", port)
            assert not connected_to("127.0.0.1", port + 1 if port < 65535 else port - 1)
            other.communicate(b"\n")


def test_a_connection_that_has_ended_does_not_count(tmp_path: Path) -> None:
    row = "   0: 0B0200C0:C350 0C0200C0:094B {} 00000000:00000000 00:00000000 00000000     0        0 77 1\n"
    (tmp_path / "fd").mkdir()
    table = tmp_path / "tcp"
    for state, counts in (("01", True), ("06", False), ("08", False)):
        table.write_text("  sl  local_address rem_address   st\n" + row.format(state))
        assert connected_to("192.0.2.12", 2379, table, tmp_path / "fd") is counts
    (tmp_path / "fd/3").symlink_to("socket:[77]")
    table.write_text("head\n" + row.format("01"))
    assert not connected_to("192.0.2.12", 2379, table, tmp_path / "fd")
