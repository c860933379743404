"""etcd's members and their health, according to the quorum: asked with etcdctl on the host of one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from urllib.parse import urlsplit

from autarky import places
from autarky.control.etcd.decide.restart import Member
from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import Unreachable
from autarky.model import ports
from autarky.phases.context import Context
from autarky.phases.etcd_pods import static_pods
from autarky.ports import Object

MEMBERS = """\
ask() { "$1/etcdctl" --endpoints=https://127.0.0.1:"$2" --command-timeout=5s --cacert="$3/ca.crt" \\
  --cert="$3/server.crt" --key="$3/server.key" "${@:4}" -w json 2>/dev/null; }
ask "$@" member list && ask "$@" endpoint status && { ask "$@" endpoint health --cluster || :; }
"""
"""Its arguments: the directory of etcdctl, the port, the directory of the certificates. It prints one line of JSON for
each of three queries. The quorum answers the list: without one nothing is printed."""


async def members_of(context: Context) -> list[Member] | None:
    """According to the first host whose member reaches the others; None if none does. Those of workers are not asked,
    whose root may answer anything."""
    names = {node.address: node.name for node in context.complete.nodes if node.address is not None}
    for node in context.present(sorted(context.trusted_control_nodes, key=lambda node: not node.control_plane)):
        host = context.machines.host(node.name)
        if host is not None and await static_pods(host):
            argv = ["bash", "-c", MEMBERS, "bash", places.BIN, str(ports.ETCD_CLIENT), etcd.PKI]
            try:
                found = read_members((await host.run(argv, check=False, timeout=60)).text, names)
            except Unreachable:
                continue
            if found is not None:
                return found
    return None


def read_members(text: str, names: Mapping[str, str]) -> list[Member] | None:
    """Parse what MEMBERS printed. names: address → node; None if the members did not answer all of it."""
    try:
        listed, status, health = (json.loads(line) for line in text.splitlines())
        leader = status[0]["Status"].get("leader")
        healthy = {one["endpoint"] for one in health if one.get("health")}
        return [_member(one, leader, healthy, names) for one in listed["members"]]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def _member(one: Object, leader: int | None, healthy: Set[str], names: Mapping[str, str]) -> Member:
    clients = set(one.get("clientURLs", ()))
    addresses = {urlsplit(url).hostname or "" for url in (*clients, *one.get("peerURLs", ()))}
    name = next((names[address] for address in addresses if address in names), str(one.get("name", "")))
    return Member(name, not one.get("isLearner", False), bool(clients & healthy), one["ID"] == leader)
