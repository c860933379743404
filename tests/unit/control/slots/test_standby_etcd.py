"""What the standby's script does with etcd's static pod during a recovery, and at the boot after one. Run by sh."""

from __future__ import annotations

import json
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky import places
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.slots import manifests as standby
from autarky.model import ports
from autarky.model.components import WITH_STANDBY
from autarky.render import node as render_node
from fakes.clusters import a_cluster, inputs_of
from unit.control.slots.test_standby_script import API, Place, contents, held, revision

CLUSTER, NOW = 0xABC0123456789ABC, 2**64 - 1
ASKED = """#!/bin/sh
echo "$@" >>{root}/asked
for word; do case $word in --endpoints=*) address=${{word#--endpoints=https://}}; address=${{address%:*}} ;; esac; done
cat "{root}/said/$address" 2>/dev/null || exit 1
"""


@dataclass
class ControlNode(Place):
    """With a member of etcd: its static pod, its data, and what is noted of it."""

    pod: bytes = b""
    path: Path = Path()
    peer_port: int = 1

    def moved(self, text: str) -> str:
        text = Place.moved(self, text)
        text = text.replace(f"{places.BIN}/etcdctl", f"{self.root}/bin/etcdctl")
        text = text.replace(f"etcd_peer_port={ports.ETCD_PEER}", f"etcd_peer_port={self.peer_port}")
        return text.replace(places.HOST_STATE, f"{self.root}/state")

    @property
    def fence(self) -> Path:
        return self.root / "state/etcd-fence.json"

    @property
    def fenced(self) -> Path:
        return self.root / "state/etcd-fenced.json"

    def etcd_pods(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.manifests.glob("etcd-*"))]

    def says(self, address: str, content: str, cluster: int = NOW) -> None:
        """As `etcdctl get` prints it (`tests/contract/etcd/test_etcd_tools.py`)."""
        fields = (("ClusterID", cluster), ("MemberID", 7), ("Key", FORMER), ("Value", content), ("Count", 1))
        self.prints(address, "".join(f'"{name}" : {json.dumps(value)}\n' for name, value in fields))

    def prints(self, address: str, text: str) -> None:
        (self.root / "said").mkdir(exist_ok=True)
        (self.root / "said" / address).write_text(text)

    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlNode:
    inputs = inputs_of(a_cluster(controls=3))
    file = render_node.manifest(etcd.member_pod(inputs, inputs.cluster.node("n1")))
    manifests = tmp_path / "manifests"
    found = ControlNode(tmp_path, dict.fromkeys(WITH_STANDBY, 1), {}, 0, file.content, manifests / Path(file.path).name)
    for directory in ("state", "member/wal", "bin"):
        (tmp_path / directory).mkdir(parents=True)
    manifests.mkdir()
    found.path.write_bytes(found.pod)
    (manifests / "node-load-balancer-1.json").write_text("{}")
    for component in WITH_STANDBY:
        found.write(revision(component))
        found.ok("switch", component, revision(component).name)
    (tmp_path / "bin/etcdctl").write_text(ASKED.format(root=tmp_path))
    (tmp_path / "bin/etcdctl").chmod(0o755)
    monkeypatch.setattr(places, "ETCD_CLUSTER", str(tmp_path / "state/etcd-cluster"))
    monkeypatch.setattr(etcd_on_disk, "MEMBERS", tmp_path / "state/etcd-members.json")
    return found


@pytest.fixture
def fenced(node: ControlNode) -> ControlNode:
    node.fence.write_text("{}")
    node.ok("fence-etcd")
    return node


# --- the turn of a member at boot ---------------------------------------------------------------------------------


@pytest.fixture
def member(node: ControlNode) -> Iterator[ControlNode]:
    """Of four, the third one; nobody listens."""
    own = re.sub(rb"--listen-peer-urls=https://[0-9.]*:", b"--listen-peer-urls=https://127.0.0.13:", node.pod)
    assert own != node.pod
    node.path.write_bytes(own)
    etcd_on_disk.remember_members(
        [{"name": f"n{one}", "address": f"127.0.0.1{one}", "learner": False} for one in (1, 2, 3, 4)]
    )
    yield node
    for listener in node.sockets.values():
        listener.close()


def listens(node: ControlNode, *addresses: str) -> None:
    """They have begun: their port for other members is theirs."""
    first, *others = (socket.socket() for _ in addresses)
    first.bind((addresses[0], 0))
    node.peer_port = first.getsockname()[1]
    for listener, address in zip(others, addresses[1:], strict=True):
        listener.bind((address, node.peer_port))
    for listener in (first, *others):
        listener.listen()
    node.sockets = dict(zip(addresses, (first, *others), strict=True))


