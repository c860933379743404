"""Whoever is root on a worker says what he likes on its disk: that it is a control node, that a recovery is under way,
which data it has. None of that steers a recovery.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autarky import places
from autarky.control.etcd.decide.recovery import BUMP
from autarky.errors import Problems, Refused, Unreachable, UserError
from autarky.model.cluster import HostRef, Node
from autarky.phases.context import Context
from autarky.phases.migration.marking import new_mark
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.state import (
    REVISIONS,
    Fence,
    FromKept,
    FromMember,
    FromSnapshot,
    Recovered,
    Recovery,
)
from autarky.places import ETCD_DATA, ETCD_FENCE
from autarky.ports import Completed
from fakes.clusters import facts_of
from fakes.recovering_host import RecoveringHost
from unit.phases.recovery.scenes import OLD, Scene, all_is_well, with_two_left

pytestmark = pytest.mark.looptime
ADDRESS = "192.0.2.99"


class Lying(RecoveringHost):
    """Its etcdctl says that it leads, and is all alone."""

    def _etcdctl(self, argv: Any) -> Completed:
        match argv[6:-1]:
            case ["member", "list", _]:
                urls = {"peerURLs": [f"https://{ADDRESS}:2380"], "clientURLs": [f"https://{ADDRESS}:2379"]}
                found: Any = {"header": {"cluster_id": 1}, "members": [{"ID": 7, "name": self.name, **urls}]}
            case ["endpoint", "status"]:
                found = [{"Endpoint": "x", "Status": {"header": {"member_id": 7, "cluster_id": 1}, "leader": 7}}]
            case _:
                found = {"header": {"revision": 5}}
        return Completed(0, json.dumps(found).encode(), "")


def with_worker(scene: Scene, name: str = "a1", kind: type[RecoveringHost] = RecoveringHost) -> RecoveringHost:
    """A worker of the file, whose root has written one word into a file of its own. Its name sorts before all others,
    or after them."""
    make, node = scene.make, Node(name, HostRef("lab", name), False, address=ADDRESS)
    facts = replace(facts_of(make().cluster)["n1"], address=ADDRESS, addresses=(ADDRESS,), hostname=name)
    host = kind(name, facts, etcd=scene.etcd)
    host.files |= {
        places.NODE_MARKER: (json.dumps({"cluster": "demo", "node": name}).encode(), 0o644),
        f"{places.PKI}/ca.crt": scene.hosts["n1"].files[f"{places.PKI}/ca.crt"],
        places.CONTROL_NODE_STATE: (b'{"state": "ready"}', 0o600),
    }

    def with_it() -> Context:
        context = make()
        context.machines.hosts[name] = host  # type: ignore[attr-defined]
        return replace(context, cluster=replace(context.cluster, nodes=(node, *context.cluster.nodes)))

    scene.make = with_it
    return host


def known(scene: Scene, host: RecoveringHost) -> None:
    """A label has made it a control node: those of the file have it in their lists."""
    content = json.dumps([{"name": host.name, "address": ADDRESS, "learner": True}]).encode()
    for one in scene.hosts.values():
        one.files[places.MEMBERS_FILE] = (content, 0o600)


def says(host: RecoveringHost, recovery: str = "evil", seat: str = "") -> None:
    """That a recovery is under way whose data is complete on it."""
    fence = Fence(recovery, seat or host.name, "made of air")
    host.files |= {
        ETCD_FENCE: (fence.file().content, 0o600),
        f"{ETCD_DATA}/recovery.{recovery}/ready": (b"", 0o600),
        f"{ETCD_DATA}/recovery.{recovery}/new/member/x": (b"", 0o600),
    }


def untouched(host: RecoveringHost) -> bool:
    return not [act for act in host.etcd.acts if act.startswith(f"{host.name}:")]


NAMES = pytest.mark.parametrize("name", ["a1", "w9"])


@NAMES
async def test_no_snapshot_goes_to_a_worker_that_claims_to_lead(
    scene: Scene, snapshot: FromSnapshot, name: str
) -> None:
    """It is the clear text of all Secrets."""
    host = with_worker(scene, name, Lying)
    recovery = await scene.run(snapshot)
    assert recovery.seat == "n1"
    assert untouched(host)
    assert not [path for path in host.files if "snapshot" in path]
    all_is_well(scene)


@NAMES
async def test_nor_where_etcd_does_not_answer(scene: Scene, snapshot: FromSnapshot, name: str) -> None:
    host = with_worker(scene, name)
    scene.lost_quorum()
    assert (await scene.run(snapshot)).seat == "n1"
    assert untouched(host)


@NAMES
async def test_the_quorum_of_a_worker_counts_for_nothing(scene: Scene, name: str) -> None:
    """It would hold up a recovery forever."""
    host = with_worker(scene, name, Lying)
    scene.lost_quorum()
    assert (await scene.run(FromMember())).seat == "n1"
    assert untouched(host)


@NAMES
@pytest.mark.parametrize("cluster", [OLD, 0x666])
async def test_a_log_of_a_worker_is_neither_the_newest_nor_that_of_another_cluster(
    scene: Scene, name: str, cluster: int
) -> None:
    host = with_worker(scene, name)
    scene.lost_quorum()
    host.has_data(cluster, 9, {"revision": 9999, "keys": {"/registry/evil": "1"}}, entries=1000, term=99)
    [said] = [one for one in await scene.plan(FromMember()) if one.startswith(name)]
    assert "says that it is a control node, and no control node of the cluster file that answers knows it" in said
    assert (await scene.run(FromMember())).seat == "n1"
    assert "/registry/evil" not in scene.etcd.values[scene.etcd.serving()[0]]["keys"]


@NAMES
async def test_a_recovery_that_only_a_worker_knows_of_is_not_resumed(
    scene: Scene, snapshot: FromSnapshot, name: str
) -> None:
    """A healthy etcd would be fenced for it."""
    host = with_worker(scene, name)
    says(host)
    recovery = await scene.run(snapshot)
    assert (recovery.seat, recovery.made_of) == ("n1", "made of backup-1")
    all_is_well(scene)
    assert untouched(host)


async def test_nor_one_that_only_a_control_node_by_label_knows_of_and_that_is_said(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    host = with_worker(scene, "w9")
    known(scene, host)
    says(host)
    [said] = await scene.plan(snapshot)
    assert (
        said == "w9 has the fence of a recovery that no control node of the cluster file knows: that one is not resumed"
    )
    assert (await scene.run(snapshot)).seat == "n1"
    assert ETCD_FENCE not in host.files, "it takes part in this one"
    for other in ("n1", "gone"):
        says(host, seat=other)
        recovery, context = Recovery(snapshot), scene.make()
        await LookForData(recovery).plan(context)
        assert not recovery.made, "its seat has nothing of it, or is not there"


async def test_one_that_has_begun_on_a_control_node_by_label_is_resumed_there(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """The fence on a control node of the file says so, though no list there names it any more."""
    host = with_worker(scene, "w9")
    known(scene, host)
    source = replace(snapshot, node="w9")
    recovery, context = await scene.until(source, FenceEtcd)
    await FenceEtcd(recovery).run(context, scene.notes)
    for one in scene.hosts.values():
        del one.files[places.MEMBERS_FILE]
    assert any("the new etcd on w9, made of backup-1" in one for one in await scene.plan(snapshot))
    again, context = Recovery(snapshot), scene.make()
    await LookForData(again).plan(context)
    assert (again.id, again.made) == (recovery.id, True)


async def test_a_control_node_by_label_takes_part_and_those_of_the_file_come_first(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    host = with_worker(scene)
    known(scene, host)
    scene.lost_quorum()
    recovery, _ = await scene.until(snapshot, FenceEtcd)
    assert (recovery.seat, set(recovery.found)) == ("n1", {"a1", "n1"})


async def test_a_person_may_name_one_where_no_control_node_of_the_file_is_left(scene: Scene) -> None:
    host = with_worker(scene)
    scene.off("n1", "n2", "n3")
    host.has_data(OLD, 9, scene.etcd.values[OLD])
    with pytest.raises(Unreachable, match=r"a1 says that it is a control node.* unless you name it"):
        await scene.plan(FromMember())
    says(host)
    with pytest.raises(Unreachable):
        await scene.plan(FromMember("w9"))
    with pytest.raises(Refused, match="a recovery made of air was interrupted"):
        await scene.plan(FromMember("a1"))
    host.files[ETCD_FENCE] = Fence("evil", "a1", "made of the data of a1 (as asked)").file().content, 0o600
    recovery, context = Recovery(FromMember("a1")), scene.make()
    await LookForData(recovery).plan(context)
    assert (recovery.seat, recovery.made) == ("a1", True), "its own recovery, too"


@NAMES
@pytest.mark.parametrize("said", [{"cluster": "another", "node": "x"}, {"cluster": "demo", "node": "n1", "ca": "00"}])
async def test_a_worker_that_says_it_is_of_another_cluster_is_left_out(
    scene: Scene, snapshot: FromSnapshot, name: str, said: dict[str, str]
) -> None:
    host = with_worker(scene, name)
    host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)
    await scene.run(snapshot)
    assert len(scene.etcd.serving()) == 1
    assert not host.log
    control = scene.hosts["n2"]
    control.files[places.NODE_MARKER] = host.files[places.NODE_MARKER]
    with pytest.raises(Problems, match="some hosts cannot be used"):
        await scene.plan(snapshot)


async def test_while_an_etcd_is_copied_into_the_cluster_none_is_recovered(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.hosts["n2"].files[places.ETCD_COPY] = (new_mark("n2", 1, ["https://db1:2379"], {}).file().content, 0o600)
    for source in (snapshot, FromMember(), FromKept()):
        with pytest.raises(Refused, match="n2 is where that was begun"):
            await scene.plan(source)


async def test_an_etcd_outside_is_not_recovered_inside(scene: Scene, snapshot: FromSnapshot) -> None:
    """The file may be one that was never applied, or whose move went back."""
    for host in scene.hosts.values():
        host.dialled = frozenset({"https://db1:2379"})
    with pytest.raises(UserError, match="use an etcd outside of the cluster, at https://db1:2379"):
        await scene.plan(snapshot)
    scene.hosts["n1"].dialled = frozenset({"https://127.0.0.1:2378"})
    await scene.plan(snapshot)


# --- what it says of recoveries from before ---------------------------------------------------------------------------


def recovered(revision: int, cluster: str = "c2", kept: str = "") -> tuple[bytes, int]:
    return Recovered(cluster, kept, "air", "2026-11-26T00:00:00Z", revision).file().content, 0o600


@pytest.mark.parametrize("revision", [9_223_372_036_000_000_000, 10**15])
async def test_a_revision_that_a_worker_has_made_up_lifts_no_new_etcd_to_it(
    scene: Scene, snapshot: FromSnapshot, revision: int
) -> None:
    host = with_worker(scene, "w9")
    host.files[places.ETCD_RECOVERED] = recovered(revision)
    await scene.run(snapshot)
    [cluster] = scene.etcd.serving()
    assert scene.etcd.values[cluster]["revision"] < 500 + 3 * BUMP


@pytest.mark.parametrize("revision", [-1, REVISIONS, 9_223_372_036_000_000_000, 10**400])
def test_a_revision_that_no_etcd_comes_to_is_not_read(revision: int) -> None:
    assert Recovered.read(recovered(revision)[0]) is None
    assert Recovered.read(recovered(7, f"{2**64:x}")[0]) is None
    assert Recovered.read(recovered(REVISIONS - 1, f"{2**64 - 1:x}")[0]) is not None
    assert Recovered.read(recovered(7)[0].replace(b" 7,", b" Infinity,")) is None


async def test_where_the_new_etcd_could_not_count_on_it_is_refused_before_anything_is_touched(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    scene.lost_quorum()
    with pytest.raises(Refused, match=f"its data has {REVISIONS - 1:,}"):
        await scene.run(replace(snapshot, revision=REVISIONS - 1))
    scene.hosts["n1"].files[places.ETCD_RECOVERED] = recovered(REVISIONS - 1)
    for source in (snapshot, FromMember()):
        with pytest.raises(Refused, match=f"on n1 says {REVISIONS - 1:,}"):
            await scene.run(source)
    assert scene.etcd.acts == []


async def test_also_where_one_is_taken_back(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    file = scene.hosts["n1"].files[places.ETCD_RECOVERED]
    found = Recovered.read(file[0])
    assert found is not None
    scene.off("n2", "n3")
    scene.hosts["n1"].files[places.ETCD_RECOVERED] = replace(found, revision=REVISIONS - 5).file().content, 0o600
    with pytest.raises(Refused, match="which is more than any etcd comes to"):
        await scene.plan(FromKept())


async def test_a_member_whose_data_is_there_already_says_a_revision_that_is_too_high(scene: Scene) -> None:
    """Known only when its log has been applied: the old members go on."""
    two_left = with_two_left(scene)
    two_left.etcd.values[OLD]["revision"] = REVISIONS
    two_left.hosts["n2"].has_data(OLD, 2, two_left.etcd.values[OLD], entries=100)
    with pytest.raises(Refused, match="its data has"):
        await two_left.run(FromMember())
    assert not any(ETCD_FENCE in host.files for host in two_left.hosts.values())


async def test_whom_nobody_knows_is_no_seat_that_could_be_named_for_a_backup_unless_it_says_so(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """`--on`: a person's word, and its own."""
    host = with_worker(scene, "w9")
    recovery, _ = await scene.until(replace(snapshot, node="w9"), MakeData)
    assert recovery.seat == "w9"
    del host.files[places.CONTROL_NODE_STATE]
    with pytest.raises(UserError, match="w9 is no control node that answers"):
        await scene.plan(replace(snapshot, node="w9"))
