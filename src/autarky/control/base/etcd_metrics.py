"""What the node agent's metrics say of its node's etcd member; nothing where the node has none."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import Gauge

_MEMBER = ["member"]
UP = Gauge("autarky_agent_etcd_up", "Whether the node's etcd member answers", _MEMBER)
HAS_LEADER = Gauge("autarky_agent_etcd_has_leader", "Whether it knows a leader", _MEMBER)
LEADS = Gauge("autarky_agent_etcd_leads", "Whether it is the leader", _MEMBER)
LEARNER = Gauge("autarky_agent_etcd_learner", "Whether it has no vote yet", _MEMBER)
SIZE = Gauge("autarky_agent_etcd_database_bytes", "Size of its database", _MEMBER)
IN_USE = Gauge("autarky_agent_etcd_database_in_use_bytes", "What of its database is in use", _MEMBER)
QUOTA = Gauge("autarky_agent_etcd_quota_bytes", "At this size of its database etcd refuses writes", _MEMBER)
LEADER_CHANGES = Gauge("autarky_agent_etcd_leader_changes", "Changes of the leader since its start", _MEMBER)
FSYNC = Gauge("autarky_agent_etcd_fsync_p99_seconds", "99th percentile of writes to its log, of late", _MEMBER)
COMMIT = Gauge("autarky_agent_etcd_commit_p99_seconds", "99th percentile of commits to its database, of late", _MEMBER)
ALARM = Gauge("autarky_agent_etcd_alarm", "Whether it has raised this alarm", ["member", "alarm"])
ALARMS = ("NOSPACE", "CORRUPT")
_OF_AN_ANSWER = (HAS_LEADER, LEADS, LEARNER, SIZE, IN_USE, QUOTA, LEADER_CHANGES, FSYNC, COMMIT, ALARM)


class Figures(Protocol):
    """As `etcd.decide.figures` has them."""

    @property
    def has_leader(self) -> bool: ...
    @property
    def leads(self) -> bool: ...
    @property
    def learner(self) -> bool: ...
    @property
    def size(self) -> float: ...
    @property
    def in_use(self) -> float: ...
    @property
    def quota(self) -> float | None: ...
    @property
    def leader_changes(self) -> float | None: ...
    @property
    def alarms(self) -> frozenset[str]: ...


def member(name: str, figures: Figures, fsync: float | None, commit: float | None) -> None:
    """fsync, commit: in seconds, None where nothing is known of late: then the last one stays."""
    UP.labels(name).set(1)
    HAS_LEADER.labels(name).set(figures.has_leader)
    LEADS.labels(name).set(figures.leads)
    LEARNER.labels(name).set(figures.learner)
    SIZE.labels(name).set(figures.size)
    IN_USE.labels(name).set(figures.in_use)
    for gauge, value in (
        *((QUOTA, figures.quota), (LEADER_CHANGES, figures.leader_changes)),
        *((FSYNC, fsync), (COMMIT, commit)),
    ):
        if value is not None:
            gauge.labels(name).set(value)
    for alarm in ALARMS:
        ALARM.labels(name, alarm).set(alarm in figures.alarms)


def does_not_answer(name: str) -> None:
    """What it said before is not shown any more."""
    UP.labels(name).set(0)
    for gauge in _OF_AN_ANSWER:
        gauge.clear()


def no_member() -> None:
    for gauge in (UP, *_OF_AN_ANSWER):
        gauge.clear()