def waits(node: ControlNode) -> list[str]:
    """Seconds."""
    assert node.run("boot", noted="sleep").stderr == ""
    noted = node.root / "sleep"
    return noted.read_text().split() if noted.exists() else []


def test_at_boot_a_member_of_etcd_begins_behind_those_before_it_that_are_not_there_yet(member: ControlNode) -> None:
    assert waits(member) == [str(2 * standby.TURN_SECONDS)]
    assert len(member.etcd_pods()) == 1


def test_a_member_that_has_begun_already_is_not_waited_for(member: ControlNode) -> None:
    listens(member, "127.0.0.11")
    assert waits(member) == [str(standby.TURN_SECONDS)]


def test_where_all_others_run_nobody_waits(member: ControlNode) -> None:
    listens(member, "127.0.0.11", "127.0.0.12", "127.0.0.14")
    assert waits(member) == ["0"]


def test_a_kubelet_that_starts_again_in_the_same_boot_does_not_wait(member: ControlNode) -> None:
    waits(member)
    (member.root / "sleep").unlink()
    assert waits(member) == []


@pytest.mark.parametrize("content", ["", "[", "[]", '[{"name": "n1", "address": "127.0.0.11"}]'])
def test_who_is_not_among_the_members_that_are_noted_does_not_wait(member: ControlNode, content: str) -> None:
    (member.root / "state/etcd-members.json").write_text(content)
    assert waits(member) == []


def test_a_node_without_a_member_does_not_wait(member: ControlNode) -> None:
    member.path.unlink()
    assert waits(member) == []


# --- the fence ----------------------------------------------------------------------------------------------------


def test_without_a_fence_nothing_is_taken_away(node: ControlNode) -> None:
    before = contents(node.root)
    node.ok("fence-etcd")
    assert contents(node.root) == before


def test_behind_a_fence_the_static_pod_is_taken_away_and_kept_as_it_was(node: ControlNode) -> None:
    node.fence.write_text("{}")
    for _ in range(2):
        node.ok("fence-etcd")
        assert node.etcd_pods() == []
        assert node.fenced.read_bytes() == node.pod
        assert stat.S_IMODE(node.fenced.stat().st_mode) == 0o600
    assert [path.name for path in node.manifests.iterdir()] == ["node-load-balancer-1.json"]


def test_a_pod_that_somebody_has_put_back_is_taken_away_again(fenced: ControlNode) -> None:
    fenced.path.write_bytes(fenced.pod)
    fenced.ok("fence-etcd")
    assert fenced.etcd_pods() == []


