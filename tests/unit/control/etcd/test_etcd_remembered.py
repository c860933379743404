"""What a node's agent notes of etcd's members, for its load balancer and for whoever asks them later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky import places
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.membership import EtcdMembership
from autarky.control.etcd.node.seen import EtcdSeen
from autarky.control.load_balancer.node.balancer import voting_members
from autarky.etcd import Member, Membership, MemberStatus
from autarky.kube import Reflector
from autarky.model.balancer import EtcdNode
from autarky.render.crds import API_VERSION
from fakes.clock import LoopClock
from fakes.cri import FakeCri
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime


@dataclass
class Listing(EtcdSeen):
    """A list of members, and silence beside it."""

    listed: tuple[Member, ...] = ()

    async def membership(self, addresses: Iterable[str]) -> Membership | None:
        return Membership(0xABC, self.listed)

    async def status(self, address: str) -> MemberStatus | None:
        return None


def member(number: int, name: str, peer: str, *client_urls: str) -> Member:
    return Member(number, name, (f"https://{peer}",), client_urls, False)


N1 = member(1, "n1", "192.0.2.11:2380", "https://192.0.2.11:2379")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, path in (("DATA", "etcd"), ("MEMBER", "etcd/member"), ("MANIFESTS", "manifests"), ("CA", "ca.crt")):
        monkeypatch.setattr(etcd_on_disk, name, tmp_path / path)
    monkeypatch.setattr(etcd_on_disk, "MEMBERS", tmp_path / "etcd-members.json")
    for name in ("MANIFESTS", "ETCD_FENCE", "ETCD_CHANGE"):
        monkeypatch.setattr(places, name, str(tmp_path / name.lower()))
    (tmp_path / "manifests").mkdir()
    return tmp_path


async def noted(root: Path, *members: Member) -> str:
    """By the agent of n1, which manages no member while etcd moves."""
    kube, clock, log = FakeKube(), LoopClock(), DecisionLog(lambda *_, **__: None)
    kube.put(etcd_members.crd())
    copy = Reflector(kube, clock, API_VERSION, etcd_members.KIND)
    controller = EtcdMembership(
        *("n1", kube, copy, FakeCri(), clock, log, lambda: 2, asyncio.Event(), lambda: None),
        etcd=Listing(listed=members),
    )
    await controller.look()
    return (root / "etcd-members.json").read_text()


@pytest.mark.parametrize(
    "outside",
    [
        member(9, "db", "db.example.com:2380", "https://db.example.com:2379"),
        member(9, "db", "192.0.2.50:2381", "https://192.0.2.50:4001"),
        member(9, "db", "192.0.2.50:2380", "https://192.0.2.50:4001", "https://db.example.com:99999"),
        member(9, "db", "[fd00::50]:2380", "https://[fd00::50]:2379"),
    ],
)
async def test_a_node_reaches_etcd_by_its_own_member_whatever_another_one_outside_is_called(
    root: Path, outside: Member
) -> None:
    """A move into the cluster waits for that."""
    assert voting_members(await noted(root, outside, N1)) == (EtcdNode("n1", "192.0.2.11"),)


@pytest.mark.parametrize(
    "urls", [(), ("https://192.0.2.50:2379",), ("https://db.example.com:2379", "https://192.0.2.50:4001")]
)
async def test_one_outside_that_is_where_members_are_is_led_to(root: Path, urls: tuple[str, ...]) -> None:
    """Also before it says where its clients reach it: it has just started then."""
    outside = member(9, "db", "192.0.2.50:2380", *urls)
    found = voting_members(await noted(root, outside, N1))
    assert found == (EtcdNode("n1", "192.0.2.11"), EtcdNode("db", "192.0.2.50"))


async def test_a_second_member_on_a_node_is_noted_with_its_port(root: Path) -> None:
    second = member(2, "n1:second", "192.0.2.11:2480", "https://192.0.2.11:2479")
    assert json.loads(await noted(root, second, N1)) == [
        {"name": "n1", "address": "192.0.2.11", "learner": False},
        {"name": "n1:second", "address": "192.0.2.11", "learner": False, "port": 2479},
    ]
    assert etcd_on_disk.remembered_addresses() == ["192.0.2.11", "192.0.2.11:2480"]


async def test_where_clients_of_one_elsewhere_are_expected_is_noted_for_whoever_asks_it_later(root: Path) -> None:
    entry, _ = json.loads(await noted(root, member(9, "db", "192.0.2.1:2381", "https://192.0.2.1:4001"), N1))
    assert entry == {"name": "db", "address": "192.0.2.1", "learner": False, "port": 4001}
