"""The node agent's own clients of etcd: how long they wait, and for what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from autarky.control.etcd.node import seen as etcd_seen
from autarky.control.etcd.node.seen import EtcdSeen
from autarky.errors import Unreachable
from autarky.model import ports
from fakes.web import HANG, Web, certificates


async def test_a_change_of_membership_is_waited_for_longer_than_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change waits for a majority of the disks; a look that takes so long is unusable."""
    found = certificates()
    for name, content in (
        ("ca.crt", found.ca),
        ("server.crt", found.client.certificate),
        ("server.key", found.client.key),
    ):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(etcd_seen, "PKI", str(tmp_path))
    monkeypatch.setattr(etcd_seen, "ANSWER_SECONDS", 0.2)
    assert etcd_seen.CHANGE_SECONDS >= 10
    seen = EtcdSeen()
    async with Web([HANG]) as web:
        monkeypatch.setattr(ports, "ETCD_CLIENT", web.port)
        member = await seen.local()
        with pytest.raises(Unreachable):
            await member.status()
        change = asyncio.create_task(member.remove(7))
        await asyncio.sleep(0.6)
        assert not change.done()
        change.cancel()
        await seen.close()
