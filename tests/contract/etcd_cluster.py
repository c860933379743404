"""Members of an etcd for one test, which come and go in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from autarky.errors import ApiError
from autarky.etcd import EtcdClient
from autarky.model.patience import REQUEST
from autarky.pki import PkiStore
from contract.servers import Member, a_member, etcd_pki, running_member

T = TypeVar("T")
NONE: Mapping[str, object] = MappingProxyType({})


class Cluster:
    """Members by name, each in a directory of its own; all end with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pki: PkiStore = etcd_pki(directory / "pki")
        self.ends = ExitStack()
        self.running: dict[str, ExitStack] = {}
        self.clients: list[EtcdClient] = []

    async def start(
        self, member: Member, known: list[Member], *, joins: bool = False, arguments: Mapping[str, object] = NONE
    ) -> EtcdClient:
        stack = self.ends.enter_context(ExitStack())
        self.running[member.name] = stack
        directory = self.directory / member.name
        begin = running_member(member, known, self.pki, directory, joins=joins, further=arguments)
        server = await asyncio.to_thread(stack.enter_context, begin)
        client = server.etcd()
        self.clients.append(client)
        return client

    def data(self, member: Member) -> Path:
        return self.directory / member.name / "data"

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        self.ends.close()


async def in_time(change: Callable[[], Awaitable[T]], *refusals: str) -> T:
    """What etcd refuses only for now: it counts a peer as connected after five seconds, learners get in sync, and
    a new id is made of the second in which it is made."""
    deadline = asyncio.get_running_loop().time() + 2 * REQUEST
    while True:
        try:
            return await change()
        except ApiError as error:
            if error.reason not in refusals or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.2)


async def promoted(client: EtcdClient, member: int) -> None:
    await in_time(lambda: client.promote(member), "FailedPrecondition", "Unavailable")


async def three_members(cluster: Cluster) -> tuple[list[Member], list[EtcdClient]]:
    members = [a_member("one")]
    clients = [await cluster.start(members[0], members)]
    for name in ("two", "three"):
        members.append(a_member(name))
        added = await in_time(partial(clients[0].add_learner, members[-1].peer), "Unavailable")
        clients.append(await cluster.start(members[-1], members, joins=True))
        await promoted(clients[0], added.id)
    return members, clients