def test_a_torn_one_is_taken_away_and_does_not_replace_the_one_that_is_kept(fenced: ControlNode) -> None:
    fenced.path.write_bytes(fenced.pod[: len(fenced.pod) // 2])
    fenced.ok("fence-etcd")
    assert fenced.etcd_pods() == []
    assert fenced.fenced.read_bytes() == fenced.pod


def test_at_boot_a_pod_behind_a_fence_is_taken_away_before_the_kubelet_starts(node: ControlNode) -> None:
    """The power failed after the fence was written. The API server's standby comes up all the same."""
    node.fence.write_text("")
    for _ in range(2):
        node.ok("boot")
        assert node.etcd_pods() == []
        assert node.fenced.read_bytes() == node.pod
    assert [pod["metadata"]["labels"]["k8s-app"] for pod in node.active() if "metadata" in pod] == [API]


@pytest.mark.parametrize("verb", ["restore-etcd", "boot"])
def test_behind_a_fence_a_change_that_was_cut_is_not_taken_back(fenced: ControlNode, verb: str) -> None:
    """A timer of the host calls it, too."""
    (fenced.root / "former.json").write_bytes(fenced.pod)
    for _ in range(2):
        fenced.ok(verb)
        assert fenced.etcd_pods() == []
    fenced.fence.unlink()
    fenced.ok(verb)
    assert fenced.etcd_pods() == [fenced.pod], "there was something to restore"


@pytest.mark.parametrize("broken", ["cp", "mv", "rm", "sync"])
def test_a_fencing_that_is_cut_loses_no_pod_and_is_finished_by_the_next_one(node: ControlNode, broken: str) -> None:
    node.fence.write_text("{}")
    node.run("fence-etcd", broken=broken)
    kept = [node.fenced.read_bytes()] if node.fenced.exists() else []
    assert node.pod in [*kept, *node.etcd_pods()]
    node.ok("fence-etcd")
    assert (node.etcd_pods(), node.fenced.read_bytes()) == ([], node.pod)


# --- its end ------------------------------------------------------------------------------------------------------


def test_when_it_is_released_the_pod_is_there_as_before_and_nothing_is_left_over(fenced: ControlNode) -> None:
    for _ in range(2):
        fenced.ok("release-etcd")
        assert fenced.path.read_bytes() == fenced.pod
        assert stat.S_IMODE(fenced.path.stat().st_mode) == 0o600
        assert list((fenced.root / "state").iterdir()) == []
        assert sorted(path.name for path in fenced.manifests.iterdir()) == [
            fenced.path.name,
            "node-load-balancer-1.json",
        ]


def test_a_pod_that_a_recovery_has_written_gets_a_file_of_its_own_name(fenced: ControlNode) -> None:
    """The new etcd's on the seat: another generation."""
    pod = etcd.founded_again(json.loads(fenced.pod), "n1", "192.0.2.11", "demo-abc")
    file = render_node.manifest(pod)
    fenced.fenced.write_bytes(file.content)
    fenced.ok("release-etcd")
    assert (fenced.manifests / Path(file.path).name).read_bytes() == file.content
    assert not fenced.path.exists()


def test_a_node_that_had_no_member_has_none_afterwards(node: ControlNode) -> None:
    node.path.unlink()
    node.fence.write_text("{}")
    node.ok("fence-etcd")
    node.ok("release-etcd")
    assert node.etcd_pods() == []
    assert list((node.root / "state").iterdir()) == []


def test_a_pod_that_is_kept_without_a_fence_is_of_a_member_that_is_not_to_come_back(fenced: ControlNode) -> None:
    """A recovery removes both on the nodes whose members join the new etcd; here it was cut between the two."""
    fenced.fence.unlink()
    fenced.ok("release-etcd")
    assert fenced.etcd_pods() == []
    assert not fenced.fenced.exists()


@pytest.mark.parametrize("broken", ["cp", "mv", "rm", "sync"])
def test_a_release_that_is_cut_leaves_the_pod_or_the_fence_and_is_finished_by_the_next_one(
    fenced: ControlNode, broken: str
) -> None:
    """Without both, no member would ever run here again."""
    fenced.run("release-etcd", broken=broken)
    assert fenced.etcd_pods() == [fenced.pod] or (fenced.fence.exists() and fenced.fenced.read_bytes() == fenced.pod)
    fenced.ok("release-etcd")
    assert fenced.etcd_pods() == [fenced.pod]
    assert not fenced.fence.exists()


def test_a_release_that_is_cut_between_what_it_removes_leaves_no_pod_that_a_later_one_would_put_back(
    fenced: ControlNode,
) -> None:
    """The fence goes last: a boot takes the pod away again, and the next release puts it back."""
    fenced.run("release-etcd", noted="rm")
    _, *removed = (fenced.root / "rm").read_text().split()
    Path(removed[0]).unlink()
    assert (fenced.fence.exists(), fenced.fenced.exists()) == (True, False)
    assert fenced.etcd_pods() == [fenced.pod]
    fenced.ok("boot")
    assert fenced.etcd_pods() == []
    fenced.ok("release-etcd")
    assert fenced.etcd_pods() == [fenced.pod]
    assert list((fenced.root / "state").iterdir()) == []


@pytest.mark.parametrize("verb", ["fence-etcd", "release-etcd"])
def test_without_the_lock_neither_is_done(node: ControlNode, verb: str) -> None:
    node.fence.write_text("{}")
    if verb == "release-etcd":
        node.ok("fence-etcd")
    before = contents(node.root)
    with held(node):
        ended = node.run(verb)
        assert (ended.returncode, contents(node.root)) == (standby.NO_LOCK, before)
    node.ok(verb)
    assert contents(node.root) != before


# --- a boot after a recovery --------------------------------------------------------------------------------------


@pytest.fixture
def returning(node: ControlNode) -> ControlNode:
    """It was off while a recovery made another etcd. Its agent has noted what it has to know."""
    etcd_on_disk.remember_cluster(CLUSTER)
    etcd_on_disk.remember_members(
        [{"name": f"n{one}", "address": f"192.0.2.1{one}", "learner": False} for one in (1, 2, 3)]
    )
    return node


def replaced(*clusters: int) -> str:
    """As a recovery writes it."""
    return json.dumps([f"{one:x}" for one in clusters]) + "\n"


def test_a_member_of_a_former_etcd_is_stopped_before_it_can_meet_others(returning: ControlNode) -> None:
    """Two of three would go on as the former etcd. Its data stays where it is: the agent moves it aside."""
    returning.says("192.0.2.12", replaced(7, CLUSTER))
    (returning.root / "state/etcd-change.json").write_text("{}")
    (returning.root / "former.json").write_bytes(next(returning.manifests.glob("etcd-*")).read_bytes())
    for _ in range(2):
        returning.ok("boot-rest")
        returning.ok("restore-etcd")
        assert returning.etcd_pods() == [], "a change by `up` would put one back, too"
        assert not (returning.root / "state/etcd-change.json").exists(), "a change by its agent would put one back"
        assert (returning.manifests / "node-load-balancer-1.json").exists()
        assert (returning.root / "member/wal").is_dir()


def test_all_members_are_asked_for_the_clusters_that_theirs_has_replaced(returning: ControlNode) -> None:
    returning.says("192.0.2.13", replaced(CLUSTER))
    returning.ok("boot-rest")
    asked = returning.asked()
    endpoints = [f"--endpoints=https://192.0.2.1{one}:{ports.ETCD_CLIENT}" for one in (1, 2, 3)]
    assert [next(word for word in line.split() if word.startswith("--endpoints")) for line in asked] == endpoints
    for line in asked:
        assert line.endswith(f"get {FORMER} --write-out=fields")
        for name in ("cacert=/etc/kubernetes/pki/etcd/ca.crt", "cert=", "key=", "command-timeout=", "dial-timeout="):
            assert f"--{name}" in line
    assert returning.etcd_pods() == []


@pytest.mark.parametrize(
    "said",
    [None, "", replaced(), replaced(7), replaced(0x1ABC, 0xABC1), "abc", '["ABD"]', "no json", f"{CLUSTER:x}\n"],
)
def test_rule_2_silence_and_what_is_said_of_others_stops_nothing(returning: ControlNode, said: str | None) -> None:
    if said is not None:
        for number in (1, 2, 3):
            returning.says(f"192.0.2.1{number}", said)
    before = returning.etcd_pods()
    returning.ok("boot-rest")
    assert returning.etcd_pods() == before == [returning.pod]
    assert len(returning.asked()) == 3


@pytest.mark.parametrize(
    "text", ['["{own}"]', '"Value" : "[\\"{own}\\"]"', '"ClusterID" : x\n"Value" : "[\\"{own}\\"]"']
)
def test_who_does_not_say_of_which_cluster_it_is_stops_nothing(returning: ControlNode, text: str) -> None:
    returning.prints("192.0.2.12", text.replace("{own}", f"{CLUSTER:x}"))
    returning.ok("boot-rest")
    assert returning.etcd_pods() == [returning.pod]


def test_whatever_the_members_of_its_own_cluster_say_it_stays(returning: ControlNode) -> None:
    """Whoever has the etcd that a cluster moves into can write there that it was replaced."""
    for number in (1, 2, 3):
        returning.says(f"192.0.2.1{number}", replaced(7, CLUSTER), cluster=CLUSTER)
    returning.ok("boot-rest")
    assert returning.etcd_pods() == [returning.pod]


@pytest.mark.parametrize("missing", ["etcd-cluster", "etcd-members.json"])
def test_where_it_is_not_noted_whose_data_this_is_nobody_is_asked(returning: ControlNode, missing: str) -> None:
    """As on a node that has never had a member, or on one of an earlier release."""
    (returning.root / "state" / missing).unlink()
    for number in (1, 2, 3):
        returning.says(f"192.0.2.1{number}", replaced(CLUSTER))
    returning.ok("boot-rest")
    assert returning.asked() == []
    assert returning.etcd_pods() == [returning.pod]


@pytest.mark.parametrize("content", ["", "\n", "*\n"])
def test_a_note_that_is_damaged_matches_nothing(returning: ControlNode, content: str) -> None:
    (returning.root / "state/etcd-cluster").write_text(content)
    returning.says("192.0.2.12", replaced(CLUSTER))
    returning.ok("boot-rest")
    assert returning.etcd_pods() == [returning.pod]
    assert bool(returning.asked()) == bool(content.strip())


def test_the_former_static_pod_of_a_change_does_not_bring_it_back_at_the_same_boot(returning: ControlNode) -> None:
    returning.says("192.0.2.12", replaced(CLUSTER))
    (returning.root / "former.json").write_bytes(returning.pod)
    returning.ok("boot")
    returning.ok("boot-rest")
    assert returning.etcd_pods() == []


@pytest.fixture
def locked(returning: ControlNode) -> Iterator[ControlNode]:
    with held(returning):
        yield returning


def test_without_the_lock_it_is_not_stopped(locked: ControlNode) -> None:
    """It may be about to be put back by another: the agent looks again."""
    locked.says("192.0.2.12", replaced(CLUSTER))
    assert locked.run("boot-rest").returncode == standby.NO_LOCK
    assert locked.etcd_pods() == [locked.pod]
