"""What a node's agent makes of a member of its own that ends again and again: what it says then is read, and reported
once; one that only ends is waited for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide import change as etcd_change
from autarky.control.etcd.decide import local as etcd_local
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.on_disk import FIRST, SECOND, Seat
from autarky.control.etcd.node.own import LOST, OwnMember
from autarky.etcd import Member, Membership
from autarky.model.components import ETCD, NAME_LABEL
from autarky.model.etcd_members import Desired, client_url, peer_url, second
from autarky.ports import Object
from autarky.render import node as render_node
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from fakes.cri import FakeCri
from fakes.etcd_log import Writer, numbers
from fakes.kube import FakeKube

CLUSTER, MINE = 0xABC, 33
OWN, ADDRESSES = "192.0.2.11", {MINE: "192.0.2.11", 34: "192.0.2.12", 35: "192.0.2.13"}
MEMBERSHIP = Membership(
    CLUSTER, tuple(Member(one, f"n{one}", (peer_url(at),), (client_url(at),), False) for one, at in ADDRESSES.items())
)
SPEC = Desired("n1", OWN)
BROKEN = '{"level":"panic","msg":"failed to open database","error":"invalid database"}'
OTHERWISE = '{"level":"fatal","msg":"discovery failed","error":"bind: address already in use"}'
DIFFERS = (
    '{"level":"warn","msg":"found different hash values from remote peer","local-member-id":"21",'
    '"local-member-compact-revision":-1,"local-member-hash":1,"remote-peer-id":"0","remote-peer-endpoints":'
    '["https://192.0.2.%d:2380"],"remote-peer-compact-revision":-1,"remote-peer-hash":2}'
)
INCONSISTENT = '{"level":"fatal","msg":"discovery failed","error":"21 found data inconsistency with peers"}'
pytestmark = pytest.mark.looptime


@dataclass
class Node:
    """n1, with its data in place."""

    root: Path
    seconds: float = 1000.0
    status: Object = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    kube: FakeKube = field(default_factory=FakeKube)

    def __post_init__(self) -> None:
        self.cri = FakeCri(now=lambda: self.seconds)
        self.sandbox = self.cri.run_sandbox("etcd-1", SYSTEM, "uid", labels={NAME_LABEL: ETCD})
        self.cri.put_image("etcd:v1")
        self.member = self.member_in(FIRST)

    def member_in(self, seat: Seat) -> OwnMember:
        log = DecisionLog(lambda sentence, **_: self.said.append(sentence))
        return OwnMember(
            *("n1", seat, self.kube, self.cri, LoopClock(), log, self._confirm, self._tell, lambda _: self.status),
            happened=lambda reason, message: self.events.append((reason, message)),
        )

    async def _confirm(self) -> None:
        """The API answers."""

    async def _tell(self, _name: str, status: Object) -> None:
        self.status |= status

    def runs(self, attempt: int, *lines: str, seconds: float = 2.0, of: str = ETCD) -> None:
        """Its process, until it ends."""
        log = self.root / f"{attempt}.log"
        log.write_text("".join(f"2026-11-27T07:00:00.0Z stderr F {line}\n" for line in lines))
        container = self.cri.create_container(self.sandbox, of, "etcd:v1", attempt=attempt, log_path=str(log))
        self.cri.start_container(container)
        self.seconds += seconds
        self.cri.exit_container(container, 1)

    async def look(self) -> etcd_local.Decision:
        decision, _ = await self.member.look(SPEC, OWN, MEMBERSHIP, api=True)
        return decision


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    for name, path in (("DATA", "etcd"), ("MEMBER", "etcd/member"), ("MANIFESTS", "manifests"), ("CA", "ca.crt")):
        monkeypatch.setattr(etcd_on_disk, name, tmp_path / path)
    for name in ("ETCD_FENCE", "ETCD_CHANGE"):
        monkeypatch.setattr(places, name, str(tmp_path / name.lower()))
    monkeypatch.setattr(etcd, "PKI_FILES", ())
    (tmp_path / "manifests").mkdir()
    (tmp_path / "ca.crt").write_text("of etcd")
    inputs = inputs_of(a_cluster(controls=3))
    file = render_node.manifest(etcd.member_pod(inputs, inputs.cluster.node("n1")))
    (tmp_path / "manifests" / Path(file.path).name).write_bytes(file.content)
    log = tmp_path / "etcd/member/wal/0000000000000000-0000000000000000.wal"
    log.parent.mkdir(parents=True)
    log.write_bytes(Writer(owner=numbers(MINE, CLUSTER)).entry(1, 1).content)
    return Node(tmp_path)


async def test_it_is_reported_as_lost_and_why_once(node: Node) -> None:
    for attempt in range(2):
        node.runs(attempt, BROKEN)
        assert (await node.look()).action is etcd_local.Action.NOTHING
    node.runs(2, "starting", BROKEN, "goroutine 1 [running]:")
    for _ in range(3):
        assert (await node.look()).action is etcd_local.Action.CLAIM_LOST
    assert node.status == {"lostMemberID": f"{MINE:x}"}
    [(reason, message)] = node.events
    assert reason == LOST
    assert "invalid database" in message


async def test_its_keys_are_compared_with_those_of_the_members_that_etcd_lists(node: Node) -> None:
    node.runs(2, DIFFERS % 12, INCONSISTENT)
    assert (await node.look()).action is etcd_local.Action.NOTHING
    node.runs(3, DIFFERS % 12, DIFFERS % 13, INCONSISTENT)
    assert (await node.look()).action is etcd_local.Action.CLAIM_LOST
    [(_, message)] = node.events
    assert "n34, n35, which agree" in message


@pytest.mark.parametrize("seconds", [2.0, 4000.0])
async def test_one_that_says_something_else_or_ends_after_a_long_time_is_waited_for(node: Node, seconds: float) -> None:
    node.runs(5, BROKEN if seconds > 60 else OTHERWISE, seconds=seconds)
    assert (await node.look()).action is etcd_local.Action.NOTHING
    assert node.status == {}
    assert node.events == []


async def test_rule_2_without_its_log_nothing_is_known(node: Node) -> None:
    node.runs(2, BROKEN)
    (node.root / "2.log").unlink()
    assert (await node.look()).action is etcd_local.Action.NOTHING


@pytest.mark.parametrize("cluster", [CLUSTER, 0xABB])
async def test_rule_3_what_an_earlier_second_member_had_of_another_etcd_is_kept(node: Node, cluster: int) -> None:
    """Of this etcd the first one has all of it."""
    log = SECOND.member / "wal/0000000000000000-0000000000000000.wal"
    log.parent.mkdir(parents=True)
    log.write_bytes(content := bytes(Writer(owner=numbers(40, cluster)).entry(1, 1).content))
    learner = Member(41, "", (peer_url(second(OWN)),), (), True)
    there = Membership(CLUSTER, (*MEMBERSHIP.members, learner))
    decision, _ = await node.member_in(SECOND).look(None, OWN, there, api=True)
    assert decision.action is etcd_local.Action.MOVE_ASIDE
    assert not etcd_on_disk.has_second()
    kept = [path.read_bytes() for path in (node.root / "etcd").glob("kept.*/member/wal/*")]
    assert kept == ([] if cluster == CLUSTER else [content])


async def test_a_second_member_is_judged_by_what_it_does_in_this_attempt_not_by_the_one_before(node: Node) -> None:
    """After a template that failed was asked for again: the kubelet removes the runs of the earlier pod a minute later,
    and counts on from them until then."""
    second_one, spec = node.member_in(SECOND), Desired("n1-second", second(OWN), revision="abc")
    for member in (41, 42):
        beside = Membership(CLUSTER, (*MEMBERSHIP.members, Member(member, "", (peer_url(second(OWN)),), (), True)))
        node.status.clear()
        await second_one.look(spec, OWN, beside, api=True)
        assert node.status == {}, "it has only just begun"
        node.runs(2, OTHERWISE, of=SECOND.component)
        await asyncio.sleep(etcd_change.LIMIT)
        await second_one.look(spec, OWN, beside, api=True)
        assert node.status["failedRevision"] == "abc"
        await second_one.look(replace(spec, present=False), OWN, MEMBERSHIP, api=True)
        await asyncio.sleep(etcd_change.LIMIT)


# --- the list with which it starts --------------------------------------------------------------------------------


def beside(*names: str) -> Membership:
    """n1 has its data and no static pod, beside members of these names."""
    others = (Member(34 + i, name, (peer_url(f"192.0.2.{12 + i}"),), (), False) for i, name in enumerate(names))
    return Membership(CLUSTER, (Member(MINE, "n1", (peer_url(OWN),), (client_url(OWN),), False), *others))


def without_pod(node: Node) -> None:
    etcd_on_disk.stop(FIRST)
    node.cri.end_sandbox(node.sandbox)
    node.kube.put(etcd.template_object(inputs_of(a_cluster(controls=3))))


@pytest.mark.parametrize("names", [("db,x=https://192.0.2.66:2380",), ("a=b",), ("n1",), ("db", "db"), ("db\n",)])
async def test_beside_members_whose_names_break_its_command_line_it_does_not_start(
    node: Node, names: tuple[str, ...]
) -> None:
    """The owner of an etcd outside may have given them after a move was judged."""
    without_pod(node)
    for _ in range(2):
        decision, _ = await node.member.look(SPEC, OWN, beside(*names), api=True)
        assert decision.action is etcd_local.Action.START
    assert etcd_on_disk.manifests() == ()
    [said] = [sentence for sentence in node.said if repr(names[0]) in sentence]
    assert "--name" in said
    await node.member.look(SPEC, OWN, beside("db", "etcd_2.example.com", ""), api=True)
    [pod] = (etcd_on_disk.pods_in_place() or {}).values()
    founding = etcd.founding_of(pod)
    assert founding is not None
    assert founding.cluster == (
        "n1=https://192.0.2.11:2380,db=https://192.0.2.12:2380,etcd_2.example.com=https://192.0.2.13:2380"
    )
