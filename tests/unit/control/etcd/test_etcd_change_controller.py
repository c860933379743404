"""The node agent changes its own member of etcd: on a disk, with a kubelet in memory that runs what is on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.control.base.decision_log import DecisionLog
from autarky.control.etcd.decide.change import LIMIT, STARTS
from autarky.control.etcd.decide.leaving import RELOAD_SECONDS
from autarky.control.etcd.decide.local import LOST_SECONDS
from autarky.control.etcd.decide.template import Request, effective, revision
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node import changes
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.changes import EtcdChange
from autarky.control.etcd.node.seen import EtcdSeen
from autarky.etcd import Member, Membership, MemberStatus
from autarky.kube import Reflector
from autarky.model.components import ETCD
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, inputs_of
from fakes.cri import FakeCri
from fakes.etcd_log import Writer, numbers
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
BASE = etcd.template(inputs_of(a_cluster()), requested=False)
OLD, NEW = effective(BASE, Request({})), effective(BASE, Request({"v": "1"}))
IMAGE = BASE["containers"][0]["image"]
ADDRESSES = {f"n{number}": f"192.0.2.1{number}" for number in (1, 2, 3)}


@dataclass
class Others(EtcdSeen):
    """The members, all of which serve but the silent ones. listed: whether any of them lists them. leaders, ids: what
    those at these addresses say else of their leader, and of themselves. gone: who is no member any more. cluster:
    whose list it is."""

    silent: set[str] = field(default_factory=set)
    listed: bool = True
    leaders: dict[str, int] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    cluster: int = 7

    async def membership(self, addresses: Iterable[str]) -> Membership | None:
        if not self.listed:
            return None
        members = (
            Member(number, f"n{number}", (f"https://192.0.2.1{number}:2380",), ("https://x",), is_learner=False)
            for number in (1, 2, 3)
            if number not in self.gone
        )
        return Membership(self.cluster, tuple(members))

    async def status(self, address: str) -> MemberStatus | None:
        if address in self.silent:
            return None
        own, leader = self.ids.get(address, int(address[-1])), self.leaders.get(address, 2)
        return MemberStatus(own, 7, leader, "3.6.16", 1, 1, 1, 1, 1, is_learner=False, errors=())


@dataclass
class Node:
    """n1 and its kubelet. works: whether a process with the new template stays; serves: whether it says that it is
    ready. lingers: for how many looks a process still runs whose static pod is gone; slow: for how many none runs of a
    static pod that is there. removed: each process ends, as one does that etcd has removed."""

    root: Path
    works: bool = True
    serves: bool = True
    lingers: int = 0
    slow: int = 0
    removed: bool = False
    others: Others = field(default_factory=Others)
    cri: FakeCri = field(default_factory=FakeCri)
    kube: FakeKube = field(default_factory=FakeKube)
    said: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    """Static pod → its sandbox."""
    seen: list[tuple[str, ...]] = field(default_factory=list)
    """Which static pods there were, look by look."""
    ending: dict[str, int] = field(default_factory=dict)
    """Static pod that is gone → for how many looks its process still runs."""
    starting: dict[str, int] = field(default_factory=dict)
    """Static pod that is there → for how many looks nothing of it runs yet."""

    def pods(self) -> dict[str, Any]:
        found = (json.loads(path.read_bytes()) for path in (self.root / "manifests").glob("etcd-*.json"))
        return {pod["metadata"]["name"]: pod for pod in found}

    def flags(self) -> list[str]:
        return [word for pod in self.pods().values() for word in pod["spec"]["containers"][0]["command"]]

    def has_data_of(self, member: int, cluster: int = 7) -> None:
        log = self.root / "etcd/member/wal/0000000000000000-0000000000000000.wal"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(Writer(owner=numbers(member, cluster)).entry(1, 1).content)

    def kubelet(self) -> None:
        pods = self.pods()
        self.seen.append(tuple(pods))
        for name in set(self.runs) - set(pods):
            left = self.ending.setdefault(name, self.lingers)
            self.ending[name] = left - 1
            if left <= 0:
                self.cri.end_sandbox(self.runs.pop(name))
                del self.ending[name]
        for name, pod in pods.items():
            stays = self.works or "--v=1" not in pod["spec"]["containers"][0]["command"]
            stays = stays and not self.removed
            if name not in self.runs and self.starting.setdefault(name, self.slow) > 0:
                self.starting[name] -= 1
            elif name not in self.runs:
                del self.starting[name]
                self.runs[name] = self.cri.run_sandbox(f"{name}-n1", SYSTEM, pod["metadata"]["uid"])
                self.start(name, 0, stays=stays)
            elif not stays:
                self.start(name, self.cri.runs_of(self.runs[name]), stays=stays)

    def start(self, name: str, attempt: int, *, stays: bool) -> None:
        log = self.root / "log"
        log.write_text("2026-01-01T00:00:00Z stderr F flag provided but not defined: -v\n2026 stderr F Usage:\n")
        made = self.cri.create_container(self.runs[name], ETCD, IMAGE, attempt=attempt, log_path=str(log))
        self.cri.start_container(made)
        if not stays:
            self.cri.exit_container(made, 1)

    async def ready(self, port: int, path: str) -> int | None:
        assert (port, path) == (2381, "/readyz")
        if not await self.processes():
            return None
        return 200 if self.serves or "--v=1" not in self.flags() else 503

    async def processes(self) -> list[str]:
        """The pods of those that run."""
        return [one.pod_name for one in await self.cri.containers() if one.state == "running"]

    async def ask(self, spec: Any, **status: str) -> str:
        """The operator's part, and that of the agent beside the leader."""
        wanted = revision(spec)
        live = await self.kube.get(API_VERSION, etcd_members.KIND, "n1")
        assert live is not None
        before = live.get("status") or {}
        self.kube.put({**live, "spec": {**live["spec"], "revision": wanted}, "status": {**before, **status}})
        template = etcd.template_object(inputs_of(a_cluster()))
        self.kube.put({**template, "data": {**template["data"], etcd.IN_FORCE_KEY: json.dumps(spec)}})
        return wanted

    async def status(self) -> dict[str, Any]:
        live = await self.kube.get(API_VERSION, etcd_members.KIND, "n1")
        return dict((live or {}).get("status") or {})


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    for name, path in (("DATA", "etcd"), ("MEMBER", "etcd/member"), ("MANIFESTS", "manifests"), ("CA", "ca.crt")):
        monkeypatch.setattr(etcd_on_disk, name, tmp_path / path)
    monkeypatch.setattr(etcd_on_disk, "MEMBERS", tmp_path / "etcd-members.json")
    for name in ("ETCD_FENCE", "ETCD_CHANGE"):
        monkeypatch.setattr(places, name, str(tmp_path / name.lower()))
    (tmp_path / "manifests").mkdir()
    found = Node(tmp_path)
    monkeypatch.setattr(changes, "plain_status", found.ready)
    found.kube.put(etcd_members.crd())
    found.kube.put(etcd_members.member("n1", ADDRESSES["n1"], present=True))
    founding = etcd.Founding(etcd.initial_cluster(ADDRESSES), "new")
    etcd_on_disk.put(etcd.filled(OLD, "n1", ADDRESSES["n1"], founding, 1))
    found.has_data_of(1)
    found.cri.put_image(IMAGE)
    found.kubelet()
    await found.ask(OLD)
    return found


