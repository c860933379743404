"""etcd's members as this control node sees them: the list from any member that answers, and the state of each one.

Contract: every member is asked by a client of its own, since only a member itself can report its own state. What does
not answer in time is None or absent; nothing here raises AutarkyError except the changes, which the caller makes
through `client()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from autarky.control.etcd.decide.lineage import FORMER, Answer, former_of
from autarky.control.etcd.manifests.pods import PKI
from autarky.errors import AutarkyError
from autarky.etcd import EtcdClient, Membership, MemberStatus
from autarky.etcd import Member as Listed
from autarky.model import patience, ports
from autarky.model.etcd_members import Member, client_url, host_of, is_second, second

LOCAL = "127.0.0.1"
LOCAL_SECOND = second(LOCAL)
ANSWER_SECONDS = patience.MEMBER_LOOK
"""For a list or a status; a member that is merely slow answers within it, and a missing answer does no harm."""
CHANGE_SECONDS = patience.MEMBER_CHANGE
"""A change of membership waits for a majority of the disks."""


@dataclass(slots=True)
class EtcdSeen:
    """Clients are made when they are needed, from the certificates on the disk, and kept."""

    _clients: dict[str, EtcdClient] = field(default_factory=dict)
    _made_of: tuple[float, ...] = ()

    async def membership(self, addresses: Iterable[str]) -> Membership | None:
        """The list from the first of them that answers; None when none does."""
        for address in dict.fromkeys(addresses):
            try:
                return await (await self._client(address)).membership()
            except (AutarkyError, OSError, ValueError):
                continue  # down, a learner, or no certificates yet
        return None

    async def former(self, addresses: Iterable[str]) -> tuple[Answer, ...]:
        """What those of these members say that answer, and have the key."""
        said = await asyncio.gather(*(self._former(address) for address in dict.fromkeys(addresses)))
        return tuple(one for one in said if one is not None)

    async def _former(self, address: str) -> Answer | None:
        try:
            found = await (await self._client(address)).get(FORMER.encode())
        except (AutarkyError, OSError, ValueError):
            return None
        return None if found is None else Answer(found.cluster, former_of(found.value))

    async def status(self, address: str) -> MemberStatus | None:
        try:
            return await (await self._client(address)).status()
        except (AutarkyError, OSError, ValueError):
            return None

    async def members(self, membership: Membership, leader: int) -> tuple[Member, ...]:
        """The list with what each member reports of itself; all are asked at once."""
        statuses = await asyncio.gather(*(self.status(address_of(member)) for member in membership.members))
        return tuple(
            _as_seen(member, status, membership.cluster, leader)
            for member, status in zip(membership.members, statuses, strict=True)
        )

    async def client(self, address: str) -> EtcdClient:
        """One member, for what only it can be asked. OSError without certificates."""
        return await self._client(address)

    async def _client(self, address: str) -> EtcdClient:
        await self._renew()
        if address not in self._clients:
            pki = Path(PKI)
            self._clients[address] = EtcdClient(
                [client_url(address)],
                ca_pem=(pki / "ca.crt").read_bytes(),
                client_cert_pem=(pki / "server.crt").read_bytes(),
                client_key_pem=(pki / "server.key").read_bytes(),
                timeout=ANSWER_SECONDS,
                change_timeout=CHANGE_SECONDS,
            )
        return self._clients[address]

    async def _renew(self) -> None:
        """The server's certificate is valid for clients too (see `etcd.gateway`); after a renewal, new clients are
        made."""
        made_of = tuple(Path(PKI, name).stat().st_mtime for name in ("ca.crt", "server.crt", "server.key"))
        if made_of != self._made_of:
            await self.close()
            self._made_of = made_of

    async def close(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()


def address_of(member: Listed) -> str:
    """The host of its peer URL, with the port if it is the second one of a node; empty where it has none."""
    url = next(iter(member.peer_urls), "")
    host = _host(url)
    return second(host) if host and _port(url) == ports.ETCD_SECOND_PEER else host


def client_port(member: Listed) -> int:
    """Where its clients reach it: as on all control nodes, unless a member outside of the cluster says another one."""
    usual = ports.ETCD_SECOND_CLIENT if is_second(address_of(member)) else ports.ETCD_CLIENT
    said = {_port(url) for url in member.client_urls} - {0}
    return usual if not said or usual in said else min(said)


def _host(url: str) -> str:
    """Empty where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _port(url: str) -> int:
    """0 where it names none: etcd accepts any number."""
    try:
        return urlsplit(url).port or 0
    except ValueError:
        return 0


def _as_seen(member: Listed, status: MemberStatus | None, cluster: int, leader: int) -> Member:
    same = status is not None and status.member == member.id and status.cluster == cluster
    serves = same and status is not None and (member.is_learner or status.leader == leader)
    # An initial member has its name from the start; it publishes its client URLs once it runs.
    return Member(member.id, address_of(member), member.is_learner, bool(member.client_urls), serves)


async def accepts(address: str) -> bool:
    """Whether the node's kubelet accepts connections: a node that is down cannot start a member."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host_of(address), ports.KUBELET)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
