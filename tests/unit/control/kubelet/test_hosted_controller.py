"""The agent beside the supervisor of a hosted kubelet, on a real disk: what it writes when, and what it reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autarky.control.base.pending_events import PendingEvents
from autarky.control.kubelet.decide import hosted_report, proof
from autarky.control.kubelet.decide.hosted import Allowed, Failed, Hosted, Notes
from autarky.control.kubelet.decide.hosted_report import TURN, State
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests import hosted as words
from autarky.control.kubelet.manifests.hosted import BEAT_SECONDS, STALE_SECONDS, Verdict
from autarky.control.kubelet.node import hosted, telling
from autarky.control.kubelet.node.change import REST_SECONDS, WORK_SECONDS
from autarky.control.kubelet.node.hosted import SOON_SECONDS, HostedKubelet
from autarky.control.kubelet.node.hosted_files import NOTES, HostedFiles
from autarky.control.kubelet.node.on_disk import FRESH_SECONDS, KubeletFiles
from autarky.errors import Unreachable
from autarky.kube import Reflector
from autarky.model import ports
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from fakes.clock import LoopClock
from fakes.cri import FakeCri
from fakes.kube import FakeKube
from unit.control.kubelet.node_scene import NODE, V36, V37, Host, an_order, on_disk

POD = "b3f1c2d4-0000-4000-8000-000000000001"


class Supervised(Host):
    """A node with a supervisor, which the test plays."""

    def __post_init__(self) -> None:
        Host.__post_init__(self)
        self.agent = self.new_hosted()  # type: ignore[assignment]
        self.change_node(runs=V37, annotations={TURN: POD})
        self.hosted_health: int | None = None

    def new_hosted(self) -> HostedKubelet:
        self.copy = Reflector(self.kube, LoopClock(), API_VERSION, "ControlPlane")
        return HostedKubelet(
            NODE,
            self.kube,
            self.cri,
            self.copy,
            lambda: self.kube._objects.get(("v1", "Node", None, NODE)),
            self.works,
            self.clock,
            lambda _, text: self.said.append(text),
            PendingEvents(lambda _, text: self.said.append(text), self.root / "events.json"),
            files=KubeletFiles(self.root),
            boot=lambda: self.boot,
            uptime=lambda: int(self.clock.now),
        )

    async def asked_health(self, port: int, _path: str) -> int | None:
        assert port == ports.KUBELET_HOSTED_HEALTH
        return self.hosted_health

    def hosts(self, text: str = "0-4") -> None:
        plane = self.kube._objects[(API_VERSION, "ControlPlane", None, CONTROL_PLANE)]
        self.kube.put({**plane, "spec": {**plane["spec"], "selfHosted": text}})

    def supervisor(self, state: str, number: int = 1, why: str = "", **other: Any) -> None:
        values = {"boot": self.boot, "pod": POD, "try": number, "version": V37, "state": state}
        values |= {"uptime": int(self.clock.now), "why": why, **other}
        self.write("hosted", **values)

    @property
    def verdict(self) -> str | None:
        return self.read("hosted-verdict").get("verdict")

    @property
    def notes(self) -> Notes:
        return HostedFiles(KubeletFiles(self.root)).notes()

    @property
    def hosted(self) -> hosted_report.Report | None:
        return hosted_report.read(self.node["metadata"])


def state(node: Supervised) -> State | None:
    return None if node.hosted is None else node.hosted.state


@asynccontextmanager
async def watching(node: Supervised) -> AsyncIterator[None]:
    task = asyncio.create_task(node.copy.run())
    await asyncio.sleep(0.01)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervised]:
    found = Supervised(on_disk(tmp_path / "root"))
    monkeypatch.setattr(hosted, "plain_status", found.asked_health)
    found.hosts()
    async with watching(found):
        yield found


async def test_where_there_was_a_supervisor_the_next_one_is_seen_soon(node: Supervised) -> None:
    assert await node.passes() == REST_SECONDS
    node.supervisor("waiting")
    await node.passes(2)
    (node.root / "kubelet/hosted").unlink()
    assert await node.passes() == SOON_SECONDS < REST_SECONDS


async def test_a_start_from_the_question_to_its_end(node: Supervised) -> None:
    sandbox = node.pod("dns")
    assert (await node.passes(), node.hosted) == (REST_SECONDS, None)
    assert not node.agent.sources(), "nothing is watched where nothing is hosted"

    node.supervisor("waiting")
    assert await node.passes() == WORK_SECONDS
    assert len(node.agent.sources()) == 1
    noted = Allowed(
        POD,
        1,
        "boot-1",
        proof.Before(True, {sandbox: "uid-of-dns"}, {"uid-of-dns": "kube-system/dns"}),
        (int(node.clock.now) - 1,),
        1,
    )
    assert node.notes == Notes(noted)
    said = {"boot": "boot-1", "pod": POD, "try": "1", "verdict": "may", "uptime": str(noted.begun[0])}
    assert node.read("hosted-verdict") == {**said, "why": "it may start"}
    assert node.hosted is not None
    assert state(node) is State.WAITING

    node.supervisor("proving")
    await node.passes(5, beats=True)
    assert (node.verdict, state(node)) == ("unproven", State.PROVING)
    assert "healthy" in node.read("hosted-verdict")["why"]
    node.hosted_health = 200
    await node.passes(11, beats=True)
    assert node.verdict == "wait", "the first heartbeat may be the other kubelet's"
    await node.passes(2, beats=True)
    assert node.verdict == "good"

    assert node.notes == Notes(replace(noted, boots=0))

    node.supervisor("proven")
    await node.passes()
    assert state(node) is State.IN_FORCE
    node.supervisor("proven")
    assert await node.passes() == REST_SECONDS

    node.hosts("1-4")
    await asyncio.sleep(0.01)
    assert await node.passes() == WORK_SECONDS
    assert (node.verdict, state(node)) == ("leave", State.IN_FORCE)
    node.supervisor("waiting", 2)
    assert await node.passes(2) == REST_SECONDS
    assert (node.verdict, state(node)) == ("stay", State.REFUSED)
    (node.root / "kubelet/hosted").unlink()
    await node.passes()
    assert state(node) is State.REFUSED, "its kubelet is healthy, whatever its supervisor does"
    node.hosted_health = None
    await node.passes()
    assert hosted_report.ANNOTATION not in node.node["metadata"]["annotations"]


async def test_what_has_failed_is_noted_and_not_tried_in_another_boot(node: Supervised) -> None:
    node.supervisor("waiting")
    await node.passes()
    node.supervisor("away", why="it has exited: no such flag")
    assert await node.passes() == REST_SECONDS
    assert node.notes.failed == Failed(POD, V37, "it has exited: no such flag")
    assert node.hosted is not None
    assert (state(node), node.hosted.why) == (State.FAILED, "it has exited: no such flag")
    node.boot = "boot-2"
    node.agent = node.new_hosted()  # type: ignore[assignment]
    async with watching(node):
        node.supervisor("waiting")
        await node.passes(3)
    assert (node.verdict, node.read("hosted-verdict")["boot"]) == ("stay", "boot-2")
    assert state(node) is State.FAILED


async def test_one_that_takes_its_machine_down_is_not_tried_in_the_third_boot(node: Supervised) -> None:
    for boot, verdict in (("boot-1", "may"), ("boot-2", "may"), ("boot-3", "stay"), ("boot-4", "stay")):
        node.boot = boot
        node.agent = node.new_hosted()  # type: ignore[assignment]
        async with watching(node):
            node.supervisor("waiting")
            await node.passes(3)
            assert (node.verdict, node.read("hosted-verdict")["boot"]) == (verdict, boot)
    assert node.hosted is not None
    assert (state(node), node.hosted.why) == (State.FAILED, "the machine restarted before it was proven")


@pytest.mark.parametrize(
    "other", [{"boot": "boot-0"}, {"uptime": 1000 - STALE_SECONDS - 1}, {"try": "x"}, {"pod": "X"}]
)
async def test_what_no_supervisor_says_that_runs_now_is_nothing(node: Supervised, other: dict[str, Any]) -> None:
    node.supervisor("waiting", **other)
    await node.passes(3)
    assert (node.hosted, node.verdict) == (None, None)
    assert STALE_SECONDS >= 3 * BEAT_SECONDS


@pytest.mark.parametrize("what", ["no turn", "order", "up", "no base"])
async def test_nothing_is_said_while_it_has_to_wait(node: Supervised, what: str) -> None:
    match what:
        case "no turn":
            node.change_node(annotations={TURN: "another"})
        case "order":
            node.gets(an_order())
        case "up":
            (node.root / "state/kubelet-former.json").write_text("{}")
        case _:
            (node.root / "kubelet/base.json").unlink()
    node.supervisor("waiting")
    await node.passes(3)
    assert (node.verdict, node.notes) == (None, Notes())
    assert node.hosted is not None
    assert state(node) is State.WAITING
    assert node.hosted.why


async def test_what_happens_while_the_api_is_asked_is_not_overlooked(
    node: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.supervisor("waiting")
    looks = FakeCri.pods

    async def meanwhile(cri: FakeCri) -> Any:
        node.write("ask", order="x", boot="boot-1")
        return await looks(cri)

    monkeypatch.setattr(FakeCri, "pods", meanwhile)
    assert await node.passes() == WORK_SECONDS
    assert (node.verdict, node.notes) == (None, Notes())


async def test_without_the_api_nothing_starts_and_the_clock_is_kept_stopped(node: Supervised) -> None:
    node.supervisor("waiting")
    node.kube.outage = "refused"
    with pytest.raises(Unreachable):
        await node.passes()
    assert (node.verdict, node.notes) == (None, Notes())
    node.kube.outage = None
    await node.passes(6)
    node.supervisor("proving")
    node.kube.outage = "refused"
    uptimes = []
    for _ in range(10):
        await node.passes()
        assert node.verdict == "wait"
        uptimes.append(int(node.clock.now) - int(node.read("hosted-verdict")["uptime"]))
    assert max(uptimes) <= FRESH_SECONDS < files.WAIT_SECONDS
    node.supervisor("proven")
    await node.passes(5)
    assert node.verdict == "wait", "what runs stays"


async def test_that_it_is_not_proven_is_said_again_and_again(node: Supervised) -> None:
    """Else an agent that has died would look like a kubelet that does not work."""
    node.supervisor("waiting")
    await node.passes(2)
    node.supervisor("proving")
    uptimes = []
    for _ in range(10):
        await node.passes()
        assert node.verdict == "unproven"
        uptimes.append(int(node.clock.now) - int(node.read("hosted-verdict")["uptime"]))
    assert max(uptimes) <= FRESH_SECONDS < files.WAIT_SECONDS
    assert len(set(uptimes)) > 1, "not each time: it is a sync of the disk"


async def test_the_other_kubelets_heartbeats_prove_nothing(node: Supervised) -> None:
    """It beats until this one has its lock, and has the same version."""
    node.supervisor("waiting")
    await node.passes()
    node.supervisor("proving")
    await node.passes(10, beats=True)
    node.hosted_health = 200
    node.supervisor("proving")
    await node.passes(20)
    assert "heartbeat" in node.read("hosted-verdict")["why"]


async def test_a_report_that_cannot_be_written_is_written_later(
    node: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.supervisor("proven")

    async def refused(*_: Any, **__: Any) -> Any:
        raise Unreachable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(FakeKube, "patch", refused)
        await node.passes(2)
    assert node.hosted is None
    assert any("could not be reported" in one for one in node.said)
    await node.passes()
    assert node.hosted is not None


async def test_what_is_reported_already_is_not_written_again(node: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    node.supervisor("proven")
    await node.passes()

    async def again(*_: Any, **__: Any) -> Any:
        raise AssertionError("written again")

    with monkeypatch.context() as patched:
        patched.setattr(FakeKube, "patch", again)
        await node.passes(2)
    (node.root / "kubelet/hosted").unlink()
    await node.passes()
    monkeypatch.setattr(FakeKube, "patch", again)
    await node.passes(2)


async def test_a_note_is_there_before_the_verdict(node: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(HostedFiles, "note", fails)
    node.supervisor("waiting")
    with pytest.raises(OSError, match="no space"):
        await node.passes()
    assert node.verdict is None


# --- events ------------------------------------------------------------------------------------------------------


async def takes_over(node: Supervised, number: int = 1) -> None:
    node.supervisor("waiting", number)
    await node.passes()
    node.supervisor("proving", number)
    await node.passes()
    node.supervisor("proven", number)
    await node.passes()


def told(node: Supervised) -> list[tuple[str, str]]:
    """In the order in which they happened: their names are hashes."""
    return [(reason, message) for _, reason, message in node.events]


TOOK_OVER = ("KubeletTookOver", f"the hosted kubelet {V37} is in force")
GAVE_WAY = f"the host's kubelet is in force, and the hosted one ({V37}) is not any more"


async def test_each_hand_over_is_an_event_on_the_node_once(node: Supervised) -> None:
    node.supervisor("waiting")
    await node.passes(3)
    assert told(node) == [], "the host's has been in force all the time"
    await takes_over(node)
    await node.passes(3)
    assert node.events == [("Normal", *TOOK_OVER)]
    node.supervisor("waiting", 2, why="it has exited")
    await node.passes(3)
    assert node.events[1:] == [("Normal", "KubeletGaveWay", f"{GAVE_WAY}: it has exited")]
    await takes_over(node, 3)
    assert told(node)[2:] == [TOOK_OVER], "it is another time"
    node.gets(an_order())
    node.supervisor("waiting", 4)
    await node.passes(2)
    assert told(node)[3:] == [("KubeletGaveWay", f"{GAVE_WAY}: the host's kubelet is ordered to change")]


async def test_where_its_pod_ends_or_is_replaced_the_hosts_is_in_force(node: Supervised) -> None:
    await takes_over(node)
    (node.root / "kubelet/hosted").unlink()
    await node.passes(3)
    assert told(node)[1:] == [("KubeletGaveWay", f"{GAVE_WAY}: its pod does not run")]
    await takes_over(node, 5)
    node.supervisor("waiting", pod="0f3a")
    await node.passes(2)
    assert told(node)[3:] == [("KubeletGaveWay", f"{GAVE_WAY}: its pod was replaced")]


async def test_one_that_has_failed_is_a_warning_with_its_reason_once(node: Supervised) -> None:
    await takes_over(node)
    node.supervisor("away", why="it has exited: no such flag")
    await node.passes(3)
    message = f"the hosted kubelet {V37} has failed, and the host's is in force: it has exited: no such flag"
    failed = ("Warning", "KubeletHostedFailed", message)
    assert node.events[1:] == [failed], "and none that it gave way"
    (node.root / "kubelet/hosted").unlink()
    await node.passes()
    node.boot = "boot-2"
    (node.root / telling.SEEN).unlink()
    node.agent = node.new_hosted()  # type: ignore[assignment]
    async with watching(node):
        node.supervisor("waiting")
        await node.passes(3)
    assert (state(node), node.events[2:]) == (State.FAILED, [])


async def test_another_agent_tells_nothing_twice_and_what_waited_for_the_api(
    node: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    await takes_over(node)

    async def refused(*_: Any, **__: Any) -> Any:
        raise Unreachable("no answer")

    with monkeypatch.context() as patched:
        for verb in ("patch", "create"):
            patched.setattr(FakeKube, verb, refused)
        (node.root / "kubelet/hosted").unlink()
        await node.passes(2)
        node.agent = node.new_hosted()  # type: ignore[assignment]
        await node.passes(2)
    assert told(node) == [TOOK_OVER]
    node.agent = node.new_hosted()  # type: ignore[assignment]
    await node.passes(3)
    assert told(node)[1:] == [("KubeletGaveWay", f"{GAVE_WAY}: its pod does not run")]


async def test_after_a_restart_of_the_machine_what_the_node_says_was_in_force(node: Supervised) -> None:
    await takes_over(node)
    (node.root / telling.SEEN).unlink()
    (node.root / "kubelet/hosted").unlink()
    node.agent = node.new_hosted()  # type: ignore[assignment]
    await node.passes(2)
    assert [reason for reason, _ in told(node)] == ["KubeletTookOver", "KubeletGaveWay"]


async def test_a_node_without_hosted_kubelets_gets_no_event(node: Supervised) -> None:
    await node.passes(3)
    assert told(node) == []
    assert not (node.root / telling.SEEN).exists()


async def test_what_was_seen_and_cannot_be_noted_is_told_all_the_same(
    node: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(telling, "write_private", full)
    await takes_over(node)
    await node.passes(2)
    assert told(node) == [TOOK_OVER]
    assert any("no space" in one for one in node.said)


# --- the files ---------------------------------------------------------------------------------------------------

ONE = Hosted(POD, 3, V36, words.State.PROVING)
NOTED = Notes(
    Allowed(POD, 3, "b1", proof.Before(False, {"s": "u"}, {"u": "a/b"}), (7, 9), 2), Failed(POD, V36, "it\nfailed")
)


@pytest.fixture
def disk(tmp_path: Path) -> HostedFiles:
    return HostedFiles(KubeletFiles(on_disk(tmp_path / "root")))


def test_what_is_noted_is_read(disk: HostedFiles) -> None:
    assert disk.notes() == Notes()
    for notes in (NOTED, Notes(), Notes(allowed=NOTED.allowed), Notes(failed=NOTED.failed)):
        disk.note(notes)
        failed = None if notes.failed is None else replace(notes.failed, why="it failed")
        assert disk.notes() == replace(notes, failed=failed)


def test_of_a_damaged_note_what_can_be_understood_counts(disk: HostedFiles) -> None:
    path = disk.files.root / Path(NOTES).relative_to("/var/lib/autarky")
    disk.note(NOTED)
    path.write_text(path.read_text().replace('"try": 3', '"try": "3"'))
    assert (disk.notes().allowed, disk.notes().failed is None) == (None, False)
    for content in ("", "[]", "{", '{"allowed": 7, "failed": []}'):
        path.write_text(content)
        assert disk.notes() == Notes()


def test_a_note_of_an_earlier_release_says_nothing_of_boots(disk: HostedFiles) -> None:
    path = disk.files.root / Path(NOTES).relative_to("/var/lib/autarky")
    disk.note(NOTED)
    said = json.loads(path.read_text())
    del said["allowed"]["boots"]
    path.write_text(json.dumps(said))
    assert NOTED.allowed is not None
    assert disk.notes().allowed == replace(NOTED.allowed, boots=0)


def test_a_verdict_is_about_one_try_in_one_boot(disk: HostedFiles) -> None:
    disk.give_verdict(ONE, "b1", Verdict.GOOD, 7, "a\nreason")
    assert disk.verdict_on(ONE, "b1") is Verdict.GOOD
    for other, boot in ((replace(ONE, number=4), "b1"), (replace(ONE, pod="c"), "b1"), (ONE, "b2")):
        assert disk.verdict_on(other, boot) is None


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_is_kept_fresh_only_where_that_counts(disk: HostedFiles, verdict: Verdict) -> None:
    def written(uptime: int) -> int:
        disk.give_verdict(ONE, "b1", verdict, uptime, "a reason")
        return int((disk.files.values(words.VERDICT) or {})["uptime"])

    assert (written(1), written(FRESH_SECONDS)) == (1, 1)
    assert (written(FRESH_SECONDS + 1) == 1) is (verdict not in (Verdict.MAY, Verdict.WAIT, Verdict.UNPROVEN))


def test_what_cannot_be_read_is_not_nothing(disk: HostedFiles) -> None:
    (disk.files.root / "kubelet/hosted").mkdir()
    with pytest.raises(OSError, match="directory"):
        disk.read("b1", 7)