@asynccontextmanager
async def agent_of(node: Node) -> AsyncIterator[EtcdChange]:
    clock = LoopClock()
    copy = Reflector(node.kube, clock, API_VERSION, etcd_members.KIND)
    watching = asyncio.create_task(copy.run())
    await asyncio.sleep(1)
    log = DecisionLog(lambda sentence, **_: node.said.append(sentence))
    try:
        yield EtcdChange("n1", node.kube, copy, node.cri, clock, log, asyncio.Event(), etcd=node.others)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def looks(agent: EtcdChange, node: Node, count: int) -> None:
    for _ in range(count):
        await agent.reconcile()
        node.kubelet()
        await asyncio.sleep(1)


async def test_it_says_what_its_member_is_made_from_and_changes_nothing_without_its_turn(node: Node) -> None:
    before = node.pods()
    async with agent_of(node) as agent:
        await looks(agent, node, 3)
        assert (await node.status())["revision"] == revision(OLD)
        await node.ask(NEW)
        await looks(agent, node, 60)
    assert (await node.status())["revision"] == ""
    assert node.pods() == before


async def test_of_an_etcdmember_that_was_written_again_it_says_so_as_well(node: Node) -> None:
    """Silence means nothing to whoever gives the turns."""
    async with agent_of(node) as agent:
        await node.ask(NEW)
        await looks(agent, node, 60)
    assert (await node.status())["revision"] == ""


