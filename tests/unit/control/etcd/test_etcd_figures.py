"""What etcd's metrics say of a member, and when that needs attention."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from autarky import places
from autarky.control.base import etcd_metrics
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide.figures import (
    LOOKS,
    SLOW_FSYNC,
    Figures,
    Judged,
    Memory,
    connected_peers,
    judge,
    read,
    slowest,
)
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.figures import EtcdFigures, scraped
from autarky.errors import Unreachable
from autarky.model import ports
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.kube import FakeKube

BOUNDS = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, math.inf]
TEXT = """\
# HELP etcd_debugging_server_alarms Alarms for every member in cluster.
# TYPE etcd_debugging_server_alarms gauge
etcd_debugging_server_alarms{alarm_type="CORRUPT",server_id="3039"} 1
etcd_debugging_server_alarms{alarm_type="NOSPACE",server_id="8e9e05c52164694d"} 1
etcd_debugging_server_alarms{alarm_type="CORRUPT",server_id="8e9e05c52164694d"} 0
etcd_disk_backend_commit_duration_seconds_bucket{le="0.001"} 11
etcd_disk_backend_commit_duration_seconds_bucket{le="+Inf"} 11
etcd_disk_backend_commit_duration_seconds_sum 0.000355047
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 2
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 3
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 3
etcd_mvcc_db_open_read_transactions 2
etcd_mvcc_db_total_size_in_bytes 20480
etcd_mvcc_db_total_size_in_use_in_bytes 12288
etcd_server_has_leader 1
etcd_server_id{server_id="8e9e05c52164694d"} 1
etcd_server_is_leader 1
etcd_server_is_learner 0
etcd_server_leader_changes_seen_total 1
etcd_server_learner_promote_successes 0
etcd_server_quota_backend_bytes 2.5165824e+07
etcd_snap_db_fsync_duration_seconds_bucket{le="0.001"} 99
"""
"""Of etcd 3.6.16, shortened."""
WELL = Figures(has_leader=True, leads=False, learner=False, size=100.0, in_use=50.0, quota=1000.0)


def test_the_metrics_of_etcd_are_read() -> None:
    found = read(TEXT)
    assert (found.has_leader, found.leads, found.learner, found.leader_changes) == (True, True, False, 1)
    assert (found.size, found.in_use, found.quota) == (20480, 12288, 25165824)
    assert found.alarms == {"NOSPACE"}, "the other one is of another member"
    assert found.fsync == {0.001: 2, 0.002: 3, math.inf: 3}
    assert found.commit == {0.001: 11, math.inf: 11}


@given(st.text() | st.lists(st.sampled_from(TEXT.splitlines()), max_size=8).map("\n".join))
def test_what_is_not_the_metrics_of_etcd_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not etcd's metrics"):
        read(text)


def histogram(counts: list[int]) -> dict[float, float]:
    """counts: of each bucket alone."""
    return {bound: float(sum(counts[: number + 1])) for number, bound in enumerate(BOUNDS)}


def test_the_percentile_is_of_what_came_in_between() -> None:
    before = histogram([0, 0, 0, 0, 0, 1000, 0])
    assert slowest(before, histogram([100, 0, 0, 0, 0, 1000, 0])) == pytest.approx(0.00099)
    assert slowest(before, histogram([0, 0, 0, 0, 100, 1000, 0])) == pytest.approx(0.008 + 0.99 * 0.008)
    assert slowest(before, before) is None
    assert slowest(before, histogram([100, 0, 0, 0, 0, 0, 0])) == pytest.approx(0.00099), "it was started again"
    assert slowest(None, histogram([0, 0, 0, 0, 0, 0, 100])) == 0.032
    assert slowest(None, {}) is None


COUNTS = st.lists(st.integers(0, 500), min_size=len(BOUNDS), max_size=len(BOUNDS))


@given(COUNTS, COUNTS)
def test_a_percentile_lies_within_the_buckets_that_have_grown(before: list[int], grown: list[int]) -> None:
    after = [one + other for one, other in zip(before, grown, strict=True)]
    found = slowest(histogram(before), histogram(after))
    if found is not None:
        last = max(number for number, count in enumerate(grown) if count)
        assert 0 <= found <= min(BOUNDS[last], BOUNDS[-2])
        slower = sum(count for bound, count in zip([0.0, *BOUNDS], grown, strict=False) if bound >= found)
        assert slower <= 0.011 * sum(grown) + 1 or found == BOUNDS[-2]


def judged(figures: Figures, fsyncs: list[float | None]) -> list[Judged]:
    memory, found = Memory(), []
    for fsync in fsyncs:
        found.append(judge(figures, fsync, memory))
        memory = found[-1].memory
    return found


def test_a_disk_is_slow_when_it_has_been_for_minutes_and_quick_when_it_has_been_for_minutes() -> None:
    slow, quick = SLOW_FSYNC * 2, SLOW_FSYNC / 2
    found = judged(WELL, [*[slow] * (LOOKS - 1), quick, *[slow] * (LOOKS - 1), None, slow, None, *[quick] * LOOKS])
    told = [list(one.troubles) for one in found]
    first = LOOKS - 1 + 1 + LOOKS - 1 + 1
    assert told[:first] == [[]] * first
    assert told[first:-1] == [["EtcdDiskSlow"]] * LOOKS + [["EtcdDiskSlow"]]
    assert told[-1] == []


def test_a_database_near_its_quota_is_told_until_there_is_some_space_again() -> None:
    memory, told = Memory(), []
    for in_use in (790.0, 810.0, 780.0, 740.0, 790.0):
        found = judge(Figures(True, False, False, 1000.0, in_use, 1000.0), None, memory)
        memory = found.memory
        told.append(list(found.troubles))
    assert told == [[], ["EtcdNearQuota"], ["EtcdNearQuota"], [], []]
    assert judge(Figures(True, False, False, 1000.0, 999.0), None, Memory()).troubles == {}, "its quota is not known"


# --- the controller ----------------------------------------------------------------------------------


@dataclass
class Node:
    kube: FakeKube = field(default_factory=FakeKube)
    says: list[str | None] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    beside: str = ""
    own: Object | None = None

    raised: frozenset[str] | None = None
    """The alarms of the member; None: not known."""

    def controller(self) -> EtcdFigures:
        log = DecisionLog(lambda sentence, **_: self.log.append(sentence))
        happened = lambda reason, message: self.events.append((reason, message))  # noqa: E731
        asked = (lambda: self.own, lambda: self.beside, self.alarms)
        return EtcdFigures("n1", self.kube, log, happened, *asked, scrape=self.scraped)

    async def alarms(self) -> frozenset[str] | None:
        return self.raised

    async def scraped(self) -> str:
        text = self.says.pop(0)
        if text is None:
            raise Unreachable("refused")
        return text

    async def trouble(self) -> str:
        self.own = await self.kube.get(API_VERSION, etcd_members.KIND, "n1")
        assert self.own is not None
        return str((self.own.get("status") or {}).get("trouble", ""))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(etcd_on_disk, "MANIFESTS", tmp_path)
    monkeypatch.setattr(places, "MANIFESTS", str(tmp_path))
    (tmp_path / "etcd-1.json").write_text("{}")
    etcd_metrics.no_member()
    found = Node()
    found.kube.put(etcd_members.crd())
    found.kube.put(etcd_members.member("n1", "192.0.2.11", present=True))
    return found


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"autarky_agent_etcd_{name}", {"member": "n1", **labels})


def with_fsyncs(quick: int, slow: int) -> str:
    kept = [line for line in TEXT.splitlines() if "wal_fsync" not in line]
    name = "etcd_disk_wal_fsync_duration_seconds_bucket"
    buckets = [(0.001, quick), (0.016, quick + slow), ("+Inf", quick + slow)]
    return "\n".join([*kept, *(f'{name}{{le="{le}"}} {count}' for le, count in buckets)])


async def test_a_member_is_shown_and_one_that_is_down_is_down_and_has_no_old_figures(node: Node) -> None:
    node.says = [with_fsyncs(100, 0), with_fsyncs(200, 0), None]
    controller = node.controller()
    await controller.reconcile()
    assert shown("fsync_p99_seconds") is None, "of the last minutes nothing is known"
    await controller.reconcile()
    assert (shown("up"), shown("leads"), shown("learner"), shown("leader_changes")) == (1, 1, 0, 1)
    assert (shown("database_bytes"), shown("database_in_use_bytes"), shown("quota_bytes")) == (20480, 12288, 25165824)
    assert (shown("alarm", alarm="NOSPACE"), shown("alarm", alarm="CORRUPT")) == (1, 0)
    assert shown("fsync_p99_seconds") == pytest.approx(0.00099)
    await controller.reconcile()
    assert (shown("up"), shown("leads"), shown("database_bytes"), shown("fsync_p99_seconds")) == (0, None, None, None)


async def test_a_node_without_a_member_shows_nothing(node: Node, tmp_path: Path) -> None:
    node.says = [TEXT]
    controller = node.controller()
    await controller.reconcile()
    (tmp_path / "etcd-1.json").unlink()
    await controller.reconcile()
    assert shown("up") is None


async def test_a_slow_disk_is_one_event_and_the_trouble_of_the_etcdmember(node: Node) -> None:
    node.says = [with_fsyncs(0, 100 * number) for number in range(LOOKS + 5)]
    controller = node.controller()
    for _ in range(LOOKS + 5):
        await node.trouble()
        await controller.reconcile()
    assert [reason for reason, _ in node.events] == ["EtcdDiskSlow"]
    assert (await node.trouble()).startswith("its disk is slow")


async def test_what_the_controller_of_all_members_says_is_reported_with_it_and_taken_back(node: Node) -> None:
    node.says, node.beside = [TEXT] * 3, "no space"
    controller = node.controller()
    await node.trouble()
    node.kube.outage = "etcdserver: mvcc: database space exceeded"
    await controller.reconcile()
    node.kube.outage = None
    await controller.reconcile()
    assert await node.trouble() == "no space"
    node.beside = ""
    await controller.reconcile()
    assert await node.trouble() == ""


async def test_whoever_listens_in_its_place_is_not_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")
        writer.close()

    async with await asyncio.start_server(hello, "127.0.0.1", 0) as server:
        monkeypatch.setattr(ports, "ETCD_HEALTH", server.sockets[0].getsockname()[1])
        with pytest.raises(ValueError, match="not etcd's metrics"):
            read(await scraped())
    with pytest.raises(Unreachable):
        await scraped()


def test_the_peers_that_a_member_is_connected_to() -> None:
    text = (
        'etcd_network_active_peers{Local="a1",Remote="b2"} 1\n'
        'etcd_network_active_peers{Local="a1",Remote="c3"} 0\n'
        'etcd_network_active_peers{Local="a1",Remote="8e9e05c52164694d"} 1\n'
    )
    assert connected_peers(text) == {0xB2, 0x8E9E05C52164694D}
    assert connected_peers("") == frozenset()
