"""Talking to etcd."""

from autarky.etcd.data import Identity, read_identity
from autarky.etcd.gateway import EtcdClient, KeyValue, Member, Membership, MemberStatus

__all__ = ["EtcdClient", "Identity", "KeyValue", "Member", "MemberStatus", "Membership", "read_identity"]