async def test_with_its_turn_it_waits_for_the_load_balancers_and_then_changes(node: Node) -> None:
    before = node.pods()
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) - 2)
        assert node.pods() == before
        await looks(agent, node, 12)
    assert "--v=1" in node.flags()
    assert (await node.status())["revision"] == revision(NEW)
    assert not (node.root / "etcd_change").exists()
    assert all(len(pods) <= 1 for pods in node.seen)
    [pod] = node.pods().values()
    assert pod["metadata"]["annotations"] == {etcd.WRITTEN_FOR: "1"}


async def test_rule_5_killed_at_any_look_another_agent_goes_on_without_the_api(node: Node) -> None:
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) + 2)
    assert (node.root / "etcd_change").exists()
    for _ in range(10):
        clock = LoopClock()
        alone = Reflector(node.kube, clock, API_VERSION, etcd_members.KIND)  # never in sync
        log = DecisionLog(lambda sentence, **_: node.said.append(sentence))
        one = EtcdChange("n1", node.kube, alone, node.cri, clock, log, asyncio.Event(), etcd=node.others)
        await looks(one, node, 1)
    assert "--v=1" in node.flags()
    assert not (node.root / "etcd_change").exists()
    assert all(len(pods) <= 1 for pods in node.seen)


async def test_one_that_is_not_healthy_goes_back_says_why_and_is_not_tried_again(node: Node) -> None:
    before, node.works = node.pods(), False
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS + LIMIT))
        said = await node.status()
        assert said["failedRevision"] == revision(NEW)
        assert f"started {STARTS} times" in said["failure"]
        assert "it said: flag provided but not defined: -v" in said["failure"]
        assert node.pods() == before
        looked = len(node.seen)
        await looks(agent, node, 100)
        assert node.seen[looked:] == [tuple(before)] * 100
        await node.ask(OLD)
        await looks(agent, node, 3)
    said = await node.status()
    assert (said["revision"], said["failedRevision"]) == (revision(OLD), "")
    assert not (node.root / "etcd_change").exists()


async def test_asked_for_again_after_the_former_one_it_waits_for_its_turn_as_for_the_first_time(node: Node) -> None:
    """By then its member may lead, or another one be away; and the load balancers send it connections again."""
    before, node.works = node.pods(), False
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS + LIMIT))
        await node.ask(OLD)
        await looks(agent, node, 3)
        assert not (await node.status())["turn"]
        node.works = True
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) - 2)
        assert node.pods() == before
        await looks(agent, node, 12)
    assert (await node.status())["revision"] == revision(NEW)


async def test_asked_for_again_it_is_not_judged_by_how_often_its_process_exited_the_time_before(node: Node) -> None:
    """The kubelet removes those runs after a minute, and counts on from them until then: the pod has the same name."""
    node.works = False
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS + LIMIT))
        await node.ask(OLD)
        await looks(agent, node, 3)
        exited = [one for one in await node.cri.containers() if one.state == "exited" and one.attempt]
        assert exited, "else this shows nothing"
        node.works, node.slow = True, 20
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) + 40)
    said = await node.status()
    assert (said["revision"], said["failedRevision"]) == (revision(NEW), "")


