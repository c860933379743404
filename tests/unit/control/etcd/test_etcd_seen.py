"""The node agent's own clients of etcd: how long they wait and for what, and which clusters others have replaced."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky.control.etcd.decide.lineage import FORMER, Answer
from autarky.control.etcd.node import seen as etcd_seen
from autarky.control.etcd.node.seen import EtcdSeen
from autarky.errors import Unreachable
from autarky.etcd import Member
from autarky.etcd.gateway import KeyValue
from autarky.model import ports
from fakes.web import HANG, Web, answer, certificates


def write_certificates(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a control node has, and its agent makes clients of."""
    found = certificates()
    for name, content in (
        ("ca.crt", found.ca),
        ("server.crt", found.client.certificate),
        ("server.key", found.client.key),
    ):
        (directory / name).write_bytes(content)
    monkeypatch.setattr(etcd_seen, "PKI", str(directory))


async def test_a_change_of_membership_is_waited_for_longer_than_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change waits for a majority of the disks; a look that takes so long is unusable."""
    write_certificates(tmp_path, monkeypatch)
    monkeypatch.setattr(etcd_seen, "ANSWER_SECONDS", 0.2)
    assert etcd_seen.CHANGE_SECONDS >= 10
    seen = EtcdSeen()
    async with Web([HANG]) as web:
        monkeypatch.setattr(ports, "ETCD_CLIENT", web.port)
        member = await seen.client("127.0.0.1")
        with pytest.raises(Unreachable):
            await member.status()
        change = asyncio.create_task(member.remove(7))
        await asyncio.sleep(0.6)
        assert not change.done()
        change.cancel()
        await seen.close()


# --- which clusters others have replaced ----------------------------------------------------------------------------


@dataclass
class Said:
    """A client of a member that says this of the clusters that its own has replaced."""

    content: bytes | Exception | None
    cluster: int
    asked: list[bytes]

    async def get(self, key: bytes) -> KeyValue | None:
        self.asked.append(key)
        await asyncio.sleep(3)
        if isinstance(self.content, Exception):
            raise self.content
        return None if self.content is None else KeyValue(key, self.content, 7, self.cluster)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | Exception | None]:
    """By address: what each member says. Those that are not there cannot be connected to."""
    said: dict[str, bytes | Exception | None] = {}
    asked: list[bytes] = []

    async def client(_: EtcdSeen, address: str) -> Said:
        return Said(said.get(address, Unreachable("connection refused")), int(address[-2:]), asked)

    monkeypatch.setattr(EtcdSeen, "_client", client)
    return said


@pytest.mark.looptime
async def test_all_members_are_asked_at_once_and_whatever_one_of_them_says_counts(
    members: dict[str, bytes | Exception | None], looptime: float
) -> None:
    """Some are off, and each of these takes the time that there is for an answer."""
    members |= {"192.0.2.11": b'["abc"]', "192.0.2.12": b'["abd", "abc"]', "192.0.2.13": b"[]"}
    addresses = ["192.0.2.11", "192.0.2.14", "192.0.2.12", "192.0.2.13", "192.0.2.11"]
    found = await EtcdSeen().former(addresses)
    assert {one.cluster: one.former for one in found if one.former} == {11: {0xABC}, 12: {0xABD, 0xABC}}
    assert looptime == 3
    assert await EtcdSeen().former([]) == ()


@pytest.mark.looptime
@pytest.mark.parametrize(
    "said",
    [None, b"", b"abc", b'{"abc": 1}', b"\xff", Unreachable("timed out"), FileNotFoundError("ca.crt"), ValueError("?")],
    ids=repr,
)
async def test_rule_2_silence_and_what_cannot_be_understood_have_replaced_no_cluster(
    members: dict[str, bytes | Exception | None], said: bytes | Exception | None
) -> None:
    members["192.0.2.11"] = said
    assert not any(one.former for one in await EtcdSeen().former(["192.0.2.11"]))


async def test_a_member_is_asked_by_its_quorum_for_the_key_of_its_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of a former cluster that is left alone has no quorum: what it remembers by itself says nothing."""
    write_certificates(tmp_path, monkeypatch)
    key, value = (base64.b64encode(one).decode() for one in (FORMER.encode(), b'["abc"]'))
    header = {"cluster_id": str(2**64 - 1)}
    body = json.dumps({"header": header, "kvs": [{"key": key, "value": value, "mod_revision": "7"}], "count": "1"})
    seen = EtcdSeen()
    async with Web([answer(200, body)], demand_client_certificate=True) as web:
        monkeypatch.setattr(ports, "ETCD_CLIENT", web.port)
        assert await seen.former(["127.0.0.1"]) == (Answer(2**64 - 1, frozenset({0xABC})),)
        assert web.lines == ["POST /v3/kv/range"]
        assert json.loads(web.heard[0].body) == {"key": key}
        await seen.close()


async def test_a_member_that_shows_no_certificate_of_etcds_ca_has_replaced_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_certificates(tmp_path, monkeypatch)
    key, value = (base64.b64encode(one).decode() for one in (FORMER.encode(), b'["abc"]'))
    body = json.dumps({"kvs": [{"key": key, "value": value}]})
    seen = EtcdSeen()
    async with Web([answer(200, body)], issued_years_ago=1) as web:
        monkeypatch.setattr(ports, "ETCD_CLIENT", web.port)
        assert await seen.former(["127.0.0.1"]) == ()
        assert web.heard == []
        await seen.close()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://192.0.2.1:2380", "192.0.2.1"),
        ("https://192.0.2.1:99999", "192.0.2.1"),
        ("https://192.0.2.1:x", "192.0.2.1"),
        ("https://[192.0.2.1", ""),
        ("", ""),
    ],
)
def test_whatever_a_member_says_of_itself_it_has_an_address_or_none(url: str, address: str) -> None:
    """etcd takes what its members say of themselves; a look at all of them must not end there."""
    assert etcd_seen.address_of(Member(1, "db", (url,), (), False)) == address
