"""Talking to etcd."""

from autarky.etcd.gateway import EtcdClient, KeyValue, Member, MemberStatus

__all__ = ["EtcdClient", "KeyValue", "Member", "MemberStatus"]