async def test_one_that_stays_and_never_serves_goes_back_and_the_former_static_pod_is_restored(node: Node) -> None:
    """A process that runs is no member that is well: with a wrong argument etcd may wait for its peers forever."""
    before, node.serves = node.pods(), False
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS + LIMIT) - 5)
        assert "--v=1" in node.flags()
        assert "failedRevision" not in await node.status()
        await looks(agent, node, 20)
        said = await node.status()
        assert said["failedRevision"] == revision(NEW)
        assert f"not healthy after {LIMIT:.0f} s" in said["failure"]
        assert node.pods() == before
        await looks(agent, node, 100)
    assert node.pods() == before
    assert (await node.status())["revision"] == ""


async def test_the_next_process_starts_when_the_former_one_has_exited(node: Node) -> None:
    """Both have the same directory and ports."""
    node.lingers = 20
    running = []
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        for _ in range(int(RELOAD_SECONDS) + 40):
            await looks(agent, node, 1)
            running.append(await node.processes())
    assert max(map(len, running)) == 1
    assert [] in running
    assert (await node.status())["revision"] == revision(NEW)


async def test_rule_5_a_process_that_never_exits_is_not_waited_for_and_nothing_is_settled_beside_it(
    node: Node,
) -> None:
    node.lingers = 60
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) + 45)
        assert len(await node.processes()) == 2
        assert (node.root / "etcd_change").exists(), "the answer on the port may be the former one's"
        await looks(agent, node, 40)
    assert not (node.root / "etcd_change").exists()
    assert (await node.status())["revision"] == revision(NEW)


async def test_rule_2_while_the_runtime_does_not_say_what_runs_no_static_pod_is_put_or_removed(node: Node) -> None:
    node.lingers = 10
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) + 4)
        assert node.pods() == {}
        agent.cri = FakeCri(outage="connection refused")
        await looks(agent, node, 100)
        assert node.pods() == {}
        agent.cri = node.cri
        await looks(agent, node, 20)
    assert (await node.status())["revision"] == revision(NEW)


async def test_an_image_that_is_not_there_and_cannot_be_fetched_stops_nothing(node: Node) -> None:
    before = node.pods()
    newer = effective(BASE, Request({}, "3.7.3"))
    async with agent_of(node) as agent:
        await node.ask(newer, turn=revision(newer))
        await looks(agent, node, 30)
    said = await node.status()
    assert said["failedRevision"] == revision(newer)
    assert "autarky payload etcd push" in said["failure"]
    assert node.pods() == before


async def test_while_a_recovery_has_fenced_the_node_nothing_is_done(node: Node) -> None:
    (node.root / "etcd_fence").write_text("{}")
    before = node.pods()
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, 60)
    assert node.pods() == before
    assert "revision" not in await node.status()


# --- what it begins with -----------------------------------------------------------------------------

OBSTACLES: dict[str, Callable[[Others], object]] = {
    "does not answer": lambda others: others.silent.add("192.0.2.13"),
    "has no leader": lambda others: others.leaders.update({"192.0.2.13": 0}),
    "is another member": lambda others: others.ids.update({"192.0.2.13": 4}),
    "is not listed": lambda others: setattr(others, "listed", False),
    "has this one removed": lambda others: others.gone.add(1),
    "is of another etcd": lambda others: setattr(others, "cluster", 8),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_rules_2_and_3_it_does_not_begin_where_another_member(node: Node, obstacle: str) -> None:
    before = node.pods()
    OBSTACLES[obstacle](node.others)
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, 60)
        assert node.pods() == before
        assert not (node.root / "etcd_change").exists()
        agent.etcd = Others()
        await looks(agent, node, 12)
    assert "--v=1" in node.flags()


NEWER: dict[str, dict[str, Any] | None] = {
    "as the agent knows it": {},
    "for another template": {"spec": {"revision": revision(OLD)}},
    "without the turn": {"status": {"turn": ""}},
    "with the turn for another template": {"status": {"turn": revision(OLD)}},
    "about to leave": {"spec": {"state": "Removed"}},
    "gone": None,
}


