"""etcd as `autarky etcd` sees it, by its own tools on the hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autarky.ports import Completed
from autarky.upkeep.etcd_seen import look
from fakes.host import FakeHost

MEMBER: dict[str, Any] = {
    "ID": 7,
    "name": "n1:second",
    "peerURLs": ["https://192.0.2.11:2480"],
    "clientURLs": ["https://192.0.2.11:2479"],
}
STATUS: dict[str, object] = {"header": {"member_id": 7, "cluster_id": 1}, "leader": 7, "version": "3.7.3"}


class WithSecond(FakeHost):
    """Its only member is being changed: the first one has left, and the second one has everything."""

    def _completed(self, argv: Sequence[str], stdin: bytes) -> Completed:
        if ":2479" not in argv[1]:
            return Completed(1, b"", "Error: connection refused")
        said: object = {"header": {"cluster_id": 1}, "members": [MEMBER]}
        if "status" in argv:
            said = [{"Endpoint": MEMBER["clientURLs"][0], "Status": STATUS}]
        elif "health" in argv:
            said = [{"endpoint": MEMBER["clientURLs"][0], "health": True}]
        return Completed(0, json.dumps(said).encode(), "")


async def test_a_second_member_that_stands_in_for_the_only_one_is_seen() -> None:
    seen, tools = await look({"n1": WithSecond("n1")}, {"n1": "192.0.2.11"})
    assert tools is not None
    assert [(one.id, one.leads, one.version, one.healthy) for one in seen.members] == [(7, True, "3.7.3", True)]
    assert seen.quorum
