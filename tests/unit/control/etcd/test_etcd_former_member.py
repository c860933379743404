"""A member of an etcd that a recovery has replaced, when its machine is back: its agent takes it out of the way, with
or without the API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autarky import places
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide.change import Change
from autarky.control.etcd.decide.lineage import Answer
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node import changes
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.changes import EtcdChange
from autarky.control.etcd.node.membership import REST_SECONDS, EtcdMembership
from autarky.control.etcd.node.on_disk import FIRST, SECOND, Seat
from autarky.control.etcd.node.seen import LOCAL, EtcdSeen
from autarky.etcd import Membership, MemberStatus
from autarky.kube import Reflector
from autarky.model.components import ETCD, NAME_LABEL
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from fakes.cri import FakeCri
from fakes.etcd_log import Writer, numbers
from fakes.kube import FakeKube

FORMER, NOW, NEWEST, MINE = 0xABC, 0xABD, 0xABE, 33
pytestmark = pytest.mark.looptime


@dataclass
class Others(EtcdSeen):
    """What the members say, by address: which clusters theirs has replaced, and which that is, if it is not the newest
    one. None of them has a list of members."""

    said: dict[str, frozenset[int]] = field(default_factory=dict)
    of: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def former(self, addresses: Iterable[str]) -> tuple[Answer, ...]:
        self.asked.append(tuple(dict.fromkeys(addresses)))
        return tuple(Answer(self.of.get(one, NEWEST), self.said[one]) for one in self.asked[-1] if one in self.said)

    async def membership(self, addresses: Iterable[str]) -> Membership | None:
        return None

    async def status(self, address: str) -> MemberStatus | None:
        return None


@dataclass
class Node:
    """n1, with a member of the former etcd that its kubelet runs."""

    root: Path
    others: Others = field(default_factory=Others)
    cri: FakeCri = field(default_factory=FakeCri)
    kube: FakeKube = field(default_factory=FakeKube)
    sandbox: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def data(self) -> Path:
        return self.root / "etcd"

    @property
    def manifests(self) -> list[str]:
        return sorted(path.name for path in (self.root / "manifests").iterdir())

    def has_data_of(self, cluster: int, seat: Seat = FIRST) -> None:
        log = seat.member / "wal/0000000000000000-0000000000000000.wal"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(Writer(owner=numbers(MINE, cluster)).entry(1, 1).content)

    def runs(self, component: str = ETCD) -> None:
        labels, image = {NAME_LABEL: component}, f"{component}:v1"
        self.sandbox = self.cri.run_sandbox(f"{component}-1", SYSTEM, "uid", labels=labels)
        self.cri.put_image(image)
        self.cri.start_container(self.cri.create_container(self.sandbox, component, image))

    def controller(self) -> EtcdMembership:
        clock = LoopClock()
        copy = Reflector(self.kube, clock, API_VERSION, etcd_members.KIND)
        log = DecisionLog(lambda sentence, **_: self.said.append(sentence))
        return EtcdMembership(
            *("n1", self.kube, copy, self.cri, clock, log, lambda: 1, asyncio.Event(), lambda: None), etcd=self.others
        )

    def is_changed(self, *, back: bool) -> EtcdChange:
        """The power failed in the middle of a change of its member."""
        clock, log = LoopClock(), DecisionLog(lambda sentence, **_: self.said.append(sentence))
        copy = Reflector(self.kube, clock, API_VERSION, etcd_members.KIND)
        [former] = (etcd_on_disk.pods_in_place() or {}).values()
        wanted = {**former, "metadata": {**former["metadata"], "name": "etcd-wanted"}}
        etcd_on_disk.note_change(Change("r", former, wanted, back=back, member=MINE, cluster=FORMER))
        return EtcdChange("n1", self.kube, copy, self.cri, clock, log, asyncio.Event(), etcd=self.others)

    def everything(self) -> dict[str, bytes]:
        """All files of etcd on the disk; what is noted for others is not among them."""
        places_ = (self.data, self.root / "manifests")
        return {str(path): path.read_bytes() for place in places_ for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    for name, path in (("DATA", "etcd"), ("MEMBER", "etcd/member"), ("MANIFESTS", "manifests"), ("CA", "ca.crt")):
        monkeypatch.setattr(etcd_on_disk, name, tmp_path / path)
    monkeypatch.setattr(etcd_on_disk, "MEMBERS", tmp_path / "etcd-members.json")
    for name in ("MANIFESTS", "ETCD_FENCE", "ETCD_FENCED", "ETCD_CLUSTER", "ETCD_CHANGE"):
        monkeypatch.setattr(places, name, str(tmp_path / name.lower()))
    monkeypatch.setattr(etcd, "PKI_FILES", ())
    (tmp_path / "manifests").mkdir()
    found = Node(tmp_path)
    found.kube.put(etcd_members.crd())
    found.has_data_of(FORMER)
    inputs = inputs_of(a_cluster(controls=3))
    file = render_node.manifest(etcd.member_pod(inputs, inputs.cluster.node("n1")))
    (tmp_path / "manifests" / Path(file.path).name).write_bytes(file.content)
    (tmp_path / "manifests/node-load-balancer-1.json").write_text("{}")
    etcd_on_disk.remember_members([{"name": f"n{one}", "address": f"192.0.2.1{one}"} for one in (1, 2, 3)])
    found.runs()
    return found


async def looks(controller: EtcdMembership, count: int = 1) -> None:
    for _ in range(count):
        await controller.look()
        await asyncio.sleep(1)


async def test_it_stops_and_then_its_data_is_moved_aside_though_there_is_no_api(node: Node) -> None:
    """The API of this node may be served by the former etcd, and that of the others may not be reached."""
    node.others.said["192.0.2.12"] = frozenset({FORMER, 7})
    controller = node.controller()
    await looks(controller)
    assert node.manifests == ["node-load-balancer-1.json"]
    log = next((node.data / "member/wal").iterdir()).read_bytes()
    await looks(controller, 5)
    assert [path.name for path in node.data.iterdir()] == ["member"], "its process has not ended"
    node.cri.end_sandbox(node.sandbox)
    await looks(controller)
    [kept] = node.data.iterdir()
    assert kept.name.startswith("kept.")
    assert next((kept / "member/wal").iterdir()).read_bytes() == log
    after = node.everything()
    await looks(controller, 60)
    assert node.everything() == after
    assert any("recovery" in sentence for sentence in node.said)


@pytest.mark.parametrize("moment", ["stopped", "ended"])
async def test_rule_5_an_agent_that_was_killed_in_between_is_followed_by_one_that_goes_on(
    node: Node, moment: str
) -> None:
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    await looks(node.controller())
    if moment == "ended":
        node.cri.end_sandbox(node.sandbox)
    controller = node.controller()
    await looks(controller)
    node.cri.end_sandbox(node.sandbox)
    await looks(controller)
    assert [path.name.partition(".")[0] for path in node.data.iterdir()] == ["kept"]


@pytest.mark.parametrize("said", [{}, {"192.0.2.12": frozenset({NOW, 7})}, {"192.0.2.99": frozenset({FORMER})}])
async def test_rule_2_silence_and_the_ids_of_other_clusters_change_nothing(
    node: Node, said: dict[str, frozenset[int]]
) -> None:
    node.others.said = said
    before = node.everything()
    await looks(node.controller(), 100)
    assert node.everything() == before


async def test_whatever_the_members_of_its_own_cluster_say_it_stays(node: Node) -> None:
    """Whoever has the etcd that a cluster moves into can write there that it was replaced."""
    for address in ("192.0.2.12", "192.0.2.13"):
        node.others.said[address], node.others.of[address] = frozenset({FORMER}), FORMER
    before = node.everything()
    await looks(node.controller(), 100)
    assert node.everything() == before


async def test_rule_2_data_stays_where_the_runtime_does_not_say_what_runs(node: Node) -> None:
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    controller = node.controller()
    node.cri.set_outage("containerd does not answer")
    await looks(controller, 10)
    assert [path.name for path in node.data.iterdir()] == ["member"]


async def test_a_pod_without_a_running_process_may_start_one_at_any_moment(node: Node) -> None:
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    for container in await node.cri.containers():
        node.cri.exit_container(container.id)
    await looks(node.controller(), 10)
    assert [path.name for path in node.data.iterdir()] == ["member"]


async def test_data_that_cannot_be_read_belongs_to_no_cluster_that_could_be_replaced(node: Node) -> None:
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    next((node.data / "member/wal").iterdir()).write_bytes(b"\0" * 100)
    before = node.everything()
    await looks(node.controller(), 40)
    assert node.everything() == before
    assert node.others.asked == []


async def test_while_a_recovery_has_fenced_the_node_nothing_is_done_and_nobody_asked(node: Node) -> None:
    """The recovery itself may be about to take this data."""
    (node.root / "etcd_fence").write_text("{}")
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    before, controller = node.everything(), node.controller()
    await looks(controller, 40)
    assert node.everything() == before
    assert node.others.asked == []
    assert not (node.root / "etcd_cluster").exists(), "the script must not take the new data for the former"
    (node.root / "etcd_fence").unlink()
    await looks(controller)
    assert node.manifests == ["node-load-balancer-1.json"], "and then it is not put off"


async def test_the_cluster_of_the_data_is_noted_for_the_next_boot_when_it_becomes_another(node: Node) -> None:
    controller = node.controller()
    await looks(controller)
    assert (node.root / "etcd_cluster").read_text() == f"{FORMER:x}\n"
    node.has_data_of(NOW)
    await looks(controller)
    assert (node.root / "etcd_cluster").read_text() == f"{NOW:x}\n"


async def test_a_member_that_has_joined_the_new_etcd_stays(node: Node) -> None:
    """Its agent still has in mind that the former one was replaced."""
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    controller = node.controller()
    await looks(controller)
    node.cri.end_sandbox(node.sandbox)
    await looks(controller)
    node.has_data_of(NOW)
    (node.root / "manifests/etcd-2.json").write_text("{}")
    before = node.everything()
    await looks(controller, 100)
    assert node.everything() == before


async def test_of_a_second_recovery_it_hears_as_of_the_first_one(node: Node) -> None:
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    controller = node.controller()
    await looks(controller)
    node.cri.end_sandbox(node.sandbox)
    await looks(controller)
    node.has_data_of(NOW)
    await looks(controller, int(REST_SECONDS))
    node.others.said["192.0.2.12"] = frozenset({FORMER, NOW})
    await looks(controller, int(REST_SECONDS) + 1)
    assert not (node.data / "member").exists()


async def test_data_is_not_moved_in_the_look_that_removes_the_static_pod(node: Node) -> None:
    """The kubelet may have been about to start it."""
    node.cri.end_sandbox(node.sandbox)
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    controller = node.controller()
    await looks(controller)
    assert (node.manifests, [path.name for path in node.data.iterdir()]) == (["node-load-balancer-1.json"], ["member"])
    await looks(controller)
    assert not (node.data / "member").exists()


async def test_the_others_are_asked_by_their_last_known_addresses_now_and_then(node: Node) -> None:
    """One that is off takes as long as there is time for an answer."""
    controller = node.controller()
    await looks(controller, 3 * int(REST_SECONDS))
    assert 3 <= len(node.others.asked) <= 4
    assert {f"192.0.2.1{one}" for one in (2, 3)} <= set(node.others.asked[0])


async def test_with_the_api_those_that_should_be_members_are_asked_too_and_the_node_itself_is_not(node: Node) -> None:
    for number in (1, 2, 3, 4):
        spec = {"nodeName": f"n{number}", "address": f"192.0.2.1{number}", "state": "Member"}
        meta = {"name": f"n{number}"}
        node.kube.put({"apiVersion": API_VERSION, "kind": etcd_members.KIND, "metadata": meta, "spec": spec})
    controller = node.controller()
    watching = asyncio.create_task(controller.objects.run())
    await asyncio.sleep(1)
    await looks(controller)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert node.others.asked == [("192.0.2.12", "192.0.2.13", "192.0.2.14")]
    assert LOCAL not in node.others.asked[0]


async def test_a_node_that_never_had_data_asks_nobody(node: Node) -> None:
    etcd_on_disk.stop()
    (next((node.data / "member/wal").iterdir())).unlink()
    await looks(node.controller(), 40)
    assert node.others.asked == []
    assert not (node.root / "etcd_cluster").exists()


async def test_a_fence_that_a_recovery_has_left_behind_goes_when_another_etcd_has_replaced_this_one(node: Node) -> None:
    """The node was off when the recovery ended; its former static pod, which the fence holds, never comes back."""
    (node.root / "etcd_fence").write_text("{}")
    (node.root / "etcd_fenced").write_text('{"a static pod": 1}')
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    node.cri.end_sandbox(node.sandbox)
    controller = node.controller()
    await looks(controller, 599)
    assert (node.root / "etcd_fence").exists()
    await looks(controller, 10)
    assert not (node.root / "etcd_fence").exists()
    assert not (node.root / "etcd_fenced").exists()
    assert not any(name.startswith("etcd-") for name in node.manifests)
    assert [path.name.partition(".")[0] for path in node.data.iterdir()] == ["kept"]


async def test_rule_2_an_old_fence_stays_while_nobody_says_that_this_etcd_was_replaced(node: Node) -> None:
    (node.root / "etcd_fence").write_text("{}")
    before = node.everything()
    await looks(node.controller(), 700)
    assert (node.root / "etcd_fence").exists()
    assert node.everything() == before


# --- in the middle of a change of it ---------------------------------------------------------------------------------


@pytest.fixture
def unready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former etcd has no quorum."""

    async def answer(_port: int, _path: str) -> int:
        return 503

    monkeypatch.setattr(changes, "plain_status", answer)


