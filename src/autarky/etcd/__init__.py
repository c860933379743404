"""Talking to etcd: to a member through its gateway, or with its own tools on the member's host."""

from autarky.etcd.data import Identity, read_identity
from autarky.etcd.gateway import EtcdClient, KeyValue
from autarky.etcd.members import Alarm, KeysHash, Member, Membership, MemberStatus
from autarky.etcd.tools import EtcdTools, Place, SnapshotStatus

__all__ = [
    "Alarm",
    "EtcdClient",
    "EtcdTools",
    "Identity",
    "KeyValue",
    "KeysHash",
    "Member",
    "MemberStatus",
    "Membership",
    "Place",
    "SnapshotStatus",
    "read_identity",
]
