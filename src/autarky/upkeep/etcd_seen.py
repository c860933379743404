"""etcd as the hosts of its members show it: works with the API down, and from any machine that reaches the hosts.

Contract: it only looks. A host or a member that does not answer is reported as such, and ends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import product
from urllib.parse import urlsplit

from autarky.control.etcd.decide.maintenance import EtcdSeen, MemberSeen
from autarky.errors import AutarkyError
from autarky.etcd import Alarm, EtcdTools, Member, Membership, MemberStatus
from autarky.etcd.tools import SECOND_LOCAL, Place
from autarky.model import ports
from autarky.ports import Host

NO_ANSWER = "it does not answer"


async def look(hosts: Mapping[str, Host], addresses: Mapping[str, str]) -> tuple[EtcdSeen, EtcdTools | None]:
    """What etcd's members are and say, and the tools on the host that was asked; None if no host could be asked.

    hosts: by node, those that may have a member. addresses: node → address.
    """
    names = {address: node for node, address in addresses.items()}
    listing = await _listing(hosts)
    if listing is None:
        unknown = (MemberSeen(node, addresses.get(node, ""), error=NO_ANSWER) for node in sorted(hosts))
        return EtcdSeen(tuple(unknown)), None
    tools, membership, by_quorum = listing
    endpoints = {endpoint_of(member): member for member in membership.members}
    statuses, health = await asyncio.gather(tools.statuses(endpoints), tools.health(endpoints))
    alarms = await tools.alarms() if by_quorum else ()
    members = tuple(
        _seen(member, names, statuses.get(endpoint), health.get(endpoint), alarms)
        for endpoint, member in endpoints.items()
    )
    return EtcdSeen(tuple(sorted(members, key=lambda one: one.name)), membership.cluster, by_quorum), tools


async def _listing(hosts: Mapping[str, Host]) -> tuple[EtcdTools, Membership, bool] | None:
    """By the first host whose member has a quorum, else by any whose member answers at all. While the only member is
    changed, a second one on its node answers in its stead."""
    for by_quorum, place in product((True, False), (Place(), Place(local=SECOND_LOCAL))):
        for host in hosts.values():
            tools = EtcdTools(host, place=place)
            try:
                return tools, await tools.membership(by_quorum=by_quorum), by_quorum
            except AutarkyError:
                continue
    return None


def endpoint_of(member: Member) -> str:
    """Where clients reach it. One that has never started has no client URL yet: by its peer URL."""
    if member.client_urls:
        return member.client_urls[0]
    return f"https://{address_of(member)}:{ports.ETCD_CLIENT}"


def address_of(member: Member) -> str:
    return next((urlsplit(url).hostname or "" for url in (*member.client_urls, *member.peer_urls)), "")


def _seen(
    member: Member,
    names: Mapping[str, str],
    status: MemberStatus | None,
    error: str | None,
    alarms: tuple[Alarm, ...],
) -> MemberSeen:
    address = address_of(member)
    raised = tuple(alarm.kind for alarm in alarms if alarm.member == member.id)
    name = names.get(address) or member.name or address
    if status is None:
        why, url = error or NO_ANSWER, endpoint_of(member)
        return MemberSeen(name, address, member.id, member.is_learner, alarms=raised, error=why, url=url)
    return MemberSeen(
        name=name,
        address=address,
        id=member.id,
        learner=member.is_learner,
        leads=status.leader == member.id,
        version=status.version,
        term=status.raft_term,
        applied=status.raft_applied_index,
        size=status.db_size,
        in_use=status.db_size_in_use,
        quota=status.quota,
        alarms=raised,
        url=endpoint_of(member),
        # etcd counts an alarm of any member as ill health of each; a learner refuses the query behind `health`.
        error=None if raised or alarms or member.is_learner else error,
    )