@pytest.mark.usefixtures("unready")
@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("first", ["membership", "change"])
async def test_a_change_of_the_former_member_ends_with_it(node: Node, first: str, back: bool) -> None:
    """Else what is taken away would be put back each second, and the data never be moved aside."""
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    change, controller = node.is_changed(back=back), node.controller()
    for look in range(20):
        if first == "change":
            await change.reconcile()
        await looks(controller)
        await change.reconcile()
        if look == 3:
            node.cri.end_sandbox(node.sandbox)
    assert node.manifests == ["node-load-balancer-1.json"]
    assert [path.name.partition(".")[0] for path in node.data.iterdir()] == ["kept"]
    assert not (node.root / "etcd_change").exists()


@pytest.mark.parametrize("back", [True, False])
async def test_a_fence_that_a_recovery_has_left_behind_goes_with_the_note_of_a_change(node: Node, back: bool) -> None:
    node.is_changed(back=back)
    (node.root / "etcd_fence").write_text("{}")
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    node.cri.end_sandbox(node.sandbox)
    controller = node.controller()
    await looks(controller, 599)
    assert (node.root / "etcd_change").exists(), "the recovery may still be undone"
    await looks(controller, 10)
    assert not (node.root / "etcd_change").exists()
    assert not (node.root / "etcd_fence").exists()


