"""The controller beside etcd's leader: what it asks, that it looks again before it acts, and what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from autarky import places
from autarky.control.base.decision_log import DecisionLog
from autarky.control.base.pending_events import PendingEvents
from autarky.control.etcd.decide.upkeep import MIB, STEADY_SECONDS
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.seen import LOCAL, EtcdSeen
from autarky.control.etcd.node.telling import EtcdEvents
from autarky.control.etcd.node.upkeep import REST_SECONDS, WORK_SECONDS, EtcdUpkeep
from autarky.errors import ApiError, Unreachable
from autarky.etcd import Alarm, EtcdClient, KeysHash, Member, Membership, MemberStatus
from autarky.model.etcd_members import peer_url, second
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.clock import HandClock
from fakes.kube import FakeKube

CLUSTER = 7
QUOTA = 100 * MIB


def address(member: int) -> str:
    return f"192.0.2.1{member}"


@dataclass
class Etcd:
    """Three members, n1 being this node; what is asked of them is noted. then: happens at the look at the list after so
    many."""

    leader: int = 1
    sizes: dict[int, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), (20 * MIB, 15 * MIB)))
    silent: set[int] = field(default_factory=set)
    alarms: list[Alarm] = field(default_factory=list)
    hashes: dict[int, int] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), 99))
    asked: list[str] = field(default_factory=list)
    refuses: ApiError | Unreachable | None = None
    looks: int = 0
    then: tuple[int, Callable[[], object]] | None = None
    seconds: set[int] = field(default_factory=set)
    """Members that are the second one on n1."""
    learners: set[int] = field(default_factory=set)
    hashed: list[int] = field(default_factory=list)
    """Who was asked for a hash of its keys."""
    other_revision: set[int] = field(default_factory=set)
    """Members whose hash is of another revision than that asked for."""

    def address(self, member: int) -> str:
        return second(address(1)) if member in self.seconds else address(member)

    def status(self, member: int) -> MemberStatus:
        size, in_use = self.sizes[member]
        return MemberStatus(
            *(member, CLUSTER, self.leader, "3.6.16", 2, 500, 500, size, in_use), False, (), QUOTA, revision=4000
        )

    def membership(self) -> Membership:
        self.looks += 1
        if self.then is not None and self.looks > self.then[0]:
            (_, change), self.then = self.then, None
            change()
        members = [
            Member(one, f"n{one}", (peer_url(self.address(one)),), ("x",), one in self.learners) for one in self.sizes
        ]
        return Membership(CLUSTER, tuple(members))

    def does(self, what: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.asked.append(what)


@dataclass
class Client:
    etcd: Etcd
    member: int

    async def alarms(self) -> tuple[Alarm, ...]:
        return tuple(self.etcd.alarms)

    async def disarm(self, alarm: Alarm) -> None:
        self.etcd.does(f"disarm {alarm.kind} {alarm.member}")
        self.etcd.alarms.remove(alarm)

    async def compact(self, revision: int, *, timeout: float) -> None:
        self.etcd.does(f"compact {revision}")

    async def defragment(self, *, timeout: float) -> None:
        self.etcd.does(f"defragment {self.member}")
        self.etcd.sizes[self.member] = (self.etcd.sizes[self.member][1],) * 2

    async def keys_hash(self, revision: int, *, timeout: float) -> KeysHash:
        self.etcd.hashed.append(self.member)
        revision += 1 if self.member in self.etcd.other_revision else 0
        return KeysHash(self.etcd.hashes[self.member], revision, 900)

    async def remove(self, member: int) -> None:
        self.etcd.does(f"remove {member}")
        del self.etcd.sizes[member]

    async def move_leader(self, target: int) -> None:
        self.etcd.does(f"lead {target}")


@dataclass
class Seen(EtcdSeen):
    fake: Etcd = field(default_factory=Etcd)

    def _member(self, address_: str) -> int | None:
        sizes = self.fake.sizes
        found = next((one for one in sizes if self.fake.address(one) == address_), 1 if address_ == LOCAL else None)
        return None if found in self.fake.silent else found

    async def membership(self, addresses: Iterable[str]) -> Membership | None:
        return self.fake.membership() if any(self._member(one) for one in addresses) else None

    async def status(self, address: str) -> MemberStatus | None:
        member = self._member(address)
        return None if member is None else self.fake.status(member)

    async def client(self, address: str) -> EtcdClient:
        member = self._member(address)
        if member is None:
            raise OSError("refused")
        return cast("EtcdClient", Client(self.fake, member))


@dataclass
class World:
    etcd: Etcd = field(default_factory=Etcd)
    clock: HandClock = field(default_factory=HandClock)
    events: list[tuple[str, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    busy: bool = False
    wanted: dict[str, str] = field(default_factory=lambda: {address(one): f"n{one}" for one in (1, 2, 3)})

    def controller(self) -> EtcdUpkeep:
        log = DecisionLog(lambda sentence, **_: self.said.append(sentence))
        return EtcdUpkeep(
            self.clock,
            log,
            lambda reason, message: self.events.append((reason, message)),
            lambda: self.busy,
            lambda: self.wanted,
            Seen(fake=self.etcd),
        )

    async def looks(self, controller: EtcdUpkeep, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            await self.clock.sleep(await controller.reconcile())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(etcd_on_disk, "MANIFESTS", tmp_path)
    monkeypatch.setattr(places, "MANIFESTS", str(tmp_path))
    monkeypatch.setattr(places, "ETCD_FENCE", str(tmp_path / "fence"))
    monkeypatch.setattr(etcd, "PKI_FILES", ())
    (tmp_path / "etcd-1.json").write_text("{}")
    return World()


def fragmented(world: World, *members: int) -> None:
    for member in members or (1, 2, 3):
        world.etcd.sizes[member] = (90 * MIB, 20 * MIB)


async def test_where_another_member_leads_its_agent_acts(world: World) -> None:
    fragmented(world)
    world.etcd.leader = 2
    await world.looks(world.controller(), 600)
    assert world.etcd.asked == []
    assert world.etcd.looks == 0, "it asks its own member only"


async def test_all_are_defragmented_one_by_one_the_leader_last_and_each_is_an_event(world: World) -> None:
    fragmented(world)
    await world.looks(world.controller(), 1200)
    assert world.etcd.asked == ["defragment 2", "defragment 3", "defragment 1"]
    assert [reason for reason, _ in world.events] == ["EtcdDefragmented"] * 3
    assert "and its database has 20 MiB" in world.events[0][1]


@pytest.mark.parametrize("obstacle", ["silent", "busy", "fenced", "a second member"])
async def test_rule_2_nothing_is_stopped_while_not_all_is_well(world: World, tmp_path: Path, obstacle: str) -> None:
    fragmented(world, 2)
    world.busy = obstacle == "busy"
    world.etcd.silent |= {3} if obstacle == "silent" else set()
    if obstacle == "fenced":
        (tmp_path / "fence").write_text("{}")
    if obstacle == "a second member":  # it stands in for the first one while that is changed
        world.etcd.seconds.add(4)
        world.etcd.sizes[4] = world.etcd.sizes[1]
    await world.looks(world.controller(), 600)
    assert world.etcd.asked == []


CHANGES: dict[str, Callable[[World, Path], object]] = {
    "nothing": lambda *_: None,
    "another member leads": lambda world, _: setattr(world.etcd, "leader", 2),
    "a member is gone": lambda world, _: world.etcd.sizes.pop(2),
    "a member has come": lambda world, _: world.etcd.sizes.update({4: (MIB, MIB)}),
    "an alarm has come": lambda world, _: world.etcd.alarms.append(Alarm(2, "NOSPACE")),
    "no alarm is left": lambda world, _: world.etcd.alarms.clear(),
    "the node is fenced": lambda _, directory: (directory / "fence").write_text("{}"),
}


@pytest.mark.parametrize(
    ("act", "change"),
    [
        (act, change)
        for act in ("defragment 3", "remove 3")
        for change in CHANGES
        if act[0] == "r" or "left" not in change
    ],
)
async def test_right_before_it_acts_it_looks_again(world: World, tmp_path: Path, act: str, change: str) -> None:
    """Everything that the decision relied on may have changed between the look and the act."""
    controller = world.controller()
    if act == "remove 3":
        world.etcd.alarms = [Alarm(3, "CORRUPT")]
        world.etcd.hashes[3] = 98
    else:
        fragmented(world, 3)
        await controller.reconcile()
        await world.clock.sleep(STEADY_SECONDS)
    world.etcd.then = world.etcd.looks + 1, lambda: CHANGES[change](world, tmp_path)
    await controller.reconcile()
    assert world.etcd.then is None, "there was no second look"
    assert world.etcd.asked == ([act] if change == "nothing" else [])


async def test_nospace_is_ended_and_said_why(world: World) -> None:
    world.etcd.alarms = [Alarm(1, "NOSPACE")]
    world.etcd.sizes = dict.fromkeys((1, 2, 3), (QUOTA, 30 * MIB))
    controller = world.controller()
    assert await controller.reconcile() == WORK_SECONDS
    await world.looks(controller, 60)
    defragmented = ["defragment 2", "defragment 3", "defragment 1"]
    assert world.etcd.asked == ["compact 3000", *defragmented, "disarm NOSPACE 1"]
    assert [reason for reason, _ in world.events] == [
        *("EtcdHistoryCompacted", "EtcdDefragmented", "EtcdDefragmented", "EtcdDefragmented", "EtcdAlarmCleared"),
    ]
    assert await controller.reconcile() == REST_SECONDS
    assert controller.trouble == ""


async def test_where_no_space_is_to_be_had_that_is_one_event_and_stays_the_trouble(world: World) -> None:
    world.etcd.alarms = [Alarm(1, "NOSPACE")]
    world.etcd.sizes = dict.fromkeys((1, 2, 3), (QUOTA, 95 * MIB))
    controller = world.controller()
    await world.looks(controller, 1800)
    assert [reason for reason, _ in world.events] == ["EtcdHistoryCompacted"] * 2 + ["EtcdOutOfSpace"]
    assert "delete objects" in controller.trouble
    assert world.etcd.alarms
    world.etcd.leader = 2
    await controller.reconcile()
    assert controller.trouble == ""


async def test_what_was_compacted_before_is_done(world: World) -> None:
    world.etcd.alarms = [Alarm(1, "NOSPACE")]
    world.etcd.sizes = dict.fromkeys((1, 2, 3), (QUOTA, 30 * MIB))
    world.etcd.refuses = ApiError(400, "OutOfRange", "mvcc: required revision has been compacted")
    controller = world.controller()
    await controller.reconcile()
    world.etcd.refuses = None
    await world.looks(controller, 60)
    assert world.etcd.asked[-1] == "disarm NOSPACE 1"


@pytest.mark.parametrize("error", [ApiError(500, "Internal", "no"), Unreachable("timed out")])
async def test_a_defragmentation_that_fails_is_said_and_not_repeated_at_once(
    world: World, error: ApiError | Unreachable
) -> None:
    fragmented(world, 2)
    world.etcd.refuses = error
    controller = world.controller()
    await world.looks(controller, 1200)
    assert sum(str(error) in sentence for sentence in world.said) == 1
    assert world.events == []


async def test_a_corrupt_member_is_removed_and_its_alarm_cleared_without_the_api(world: World) -> None:
    world.etcd.alarms = [Alarm(3, "CORRUPT")]
    world.etcd.hashes[3] = 98
    await world.looks(world.controller(), 30)
    assert world.etcd.asked == ["remove 3", "disarm CORRUPT 3"]
    assert [reason for reason, _ in world.events] == ["EtcdMemberReplaced", "EtcdAlarmCleared"]
    assert "n3 is removed, and joins again" in world.events[0][1]


async def test_rule_2_a_hash_of_another_revision_is_none(world: World) -> None:
    """The keys of two revisions differ, and neither member is corrupt."""
    world.etcd.alarms = [Alarm(3, "CORRUPT")]
    world.etcd.hashes[3] = 98
    world.etcd.other_revision = {3}
    controller = world.controller()
    await world.looks(controller, 600)
    assert world.etcd.asked == []
    assert "n3 gives no hash of its keys" in controller.trouble


async def test_rule_3_beside_a_learner_no_keys_are_compared_and_nobody_is_removed(world: World) -> None:
    world.etcd.alarms = [Alarm(3, "CORRUPT")]
    world.etcd.hashes.update({3: 98, 4: 97})
    world.etcd.sizes[4] = world.etcd.sizes[1]
    world.etcd.learners = {4}
    await world.looks(world.controller(), 600)
    assert (world.etcd.asked, world.etcd.hashed) == ([], [])
    world.etcd.learners = set()
    world.etcd.hashes[4] = 99
    await world.looks(world.controller(), 30)
    assert world.etcd.asked == ["remove 3", "disarm CORRUPT 3"]


async def test_where_etcd_has_no_etcdmembers_nobody_is_removed(world: World) -> None:
    world.wanted = {}
    world.etcd.alarms = [Alarm(3, "CORRUPT")]
    world.etcd.hashes[3] = 98
    await world.looks(world.controller(), 600)
    assert world.etcd.asked == []
    assert [reason for reason, _ in world.events] == ["EtcdCorrupt"]


async def test_while_etcd_cannot_be_seen_what_was_said_last_stands(world: World) -> None:
    world.etcd.alarms = [Alarm(3, "CORRUPT")]
    controller = world.controller()
    await world.looks(controller, 10)
    said = controller.trouble
    world.etcd.silent = {1}
    await world.looks(controller, 120)
    world.etcd.silent = set()
    await controller.reconcile()
    assert controller.trouble == said != ""
    assert len(world.events) == 1


# --- events ------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_an_event_waits_until_the_api_takes_it_also_for_the_next_agent(tmp_path: Path) -> None:
    kube, said, file = FakeKube(), list[str](), tmp_path / "events.json"
    kube.put(etcd_members.crd())
    kube.put(etcd_members.member("n1", "192.0.2.11", present=True))
    own: Object | None = await kube.get(API_VERSION, etcd_members.KIND, "n1")

    def agent(about: Object | None) -> EtcdEvents:
        def tell(_: str, sentence: str) -> None:
            said.append(sentence)

        return EtcdEvents(kube, HandClock(now=1.8e9), tell, lambda: about, PendingEvents(tell, file))

    first = agent(None)
    first.happened("EtcdAlarmCleared", "there is space again")
    first.happened("EtcdOutOfSpace", "delete objects")
    assert await first.reconcile() == 5, "its object is not known"
    second = agent(own)
    kube.outage = "etcdserver: mvcc: database space exceeded"
    assert await second.reconcile() == 5
    kube.outage = None
    assert await second.reconcile() is None
    found = await kube.list("v1", "Event", namespace="default")
    assert {one["reason"]: (one["type"], one["involvedObject"]["kind"]) for one in found} == {
        "EtcdAlarmCleared": ("Normal", "EtcdMember"),
        "EtcdOutOfSpace": ("Warning", "EtcdMember"),
    }
    await asyncio.sleep(0)
    assert replace(second.pending, file=file).first is None