@pytest.mark.parametrize("what", NEWER)
async def test_it_begins_only_with_what_the_api_says_right_then(node: Node, what: str) -> None:
    """Its copy of the EtcdMembers may be old: the turn may have been another node's for minutes."""
    before, newer = node.pods(), NEWER[what]
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) - 2)
    # From here on the copy stays as it is: the watch ended with the block.
    live = await node.kube.get(API_VERSION, etcd_members.KIND, "n1")
    assert live is not None
    if newer is None:
        await node.kube.delete(API_VERSION, etcd_members.KIND, "n1")
    else:
        node.kube.put({**live, **{part: {**live.get(part, {}), **changed} for part, changed in newer.items()}})
    await looks(agent, node, 60)
    if newer == {}:
        assert "--v=1" in node.flags()
    else:
        assert node.pods() == before
        assert not (node.root / "etcd_change").exists()


@pytest.mark.parametrize("current", [True, False])
async def test_rule_2_nothing_begins_from_a_copy_that_is_known_to_be_old(node: Node, current: bool) -> None:
    before = node.pods()
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await asyncio.sleep(1)
    agent.objects.error = None if current else "connection refused"
    await looks(agent, node, 60)
    assert (node.pods() == before) is not current


async def test_rule_2_nothing_begins_with_another_template_than_the_one_that_is_wanted(node: Node) -> None:
    """The operator writes the ConfigMap and the EtcdMembers one after the other."""
    before = node.pods()
    newer = effective(BASE, Request({"v": "2"}))
    async with agent_of(node) as agent:
        wanted = await node.ask(NEW, turn=revision(NEW))
        template = etcd.template_object(inputs_of(a_cluster()))
        node.kube.put({**template, "data": {**template["data"], etcd.IN_FORCE_KEY: json.dumps(newer)}})
        await looks(agent, node, 60)
        assert node.pods() == before
        assert f"waiting for the template {wanted}" in node.said
        await node.ask(NEW)
        await looks(agent, node, int(RELOAD_SECONDS) + 12)
    assert "--v=1" in node.flags()
    assert (await node.status())["revision"] == wanted


# --- a note that outlives its member -----------------------------------------------------------------


@asynccontextmanager
async def cut_after_the_former_is_removed(node: Node) -> AsyncIterator[EtcdChange]:
    """An agent that begins after the power came back: neither static pod is in place, and nothing runs."""
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) + 3)
    assert (node.root / "etcd_change").exists()
    assert node.pods() == {}
    async with agent_of(node) as agent:
        yield agent


def forget_whose_change_it_is(node: Node) -> None:
    """As an earlier release has written the note."""
    noted = json.loads((node.root / "etcd_change").read_text())
    assert noted["why"] == "[member 1 of cluster 7, 0 earlier starts]"
    (node.root / "etcd_change").write_text(json.dumps({**noted, "why": ""}))


@pytest.mark.parametrize("named", [True, False])
async def test_a_member_that_etcd_no_longer_lists_is_not_changed_any_more(node: Node, named: bool) -> None:
    """Another node took its place while its own was off."""
    async with cut_after_the_former_is_removed(node) as agent:
        if not named:
            forget_whose_change_it_is(node)
        node.others.gone.add(1)
        await looks(agent, node, 100)
    assert not (node.root / "etcd_change").exists()
    assert node.pods() == {}
    assert any("no longer lists" in sentence for sentence in node.said)


async def test_of_a_member_that_goes_back_and_is_removed_what_is_in_place_stays_for_the_local_decision(
    node: Node,
) -> None:
    former = node.pods()
    async with agent_of(node) as agent:
        await node.ask(NEW, turn=revision(NEW))
        await looks(agent, node, int(RELOAD_SECONDS) + 2)
        node.works, node.removed = False, True
        await looks(agent, node, 60)
        noted = etcd_on_disk.change()
        assert noted is not None
        assert noted.back
        assert node.pods() == former
        node.others.gone.add(1)
        await looks(agent, node, 20)
    assert node.pods() == former
    assert not etcd_on_disk.is_changing()