@pytest.mark.usefixtures("unready")
@pytest.mark.parametrize("back", [True, False])
async def test_rule_5_killed_right_after_the_fence_went_nothing_puts_the_former_member_back(
    node: Node, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """Without the fence, the note is all that its agent asks for."""
    change, drop = node.is_changed(back=back), etcd_on_disk.drop_fence
    (node.root / "etcd_fence").write_text("{}")
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    etcd_on_disk.stop()
    node.cri.end_sandbox(node.sandbox)

    def killed() -> None:
        drop()
        raise KeyboardInterrupt

    monkeypatch.setattr(etcd_on_disk, "drop_fence", killed)
    with pytest.raises(KeyboardInterrupt):
        await looks(node.controller(), 610)
    assert not (node.root / "etcd_fence").exists()
    for _ in range(3):
        await change.reconcile()
    assert node.manifests == ["node-load-balancer-1.json"]


# --- with a second member, which stood in for it --------------------------------------------------------------------


@pytest.fixture
def changed(node: Node) -> Node:
    """The only member was being changed: the second one alone has data, and runs."""
    node.cri.end_sandbox(node.sandbox)
    etcd_on_disk.stop()
    etcd_on_disk.move_aside_for_change()
    node.has_data_of(FORMER, SECOND)
    (node.root / "manifests/second-etcd-1.json").write_text("{}")
    node.runs(etcd.SECOND)
    return node


async def test_a_second_member_that_alone_has_the_former_data_stops_and_its_data_is_kept(changed: Node) -> None:
    changed.others.said["192.0.2.12"] = frozenset({FORMER})
    log = next((SECOND.member / "wal").iterdir()).read_bytes()
    controller = changed.controller()
    await looks(controller, 5)
    assert changed.manifests == ["node-load-balancer-1.json"]
    assert SECOND.member.exists(), "its process has not ended"
    changed.cri.end_sandbox(changed.sandbox)
    await looks(controller, 3)
    assert not etcd_on_disk.has_second()
    kept = [path for path in changed.data.glob("kept.*/member/wal/*") if path.read_bytes() == log]
    assert len(kept) == 2, "of the first one from before the change, and of the second one"


async def test_rule_2_a_second_member_stays_where_nobody_says_that_its_etcd_was_replaced(changed: Node) -> None:
    before = changed.everything()
    await looks(changed.controller(), 100)
    assert changed.everything() == before


async def test_a_first_member_that_was_about_to_join_again_stops_with_the_second_one(changed: Node) -> None:
    (changed.root / "manifests/etcd-2.json").write_text("{}")
    changed.others.said["192.0.2.12"] = frozenset({FORMER})
    await looks(changed.controller())
    assert changed.manifests == ["node-load-balancer-1.json"]


async def test_both_members_of_a_former_etcd_are_moved_aside_at_once(node: Node) -> None:
    node.cri.end_sandbox(node.sandbox)
    node.has_data_of(FORMER, SECOND)
    node.others.said["192.0.2.12"] = frozenset({FORMER})
    await looks(node.controller(), 3)
    assert node.manifests == ["node-load-balancer-1.json"]
    assert len(list(node.data.glob("kept.*/member/wal/*"))) == 2
    assert not etcd_on_disk.has_second()


async def test_what_a_second_member_had_of_the_former_etcd_is_moved_aside_beside_a_member_of_the_new_one(
    node: Node,
) -> None:
    """A recovery has made the new data on this very node, which alone can say what it has replaced."""
    node.has_data_of(NOW)
    node.has_data_of(FORMER, SECOND)
    node.others.said[LOCAL], node.others.of[LOCAL] = frozenset({FORMER}), NOW
    before = node.manifests
    await looks(node.controller(), 3)
    assert node.manifests == before
    assert (FIRST.member / "wal").exists()
    assert len(list(node.data.glob("kept.*/member/wal/*"))) == 1
    assert not etcd_on_disk.has_second()