@pytest.mark.parametrize("whose", [(9, 7), (1, 8), (9, 8)])
async def test_where_the_data_is_another_members_by_now_its_static_pod_stays(
    node: Node, whose: tuple[int, int]
) -> None:
    """A recovery has made another etcd of it, or its node joined again as a new member."""
    async with cut_after_the_former_is_removed(node) as agent:
        node.has_data_of(*whose)
        founding = etcd.Founding(etcd.initial_cluster({"n1": ADDRESSES["n1"]}), "existing", "another")
        etcd_on_disk.put(etcd.filled(OLD, "n1", ADDRESSES["n1"], founding))
        theirs = node.pods()
        node.others.listed = False
        await looks(agent, node, 60)
    assert not (node.root / "etcd_change").exists()
    assert node.pods() == theirs


@pytest.mark.parametrize("named", [True, False])
async def test_rule_3_without_its_data_nothing_is_put_in_place_and_the_note_goes(node: Node, named: bool) -> None:
    """A recovery has moved it aside, and made room for a new member; or its disk is mounted late."""
    async with cut_after_the_former_is_removed(node) as agent:
        if not named:
            forget_whose_change_it_is(node)
        (node.root / "etcd/member").rename(node.root / "aside")
        (node.root / "etcd/member").mkdir()
        node.others.cluster = 8
        await looks(agent, node, int(LOST_SECONDS) - 1)
        assert (node.root / "etcd_change").exists()
        await looks(agent, node, 20)
    assert not (node.root / "etcd_change").exists()
    assert set(node.seen[-50:]) == {()}


@pytest.mark.parametrize("named", [True, False])
async def test_data_on_a_disk_that_is_mounted_late_is_waited_for_and_the_change_goes_on(
    node: Node, named: bool
) -> None:
    async with cut_after_the_former_is_removed(node) as agent:
        if not named:
            forget_whose_change_it_is(node)
        (node.root / "etcd/member").rename(node.root / "elsewhere")
        await looks(agent, node, int(LOST_SECONDS) - 1)
        assert node.pods() == {}
        (node.root / "elsewhere").rename(node.root / "etcd/member")
        await looks(agent, node, 5)
    assert "--v=1" in node.flags()
    assert not (node.root / "etcd_change").exists()


async def test_rule_2_missing_data_counts_as_gone_only_while_etcd_answers_and_nothing_runs(node: Node) -> None:
    """Where no member answers, the API may wait for this very one."""
    async with cut_after_the_former_is_removed(node) as agent:
        (node.root / "etcd/member").rename(node.root / "elsewhere")
        node.others.listed = False
        await looks(agent, node, 10 * int(LOST_SECONDS))
        node.others.listed, agent.cri = True, FakeCri(outage="connection refused")
        await looks(agent, node, 10 * int(LOST_SECONDS))
        agent.cri = node.cri
    assert (node.root / "etcd_change").exists()


async def test_rule_2_a_list_of_another_etcd_says_nothing_of_this_member(node: Node) -> None:
    """Members of a former etcd may be back as well: what counts is which of them has replaced the other."""
    async with cut_after_the_former_is_removed(node) as agent:
        node.others.gone.add(1)
        node.others.cluster = 8
        await looks(agent, node, 5)
    assert "--v=1" in node.flags()


@pytest.mark.parametrize("file", ["etcd_change", "etcd_fence"])
async def test_nothing_is_put_in_place_when_meanwhile_the_note_was_dropped_or_the_node_was_fenced(
    node: Node, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    async def ready(port: int, path: str) -> int | None:
        own = node.root / file
        own.write_text("{}") if file == "etcd_fence" else own.unlink()
        return await node.ready(port, path)

    async with cut_after_the_former_is_removed(node) as agent:
        monkeypatch.setattr(changes, "plain_status", ready)
        await agent.reconcile()
    assert node.pods() == {}
